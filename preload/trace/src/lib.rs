//! Counts heap calls of any program, in front of any allocator.
//!
//! Preloaded before the allocator (`LD_PRELOAD=libmillpond-trace.so:liballocator.so`): every call is
//! counted, then handed to the next `malloc` in the search order, found with `dlsym(RTLD_NEXT)`. C++
//! `operator new` and `delete` are counted as the malloc and free they become, because allocators
//! that export their own would otherwise hide C++ programs from the count.
//!
//! The counts live in a file that the lab created and named in `MILLPOND_TRACE_FILE`, mapped shared:
//! it survives a killed target, a fork keeps counting into it, and the lab reads it with `pread`.
//!
//! Absent on purpose: sampling, stacks, sizes of freed blocks, and the standard library. The crate is
//! `no_std` where it is used (`panic = "abort"`); the workspace's own build, which unwinds, only
//! checks it. Nothing here may allocate.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]

mod bootstrap;
mod count;
mod next;
mod operators;

use core::ffi::{c_int, c_void};
use core::ptr;

use count::Event;

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;

#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort takes nothing and does not return.
    unsafe { next::abort() }
}

// The prebuilt core library names the unwinder's personality; with `panic = "abort"` it is never
// called. Assembly, so that the symbol stays inside this object.
#[cfg(all(panic = "abort", not(test)))]
core::arch::global_asm!(".globl rust_eh_personality", "rust_eh_personality:");

/// Runs before the program's own constructors: finds the next allocator and maps the counters.
extern "C" fn start() {
    next::ready();
    count::attach();
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

/// Memory for a caller who arrives while `dlsym` is still looking for the next allocator.
fn bootstrap_allocate(size_bytes: usize) -> *mut c_void {
    bootstrap::allocate(size_bytes)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc(size_bytes: usize) -> *mut c_void {
    count::add(Event::Allocation, size_bytes);
    if !next::ready() {
        return bootstrap_allocate(size_bytes);
    }
    // SAFETY: the next allocator's malloc accepts any size.
    unsafe { next::malloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn calloc(count: usize, size_bytes: usize) -> *mut c_void {
    count::add(Event::Allocation, count.saturating_mul(size_bytes));
    if !next::ready() {
        // The bootstrap memory is static, hence zero, and never given out twice.
        return match count.checked_mul(size_bytes) {
            Some(total_bytes) => bootstrap_allocate(total_bytes),
            None => ptr::null_mut(),
        };
    }
    // SAFETY: the next allocator's calloc checks the product itself.
    unsafe { next::calloc(count, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    let event = if block.is_null() {
        Event::Allocation
    } else {
        Event::Reallocation
    };
    count::add(event, size_bytes);
    if bootstrap::owns(block) {
        // SAFETY: `owns` says that the block came from the bootstrap memory.
        return unsafe { bootstrap::move_out(block, size_bytes) };
    }
    if !next::ready() {
        return bootstrap_allocate(size_bytes);
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::realloc(block, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size_bytes: usize,
) -> *mut c_void {
    match count.checked_mul(size_bytes) {
        // SAFETY: the caller's promise about `block` is passed on unchanged.
        Some(total_bytes) => unsafe { realloc(block, total_bytes) },
        None => {
            next::set_errno(ENOMEM);
            ptr::null_mut()
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    count::add(Event::Free, 0);
    if bootstrap::owns(block) || !next::ready() {
        return;
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::free(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn memalign(alignment: usize, size_bytes: usize) -> *mut c_void {
    count::add(Event::Allocation, size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(alignment, size_bytes);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    unsafe { next::memalign(alignment, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn aligned_alloc(alignment: usize, size_bytes: usize) -> *mut c_void {
    count::add(Event::Allocation, size_bytes);
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
    count::add(Event::Allocation, size_bytes);
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
    count::add(Event::Allocation, size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
    }
    // SAFETY: the next allocator's valloc accepts any size.
    unsafe { next::valloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pvalloc(size_bytes: usize) -> *mut c_void {
    count::add(Event::Allocation, size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
    }
    // SAFETY: the next allocator's pvalloc accepts any size.
    unsafe { next::pvalloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    if bootstrap::owns(block) {
        // SAFETY: `owns` says that the block came from the bootstrap memory.
        return unsafe { bootstrap::block_bytes(block) };
    }
    if !next::ready() {
        return 0;
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::malloc_usable_size(block) }
}
