//! A vector on memory of its own: the tables of checked memory must not call malloc, which they
//! may be checking.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::chunk::{CHUNK_BYTES, Chunk};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::{ptr, slice};

/// Items in a row, in whole mappings.
/// Invariant: the first `len` items' worth of `memory` is initialised.
pub(super) struct MappedVec<T> {
    memory: Option<Chunk>,
    len: usize,
    items: PhantomData<T>,
}

impl<T> MappedVec<T> {
    /// Without memory.
    pub(super) const fn new() -> Self {
        const {
            assert!(size_of::<T>() > 0 && align_of::<T>() <= CHUNK_BYTES);
        }
        Self {
            memory: None,
            len: 0,
            items: PhantomData,
        }
    }

    /// `len` times `item`.
    pub(super) fn filled(item: T, len: usize) -> Result<Self, PoolError>
    where
        T: Copy,
    {
        let mut filled = Self::new();
        filled.grow(len)?;
        for _ in 0..len {
            filled.push(item);
        }
        Ok(filled)
    }

    /// Makes sure that the next `push` finds room.
    pub(super) fn reserve_one(&mut self) -> Result<(), PoolError> {
        if self.len < self.capacity() {
            return Ok(());
        }
        self.grow(self.len.saturating_mul(2).max(1))
    }

    /// Appends an item.
    ///
    /// # Panics
    /// Without room: `reserve_one` before.
    pub(super) fn push(&mut self, item: T) {
        assert!(self.len < self.capacity(), "room is reserved before a push");
        // SAFETY: the place is inside the memory and holds no item.
        unsafe { self.start().add(self.len).write(item) };
        self.len += 1;
    }

    fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, Chunk::size_bytes) / size_of::<T>()
    }

    fn grow(&mut self, capacity: usize) -> Result<(), PoolError> {
        let wanted_bytes = capacity.checked_mul(size_of::<T>());
        let size_bytes = wanted_bytes
            .and_then(|bytes| bytes.checked_next_multiple_of(CHUNK_BYTES))
            .ok_or(PoolError::OutOfMemory {
                requested_bytes: usize::MAX,
            })?;
        let memory = Chunk::map_long(size_bytes)?;
        // SAFETY: the new memory is larger, and apart from the old; the items move, and the old
        // memory is unmapped without dropping any.
        unsafe {
            let target = memory.start().as_ptr().cast::<T>();
            ptr::copy_nonoverlapping(self.start().cast_const(), target, self.len);
        }
        self.memory = Some(memory);
        Ok(())
    }

    fn start(&self) -> *mut T {
        match &self.memory {
            Some(memory) => memory.start().as_ptr().cast(),
            None => ptr::dangling_mut(),
        }
    }
}

impl<T> Deref for MappedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: that many items are initialised, and writing needs `&mut self`.
        unsafe { slice::from_raw_parts(self.start(), self.len) }
    }
}

impl<T> DerefMut for MappedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: that many items are initialised, and the vector is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl<T> Drop for MappedVec<T> {
    fn drop(&mut self) {
        // SAFETY: those are the items, each dropped once; the memory goes after them.
        unsafe { ptr::drop_in_place(&raw mut **self) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Goal: items keep their order and value through growth, and each is dropped once.
    #[test]
    fn items_survive_growth_and_are_dropped_once() {
        let counter = Rc::new(());
        let mut items = MappedVec::new();
        // More than one mapping of 64 KiB holds.
        let count = 3 * CHUNK_BYTES / size_of::<(usize, Rc<()>, [u64; 30])>();
        for number in 0..count {
            items.reserve_one().unwrap();
            items.push((number, Rc::clone(&counter), [0_u64; 30]));
        }
        assert!(items.iter().map(|(number, ..)| *number).eq(0..count));
        items[5].0 = 0;
        assert_eq!(
            (items.len(), items[5].0, Rc::strong_count(&counter)),
            (count, 0, count + 1)
        );
        drop(items);
        assert_eq!(Rc::strong_count(&counter), 1);
    }
}
