//! What people read: the same record for a terminal, for a browser, and in wrk's format.
