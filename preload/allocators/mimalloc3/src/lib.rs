//! mimalloc 3 as `malloc`: the functions that its own object for preloading forwards to.
#![no_std]

// For its C library; the bindings are not enough.
use libmimalloc_sys as _;

family::export_mimalloc!();
