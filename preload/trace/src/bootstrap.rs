//! A little memory for the calls that `dlsym` itself makes while the next allocator is unknown.
//!
//! Before `next` is ready only. Blocks are bumped out of a static array, never reused; each is
//! preceded by its size, so that `realloc` can move it to the real allocator later. A few hundred
//! bytes are used, once per process.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::next;

/// The alignment of `valloc` before the next allocator is known.
pub(crate) const PAGE_BYTES: usize = 4096;
const CAPACITY_BYTES: usize = 64 * 1024;
const HEADER_BYTES: usize = 16;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; CAPACITY_BYTES]>);

// SAFETY: a byte is only ever lent once, by the atomic bump of `USED_BYTES`.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; CAPACITY_BYTES]));
static USED_BYTES: AtomicUsize = AtomicUsize::new(0);

fn base() -> *mut u8 {
    MEMORY.0.get().cast()
}

/// True for a pointer that `allocate` returned.
pub(crate) fn owns(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(base() as usize) < CAPACITY_BYTES
}

/// A block aligned like malloc's, zeroed; null when the array is used up.
pub(crate) fn allocate(size_bytes: usize) -> *mut c_void {
    allocate_aligned(HEADER_BYTES, size_bytes)
}

/// A block at a multiple of `alignment` (a power of two up to a page), zeroed; null when used up.
pub(crate) fn allocate_aligned(alignment: usize, size_bytes: usize) -> *mut c_void {
    if !alignment.is_power_of_two() || alignment > PAGE_BYTES || size_bytes > CAPACITY_BYTES {
        return ptr::null_mut();
    }
    let alignment = alignment.max(HEADER_BYTES);
    let mut used_bytes = USED_BYTES.load(Ordering::Relaxed);
    loop {
        let start = (used_bytes + HEADER_BYTES).next_multiple_of(alignment);
        let end = start + size_bytes;
        if end > CAPACITY_BYTES {
            return ptr::null_mut();
        }
        match USED_BYTES.compare_exchange_weak(
            used_bytes,
            end,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => {
                // SAFETY: `start..end` lies inside the array and belongs to this call alone since
                // the exchange; the header before it lies in the gap of at least HEADER_BYTES.
                // The header is aligned because `start` is a multiple of 16.
                unsafe {
                    let block = base().add(start);
                    block.sub(HEADER_BYTES).cast::<usize>().write(size_bytes);
                    return block.cast();
                }
            }
            Err(now) => used_bytes = now,
        }
    }
}

/// The size that a block of ours was asked for with.
///
/// # Safety
/// `owns(block)`, and `block` is what `allocate` returned, not a pointer into the middle.
pub(crate) unsafe fn block_bytes(block: *mut c_void) -> usize {
    // SAFETY: every block is preceded by the header `allocate_aligned` wrote.
    unsafe { block.cast::<u8>().sub(HEADER_BYTES).cast::<usize>().read() }
}

/// `realloc` of a block of ours: a copy in the real allocator, or here while that is unknown.
///
/// # Safety
/// As for `block_bytes`.
pub(crate) unsafe fn move_out(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    let target = if next::ready() {
        // SAFETY: the next allocator's malloc accepts any size.
        unsafe { next::malloc(size_bytes) }
    } else {
        allocate(size_bytes)
    };
    if target.is_null() {
        return target;
    }
    // SAFETY: both blocks hold at least the smaller of the two sizes and cannot overlap, since a
    // byte is lent only once.
    unsafe {
        let copy_bytes = block_bytes(block).min(size_bytes);
        ptr::copy_nonoverlapping(block.cast::<u8>(), target.cast::<u8>(), copy_bytes);
    }
    target
}

#[cfg(test)]
#[path = "tests/bootstrap.rs"]
mod tests;
