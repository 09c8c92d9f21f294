//! The functions of malloc's family in front of the next allocator: each passes the requested size to `asked_for` of
//! the crate, and hands the call on. `preload/churn` has this file too.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::{ENOMEM, asked_for, bootstrap, next};

const EINVAL: c_int = 22;

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn malloc(size_bytes: usize) -> *mut c_void {
    asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate(size_bytes);
    }
    // SAFETY: the next allocator's malloc accepts any size.
    unsafe { next::malloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn calloc(count: usize, size_bytes: usize) -> *mut c_void {
    asked_for(count.saturating_mul(size_bytes));
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
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    asked_for(size_bytes);
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
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() || bootstrap::owns(block) || !next::ready() {
        return;
    }
    // SAFETY: a block not ours came from the next allocator, as the caller promises.
    unsafe { next::free(block) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memalign(alignment: usize, size_bytes: usize) -> *mut c_void {
    asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(alignment, size_bytes);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    unsafe { next::memalign(alignment, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn aligned_alloc(alignment: usize, size_bytes: usize) -> *mut c_void {
    asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(alignment, size_bytes);
    }
    // SAFETY: the next allocator refuses a wrong alignment itself.
    unsafe { next::aligned_alloc(alignment, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size_bytes: usize,
) -> c_int {
    asked_for(size_bytes);
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
pub(crate) unsafe extern "C" fn valloc(size_bytes: usize) -> *mut c_void {
    asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
    }
    // SAFETY: the next allocator's valloc accepts any size.
    unsafe { next::valloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pvalloc(size_bytes: usize) -> *mut c_void {
    asked_for(size_bytes);
    if !next::ready() {
        return bootstrap::allocate_aligned(bootstrap::PAGE_BYTES, size_bytes);
    }
    // SAFETY: the next allocator's pvalloc accepts any size.
    unsafe { next::pvalloc(size_bytes) }
}
