//! How much of the machine somebody else used.
