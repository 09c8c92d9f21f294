//! Counts heap calls of any program, in front of any allocator.
//!
//! Preloaded before the allocator (`LD_PRELOAD=libmillpond-trace.so:liballocator.so`): every call is
//! counted, then handed to the next `malloc` in the search order, found with `dlsym(RTLD_NEXT)`. C++
//! `operator new` and `delete` are counted as the malloc and free they become, because allocators
//! that export their own would otherwise hide C++ programs from the count.
//!
//! Every block that is asked for is also counted by its size, and one in so many bytes is sampled: when
//! it was made, by which thread, and, once it is given back, how long it lived.
//!
//! Mappers of memory besides malloc (a runtime's heap, an allocator inside the program) are recorded as well, in a
//! table of the process's own: `regions`.
//!
//! The counts live in a file that the lab created and named in `MILLPOND_TRACE_FILE`, mapped shared:
//! it survives a killed target, a fork keeps counting into it, and the lab reads it with `pread`.
//!
//! The crate is `no_std` where it is used (`panic = "abort"`); the workspace's own build, which
//! unwinds, only checks it. Nothing here may allocate.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]

mod bootstrap;
mod count;
mod mapping;
mod next;
mod operators;
mod passed_on;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod regions;
mod runtime;
mod samples;
mod thread_slot;

use core::ffi::{c_int, c_void};
use core::ptr;

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;

/// Runs before the program's own constructors: finds the next allocator and maps the counters.
extern "C" fn start() {
    next::ready();
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    regions::begin();
    count::attach();
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = end;

/// Runs after the program's own destructors, if it ends in order.
extern "C" fn end() {
    count::at_exit();
}

/// Counts what was asked for, and hands the result on.
#[inline]
fn counted(size_bytes: usize, block: *mut c_void) -> *mut c_void {
    count::asked(size_bytes, block);
    block
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc(size_bytes: usize) -> *mut c_void {
    if !next::ready() {
        return counted(size_bytes, bootstrap::allocate(size_bytes));
    }
    // SAFETY: the next allocator's malloc accepts any size.
    counted(size_bytes, unsafe { next::malloc(size_bytes) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn calloc(count: usize, size_bytes: usize) -> *mut c_void {
    let total_bytes = count.saturating_mul(size_bytes);
    if !next::ready() {
        // The bootstrap memory is static, hence zero, and never given out twice; it refuses what is
        // as much as an overflow makes.
        return counted(total_bytes, bootstrap::allocate(total_bytes));
    }
    // SAFETY: the next allocator's calloc checks the product itself.
    counted(total_bytes, unsafe { next::calloc(count, size_bytes) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    if block.is_null() {
        // SAFETY: malloc accepts any size.
        return unsafe { malloc(size_bytes) };
    }
    if bootstrap::owns(block) {
        count::was_reallocation();
        // SAFETY: `owns` says that the block came from the bootstrap memory.
        return counted(size_bytes, unsafe {
            bootstrap::move_out(block, size_bytes)
        });
    }
    if !next::ready() {
        return counted(size_bytes, bootstrap::allocate(size_bytes));
    }
    // Before the call: afterwards the old address may belong to another block.
    let sample = count::before_move(block);
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    let moved = unsafe { next::realloc(block, size_bytes) };
    match sample {
        Some(sample) if moved.is_null() && size_bytes > 0 => count::not_moved(block, sample),
        Some(sample) => count::moved(sample),
        None => {}
    }
    count::was_reallocation();
    counted(size_bytes, moved)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // Before the call: afterwards the address may belong to another block.
    count::freed(block);
    if bootstrap::owns(block) || !next::ready() {
        return;
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::free(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memalign(alignment: usize, size_bytes: usize) -> *mut c_void {
    if !next::ready() {
        let block = bootstrap::allocate_aligned(alignment, size_bytes);
        return counted(size_bytes, block);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    counted(size_bytes, unsafe { next::memalign(alignment, size_bytes) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn aligned_alloc(alignment: usize, size_bytes: usize) -> *mut c_void {
    if !next::ready() {
        let block = bootstrap::allocate_aligned(alignment, size_bytes);
        return counted(size_bytes, block);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    counted(size_bytes, unsafe {
        next::aligned_alloc(alignment, size_bytes)
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size_bytes: usize,
) -> c_int {
    if !next::ready() {
        if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
            return EINVAL;
        }
        let block = counted(
            size_bytes,
            bootstrap::allocate_aligned(alignment, size_bytes),
        );
        if block.is_null() {
            return ENOMEM;
        }
        // SAFETY: POSIX obliges the caller to pass a pointer that may be written.
        unsafe { out.write(block) };
        return 0;
    }
    // SAFETY: the caller's `out` is passed on; the next allocator checks the alignment.
    let error = unsafe { next::posix_memalign(out, alignment, size_bytes) };
    let block = if error == 0 {
        // SAFETY: the call succeeded, so `out` could be written and holds the block.
        unsafe { out.read() }
    } else {
        ptr::null_mut()
    };
    count::asked(size_bytes, block);
    error
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn valloc(size_bytes: usize) -> *mut c_void {
    if !next::ready() {
        let block = bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
        return counted(size_bytes, block);
    }
    // SAFETY: the next allocator's valloc accepts any size.
    counted(size_bytes, unsafe { next::valloc(size_bytes) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pvalloc(size_bytes: usize) -> *mut c_void {
    if !next::ready() {
        let block = bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
        return counted(size_bytes, block);
    }
    // SAFETY: the next allocator's pvalloc accepts any size.
    counted(size_bytes, unsafe { next::pvalloc(size_bytes) })
}
