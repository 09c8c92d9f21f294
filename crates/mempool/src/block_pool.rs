//! Blocks of bytes by size class, owned by one thread, freed on any.
//!
//! On the path: `buffer` sits on these blocks, and through it all that a connection receives,
//! keeps and sends. Allocating and freeing on the owner's thread is a pop and a push; a block that
//! travelled to the store's thread goes home by `remote_free`.
//! Absent on purpose: a global pool. Every shard makes its own and passes it down.
#![allow(unsafe_code)]
use crate::block_class::Release;
use crate::heap::{self, HEAP_BYTES_MIN};
use crate::local_pool::LocalPool;
use crate::outbox;
use crate::remote_free::RemoteFrees;
use crate::size_class::{CLASS_COUNT, POOLED_BYTES_MAX, SizeClass};
use crate::thread_number::{self, NOBODY};
use crate::{PoolError, PoolMode, PoolStats};
use std::cell::{Cell, UnsafeCell};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, slice};

/// The largest block: more would not fit the 32 bits a block keeps for its size.
pub const BLOCK_BYTES_MAX: usize = 1 << 31;

/// A pool and the block headers' common knowledge of it. Lives until the pool's last handle is
/// gone and its last block is back.
/// Invariant: `local` and `handle_count` are touched by the thread numbered `owner` only, or, once
/// `remote` has said so, by the one that frees all of it.
struct PoolCore {
    /// Never changes but to `NOBODY`, when the last handle is gone. Only the owner's own view of
    /// it counts, so no ordering is needed: no other thread ever finds its own number here.
    owner: AtomicU64,
    mode: PoolMode,
    name: &'static str,
    handle_count: Cell<usize>,
    local: UnsafeCell<LocalPool>,
    remote: RemoteFrees,
}

/// Lends blocks of bytes; the thread that made it owns it.
///
/// Requests up to 32 KiB are rounded up to one of 37 sizes, at most 25 % larger (requests under
/// 48 bytes: to 64), cut from 64 KiB chunks; larger ones go to malloc. Clones are handles of the
/// same pool. Dropping the last handle is safe while blocks live: the memory goes with the last.
///
/// ```
/// use millpond_mempool::{BlockPool, PoolMode};
/// let pool = BlockPool::new("bodies", PoolMode::On);
/// let block = pool.allocate(1000)?;
/// assert_eq!(block.capacity(), 1024);
/// std::thread::spawn(move || drop(block)).join().unwrap();
/// assert_eq!(pool.stats().live_objects, 1);
/// pool.drain_remote();
/// assert_eq!(pool.stats().live_objects, 0);
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub struct BlockPool {
    core: NonNull<PoolCore>,
}

impl BlockPool {
    /// An empty pool without a limit. One malloc; memory for blocks comes when they do.
    pub fn new(name: &'static str, mode: PoolMode) -> Self {
        Self::with_budget(name, mode, usize::MAX)
    }

    /// An empty pool whose `reserved_bytes` never pass `limit_bytes`. With pools on that counts
    /// whole chunks of 64 KiB; before it refuses, the pool gives its idle chunks back.
    pub fn with_budget(name: &'static str, mode: PoolMode, limit_bytes: usize) -> Self {
        let core = Box::new(PoolCore {
            owner: AtomicU64::new(thread_number::current()),
            mode,
            name,
            handle_count: Cell::new(1),
            local: UnsafeCell::new(LocalPool::new(limit_bytes)),
            remote: RemoteFrees::new(free_core),
        });
        Self {
            core: NonNull::from(Box::leak(core)),
        }
    }

    /// A block of at least `size_bytes`, its content undefined. A pop from the class's free list;
    /// every 64 KiB of growth a system call; over 32 KiB, or with pools off, one malloc.
    #[inline]
    pub fn allocate(&self, size_bytes: usize) -> Result<Block, PoolError> {
        if size_bytes > BLOCK_BYTES_MAX {
            let limit_bytes = BLOCK_BYTES_MAX;
            return Err(PoolError::TooLarge {
                requested_bytes: size_bytes,
                limit_bytes,
            });
        }
        let asked_bytes = size_bytes.max(HEAP_BYTES_MIN);
        let core = self.core();
        let local = self.local();
        let (start, class) = if core.mode == PoolMode::On && asked_bytes <= POOLED_BYTES_MAX {
            let class = SizeClass::of(asked_bytes);
            (local.allocate(asked_bytes, class, &core.remote)?, class)
        } else {
            (
                local.allocate_direct(asked_bytes, &core.remote)?,
                SizeClass::DIRECT,
            )
        };
        Ok(Block {
            start,
            core: self.core,
            asked_bytes: asked_bytes as u32,
            class,
        })
    }

    /// Takes home the blocks other threads freed. Call once per tick: two loads when there are
    /// none, one atomic swap and a push per block when there are.
    #[inline]
    pub fn drain_remote(&self) {
        self.local().drain(&self.core().remote);
    }

    /// Gives half of the chunks without a live block back to the system, rounded up, after
    /// draining. Call once a second or so: idle memory halves each time, while a pool that is in
    /// use keeps what it needs. O(free blocks).
    pub fn trim(&self) {
        self.drain_remote();
        self.local().release_idle(Release::Half);
    }

    /// What the pool holds. O(size classes).
    pub fn stats(&self) -> PoolStats {
        let core = self.core();
        self.local().stats(core.name, core.mode)
    }

    /// What each size class in use holds, smallest first. Nothing with pools off, when there are
    /// no classes.
    pub fn class_stats(&self) -> impl Iterator<Item = ClassStats> {
        (0..CLASS_COUNT)
            .map(|index| self.class_figures(index))
            .filter(|class| class.misses > 0)
    }

    fn class_figures(&self, index: usize) -> ClassStats {
        let class = &self.local().classes()[index];
        ClassStats {
            block_bytes: class.block_bytes(),
            live_objects: class.live_count() as u64,
            cached_objects: class.cached_count() as u64,
            hits: class.hits(),
            misses: class.misses(),
        }
    }

    #[inline]
    fn core(&self) -> &PoolCore {
        // SAFETY: the core lives at least as long as any handle, and no reference to all of it is
        // ever mutable.
        unsafe { self.core.as_ref() }
    }

    /// The owner's part. Private, and no caller holds the answer across another call of this or
    /// into code that could drop a block.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the thread that may call this is alone; see SAFETY"
    )]
    fn local(&self) -> &mut LocalPool {
        // SAFETY: a `BlockPool` is neither Send nor Sync, so this is the owner's thread and no
        // other touches `local`; on this thread, the functions here and `Block::drop` hold the
        // reference for one call each that runs no code of the pool's user.
        unsafe { &mut *self.core().local.get() }
    }
}

impl Clone for BlockPool {
    /// Another handle of the same pool. No atomics.
    fn clone(&self) -> Self {
        let handle_count = &self.core().handle_count;
        handle_count.set(handle_count.get() + 1);
        Self { core: self.core }
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        let handle_count = self.core().handle_count.get() - 1;
        self.core().handle_count.set(handle_count);
        if handle_count == 0 {
            close(self.core);
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

/// The last handle is gone: frees the pool, or leaves it to the blocks that are still away.
#[cold]
fn close(core: NonNull<PoolCore>) {
    let away_count = {
        // SAFETY: a pool with a handle lives; handles never leave the owner's thread, so this is
        // it; and nothing in it holds a reference to `local` while a handle is dropped.
        let (core, local) = unsafe {
            let core = core.as_ref();
            (core, &mut *core.local.get())
        };
        local.drain(&core.remote);
        core.owner.store(NOBODY, Ordering::Relaxed);
        local.absorb(core.remote.close());
        local.release_idle(Release::All);
        local.live_count()
    };
    // SAFETY: the pool lives until `leave` gives up the owner's share, and is not used after it.
    unsafe { RemoteFrees::leave(remote_of(core), away_count) };
}

/// The part of a living pool that any thread may touch.
fn remote_of(core: NonNull<PoolCore>) -> NonNull<RemoteFrees> {
    // SAFETY: callers hold a handle or a block, so the pool lives; this only computes an address.
    unsafe { NonNull::new_unchecked(&raw mut (*core.as_ptr()).remote) }
}

/// Frees a pool nobody can reach any more.
///
/// # Safety
/// `remote` is a pool's, by a pointer from `remote_of`, and nobody uses the pool any more.
unsafe fn free_core(remote: NonNull<RemoteFrees>) {
    // SAFETY: such a pointer may be used for all of the core, which was made by `Box::leak`.
    unsafe {
        let core = remote.byte_sub(offset_of!(PoolCore, remote));
        drop(Box::from_raw(core.cast::<PoolCore>().as_ptr()));
    }
}

/// Memory owned by its holder, on whatever thread; goes home when dropped.
///
/// Dropping on the owner's thread is a push to a free list, on another thread a store into the
/// thread's next batch for the pool ([`flush_remote_frees`](crate::flush_remote_frees)); a block
/// from malloc is freed at once on either.
pub struct Block {
    start: NonNull<u8>,
    core: NonNull<PoolCore>,
    asked_bytes: u32,
    class: SizeClass,
}

// SAFETY: the memory at `start` is the block's alone. Of the pool, a block away from the owner's
// thread uses `owner` and `remote`, both atomic, and the core lives until the last block is back.
unsafe impl Send for Block {}
// SAFETY: a shared block gives read access to its own memory and two numbers.
unsafe impl Sync for Block {}

impl Block {
    /// Bytes it holds: the size class's, or exactly what was asked for where malloc gave it.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.class
            .block_bytes()
            .unwrap_or(self.asked_bytes as usize)
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

    #[cold]
    fn drop_away(&mut self) {
        let remote = remote_of(self.core);
        if self.class == SizeClass::DIRECT {
            // SAFETY: such a block came from `heap::allocate(asked_bytes)`; its holder is gone. It
            // is not counted as back before `note_direct`.
            unsafe {
                heap::free(self.start, self.asked_bytes as usize);
                RemoteFrees::note_direct(remote, self.asked_bytes);
            }
        } else {
            // SAFETY: the block is of a class of this pool, hence at least 64 bytes, and its holder
            // is gone. What was asked of a class fits 16 bits, and says which class it was.
            unsafe {
                outbox::free_away(remote, self.start, self.capacity(), self.asked_bytes as u16);
            }
        }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the pool lives until its last block is back.
        let core = unsafe { self.core.as_ref() };
        if !thread_number::is_current(core.owner.load(Ordering::Relaxed)) {
            return self.drop_away();
        }
        // SAFETY: numbers are never reused, so this is the owner's thread, and nothing on it holds
        // a reference to `local` while a block is dropped. The pool lent this block for
        // `asked_bytes` from `class`, and its holder is gone.
        unsafe {
            let local = &mut *core.local.get();
            local.free(self.start, self.asked_bytes as usize, self.class);
        }
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

/// What one size class of a [`BlockPool`] holds.
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
