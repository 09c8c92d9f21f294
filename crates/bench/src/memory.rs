//! Where a program's memory comes from: the pools, malloc, or an array made beforehand.
//!
//! Every program is written once against these traits and compiled for each kind, so that the work
//! around the allocations is the same code. A pool here has no budget, and a program on malloc ends
//! too when the machine has no memory.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::ops::DerefMut;

use allocator_api2::alloc::{Allocator, Global};
use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::process::cpu_ns_with_children;
use millpond_mempool::{Block, BlockPool, Pool, PoolError, PoolMode, Pooled};

/// A kind of memory: blocks of bytes, and objects of a type.
pub(crate) trait Memory {
    /// Bytes of any size; freed when dropped, on any thread.
    type Block: Bytes;
    /// One object; freed when dropped, on any thread.
    type Object<T: Send + 'static>: DerefMut<Target = T> + Send;
    /// Where objects of one type come from.
    type Objects<T: Send + 'static>: Objects<T, Handle = Self::Object<T>>;

    /// The source of the collections' memory.
    type Vectors: Allocator;

    /// Memory of the calling thread.
    fn new() -> Self;
    /// For collections.
    fn vectors(&self) -> &Self::Vectors;
    /// Room for `size_bytes`, with any content.
    fn block(&self, size_bytes: usize) -> Self::Block;
    /// A source of objects.
    fn objects<T: Send + 'static>(&self) -> Self::Objects<T>;
    /// Takes back blocks that other threads freed.
    fn drain(&self) {}
    /// The tick of about a second at which a server gives idle memory back.
    fn trim(&self) {}
    /// Returns blocks of other threads that this thread freed.
    fn flush() {}
}

/// Objects of one type: a handle for each, which alone leads to it.
pub(crate) trait Objects<T> {
    type Handle;
    fn insert(&mut self, value: T) -> Self::Handle;
    fn get<'a>(&'a self, handle: &'a Self::Handle) -> &'a T;
    fn remove(&mut self, handle: Self::Handle);
    /// Takes back blocks that other threads freed.
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

// Memory of this process, as the kernel counts it.

/// Longer than either file.
const TEXT_BYTES: usize = 8192;

/// Resident anonymous memory in bytes: exact where the kernel has `smaps_rollup` (Linux 4.14), else
/// from `status`, which may lag by some pages.
pub(crate) fn anonymous_bytes() -> u64 {
    field("/proc/self/smaps_rollup", "Anonymous:")
        .or_else(|| field("/proc/self/status", "RssAnon:"))
        .unwrap_or(0)
}

/// The same in microseconds; may lag by some pages for each CPU.
pub(crate) fn anonymous_bytes_quickly() -> u64 {
    field("/proc/self/status", "RssAnon:").unwrap_or_else(anonymous_bytes)
}

/// The most resident memory since [`forget_peak`], files included.
pub(crate) fn peak_bytes() -> u64 {
    field("/proc/self/status", "VmHWM:").unwrap_or(0)
}

/// All resident memory, files included: what [`peak_bytes`] is to be compared with.
pub(crate) fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// Starts the peak anew. Where a container forbids that, the peak is the one since the start, which
/// is no lower.
pub(crate) fn forget_peak() {
    if let Ok(mut file) = File::options().write(true).open("/proc/self/clear_refs") {
        let _ = file.write_all(b"5");
    }
}

fn field(path: &str, name: &str) -> Option<u64> {
    let mut text = [0; TEXT_BYTES];
    let mut file = File::open(path).ok()?;
    let mut len = 0;
    while len < text.len() {
        match file.read(&mut text[len..]).ok()? {
            0 => break,
            more => len += more,
        }
    }
    let text = str::from_utf8(&text[..len]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

// Whether other programs used the machine while we measured.

/// The machine's CPU time and ours, at the start.
pub(crate) struct Watch {
    machine: Option<CpuTimes>,
    own_ns: u64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self {
            machine: CpuTimes::read(),
            own_ns: own_cpu_ns(),
        }
    }

    /// What happened since; `None` where the system does not report it.
    pub(crate) fn noise(&self) -> Option<MachineNoise> {
        let now = CpuTimes::read()?;
        let own_ns = own_cpu_ns().saturating_sub(self.own_ns);
        Some(MachineNoise::between(self.machine.as_ref()?, &now, own_ns))
    }
}

/// CPU time of this process and of all children that have ended; 0 where the system does not report it.
fn own_cpu_ns() -> u64 {
    cpu_ns_with_children(std::process::id()).unwrap_or(0)
}

#[cfg(test)]
#[path = "tests/resident.rs"]
mod resident_tests;
