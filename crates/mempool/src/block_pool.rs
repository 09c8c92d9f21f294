//! Blocks of bytes of any length: the public face of the size classes.
//!
//! `buffer` sits on these blocks, and through it all that a connection receives, keeps and sends.
//! Allocating and freeing on the owner's thread is a pop and a push; a block that travelled to the
//! store's thread goes home in a batch. Every shard makes its own and passes it down.
#![allow(unsafe_code)]
use crate::block_books::BlockBooks;
use crate::outbox::free_away;
use crate::pool_core::{CoreHandle, PoolCore};
use crate::size_class::{BLOCK_ALIGN_BYTES, POOLED_BYTES_MAX, SizeClass};
use crate::{PoolError, PoolMode, PoolStats};
use std::alloc::Layout;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::{fmt, slice};

/// The largest block: more would not fit the 32 bits a block keeps for its size.
pub const BLOCK_BYTES_MAX: usize = 1 << 31;
/// The largest alignment of a block.
pub const BLOCK_ALIGN_MAX: usize = 64 * 1024;

/// Lends blocks of bytes; the thread that made it owns it.
///
/// Requests up to 32 KiB are rounded up to one of 72 sizes, at most 25 % larger (requests under
/// 64 bytes: to the next multiple of 16), cut from 64 KiB chunks; larger ones go to malloc. Clones
/// are handles of the same pool. Dropping the last handle is safe while blocks live: the memory goes with the last.
///
/// ```
/// use millpond_mempool::{BlockPool, PoolMode};
/// let pool = BlockPool::new("bodies", PoolMode::On);
/// let block = pool.allocate(1000)?;
/// assert_eq!(block.capacity(), 1024);
/// std::thread::spawn(move || drop(block)).join().unwrap();
/// assert_eq!(pool.stats().live_objects, 0);
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub struct BlockPool {
    handle: CoreHandle<BlockBooks>,
}

impl BlockPool {
    /// An empty pool without a limit. One malloc; memory for blocks comes when they do.
    #[must_use]
    pub fn new(name: &'static str, mode: PoolMode) -> Self {
        Self::with_budget(name, mode, usize::MAX)
    }

    /// An empty pool whose `reserved_bytes` never pass `limit_bytes`. With pools on this counts whole chunks of 64 KiB;
    /// before it refuses, the pool gives its idle chunks back. In [`PoolMode::Checked`] the memory that the checks need
    /// comes on top.
    #[must_use]
    pub fn with_budget(name: &'static str, mode: PoolMode, limit_bytes: usize) -> Self {
        Self {
            handle: CoreHandle::new(name, mode, BlockBooks::new(limit_bytes)),
        }
    }

    /// A block of at least `size_bytes`, its content undefined, aligned to 16 bytes. A pop from the
    /// class's free list; every page's worth of growth a walk over it, every 64 KiB a lock, every
    /// 4 MiB a system call; over 32 KiB, or with pools off, one malloc.
    #[inline]
    pub fn allocate(&self, size_bytes: usize) -> Result<Block, PoolError> {
        let class = if size_bytes <= POOLED_BYTES_MAX {
            SizeClass::of(size_bytes)
        } else {
            SizeClass::DIRECT
        };
        self.allocate_from(size_bytes, BLOCK_ALIGN_BYTES, class)
    }

    /// As [`allocate`](Self::allocate), aligned to `align_bytes`: the cost is the same to a cache
    /// line and beyond, and the block may be larger.
    ///
    /// # Panics
    /// When `align_bytes` is no power of two, or over [`BLOCK_ALIGN_MAX`].
    #[inline]
    pub fn allocate_aligned(
        &self,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Result<Block, PoolError> {
        assert!(
            align_bytes.is_power_of_two() && align_bytes <= BLOCK_ALIGN_MAX,
            "an alignment is a power of two, at most 64 KiB"
        );
        let align_bytes = align_bytes.max(BLOCK_ALIGN_BYTES);
        self.allocate_from(
            size_bytes,
            align_bytes,
            aligned_class(size_bytes, align_bytes),
        )
    }

    #[inline(always)]
    fn allocate_from(
        &self,
        size_bytes: usize,
        align_bytes: usize,
        class: SizeClass,
    ) -> Result<Block, PoolError> {
        let asked_bytes = size_bytes.max(BLOCK_ALIGN_BYTES);
        let ready = if class == SizeClass::DIRECT {
            None
        } else {
            // SAFETY: the callers' classes are of the table, or this one.
            unsafe { self.handle.local().pop(asked_bytes, class) }
        };
        let (start, class) = match ready {
            Some(start) => (Some(start), class),
            None => self.allocate_slow(asked_bytes, align_bytes, class),
        };
        match start {
            Some(start) => Ok(self.lend(start, asked_bytes, align_bytes, class)),
            None => Err(self.handle.local().refusal),
        }
    }

    /// Everything but a pop: `class` has nothing ready, or is not a class. Without an address, `refusal` has the
    /// reason: a result that fits two registers keeps the values around this call in registers.
    #[inline(never)]
    fn allocate_slow(
        &self,
        asked_bytes: usize,
        align_bytes: usize,
        class: SizeClass,
    ) -> (Option<NonNull<u8>>, SizeClass) {
        let (books, home) = (self.handle.local(), PoolCore::home(self.handle.core()));
        if asked_bytes > BLOCK_BYTES_MAX {
            books.refusal = PoolError::TooLarge {
                requested_bytes: asked_bytes,
                limit_bytes: BLOCK_BYTES_MAX,
            };
            return (None, class);
        }
        let is_pooled = class != SizeClass::DIRECT && self.handle.get().mode.pools_blocks();
        // SAFETY: the class is one; the core lives while it has a handle, and its home with it.
        let (granted, class) = unsafe {
            if is_pooled {
                (books.pop_slow(asked_bytes, class, home), class)
            } else {
                let direct = &self.handle.get().direct;
                let granted =
                    books.allocate_direct(asked_bytes, align_bytes, direct, home.as_ref());
                (granted, SizeClass::DIRECT)
            }
        };
        if let Err(refusal) = granted {
            books.refusal = refusal;
        }
        (granted.ok(), class)
    }

    #[inline(always)]
    fn lend(
        &self,
        start: NonNull<u8>,
        asked_bytes: usize,
        align_bytes: usize,
        class: SizeClass,
    ) -> Block {
        Block {
            start,
            core: self.handle.core(),
            shape: Shape::new(asked_bytes, align_bytes, class),
        }
    }

    /// Takes home the blocks other threads freed, once those that came before are used up. Call once
    /// per tick: three loads when there are none, one atomic swap when there are.
    #[inline]
    pub fn drain_remote(&self) {
        self.handle.drain();
    }

    /// Gives half, rounded up, of the chunks without a live block since the last call back to the
    /// system, and of the pages of other chunks, after draining; returns how many bytes that were.
    /// Call once a second or so: idle memory halves each time, while a pool that is in use keeps
    /// what it needs. O(free blocks).
    ///
    /// In [`PoolMode::Checked`] it does what [`verify`](Self::verify) does, then gives back all
    /// that neither is lent nor waits in the quarantine.
    pub fn trim(&self) -> usize {
        self.handle.settle();
        self.handle.get().direct.trim();
        self.handle.local().sweep()
    }

    /// Gives all chunks without a live block back to the system, and all pages of other chunks without one, after
    /// draining, however lately they were used; returns how many bytes that were. For callers that are about to take more
    /// memory than it may if what is free stays. O(free blocks), and a system call for each run of pages.
    pub fn release_unused(&self) -> usize {
        self.handle.settle();
        self.handle.local().release_unused()
    }

    /// The first part of what [`trim`](Self::trim) does, at most a few system calls;
    /// [`go_on_trimming`](Self::go_on_trimming) does the rest. After a flood a whole trim takes milliseconds, in which
    /// the shard serves no client. Returns how many bytes both gave back since the last call of this. If a trim is
    /// still under way, continues it.
    pub fn begin_trim(&self) -> usize {
        self.handle.settle();
        self.handle.get().direct.trim();
        self.handle.local().begin_trim()
    }

    /// A part of the trim that was begun, as long as the first; returns whether more is to be done. Call it once per
    /// tick: a comparison when there is nothing to do.
    #[inline]
    pub fn go_on_trimming(&self) -> bool {
        self.handle.local().go_on_trimming()
    }

    /// In [`PoolMode::Checked`] checks all memory of the pool for invalid writes. Nothing in other modes. O(blocks).
    ///
    /// # Panics
    /// When it finds such a place.
    pub fn verify(&self) {
        self.handle.get().direct.verify();
    }

    /// Current numbers of the pool, after draining. O(free blocks): it walks the lists, which no other call does.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.handle.settle();
        self.handle.local().stats(self.handle.get())
    }

    /// Current numbers of each size class in use, smallest first. Empty with pools off, when there are no classes.
    /// O(free blocks).
    pub fn class_stats(&self) -> impl Iterator<Item = ClassStats> {
        self.handle.settle();
        self.handle.local().class_stats()
    }

    /// Whether a block for one layout fits the other without a move.
    pub(crate) fn is_same_class(&self, old: Layout, new: Layout) -> bool {
        let (old, new) = (self.class_of(old), self.class_of(new));
        old == new && old != SizeClass::DIRECT
    }

    /// The class that `allocate_aligned` takes for these, if one.
    fn class_of(&self, layout: Layout) -> SizeClass {
        if self.handle.get().mode.pools_blocks() {
            aligned_class(layout.size(), layout.align().max(BLOCK_ALIGN_BYTES))
        } else {
            SizeClass::DIRECT
        }
    }

    /// The block whose memory `into_start` gave away.
    ///
    /// # Safety
    /// `start` is from a block of this pool that was allocated for `layout`, given away, and not taken back.
    pub(crate) unsafe fn block_from_start(&self, start: NonNull<u8>, layout: Layout) -> Block {
        let asked_bytes = layout.size().max(BLOCK_ALIGN_BYTES);
        let align_bytes = layout.align().max(BLOCK_ALIGN_BYTES);
        self.lend(start, asked_bytes, align_bytes, self.class_of(layout))
    }

    /// Notes that the holder of a block of a class counts on `new_bytes` of it from now on.
    pub(crate) fn note_resized(&self, old_bytes: usize, new_bytes: usize) {
        let (old_bytes, new_bytes) = (
            old_bytes.max(BLOCK_ALIGN_BYTES),
            new_bytes.max(BLOCK_ALIGN_BYTES),
        );
        self.handle.local().note_resized(old_bytes, new_bytes);
    }
}

/// The class of blocks of this size and alignment, if one.
#[inline]
fn aligned_class(size_bytes: usize, align_bytes: usize) -> SizeClass {
    if size_bytes <= POOLED_BYTES_MAX && align_bytes <= POOLED_BYTES_MAX {
        SizeClass::of_aligned(size_bytes, align_bytes)
    } else {
        SizeClass::DIRECT
    }
}

impl Clone for BlockPool {
    /// Another handle of the same pool. No atomics.
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
        }
    }
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("BlockPool")
            .field(&self.stats())
            .finish()
    }
}

/// Memory owned by its holder, on whatever thread; goes home when dropped.
///
/// Dropping on the owner's thread is a push to a free list, on another thread a store into the
/// batch that goes home when it is full or by [`flush_remote_frees`](crate::flush_remote_frees); a
/// block from malloc is freed at once on either.
pub struct Block {
    start: NonNull<u8>,
    core: NonNull<PoolCore<BlockBooks>>,
    shape: Shape,
}

/// The request a block was lent for, in one word: several narrow fields would be written one by one and, whenever the
/// block is moved, read in one go, which stalls the processor.
#[derive(Clone, Copy)]
struct Shape(u64);

impl Shape {
    const CLASS_SHIFT: u32 = 32;
    const ALIGN_SHIFT: u32 = 40;

    #[inline(always)]
    const fn new(asked_bytes: usize, align_bytes: usize, class: SizeClass) -> Self {
        let align_shift = align_bytes.trailing_zeros() as u64;
        let class = (class.index() as u64) << Self::CLASS_SHIFT;
        Self(asked_bytes as u64 | class | align_shift << Self::ALIGN_SHIFT)
    }

    #[inline(always)]
    const fn asked_bytes(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline(always)]
    const fn class(self) -> SizeClass {
        SizeClass::from_index((self.0 >> Self::CLASS_SHIFT) as u8)
    }

    const fn align_bytes(self) -> usize {
        1 << (self.0 >> Self::ALIGN_SHIFT)
    }
}

// SAFETY: the memory at `start` is the block's alone. Of the pool, a block away from the owner's
// thread uses the numbers that never change, the atomic ones and `remote`, and the core lives until
// the last block is back.
unsafe impl Send for Block {}
// SAFETY: a shared block gives read access to its own memory and some numbers.
unsafe impl Sync for Block {}

impl Block {
    /// Bytes it holds: the size class's, or exactly what was asked for where malloc gave it.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        let asked_bytes = self.shape.asked_bytes();
        self.shape.class().block_bytes().unwrap_or(asked_bytes)
    }

    /// All of its memory. The content is undefined: whatever an earlier holder left.
    #[inline]
    pub fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let start = self.start.as_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: `capacity` bytes from `start` are the block's alone while it lives, and any
        // content is a valid `MaybeUninit`.
        unsafe { slice::from_raw_parts_mut(start, self.capacity()) }
    }

    /// The first byte's address; the memory behind it may be written through `&mut self` only.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives the memory away; `BlockPool::block_from_start` takes it back.
    #[inline]
    pub(crate) fn into_start(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    /// Frees a block. Not inlined, and by value: blocks are dropped at the end of long functions, in
    /// variants of enums, where code for it or an address taken for it keeps everything else out of
    /// registers.
    ///
    /// # Safety
    /// The block that had these parts is being dropped.
    #[inline(never)]
    unsafe fn free(start: NonNull<u8>, core: NonNull<PoolCore<BlockBooks>>, shape: Shape) {
        let class = shape.class();
        // SAFETY: the pool lives until its last block is back. On the owner's thread nothing holds a
        // reference to `local` while a block is dropped. The pool lent this block for `asked_bytes`
        // from `class`, and its holder is gone.
        unsafe {
            if !core.as_ref().is_quick_here() || class == SizeClass::DIRECT {
                return Self::free_slow(start, core, shape);
            }
            let local = core.as_ref().local();
            local.push(start, shape.asked_bytes(), class);
        }
    }

    /// Frees a block straight from malloc, or away from the owner's thread.
    ///
    /// # Safety
    /// The block that had these parts is being dropped.
    #[cold]
    #[inline(never)]
    unsafe fn free_slow(start: NonNull<u8>, core: NonNull<PoolCore<BlockBooks>>, shape: Shape) {
        let asked_bytes = shape.asked_bytes();
        // SAFETY: the block is of this pool, its holder is gone, and nothing on the owner's thread
        // holds a reference to `local` while a block is dropped. A class's blocks were asked for
        // with at most 32 KiB, so the tag holds it.
        unsafe {
            if let Some(block_bytes) = shape.class().block_bytes() {
                free_away(PoolCore::home(core), start, block_bytes, asked_bytes as u16);
            } else {
                PoolCore::free_direct(core, start, asked_bytes, shape.align_bytes());
            }
        }
    }
}

impl Drop for Block {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: a block is dropped once.
        unsafe { Self::free(self.start, self.core, self.shape) };
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Block")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Current numbers of one size class of a [`BlockPool`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassStats {
    /// Size of every block of the class.
    pub block_bytes: usize,
    /// Blocks lent.
    pub live_objects: u64,
    /// Blocks ready to be lent without asking for memory.
    pub cached_objects: u64,
    /// Blocks lent from memory the class already had.
    pub hits: u64,
    /// Blocks for which a chunk was mapped.
    pub misses: u64,
}
