//! Where a program's memory comes from: the pools, malloc, or an array made beforehand.
//!
//! On the path: every program is written once against these traits and compiled for each kind, so
//! that the work around the allocations is the same code.
//! Absent on purpose: errors. A pool here has no budget, and a program on malloc ends too when the
//! machine has no memory.

use allocator_api2::alloc::{Allocator, Global};
use millpond_mempool::{Block, BlockPool, Pool, PoolError, PoolMode, Pooled};
use std::mem::MaybeUninit;
use std::ops::DerefMut;

/// A kind of memory: blocks of bytes, and objects of a type.
pub(crate) trait Memory {
    /// Bytes of any size; freed when dropped, on any thread.
    type Block: Bytes;
    /// One object; freed when dropped, on any thread.
    type Object<T: Send + 'static>: DerefMut<Target = T> + Send;
    /// Where objects of one type come from.
    type Objects<T: Send + 'static>: Objects<T, Handle = Self::Object<T>>;

    /// What collections take their memory from.
    type Vectors: Allocator;

    /// Memory of the calling thread.
    fn new() -> Self;
    /// For collections.
    fn vectors(&self) -> &Self::Vectors;
    /// Room for `size_bytes`, with any content.
    fn block(&self, size_bytes: usize) -> Self::Block;
    /// A source of objects.
    fn objects<T: Send + 'static>(&self) -> Self::Objects<T>;
    /// What other threads freed comes home.
    fn drain(&self) {}
    /// The tick of about a second at which a server gives idle memory back.
    fn trim(&self) {}
    /// What this thread freed of other threads' memory goes home.
    fn flush() {}
}

/// Objects of one type: a handle for each, which alone leads to it.
pub(crate) trait Objects<T> {
    type Handle;
    fn insert(&mut self, value: T) -> Self::Handle;
    fn get<'a>(&'a self, handle: &'a Self::Handle) -> &'a T;
    fn remove(&mut self, handle: Self::Handle);
    /// What other threads freed comes home.
    fn drain(&self) {}
    /// As [`Memory::trim`].
    fn trim(&self) {}
}

/// A block's memory.
pub(crate) trait Bytes: Send {
    /// All of it: at least what was asked for.
    fn room(&mut self) -> &mut [MaybeUninit<u8>];
}

/// malloc and free, each once, called as Rust programs call them.
pub(crate) struct Malloc;

impl Memory for Malloc {
    type Block = Box<[MaybeUninit<u8>]>;
    type Object<T: Send + 'static> = Box<T>;
    type Objects<T: Send + 'static> = Malloc;
    type Vectors = Global;

    fn new() -> Self {
        Self
    }

    fn vectors(&self) -> &Global {
        &Global
    }

    #[inline]
    fn block(&self, size_bytes: usize) -> Self::Block {
        Box::new_uninit_slice(size_bytes)
    }

    fn objects<T: Send + 'static>(&self) -> Malloc {
        Self
    }
}

impl<T> Objects<T> for Malloc {
    type Handle = Box<T>;

    #[inline]
    fn insert(&mut self, value: T) -> Box<T> {
        Box::new(value)
    }

    #[inline]
    fn get<'a>(&'a self, handle: &'a Box<T>) -> &'a T {
        handle
    }

    #[inline]
    fn remove(&mut self, handle: Box<T>) {
        drop(handle);
    }
}

impl Bytes for Box<[MaybeUninit<u8>]> {
    #[inline]
    fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        self
    }
}

/// This project's pools.
pub(crate) struct Pools(BlockPool);

impl Memory for Pools {
    type Block = Block;
    type Object<T: Send + 'static> = Pooled<T>;
    type Objects<T: Send + 'static> = Pool<T>;
    type Vectors = BlockPool;

    fn new() -> Self {
        Self(BlockPool::new("bench blocks", PoolMode::On))
    }

    fn vectors(&self) -> &BlockPool {
        &self.0
    }

    #[inline]
    fn block(&self, size_bytes: usize) -> Block {
        granted(self.0.allocate(size_bytes))
    }

    fn objects<T: Send + 'static>(&self) -> Pool<T> {
        Pool::new("bench objects", PoolMode::On)
    }

    #[inline]
    fn drain(&self) {
        self.0.drain_remote();
    }

    fn trim(&self) {
        self.0.trim();
    }

    #[inline]
    fn flush() {
        millpond_mempool::flush_remote_frees();
    }
}

impl<T: Send + 'static> Objects<T> for Pool<T> {
    type Handle = Pooled<T>;

    #[inline]
    fn insert(&mut self, value: T) -> Pooled<T> {
        granted(Pool::insert(self, value))
    }

    #[inline]
    fn get<'a>(&'a self, handle: &'a Pooled<T>) -> &'a T {
        handle
    }

    #[inline]
    fn remove(&mut self, handle: Pooled<T>) {
        drop(handle);
    }

    #[inline]
    fn drain(&self) {
        self.drain_remote();
    }

    fn trim(&self) {
        Pool::trim(self);
    }
}

impl Bytes for Block {
    #[inline]
    fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        self.as_uninit_mut()
    }
}

#[inline]
fn granted<B>(asked: Result<B, PoolError>) -> B {
    match asked {
        Ok(block) => block,
        Err(error) => refused(&error),
    }
}

#[cold]
fn refused(error: &PoolError) -> ! {
    panic!("a pool without a budget refused: {error}")
}

/// No allocation at all, for one object at a time: a place to put it.
pub(crate) struct OnePlace<T>(pub(crate) T);

impl<T> Objects<T> for OnePlace<T> {
    type Handle = ();

    #[inline]
    fn insert(&mut self, value: T) {
        self.0 = value;
    }

    #[inline]
    fn get<'a>(&'a self, _handle: &'a ()) -> &'a T {
        &self.0
    }

    #[inline]
    fn remove(&mut self, _handle: ()) {}
}

/// No allocation at all: objects are placed into an array made beforehand, in order, round and
/// round. Correct as long as no more are alive than it has places.
pub(crate) struct Placed<T> {
    places: Vec<T>,
    next: usize,
}

impl<T: Copy> Placed<T> {
    pub(crate) fn new(place_count: usize, filling: T) -> Self {
        Self {
            places: vec![filling; place_count],
            next: 0,
        }
    }
}

impl<T> Objects<T> for Placed<T> {
    /// Wide as a pointer, so that a vector of handles grows by the same bytes as one of boxes.
    type Handle = usize;

    #[inline]
    fn insert(&mut self, value: T) -> usize {
        let place = self.next;
        self.places[place] = value;
        self.next = if place + 1 == self.places.len() {
            0
        } else {
            place + 1
        };
        place
    }

    #[inline]
    fn get<'a>(&'a self, handle: &'a usize) -> &'a T {
        &self.places[*handle]
    }

    #[inline]
    fn remove(&mut self, _handle: usize) {}
}
