//! mimalloc 3 as `malloc`: the functions that its own object for preloading forwards to.
#![no_std]

// For its C library; the bindings are not enough.
use libmimalloc_sys as _;

use family::{c_int, c_void};

unsafe extern "C" {
    fn mi_malloc(size: usize) -> *mut c_void;
    fn mi_calloc(count: usize, size: usize) -> *mut c_void;
    fn mi_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn mi_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    fn mi_free(block: *mut c_void);
    fn mi_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn mi_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn mi_posix_memalign(slot: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn mi_valloc(size: usize) -> *mut c_void;
    fn mi_pvalloc(size: usize) -> *mut c_void;
    fn mi_malloc_usable_size(block: *mut c_void) -> usize;
}

family::export_malloc_family! {
    malloc = mi_malloc,
    calloc = mi_calloc,
    realloc = mi_realloc,
    reallocarray = mi_reallocarray,
    free = mi_free,
    memalign = mi_memalign,
    aligned_alloc = mi_aligned_alloc,
    posix_memalign = mi_posix_memalign,
    valloc = mi_valloc,
    pvalloc = mi_pvalloc,
    malloc_usable_size = mi_malloc_usable_size,
}
