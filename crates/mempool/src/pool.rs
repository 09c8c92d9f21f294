//! Objects of one type that own themselves: a box whose memory is pooled.
//!
//! A replacement for `Box::new` where objects come and go. `Slab` is for objects that are found by a handle. All
//! objects have one size, so a chunk is cut to it exactly.
#![allow(unsafe_code)]
use crate::batch::{ReturnedBlocks, SENT_BYTES_MIN};
use crate::chunk::CHUNK_BYTES;
use crate::chunk_store::GiveBack;
use crate::heap::HEAP_BYTES_MIN;
use crate::local_pool::LocalPool;
use crate::outbox::free_away;
use crate::pool_core::{CoreHandle, FreedBy, OwnerPart, PoolCore};
use crate::remote_free::RemoteFrees;
use crate::size_class::POOLED_BYTES_MAX;
use crate::{PoolError, PoolMode, PoolStats};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::{fmt, ptr};

/// Lends memory for objects of type `T`; the thread that made it owns it.
///
/// Each object takes its own size, rounded up to its alignment and to 16 bytes at least; one of more
/// than 32 KiB, or aligned to more, is one malloc. Clones are handles of the same pool. Dropping the
/// last handle is safe while objects live: the memory goes with the last of them.
///
/// ```
/// use millpond_mempool::{Pool, PoolMode};
/// let pool = Pool::new("names", PoolMode::On);
/// let mut name = pool.insert(String::from("mill"))?;
/// name.push_str("pond");
/// std::thread::spawn(move || assert_eq!(*name, "millpond")).join().unwrap();
/// pool.drain_remote();
/// assert_eq!(pool.stats().live_objects, 0);
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub struct Pool<T> {
    handle: CoreHandle<ObjectBooks>,
    object: PhantomData<fn() -> T>,
}

/// Counters of the owner's thread.
#[repr(C)]
struct ObjectBooks {
    blocks: LocalPool<1>,
    /// Objects straight from malloc, ever, taken back, ever, and of those by other threads.
    direct_misses: u64,
    direct_returns: u64,
    direct_remote_frees: u64,
    live_max: usize,
    object_bytes: usize,
    /// Why the last request that was refused was.
    refusal: PoolError,
    is_pooled: bool,
}

impl<T> Pool<T> {
    /// Bytes each object takes.
    const BLOCK_BYTES: usize = {
        let size_bytes = if size_of::<T>() < SENT_BYTES_MIN {
            SENT_BYTES_MIN
        } else {
            size_of::<T>()
        };
        size_bytes.next_multiple_of(if align_of::<T>() < 8 {
            8
        } else {
            align_of::<T>()
        })
    };
    /// Chunks are aligned to more than this, so a multiple of the object's alignment is aligned.
    const FITS: bool = Self::BLOCK_BYTES <= POOLED_BYTES_MAX && align_of::<T>() <= CHUNK_BYTES;
    const DIRECT_ALIGN_BYTES: usize = if align_of::<T>() < HEAP_BYTES_MIN {
        HEAP_BYTES_MIN
    } else {
        align_of::<T>()
    };

    /// An empty pool without a limit. One malloc; memory for objects comes when they do.
    #[must_use]
    pub fn new(name: &'static str, mode: PoolMode) -> Self {
        Self::with_budget(name, mode, usize::MAX)
    }

    /// An empty pool whose `reserved_bytes` never pass `limit_bytes`. With pools on this counts whole chunks of 64 KiB;
    /// before it refuses, the pool gives its idle chunks back. In [`PoolMode::Checked`] the memory that the checks need
    /// comes on top.
    #[must_use]
    pub fn with_budget(name: &'static str, mode: PoolMode, limit_bytes: usize) -> Self {
        let is_pooled = mode.pools_blocks() && Self::FITS;
        let block_bytes = if is_pooled {
            Self::BLOCK_BYTES
        } else {
            SENT_BYTES_MIN
        };
        let books = ObjectBooks {
            blocks: LocalPool::new(&[block_bytes as u32], limit_bytes),
            direct_misses: 0,
            direct_returns: 0,
            direct_remote_frees: 0,
            live_max: 0,
            object_bytes: Self::BLOCK_BYTES,
            refusal: PoolError::OutOfMemory {
                requested_bytes: Self::BLOCK_BYTES,
            },
            is_pooled,
        };
        Self {
            handle: CoreHandle::new(name, mode, books),
            object: PhantomData,
        }
    }

    /// Moves `value` into the pool. A pop from the free list; every page's worth of growth a walk
    /// over it, every 64 KiB a lock, every 4 MiB a system call; with pools off one malloc. On an
    /// error `value` is dropped.
    #[inline(always)]
    pub fn insert(&self, value: T) -> Result<Pooled<T>, PoolError> {
        // SAFETY: the books have one class.
        let ready = unsafe { self.handle.local().blocks.pop(0) };
        let start = match ready.or_else(|| self.allocate_slow()) {
            Some(block) => block.cast::<T>(),
            None => return Err(self.handle.local().refusal),
        };
        // SAFETY: the block is unused, and as large and as aligned as a `T`.
        unsafe { start.write(value) };
        Ok(Pooled {
            object: start,
            core: self.handle.core(),
            owned: PhantomData,
        })
    }

    /// A block when none is ready. Without one, `refusal` has the reason: an address alone is returned in a register,
    /// while a `Result` would go through memory.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self) -> Option<NonNull<u8>> {
        let granted = self.try_allocate_slow();
        if let Err(refusal) = granted {
            self.handle.local().refusal = refusal;
        }
        granted.ok()
    }

    fn try_allocate_slow(&self) -> Result<NonNull<u8>, PoolError> {
        let (books, home) = (self.handle.local(), PoolCore::home(self.handle.core()));
        // SAFETY: the core lives while it has a handle, and its home with it.
        books.drain(unsafe { home.as_ref() });
        if books.is_pooled {
            return books.pop_slow(home);
        }
        books.blocks.take_budget(Self::BLOCK_BYTES)?;
        let direct = &self.handle.get().direct;
        let block = direct.allocate(Self::BLOCK_BYTES, Self::DIRECT_ALIGN_BYTES);
        match block {
            Ok(_) => books.note_direct_lent(),
            Err(_) => books.blocks.give_back_budget(Self::BLOCK_BYTES),
        }
        block
    }

    /// Takes home what other threads freed, once what came before is used up. Call once per tick:
    /// three loads when there is nothing, one atomic swap when there is.
    #[inline]
    pub fn drain_remote(&self) {
        self.handle.drain();
    }

    /// Gives half, rounded up, of the chunks without a live object since the last call back to the
    /// system, after draining; returns how many bytes that were. Call once a second or so.
    /// O(free objects).
    ///
    /// In [`PoolMode::Checked`] it does what [`verify`](Self::verify) does, then gives back all
    /// that neither is lent nor waits in the quarantine.
    pub fn trim(&self) -> usize {
        self.handle.settle();
        self.handle.get().direct.trim();
        self.handle.local().blocks.sweep()
    }

    /// In [`PoolMode::Checked`] checks all memory of the pool for invalid writes. Nothing in other modes. O(objects).
    ///
    /// # Panics
    /// When it finds such a place.
    pub fn verify(&self) {
        self.handle.get().direct.verify();
    }

    /// Current numbers of the pool, after draining. O(free objects): it walks the list, which no other call does.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.handle.settle();
        let core = self.handle.get();
        self.handle.local().stats(core)
    }
}

impl ObjectBooks {
    fn pop_slow(&mut self, home: NonNull<RemoteFrees>) -> Result<NonNull<u8>, PoolError> {
        if self.blocks.absorb_near().count == 0 {
            self.blocks.refill(0, home)?;
            self.live_max = self.live_max.max(self.blocks.out_count(0));
        }
        // SAFETY: there is one class.
        let block = unsafe { self.blocks.pop(0) };
        Ok(block.expect("a refilled class has a block"))
    }

    fn note_direct_lent(&mut self) {
        self.direct_misses += 1;
        self.live_max = self.live_max.max(self.direct_live_count());
    }

    fn direct_live_count(&self) -> usize {
        (self.direct_misses - self.direct_returns) as usize
    }

    fn stats(&self, core: &PoolCore<Self>) -> PoolStats {
        let sum = self.blocks.totals();
        let direct_live_count = self.direct_live_count();
        PoolStats {
            name: core.name,
            kind: "object",
            mode: core.mode,
            live_objects: (sum.live_count + direct_live_count) as u64,
            live_bytes: (sum.live_bytes + direct_live_count * self.object_bytes) as u64,
            cached_bytes: sum.cached_bytes as u64,
            waste_bytes: sum.tail_bytes as u64,
            reserved_bytes: self.blocks.reserved_bytes() as u64,
            high_water_bytes: (self.live_max * self.object_bytes) as u64,
            hits: sum.lent_count.saturating_sub(sum.chunks_taken),
            misses: self.direct_misses + sum.chunks_taken,
            remote_frees: self.direct_remote_frees + self.blocks.remote_frees(),
        }
        .with_memory_of(&core.direct)
        .checked()
    }
}

impl OwnerPart for ObjectBooks {
    #[inline]
    fn hold(&mut self, returned: ReturnedBlocks) {
        self.blocks.hold(returned);
    }

    #[inline]
    fn is_holding(&self) -> bool {
        self.blocks.is_holding()
    }

    fn absorb_held(&mut self) {
        self.blocks.absorb_held();
    }

    fn note_direct_freed(&mut self, count: usize, _bytes: usize, freed_by: FreedBy) {
        self.direct_returns += count as u64;
        self.blocks.give_back_budget(count * self.object_bytes);
        if freed_by == FreedBy::Others {
            self.direct_remote_frees += count as u64;
        }
    }

    fn shut(&mut self) -> usize {
        self.blocks.release_idle(GiveBack::Now);
        self.blocks.live_count() + self.direct_live_count()
    }

    fn is_quick(&self, _mode: PoolMode) -> bool {
        self.is_pooled
    }
}

impl<T> Clone for Pool<T> {
    /// Another handle of the same pool. No atomics.
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            object: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Pool").field(&self.stats()).finish()
    }
}

/// An object in memory of a [`Pool<T>`]: 16 bytes that own it, as a box does.
///
/// Dropping it drops the object where it is, then frees the memory: a push to the pool's free list
/// on the pool's own thread, on another a store into the batch that goes home when it is full or by
/// [`flush_remote_frees`](crate::flush_remote_frees).
pub struct Pooled<T> {
    object: NonNull<T>,
    core: NonNull<PoolCore<ObjectBooks>>,
    owned: PhantomData<T>,
}

// SAFETY: it owns a `T`, which may move to another thread. Of the pool, an object away from the
// owner's thread uses the numbers that never change, the atomic ones and `remote`, and the core
// lives until the last object is back.
unsafe impl<T: Send> Send for Pooled<T> {}
// SAFETY: a shared one gives a shared `T`.
unsafe impl<T: Sync> Sync for Pooled<T> {}

impl<T> Pooled<T> {
    /// Moves the object out and frees its memory.
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so the object is read once and its memory
        // freed once.
        unsafe {
            let value = this.object.read();
            Self::free(this.object, this.core);
            value
        }
    }

    /// Gives the memory back. By value: an address taken for it would put the two words through
    /// memory on every drop.
    ///
    /// # Safety
    /// The `Pooled` that had these parts is gone, and so is its object; this is called once for it.
    #[inline(always)]
    unsafe fn free(object: NonNull<T>, core: NonNull<PoolCore<ObjectBooks>>) {
        // SAFETY: the pool lives until its last object is back. On the owner's thread nothing holds
        // a reference to `local` while an object's memory is freed; the block came from this pool
        // and is unused.
        unsafe {
            if core.as_ref().is_quick_here() {
                core.as_ref().local().blocks.push(0, object.cast());
            } else {
                Self::free_slow(object.cast(), core);
            }
        }
    }

    /// Frees on another thread, or what is not in the pool's chunks.
    ///
    /// # Safety
    /// As for `free`.
    #[inline(never)]
    unsafe fn free_slow(block: NonNull<u8>, core: NonNull<PoolCore<ObjectBooks>>) {
        // SAFETY: the pool lives until its last object is back, and its mode never changes; the block
        // is of this pool, and unused. Objects outside the chunks came from `direct` with these
        // numbers, and on the owner's thread nothing holds a reference to `local` now.
        unsafe {
            if core.as_ref().mode.pools_blocks() && Pool::<T>::FITS {
                let bytes = Pool::<T>::BLOCK_BYTES;
                free_away(PoolCore::home(core), block, bytes, bytes as u16);
            } else {
                let align_bytes = Pool::<T>::DIRECT_ALIGN_BYTES;
                PoolCore::free_direct(core, block, Pool::<T>::BLOCK_BYTES, align_bytes);
            }
        }
    }
}

impl<T> Drop for Pooled<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // An object that panics while it is dropped still leaves its memory usable.
        struct FreeAfter<T>(NonNull<T>, NonNull<PoolCore<ObjectBooks>>);
        impl<T> Drop for FreeAfter<T> {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: the object was dropped before, and a `Pooled` is dropped once.
                unsafe { Pooled::free(self.0, self.1) };
            }
        }
        let object = self.object;
        let _free_after = FreeAfter(object, self.core);
        // SAFETY: the object is initialised and dropped nowhere else.
        unsafe { ptr::drop_in_place(object.as_ptr()) };
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object lives as long as `self`, which is borrowed.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and borrowed mutably.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T: fmt::Display> fmt::Display for Pooled<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
