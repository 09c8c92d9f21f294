//! Growable bytes on a block.
use crate::{Block, BlockPool, PoolError};
use std::mem::MaybeUninit;
use std::ops::Deref;

/// Growable bytes on one pooled block; `Send`.
#[derive(Debug, Default)]
pub struct Buffer {
    block: Option<Block>,
}

impl Buffer {
    /// An empty buffer that holds no memory.
    pub const fn new() -> Self {
        Self { block: None }
    }
    /// An empty buffer for at least `capacity_bytes`.
    pub fn with_capacity(_pool: &BlockPool, _capacity_bytes: usize) -> Result<Self, PoolError> {
        todo!()
    }
    /// Bytes in it.
    pub fn len(&self) -> usize {
        todo!("{:?}", self.block)
    }
    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// Bytes it can hold without growing.
    pub fn capacity(&self) -> usize {
        todo!()
    }
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        todo!()
    }
    /// Its bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Forgets the bytes, keeps the block.
    pub fn clear(&mut self) {
        todo!()
    }
    /// Forgets the bytes and gives the block back.
    pub fn release(&mut self) {
        todo!()
    }
    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, _len: usize) {
        todo!()
    }
    /// Forgets the first `count` bytes.
    pub fn consume_front(&mut self, _count: usize) {
        todo!()
    }
    /// Makes room for `additional_bytes` more.
    pub fn reserve(&mut self, _: &BlockPool, _additional_bytes: usize) -> Result<(), PoolError> {
        todo!()
    }
    /// Appends, growing where needed.
    pub fn extend_from_slice(&mut self, _: &BlockPool, _source: &[u8]) -> Result<(), PoolError> {
        todo!()
    }
    /// Appends one byte, growing where needed.
    pub fn push(&mut self, _: &BlockPool, _byte: u8) -> Result<(), PoolError> {
        todo!()
    }
    /// Bytes that can be appended without growing.
    pub fn spare_bytes(&self) -> usize {
        todo!()
    }
    /// Appends; panics when the bytes do not fit in the block.
    pub fn append_within_capacity(&mut self, _source: &[u8]) {
        todo!()
    }
    /// Appends what `fill` writes into the spare capacity: it returns the part it initialised,
    /// which must begin where the spare capacity begins.
    pub fn fill_from<E>(
        &mut self,
        _fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<&mut [u8], E>,
    ) -> Result<usize, E> {
        todo!()
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}
