//! rpmalloc as `malloc`: its functions, and the arguments it does not check.
//!
//! rpmalloc keeps a heap per thread and learns of a thread's end through `pthread_create`, which its
//! object for preloading replaces. It is exported here as well, or every thread that ends would
//! leave its heap behind. `cargo xtask allocators` compiles it under another name
//! (`-Dpthread_create=...`), because an object of Rust hides whatever an archive defines.
//!
//! Absent because rpmalloc 1.4 has none: fork handlers. A process that forks while another of its
//! threads is mapping memory or filling the global cache leaves that lock taken in the child, which
//! then waits for ever at its first need of it. Alignments of 64 KiB and more are refused.
#![no_std]

use core::ptr;

use family::{EINVAL, ENOMEM, c_int, c_void, out_of_memory, page_bytes, set_errno};

// Not through the crate's bindings, which would bring Rust's standard library along: cargo passes the linker the
// directory where the crate's build script left the archive.
#[link(name = "rpmalloc", kind = "static")]
unsafe extern "C" {
    fn rpmalloc(size: usize) -> *mut c_void;
    fn rprealloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn rpcalloc(count: usize, size: usize) -> *mut c_void;
    fn rpfree(block: *mut c_void);
    fn rpaligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn rpmalloc_usable_size(block: *mut c_void) -> usize;
    fn millpond_rpmalloc_pthread_create(
        thread: *mut c_void,
        attributes: *const c_void,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
}

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// More can never be had, and near the top of the range rpmalloc's own sums would overflow.
const SIZE_MAX: usize = isize::MAX as usize;

#[inline(always)]
unsafe fn malloc_checked(size: usize) -> *mut c_void {
    if size > SIZE_MAX {
        return out_of_memory();
    }
    // SAFETY: rpmalloc takes any size that leaves room for its header.
    unsafe { rpmalloc(size) }
}

#[inline(always)]
unsafe fn calloc_checked(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as for malloc.
        Some(total) if total <= SIZE_MAX => unsafe { rpcalloc(1, total) },
        _ => out_of_memory(),
    }
}

#[inline(always)]
unsafe fn realloc_checked(block: *mut c_void, size: usize) -> *mut c_void {
    if size > SIZE_MAX {
        return out_of_memory();
    }
    // SAFETY: the block is null or rpmalloc's, by the contract of realloc.
    unsafe { rprealloc(block, size) }
}

unsafe fn reallocarray_checked(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as for realloc.
        Some(total) => unsafe { realloc_checked(block, total) },
        None => out_of_memory(),
    }
}

unsafe fn memalign_checked(alignment: usize, size: usize) -> *mut c_void {
    if !alignment.is_power_of_two() {
        set_errno(EINVAL);
        return ptr::null_mut();
    }
    if size > SIZE_MAX - alignment.min(SIZE_MAX) {
        return out_of_memory();
    }
    // SAFETY: a power of two, and the sum does not overflow. From 64 KiB on rpmalloc refuses.
    unsafe { rpaligned_alloc(alignment, size) }
}

unsafe fn posix_memalign_checked(slot: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return EINVAL;
    }
    // SAFETY: memalign checks the rest.
    let block = unsafe { memalign_checked(alignment, size) };
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller's slot, which the contract wants valid.
    unsafe { *slot = block };
    0
}

unsafe fn valloc_checked(size: usize) -> *mut c_void {
    // SAFETY: a page size is a power of two.
    unsafe { memalign_checked(page_bytes(), size) }
}

unsafe fn pvalloc_checked(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(page_bytes()) {
        // SAFETY: as for valloc.
        Some(whole_pages) => unsafe { valloc_checked(whole_pages) },
        None => out_of_memory(),
    }
}

family::export_malloc_family! {
    malloc = malloc_checked,
    calloc = calloc_checked,
    realloc = realloc_checked,
    reallocarray = reallocarray_checked,
    free = rpfree,
    memalign = memalign_checked,
    aligned_alloc = memalign_checked,
    posix_memalign = posix_memalign_checked,
    valloc = valloc_checked,
    pvalloc = pvalloc_checked,
    malloc_usable_size = rpmalloc_usable_size,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller keeps the contract of pthread_create, and this is the same one.
    unsafe { millpond_rpmalloc_pthread_create(thread, attributes, start, argument) }
}
