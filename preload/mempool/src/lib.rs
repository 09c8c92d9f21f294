//! The pools as malloc, for programs without knowledge of them.
//!
//! `LD_PRELOAD=libmillpond_mempool_malloc.so program`: every call of C's memory functions is served
//! by `millpond_mempool::malloc`. Here are C's names and promises only: null checks, overflow,
//! `errno`, and what the manual page says of each function.
//!
//! In the environment: `MEMPOOL_STATS=1` writes what the heap holds to standard error at exit. `MEMPOOL_CHECKS=1`
//! checks every block: double free, foreign pointer, overrun and write after free end the program with a sentence;
//! `MEMPOOL_CHECKS=guard` puts each block against an inaccessible page; `fail=N` refuses the N-th allocation.
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]

mod environment;

use millpond_mempool::malloc as heap;
use std::ffi::{c_int, c_void};

/// The alignment of `valloc`. A multiple of the page size of every system there is.
const PAGE_ALIGN_BYTES: usize = if cfg!(target_arch = "x86_64") {
    4096
} else {
    64 * 1024
};

/// Runs before the program's own constructors, when the process has one thread.
extern "C" fn start() {
    heap::prepare();
    environment::prepare();
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

/// Passes a block on to C; sets `errno` for none.
#[inline(always)]
fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        return no_memory();
    }
    block.cast()
}

/// Sets the calling thread's `errno`.
fn set_errno(value: c_int) {
    // SAFETY: the C library returns a valid pointer to this thread's number.
    unsafe { libc::__errno_location().write(value) }
}

#[cold]
fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

/// The alignment that the caller gets: glibc rounds one that is no power of two up. None when there is no such power.
fn rounded_up(align_bytes: usize) -> Option<usize> {
    align_bytes.checked_next_power_of_two()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn malloc(size_bytes: usize) -> *mut c_void {
    match heap::allocate_ready(size_bytes) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_slow(size_bytes),
    }
}

/// Apart, so that the ready block is returned without a stack frame.
#[cold]
#[inline(never)]
extern "C" fn malloc_slow(size_bytes: usize) -> *mut c_void {
    if std::thread::panicking() {
        // Only this object's own code can panic here, perhaps with a lock held: a message would
        // need memory.
        environment::fault_of_our_own();
    }
    or_enomem(heap::allocate(size_bytes))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn calloc(count: usize, size_bytes: usize) -> *mut c_void {
    match count.checked_mul(size_bytes) {
        Some(total_bytes) => or_enomem(heap::allocate_zeroed(total_bytes)),
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: C's own contract: null, or a block of ours that is no longer in use.
    unsafe { heap::free(block.cast()) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: as for `free`.
    unsafe { heap::free(block.cast()) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    // SAFETY: C's own promise: null, or a block of ours.
    or_enomem(unsafe { heap::reallocate(block.cast(), size_bytes) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size_bytes: usize,
) -> *mut c_void {
    match count.checked_mul(size_bytes) {
        // SAFETY: as for `realloc`.
        Some(total_bytes) => or_enomem(unsafe { heap::reallocate(block.cast(), total_bytes) }),
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn memalign(align_bytes: usize, size_bytes: usize) -> *mut c_void {
    match rounded_up(align_bytes) {
        Some(align_bytes) => or_enomem(heap::allocate_aligned(align_bytes, size_bytes)),
        None => {
            set_errno(libc::EINVAL);
            std::ptr::null_mut()
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn aligned_alloc(align_bytes: usize, size_bytes: usize) -> *mut c_void {
    memalign(align_bytes, size_bytes)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    align_bytes: usize,
    size_bytes: usize,
) -> c_int {
    if !align_bytes.is_power_of_two() || !align_bytes.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let block = heap::allocate_aligned(align_bytes, size_bytes);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: POSIX obliges the caller to pass a pointer that may be written.
    unsafe { out.write(block.cast()) };
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn valloc(size_bytes: usize) -> *mut c_void {
    or_enomem(heap::allocate_aligned(PAGE_ALIGN_BYTES, size_bytes))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn pvalloc(size_bytes: usize) -> *mut c_void {
    match size_bytes.max(1).checked_next_multiple_of(PAGE_ALIGN_BYTES) {
        Some(whole_bytes) => or_enomem(heap::allocate_aligned(PAGE_ALIGN_BYTES, whole_bytes)),
        None => no_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's promise: null, or a block of ours.
    unsafe { heap::usable_bytes(block.cast()) }
}

/// glibc's: gives free memory back to the system; 1 when there was some. Its argument, how much to
/// keep at the top of the heap, means nothing here.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn malloc_trim(_keep_bytes: usize) -> c_int {
    c_int::from(heap::trim())
}
