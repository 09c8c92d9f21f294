//! Memory pools with accounting and a run-time switch down to malloc
