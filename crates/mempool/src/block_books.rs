//! Counters of a block pool beside its classes: requested bytes, and blocks straight from malloc.
//!
//! `block_pool` calls it on the owner's thread for every block lent and returned. Blocks freed by other threads are
//! counted when they return.
#![allow(unsafe_code)]
use crate::batch::ReturnedBlocks;
use crate::block_class::SweepLimit;
use crate::block_pool::ClassStats;
use crate::chunk_store::GiveBack;
use crate::heap::DirectMemory;
use crate::local_pool::{LocalPool, Returned};
use crate::pool_core::{FreedBy, OwnerPart, PoolCore};
use crate::remote_free::RemoteFrees;
use crate::size_class::{BLOCK_BYTES, CLASS_COUNT, SizeClass};
use crate::{PoolError, PoolMode, PoolStats};
use std::ptr::NonNull;

/// One thread's blocks and their books.
#[repr(C)]
pub(crate) struct BlockBooks {
    /// Bytes asked for by the holders of blocks of the classes.
    pooled_live_bytes: usize,
    high_water_bytes: usize,
    /// The same for blocks straight from malloc.
    direct_live_bytes: usize,
    /// Blocks lent straight from malloc, ever, and taken back, ever.
    direct_misses: u64,
    direct_returns: u64,
    direct_remote_frees: u64,
    /// Why the last request that was refused was.
    pub(crate) refusal: PoolError,
    blocks: LocalPool<CLASS_COUNT>,
    /// Bytes that the current trim gave back and has not returned yet.
    trimmed_late_bytes: usize,
}

/// The part of a trim done at once: less than a tenth of a millisecond.
const TRIM_PART: SweepLimit = SweepLimit {
    calls: 4,
    looks: 256,
};

impl BlockBooks {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            pooled_live_bytes: 0,
            high_water_bytes: 0,
            direct_live_bytes: 0,
            direct_misses: 0,
            direct_returns: 0,
            direct_remote_frees: 0,
            refusal: PoolError::OutOfMemory { requested_bytes: 0 },
            blocks: LocalPool::new(&BLOCK_BYTES, limit_bytes),
            trimmed_late_bytes: 0,
        }
    }

    /// A block of a class, if one is ready.
    ///
    /// # Safety
    /// `class` is one, not `DIRECT`.
    #[inline(always)]
    pub(crate) unsafe fn pop(
        &mut self,
        asked_bytes: usize,
        class: SizeClass,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the pool has all classes there are.
        let block = unsafe { self.blocks.pop(class.index()) }?;
        self.pooled_live_bytes += asked_bytes;
        self.note_high_water();
        Some(block)
    }

    /// A block of a class when none is ready: blocks freed elsewhere may have been returned, else the class needs
    /// memory.
    ///
    /// # Safety
    /// `class` is one, not `DIRECT`.
    pub(crate) unsafe fn pop_slow(
        &mut self,
        asked_bytes: usize,
        class: SizeClass,
        home: NonNull<RemoteFrees>,
    ) -> Result<NonNull<u8>, PoolError> {
        // SAFETY: the home is the caller's own pool's, which lives.
        self.drain(unsafe { home.as_ref() });
        while self.is_holding() {
            self.absorb_near();
            // SAFETY: the caller's promise.
            if let Some(block) = unsafe { self.pop(asked_bytes, class) } {
                return Ok(block);
            }
        }
        self.blocks.refill(class.index(), home)?;
        // SAFETY: as above.
        let block = unsafe { self.pop(asked_bytes, class) };
        Ok(block.expect("a refilled class has a block"))
    }

    /// A block straight from malloc, or from checked memory.
    pub(crate) fn allocate_direct(
        &mut self,
        asked_bytes: usize,
        align_bytes: usize,
        direct: &DirectMemory,
        remote: &RemoteFrees,
    ) -> Result<NonNull<u8>, PoolError> {
        if self.blocks.take_budget(asked_bytes).is_err() {
            self.settle(remote);
            self.blocks.take_budget(asked_bytes)?;
        }
        let block = match direct.allocate(asked_bytes, align_bytes) {
            Ok(block) => block,
            Err(refused) => {
                self.blocks.give_back_budget(asked_bytes);
                return Err(refused);
            }
        };
        self.direct_misses += 1;
        self.direct_live_bytes += asked_bytes;
        self.note_high_water();
        Ok(block)
    }

    #[inline(always)]
    fn note_high_water(&mut self) {
        let live_bytes = self.live_bytes();
        if live_bytes > self.high_water_bytes {
            self.high_water_bytes = live_bytes;
        }
    }

    #[inline(always)]
    fn live_bytes(&self) -> usize {
        self.pooled_live_bytes + self.direct_live_bytes
    }

    /// Takes a block of a class back.
    ///
    /// # Safety
    /// This pool lent the block for `asked_bytes` from `class`, and it is not used any more.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, block: NonNull<u8>, asked_bytes: usize, class: SizeClass) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.blocks.push(class.index(), block) };
        self.pooled_live_bytes -= asked_bytes;
    }

    fn absorb_near(&mut self) {
        let returned = self.blocks.absorb_near();
        self.note_returned(returned);
    }

    /// A pooled block's tag is what was asked for.
    fn note_returned(&mut self, returned: Returned) {
        self.pooled_live_bytes -= returned.tag_sum as usize;
    }

    /// Notes that the holder of a block of a class now counts on `new_bytes` of it.
    pub(crate) fn note_resized(&mut self, old_bytes: usize, new_bytes: usize) {
        self.pooled_live_bytes = self.pooled_live_bytes - old_bytes + new_bytes;
        self.note_high_water();
    }

    /// Gives back half of what was idle since the last sweep; returns how many bytes.
    pub(crate) fn sweep(&mut self) -> usize {
        self.blocks.sweep()
    }

    pub(crate) fn release_unused(&mut self) -> usize {
        self.blocks.release_unused()
    }

    /// Begins a sweep, or goes on with the one under way; returns how many bytes were given back since
    /// the last time this was called.
    pub(crate) fn begin_trim(&mut self) -> usize {
        self.blocks.begin_sweep();
        self.go_on_trimming();
        std::mem::take(&mut self.trimmed_late_bytes)
    }

    /// Continues the sweep under way; returns whether there is more to do.
    pub(crate) fn go_on_trimming(&mut self) -> bool {
        if self.blocks.is_sweeping() {
            let mut limit = TRIM_PART;
            self.trimmed_late_bytes += self.blocks.sweep_on(&mut limit);
        }
        self.blocks.is_sweeping()
    }

    fn live_count(&self) -> usize {
        self.blocks.live_count() + (self.direct_misses - self.direct_returns) as usize
    }

    /// The figures of the classes in use, smallest first.
    pub(crate) fn class_stats(&self) -> impl Iterator<Item = ClassStats> {
        self.blocks.figures().map(|class| ClassStats {
            block_bytes: class.block_bytes,
            live_objects: class.live_count as u64,
            cached_objects: class.cached_count as u64,
            hits: class.hits(),
            misses: class.chunks_taken,
        })
    }

    /// The figures, each from its own books: see the identity at [`PoolStats`].
    pub(crate) fn stats(&self, core: &PoolCore<Self>) -> PoolStats {
        let sum = self.blocks.totals();
        let rounding_bytes = sum.live_bytes - self.pooled_live_bytes;
        let direct_live_count = self.direct_misses - self.direct_returns;
        PoolStats {
            name: core.name,
            kind: "block",
            mode: core.mode,
            live_objects: sum.live_count as u64 + direct_live_count,
            live_bytes: self.live_bytes() as u64,
            cached_bytes: sum.cached_bytes as u64,
            waste_bytes: (rounding_bytes + sum.tail_bytes) as u64,
            reserved_bytes: self.blocks.reserved_bytes() as u64,
            high_water_bytes: self.high_water_bytes as u64,
            hits: sum.lent_count.saturating_sub(sum.chunks_taken),
            misses: self.direct_misses + sum.chunks_taken,
            remote_frees: self.direct_remote_frees + self.blocks.remote_frees(),
        }
        .with_memory_of(&core.direct)
        .checked()
    }
}

impl OwnerPart for BlockBooks {
    #[inline]
    fn hold(&mut self, returned: ReturnedBlocks) {
        self.blocks.hold(returned);
    }

    #[inline]
    fn is_holding(&self) -> bool {
        self.blocks.is_holding()
    }

    fn absorb_held(&mut self) {
        let returned = self.blocks.absorb_held();
        self.note_returned(returned);
    }

    fn note_direct_freed(&mut self, count: usize, bytes: usize, freed_by: FreedBy) {
        self.direct_returns += count as u64;
        self.direct_live_bytes -= bytes;
        self.blocks.give_back_budget(bytes);
        if freed_by == FreedBy::Others {
            self.direct_remote_frees += count as u64;
        }
    }

    fn shut(&mut self) -> usize {
        self.blocks.release_idle(GiveBack::Now);
        self.live_count()
    }

    fn is_quick(&self, mode: PoolMode) -> bool {
        mode.pools_blocks()
    }
}
