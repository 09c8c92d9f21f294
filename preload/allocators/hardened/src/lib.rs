//! hardened_malloc of GrapheneOS as `malloc`, in the configuration its authors call light.
//!
//! `cargo xtask allocators` compiles it with `H_MALLOC_PREFIX`, under which its functions have names
//! of their own: an object of Rust hides whatever an archive defines as `malloc`.
#![no_std]

use family::{c_int, c_void};

// Not through the crate's bindings, which would link C functions of other names: cargo passes the
// linker the directory where the crate's build script left the archive.
#[link(name = "hardened_malloc", kind = "static")]
unsafe extern "C" {
    fn h_malloc(size: usize) -> *mut c_void;
    fn h_calloc(count: usize, size: usize) -> *mut c_void;
    fn h_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn h_reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    fn h_free(block: *mut c_void);
    fn h_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn h_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn h_posix_memalign(slot: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn h_valloc(size: usize) -> *mut c_void;
    fn h_pvalloc(size: usize) -> *mut c_void;
    fn h_malloc_usable_size(block: *mut c_void) -> usize;
}

family::export_malloc_family! {
    malloc = h_malloc,
    calloc = h_calloc,
    realloc = h_realloc,
    reallocarray = h_reallocarray,
    free = h_free,
    memalign = h_memalign,
    aligned_alloc = h_aligned_alloc,
    posix_memalign = h_posix_memalign,
    valloc = h_valloc,
    pvalloc = h_pvalloc,
    malloc_usable_size = h_malloc_usable_size,
}
