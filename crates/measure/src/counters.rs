//! Hardware counters of a child process.
