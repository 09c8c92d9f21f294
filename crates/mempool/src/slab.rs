//! Objects of one type behind generational handles.
use crate::{PoolError, PoolMode, PoolStats};
use std::marker::PhantomData;

/// Names one object of a `Slab<T>`; 8 bytes; stale handles find nothing.
pub struct Handle<T> {
    index: u32,
    generation: u32,
    object: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// The handle as one number.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }
    /// The handle whose `to_bits` is `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
            object: PhantomData,
        }
    }
    /// The object's place: small and dense, usable as an index of a side table.
    pub const fn index(self) -> u32 {
        self.index
    }
    /// Which use of that place the handle means.
    pub const fn generation(self) -> u32 {
        self.generation
    }
}
impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Handle<T> {}
impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}
impl<T> Eq for Handle<T> {}
impl<T> std::hash::Hash for Handle<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_bits());
    }
}
impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({}#{})", self.index, self.generation)
    }
}

/// Objects of one type, one owner.
pub struct Slab<T> {
    object: PhantomData<T>,
}

impl<T> Slab<T> {
    /// An empty slab.
    pub fn new(_name: &'static str, _mode: PoolMode) -> Self {
        todo!()
    }
    /// Stores `value`.
    pub fn insert(&mut self, _value: T) -> Result<Handle<T>, PoolError> {
        todo!()
    }
    /// The object, unless it was removed.
    pub fn get(&self, _handle: Handle<T>) -> Option<&T> {
        todo!()
    }
    /// The object, unless it was removed.
    pub fn get_mut(&mut self, _handle: Handle<T>) -> Option<&mut T> {
        todo!()
    }
    /// Takes the object out.
    pub fn remove(&mut self, _handle: Handle<T>) -> Option<T> {
        todo!()
    }
    /// Objects in it.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Whether it holds no object.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// Every object with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (Handle<T>, &T)> {
        std::iter::empty()
    }
    /// Every object's handle.
    pub fn handles(&self) -> impl Iterator<Item = Handle<T>> {
        std::iter::empty()
    }
    /// What the slab holds.
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
}
