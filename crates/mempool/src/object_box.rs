//! One object in memory of its own, where a slab does not keep it in a slot.
//!
//! On the path: `slab` puts these into its slots with pools off, in checked mode, and for objects
//! too large for a chunk.
//! Absent on purpose: freeing when dropped. Where the memory came from only the slab knows, and a
//! slot must not hold a pointer to its slab, which may move.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::direct_memory::DirectMemory;
use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Owns an object and its memory, until one of its methods ends both.
/// Invariant: the object is initialised and nobody else's.
#[repr(transparent)]
pub(crate) struct ObjectBox<T>(NonNull<T>);

// SAFETY: it owns a `T` as a box does.
unsafe impl<T: Send> Send for ObjectBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ObjectBox<T> {}

impl<T> ObjectBox<T> {
    /// Moves `value` into memory of its own; none for a type without size. On an error it is
    /// dropped.
    #[inline(always)]
    pub(crate) fn new(direct: &DirectMemory, value: T) -> Result<Self, PoolError> {
        let layout = Layout::new::<T>();
        let start = match layout.size() {
            0 => NonNull::dangling(),
            _ => direct.allocate_layout(layout)?.cast::<T>(),
        };
        // SAFETY: fresh memory of `T`'s layout.
        unsafe { start.write(value) };
        Ok(Self(start))
    }

    /// Moves the object out and frees its memory.
    ///
    /// # Safety
    /// `direct` is what `new` was given.
    ///
    /// # Panics
    /// When that breaks a rule of checked memory.
    #[inline(always)]
    pub(crate) unsafe fn take(self, direct: &DirectMemory) -> T {
        // SAFETY: the object is there, by the invariant, and `self` is gone after this.
        let value = unsafe { self.0.read() };
        // SAFETY: the caller's promise.
        unsafe { self.free(direct) };
        value
    }

    /// Drops the object where it is and frees its memory.
    ///
    /// # Safety
    /// `direct` is what `new` was given.
    ///
    /// # Panics
    /// As [`take`](Self::take), and where the object does.
    pub(crate) unsafe fn discard(self, direct: &DirectMemory) {
        // SAFETY: as in `take`.
        unsafe {
            self.0.drop_in_place();
            self.free(direct);
        }
    }

    /// # Safety
    /// The object is gone, and `direct` is what `new` was given.
    #[inline(always)]
    unsafe fn free(self, direct: &DirectMemory) {
        let layout = Layout::new::<T>();
        if layout.size() > 0 {
            // SAFETY: the memory came from `direct` by the caller's promise.
            unsafe { direct.free_layout(self.0.cast::<u8>(), layout) }.report();
        }
    }
}

impl<T> Deref for ObjectBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: by the invariant.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for ObjectBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: by the invariant.
        unsafe { self.0.as_mut() }
    }
}
