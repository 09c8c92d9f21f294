//! jemalloc 5.3.1 as `malloc`: its functions under the prefix that the crate gives them, and the three that it has not.
//!
//! The prefix is also that of its variable: `_RJEM_MALLOC_CONF`.
#![no_std]

// For its C library; the bindings are not enough.
use tikv_jemalloc_sys as _;

use family::{c_int, c_void, out_of_memory, page_bytes};

unsafe extern "C" {
    fn _rjem_malloc(size: usize) -> *mut c_void;
    fn _rjem_calloc(count: usize, size: usize) -> *mut c_void;
    fn _rjem_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn _rjem_free(block: *mut c_void);
    fn _rjem_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn _rjem_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn _rjem_posix_memalign(slot: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn _rjem_valloc(size: usize) -> *mut c_void;
    fn _rjem_malloc_usable_size(block: *const c_void) -> usize;
}

unsafe fn reallocarray_checked(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the block is null or jemalloc's, by the contract of reallocarray.
        Some(total) => unsafe { _rjem_realloc(block, total) },
        None => out_of_memory(),
    }
}

unsafe fn pvalloc_whole_pages(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(page_bytes()) {
        // SAFETY: valloc takes any size.
        Some(whole_pages) => unsafe { _rjem_valloc(whole_pages) },
        None => out_of_memory(),
    }
}

unsafe fn usable_size(block: *mut c_void) -> usize {
    // SAFETY: the block is null or jemalloc's, by the contract of malloc_usable_size.
    unsafe { _rjem_malloc_usable_size(block) }
}

family::export_malloc_family! {
    malloc = _rjem_malloc,
    calloc = _rjem_calloc,
    realloc = _rjem_realloc,
    reallocarray = reallocarray_checked,
    free = _rjem_free,
    memalign = _rjem_memalign,
    aligned_alloc = _rjem_aligned_alloc,
    posix_memalign = _rjem_posix_memalign,
    valloc = _rjem_valloc,
    pvalloc = pvalloc_whole_pages,
    malloc_usable_size = usable_size,
}
