//! Functions of malloc's family that an observer has nothing to note of by themselves.

use core::ffi::c_void;
use core::ptr;

use crate::{ENOMEM, bootstrap, next, realloc};

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
