//! snmalloc as `malloc`: the C functions that its feature `libc-api` compiles under `sn_` names.
#![no_std]

// For its C++ library; the bindings are not enough.
use snmalloc_sys as _;

use family::{c_int, c_void};

unsafe extern "C" {
    fn sn_malloc(size: usize) -> *mut c_void;
    fn sn_calloc(count: usize, size: usize) -> *mut c_void;
    fn sn_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn sn_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    fn sn_free(block: *mut c_void);
    fn sn_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn sn_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn sn_posix_memalign(slot: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn sn_valloc(size: usize) -> *mut c_void;
    fn sn_pvalloc(size: usize) -> *mut c_void;
    fn sn_malloc_usable_size(block: *mut c_void) -> usize;
}

family::export_malloc_family! {
    malloc = sn_malloc,
    calloc = sn_calloc,
    realloc = sn_realloc,
    reallocarray = sn_reallocarray,
    free = sn_free,
    memalign = sn_memalign,
    aligned_alloc = sn_aligned_alloc,
    posix_memalign = sn_posix_memalign,
    valloc = sn_valloc,
    pvalloc = sn_pvalloc,
    malloc_usable_size = sn_malloc_usable_size,
}
