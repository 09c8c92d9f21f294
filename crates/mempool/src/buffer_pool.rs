//! Equal I/O buffers.
use crate::{PoolError, PoolMode, PoolStats};
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::rc::Rc;

/// Equal I/O buffers the kernel may hold; owned by the thread that created it.
#[derive(Clone, Debug)]
pub struct BufferPool {
    core: Rc<()>,
}

impl BufferPool {
    /// A pool of at most `count_max` buffers of `buffer_bytes` each; memory comes at first use.
    pub fn new(_name: &'static str, _: PoolMode, _buffer_bytes: usize, _count_max: u16) -> Self {
        todo!()
    }
    /// Lends one buffer.
    pub fn lease(&self) -> Result<Lease, PoolError> {
        todo!("{:?}", self.core)
    }
    /// Size of every buffer.
    pub fn buffer_bytes(&self) -> usize {
        todo!()
    }
    /// What the pool holds.
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
}

/// One lent buffer; derefs to the bytes filled so far; returns when dropped.
#[derive(Debug)]
pub struct Lease {
    core: Rc<()>,
}

impl Lease {
    /// The buffer's number, below the pool's `count_max`.
    pub fn id(&self) -> u16 {
        todo!("{:?}", self.core)
    }
    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        todo!()
    }
    /// The whole buffer, for a system call to write to: content is whatever was there.
    pub fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        todo!()
    }
    /// Replaces the filled bytes by what `fill` writes: it returns the part it initialised, which
    /// must begin where the buffer begins.
    pub fn fill_from<E>(
        &mut self,
        _fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<&mut [u8], E>,
    ) -> Result<&mut [u8], E> {
        todo!()
    }
}

impl Deref for Lease {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
