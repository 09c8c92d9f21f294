//! A process seen from outside.
