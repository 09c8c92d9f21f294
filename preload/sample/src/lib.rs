//! Samples heap calls of any program by bytes, with their stacks, in front of any allocator.
//!
//! Preloaded before the allocator (`LD_PRELOAD=libmillpond-sample.so:liballocator.so`). Every byte
//! that is asked for is one step of a Poisson process with a mean distance of R bytes; a call that
//! the process hits is a sample: its size and its stack go into a file that the lab created and
//! named in `MILLPOND_SAMPLE_FILE`, mapped shared, which survives a killed target. So a call of `s`
//! bytes is sampled with probability `1 - exp(-s/R)`, whatever else the program does, and the lab
//! can scale every sample by itself without bias.
//!
//! A call that is not sampled costs a subtraction from a number of its thread. What the calls do is
//! as in `preload/trace`, of which this object has the files that find the next allocator; when a
//! sample is due, and what it stands for, is `preload/shared`'s.
//!
//! ```text
//! thread      the number, in memory of the thread that is there from its first instruction
//! unwind      the stack, by the tables that C++ exceptions use
//! file        the records
//! ```
//!
//! Absent on purpose: what is freed, symbols (the lab finds them), and the standard library where it
//! is used (`panic = "abort"`); the workspace's own build, which unwinds, only checks it.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]

// What is the same in front of any allocator, whatever is observed: the counter's own.
#[path = "../../trace/src/bootstrap.rs"]
mod bootstrap;
#[path = "../../trace/src/mapping.rs"]
mod mapping;
#[path = "../../trace/src/next.rs"]
mod next;
#[path = "../../trace/src/operators.rs"]
mod operators;
#[path = "../../trace/src/passed_on.rs"]
mod passed_on;
#[path = "../../trace/src/runtime.rs"]
mod runtime;

mod thread;
mod unwind;
mod file;

use core::ffi::{c_int, c_void};
use core::ptr;

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;

/// Runs before the program's own constructors: finds the next allocator, the unwinder and the file.
extern "C" fn start() {
    next::ready();
    if file::map() {
        unwind::find();
        file::begin();
    }
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc(size_bytes: usize) -> *mut c_void {
    thread::asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate(size_bytes);
    }
    // SAFETY: the next allocator's malloc accepts any size.
    unsafe { next::malloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn calloc(count: usize, size_bytes: usize) -> *mut c_void {
    thread::asked_for(count.saturating_mul(size_bytes));
    if !next::ready() {
        // The bootstrap memory is static, hence zero, and never given out twice.
        return match count.checked_mul(size_bytes) {
            Some(total_bytes) => bootstrap::allocate(total_bytes),
            None => ptr::null_mut(),
        };
    }
    // SAFETY: the next allocator's calloc checks the product itself.
    unsafe { next::calloc(count, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    thread::asked_for(size_bytes);
    if bootstrap::owns(block) {
        // SAFETY: `owns` says that the block came from the bootstrap memory.
        return unsafe { bootstrap::move_out(block, size_bytes) };
    }
    if !next::ready() {
        return bootstrap::allocate(size_bytes);
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::realloc(block, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() || bootstrap::owns(block) || !next::ready() {
        return;
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::free(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memalign(alignment: usize, size_bytes: usize) -> *mut c_void {
    thread::asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(alignment, size_bytes);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    unsafe { next::memalign(alignment, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn aligned_alloc(alignment: usize, size_bytes: usize) -> *mut c_void {
    thread::asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(alignment, size_bytes);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    unsafe { next::aligned_alloc(alignment, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size_bytes: usize,
) -> c_int {
    thread::asked_for(size_bytes);
    if !next::ready() {
        if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
            return EINVAL;
        }
        let block = bootstrap::allocate_aligned(alignment, size_bytes);
        if block.is_null() {
            return ENOMEM;
        }
        // SAFETY: POSIX obliges the caller to pass a pointer that may be written.
        unsafe { out.write(block) };
        return 0;
    }
    // SAFETY: the caller's `out` is passed on; the next allocator checks the alignment.
    unsafe { next::posix_memalign(out, alignment, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn valloc(size_bytes: usize) -> *mut c_void {
    thread::asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
    }
    // SAFETY: the next allocator's valloc accepts any size.
    unsafe { next::valloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pvalloc(size_bytes: usize) -> *mut c_void {
    thread::asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
    }
    // SAFETY: the next allocator's pvalloc accepts any size.
    unsafe { next::pvalloc(size_bytes) }
}
