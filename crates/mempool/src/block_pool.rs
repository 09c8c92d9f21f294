//! Blocks of bytes by size class.
use crate::{PoolError, PoolMode, PoolStats};
use std::mem::MaybeUninit;
use std::rc::Rc;

/// Blocks of bytes; owned by the thread that created it.
#[derive(Clone)]
pub struct BlockPool {
    core: Rc<()>,
}

impl BlockPool {
    /// An empty pool without a limit.
    pub fn new(_name: &'static str, _mode: PoolMode) -> Self {
        todo!()
    }
    /// An empty pool that never reserves more than `limit_bytes`.
    pub fn with_budget(_name: &'static str, _mode: PoolMode, _limit_bytes: usize) -> Self {
        todo!()
    }
    /// A block of at least `size_bytes`.
    pub fn allocate(&self, _size_bytes: usize) -> Result<Block, PoolError> {
        todo!("{:?}", self.core)
    }
    /// Takes home the blocks other threads freed; call once per tick.
    pub fn drain_remote(&self) {
        todo!()
    }
    /// Gives idle chunks back to the operating system.
    pub fn trim(&self) {
        todo!()
    }
    /// What the pool holds.
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
    /// What each size class holds.
    pub fn class_stats(&self) -> impl Iterator<Item = ClassStats> {
        std::iter::empty()
    }
}

/// What one size class of a `BlockPool` holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassStats {
    /// Size of every block of the class.
    pub block_bytes: usize,
    /// Blocks lent.
    pub live_objects: u64,
    /// Blocks ready for reuse.
    pub cached_objects: u64,
    /// Requests served from memory the pool already held.
    pub hits: u64,
    /// Requests that went to the operating system.
    pub misses: u64,
}

/// Memory owned by its holder; returns home when dropped, on whatever thread.
#[derive(Debug)]
pub struct Block {
    memory: Box<[MaybeUninit<u8>]>,
}

impl Block {
    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }
    /// The memory, whose content is whatever was there.
    pub fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.memory
    }
}
