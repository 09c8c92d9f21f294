//! Bump memory of one request.
use crate::{PoolError, PoolMode, PoolStats};
use std::cell::Cell;

/// Bump memory of one request, freed whole by `reset`.
#[derive(Debug)]
pub struct Arena {
    used_bytes: Cell<usize>,
}

impl Arena {
    /// An empty arena.
    pub fn new(_name: &'static str, _mode: PoolMode) -> Self {
        Self {
            used_bytes: Cell::new(0),
        }
    }
    /// `len` zeroed bytes.
    #[expect(clippy::mut_from_ref, reason = "slices never overlap")]
    pub fn alloc_slice(&self, _len: usize) -> Result<&mut [u8], PoolError> {
        todo!("{:?}", self.used_bytes)
    }
    /// A copy of `source`.
    #[expect(clippy::mut_from_ref, reason = "slices never overlap")]
    pub fn copy_in(&self, _source: &[u8]) -> Result<&mut [u8], PoolError> {
        todo!()
    }
    /// Frees everything lent.
    pub fn reset(&mut self) {
        todo!()
    }
    /// What the arena holds.
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
}
