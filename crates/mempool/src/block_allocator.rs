//! A block pool as the allocator of collections.
//!
//! Hashbrown's maps, bumpalo-style vectors and whatever else takes an `Allocator` keep their tables
//! in a pool's blocks, under its budget and in its figures. The pool's handle stays on its thread,
//! and so does a collection that holds it.
#![allow(unsafe_code)]
use crate::{BLOCK_ALIGN_MAX, BlockPool};
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use std::ptr::NonNull;

// SAFETY: blocks keep their place until they are freed, whichever handle of the pool does it, and
// the pool lives as long as any handle or block.
unsafe impl Allocator for BlockPool {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.align() > BLOCK_ALIGN_MAX {
            return Err(AllocError);
        }
        let block = self
            .allocate_aligned(layout.size(), layout.align())
            .map_err(|_| AllocError)?;
        // Exactly the requested length, though the block is longer: the returned layout must give the class.
        Ok(NonNull::slice_from_raw_parts(
            block.into_start(),
            layout.size(),
        ))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that this allocator gave `start` for this layout, and
        // `allocate` and `grow` leave such memory as a block of just that size and alignment.
        drop(unsafe { self.block_from_start(start, layout) });
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { resize(self, start, old, new) }
    }

    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, passed on.
        unsafe { resize(self, start, old, new) }
    }
}

/// Gives memory another layout: where it is when the same class serves both, else by a copy.
///
/// # Safety
/// `pool`, as an allocator, gave `start` for the layout `old`; unless this fails, the holder uses only the result from
/// now on.
unsafe fn resize(
    pool: &BlockPool,
    start: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    if pool.is_same_class(old, new) {
        pool.note_resized(old.size(), new.size());
        return Ok(NonNull::slice_from_raw_parts(start, new.size()));
    }
    let moved = Allocator::allocate(pool, new)?;
    // SAFETY: both blocks have as many bytes as the smaller layout, and they are two; the old one is
    // given up here.
    unsafe {
        start.copy_to_nonoverlapping(moved.cast(), old.size().min(new.size()));
        pool.deallocate(start, old);
    }
    Ok(moved)
}
