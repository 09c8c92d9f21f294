//! What the owner's thread alone touches of a block pool: the fast path of allocate and free.
//!
//! On the path: `block_pool` finds out that it runs on the owner's thread, then comes here.
//! Absent on purpose: atomics and locks.
#![allow(unsafe_code)]
use crate::batch::ReturnedBlocks;
use crate::block_class::{BlockClass, Release};
use crate::budget::Budget;
use crate::chunk::CHUNK_BYTES;
use crate::heap;
use crate::remote_free::RemoteFrees;
use crate::size_class::{CLASS_COUNT, SizeClass, block_sizes};
use crate::{PoolError, PoolMode, PoolStats};
use std::array;
use std::ptr::NonNull;

/// One thread's blocks and their books.
///
/// In this order, because the compiler merges updates of neighbouring numbers into one wide one,
/// and a wide load right after a narrow store stalls: no two written by the same call are
/// neighbours, but for the pair that is always written together.
#[repr(C)]
pub(crate) struct LocalPool {
    /// Bytes asked for by the holders of blocks of the classes.
    pooled_live_bytes: usize,
    high_water_bytes: usize,
    /// The same for blocks straight from malloc, and what of the budget is used.
    direct_live_bytes: usize,
    budget: Budget,
    /// Blocks lent straight from malloc, ever, and taken back, ever.
    direct_misses: u64,
    remote_frees: u64,
    direct_returns: u64,
    classes: [BlockClass; CLASS_COUNT],
}

impl LocalPool {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        let mut sizes = block_sizes();
        Self {
            pooled_live_bytes: 0,
            high_water_bytes: 0,
            direct_live_bytes: 0,
            budget: Budget::new(limit_bytes),
            direct_misses: 0,
            remote_frees: 0,
            direct_returns: 0,
            classes: array::from_fn(|_| {
                BlockClass::new(sizes.next().expect("there are CLASS_COUNT sizes"))
            }),
        }
    }

    /// A block of a class.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        asked_bytes: usize,
        class: SizeClass,
        remote: &RemoteFrees,
    ) -> Result<NonNull<u8>, PoolError> {
        let found = match self.classes[class.index()].take() {
            Some(block) => block,
            None => self.allocate_slow(class, remote)?,
        };
        self.pooled_live_bytes += asked_bytes;
        self.note_high_water();
        Ok(found)
    }

    /// Blocks freed elsewhere may have come home; else the class needs a chunk.
    #[cold]
    fn allocate_slow(
        &mut self,
        class: SizeClass,
        remote: &RemoteFrees,
    ) -> Result<NonNull<u8>, PoolError> {
        self.drain(remote);
        if let Some(block) = self.classes[class.index()].take() {
            return Ok(block);
        }
        self.make_room(CHUNK_BYTES)?;
        let taken = self.classes[class.index()].take_from_new_chunk();
        if taken.is_err() {
            self.budget.give_back(CHUNK_BYTES);
        }
        taken
    }

    /// A block straight from malloc.
    #[inline]
    pub(crate) fn allocate_direct(
        &mut self,
        asked_bytes: usize,
        remote: &RemoteFrees,
    ) -> Result<NonNull<u8>, PoolError> {
        if self.budget.take(asked_bytes).is_err() {
            self.drain(remote);
            self.make_room(asked_bytes)?;
        }
        let block = match heap::allocate(asked_bytes) {
            Ok(block) => block,
            Err(refused) => {
                self.budget.give_back(asked_bytes);
                return Err(refused);
            }
        };
        self.direct_misses += 1;
        self.direct_live_bytes += asked_bytes;
        self.note_high_water();
        Ok(block)
    }

    /// Takes `bytes` from the budget, giving idle chunks of all classes back where it must.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> Result<(), PoolError> {
        let first_try = self.budget.take(bytes);
        if first_try.is_ok() || self.release_idle(Release::All) == 0 {
            return first_try;
        }
        self.budget.take(bytes)
    }

    #[inline]
    fn note_high_water(&mut self) {
        let live_bytes = self.live_bytes();
        if live_bytes > self.high_water_bytes {
            self.high_water_bytes = live_bytes;
        }
    }

    #[inline]
    fn live_bytes(&self) -> usize {
        self.pooled_live_bytes + self.direct_live_bytes
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// This pool lent the block for `asked_bytes` from `class`, and nobody uses it any more.
    #[inline]
    pub(crate) unsafe fn free(&mut self, block: NonNull<u8>, asked_bytes: usize, class: SizeClass) {
        match self.classes.get_mut(class.index()) {
            Some(home) => {
                // SAFETY: the caller's promise, passed on.
                unsafe { home.put(block) };
                self.pooled_live_bytes -= asked_bytes;
            }
            None => {
                // SAFETY: blocks outside the classes came from `heap::allocate(asked_bytes)`.
                unsafe { heap::free(block, asked_bytes) };
                self.note_direct_freed(1, asked_bytes);
            }
        }
    }

    #[inline]
    fn note_direct_freed(&mut self, count: usize, bytes: usize) {
        self.direct_returns += count as u64;
        self.direct_live_bytes -= bytes;
        self.budget.give_back(bytes);
    }

    /// Takes home what other threads freed.
    #[inline]
    pub(crate) fn drain(&mut self, remote: &RemoteFrees) {
        let (count, bytes) = remote.take_direct();
        if count > 0 {
            self.note_direct_freed(count, bytes);
            self.remote_frees += count as u64;
        }
        self.absorb(remote.take());
    }

    /// Puts returned blocks into their classes.
    #[inline]
    pub(crate) fn absorb(&mut self, returned: ReturnedBlocks) {
        for (block, tag) in returned {
            let asked_bytes = usize::from(tag);
            // SAFETY: only blocks of this pool's classes are pushed to its remote frees, with the
            // size they were lent for as their tag, when their holder gave them up.
            unsafe { self.free(block, asked_bytes, SizeClass::of(asked_bytes)) };
            self.remote_frees += 1;
        }
    }

    /// Gives chunks without live blocks back to the system; returns how many.
    pub(crate) fn release_idle(&mut self, release: Release) -> usize {
        let mut count = 0;
        for class in &mut self.classes {
            count += class.release_idle(release);
        }
        self.budget.give_back(count * CHUNK_BYTES);
        count
    }

    /// Blocks lent and not known to be back.
    pub(crate) fn live_count(&self) -> usize {
        let pooled: usize = self.classes.iter().map(BlockClass::live_count).sum();
        pooled + (self.direct_misses - self.direct_returns) as usize
    }

    /// The classes, smallest first.
    pub(crate) fn classes(&self) -> &[BlockClass] {
        &self.classes
    }

    /// The figures, each from its own books: see the identity at [`PoolStats`].
    pub(crate) fn stats(&self, name: &'static str, mode: PoolMode) -> PoolStats {
        let sum =
            |figure: fn(&BlockClass) -> usize| -> usize { self.classes.iter().map(figure).sum() };
        let lent_bytes = sum(|class| class.live_count() * class.block_bytes());
        let rounding_bytes = lent_bytes - self.pooled_live_bytes;
        PoolStats {
            name,
            kind: "block",
            mode,
            live_objects: self.live_count() as u64,
            live_bytes: self.live_bytes() as u64,
            cached_bytes: sum(|class| class.cached_count() * class.block_bytes()) as u64,
            waste_bytes: (rounding_bytes + sum(BlockClass::tail_bytes)) as u64,
            reserved_bytes: self.budget.reserved_bytes() as u64,
            high_water_bytes: self.high_water_bytes as u64,
            hits: self.classes.iter().map(BlockClass::hits).sum(),
            misses: self.direct_misses + self.classes.iter().map(BlockClass::misses).sum::<u64>(),
            remote_frees: self.remote_frees,
        }
        .checked()
    }
}
