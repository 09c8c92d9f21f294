//! The C functions under test and their helpers, as the C library declares them.

pub(crate) use core::ffi::{c_char, c_int, c_void};

pub(crate) const EINVAL: c_int = 22;

/// `Dl_info`: where an address belongs.
#[repr(C)]
pub(crate) struct Place {
    pub(crate) file: *const c_char,
    pub(crate) base: *mut c_void,
    pub(crate) symbol: *const c_char,
    pub(crate) address: *mut c_void,
}

unsafe extern "C" {
    pub(crate) fn malloc(size: usize) -> *mut c_void;
    pub(crate) fn calloc(count: usize, size: usize) -> *mut c_void;
    pub(crate) fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub(crate) fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub(crate) fn free(block: *mut c_void);
    pub(crate) fn memalign(alignment: usize, size: usize) -> *mut c_void;
    pub(crate) fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub(crate) fn posix_memalign(slot: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    pub(crate) fn valloc(size: usize) -> *mut c_void;
    pub(crate) fn pvalloc(size: usize) -> *mut c_void;
    pub(crate) fn malloc_usable_size(block: *mut c_void) -> usize;
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
    pub(crate) fn fork() -> c_int;
    pub(crate) fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    pub(crate) fn _exit(status: c_int) -> !;
}
