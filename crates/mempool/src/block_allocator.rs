//! A block pool as the allocator of collections.
//!
//! On the path: hashbrown's maps, bumpalo-style vectors and whatever else takes an `Allocator` keep
//! their tables in a pool's blocks, under its budget and in its figures.
//! Absent on purpose: sharing between threads. The pool's handle stays on its thread, and so does a
//! collection that holds it.
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
        // Exactly what was asked for, though there is more: what comes back must tell the class.
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
        if self.is_same_class(old, new) {
            self.note_resized(old.size(), new.size());
            return Ok(NonNull::slice_from_raw_parts(start, new.size()));
        }
        let grown = Allocator::allocate(self, new)?;
        // SAFETY: the old block has `old.size()` bytes, the new one at least as many, and they are
        // two blocks; the old one is given up here.
        unsafe {
            start.copy_to_nonoverlapping(grown.cast(), old.size());
            self.deallocate(start, old);
        }
        Ok(grown)
    }

    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if self.is_same_class(old, new) {
            self.note_resized(old.size(), new.size());
            return Ok(NonNull::slice_from_raw_parts(start, new.size()));
        }
        let shrunk = Allocator::allocate(self, new)?;
        // SAFETY: as in `grow`, with the new size the smaller.
        unsafe {
            start.copy_to_nonoverlapping(shrunk.cast(), new.size());
            self.deallocate(start, old);
        }
        Ok(shrunk)
    }
}
