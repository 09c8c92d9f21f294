//! The part of a block pool that only the owner's thread uses: the fast path of allocate and free.
//!
//! `block_pool`, `pool` and the malloc heap find out that they run on the owner's thread, then come
//! here.

#![allow(unsafe_code)]

use std::array;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::batch::ReturnedBlocks;
use crate::block_class::{BlockClass, SweepLimit};
use crate::chunk::{CHUNK_BYTES, ChunkHeader};
use crate::chunk_store::GiveBack;
use crate::free_list::FreeList;
use crate::pool_mode::Budget;
use crate::remote_free::RemoteFrees;
use crate::{PoolError, chunk_store};

/// The free blocks of a class that the next allocations get.
struct Front {
    free: FreeList,
    /// Blocks ever pushed. The number popped follows from it: see `BlockClass::popped`.
    pushed: u64,
}

/// One thread's blocks of some classes.
/// Invariant: `fronts[index]` holds unused blocks of `classes[index]` only.
#[repr(C)]
pub(crate) struct LocalPool<const CLASSES: usize> {
    fronts: [Front; CLASSES],
    classes: [BlockClass; CLASSES],
    budget: Budget,
    /// Blocks returned by other threads and are in no front list yet. They still count as lent.
    held: ReturnedBlocks,
    /// Blocks returned by other threads and put into the front lists, in total.
    remote_frees: u64,
    /// The class at which the sweep under way is; `CLASSES` when there is none.
    next_swept: usize,
}

/// Blocks returned by other threads: their number, and the sum of their tags.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Returned {
    pub(crate) count: u64,
    pub(crate) tag_sum: u64,
}

impl<const CLASSES: usize> LocalPool<CLASSES> {
    /// Classes of these sizes without memory, which will never take more than `limit_bytes`.
    pub(crate) fn new(block_bytes: &[u32; CLASSES], limit_bytes: usize) -> Self {
        Self {
            fronts: array::from_fn(|_| Front {
                free: FreeList::new(),
                pushed: 0,
            }),
            classes: array::from_fn(|index| BlockClass::new(block_bytes[index], index as u8)),
            budget: Budget::new(limit_bytes),
            held: ReturnedBlocks::NONE,
            remote_frees: 0,
            next_swept: CLASSES,
        }
    }

    /// A block of class `index`, if one is ready: a pop.
    ///
    /// # Safety
    /// `index` is below `CLASSES`.
    #[inline(always)]
    pub(crate) unsafe fn pop(&mut self, index: usize) -> Option<NonNull<u8>> {
        debug_assert!(index < CLASSES);
        // SAFETY: the caller's promise.
        unsafe { self.fronts.get_unchecked_mut(index) }.free.pop()
    }

    /// Takes a block of class `index` back: a push.
    ///
    /// # Safety
    /// The block is of this pool and class, and it is not used any more.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, index: usize, block: NonNull<u8>) {
        debug_assert!(index < CLASSES);
        // SAFETY: a class of this pool is one of CLASSES.
        let front = unsafe { self.fronts.get_unchecked_mut(index) };
        // SAFETY: blocks are at least 16 bytes, 8-aligned, inside a mapped chunk; unused by the
        // caller's promise.
        unsafe { front.free.push(block) };
        front.pushed += 1;
    }

    /// Makes blocks of class `index` ready, from its chunks or a new one: after it, `pop` finds one.
    #[cold]
    pub(crate) fn refill(
        &mut self,
        index: usize,
        home: NonNull<RemoteFrees>,
    ) -> Result<(), PoolError> {
        let front = &mut self.fronts[index].free;
        debug_assert!(front.is_empty(), "only an empty front list is refilled");
        if self.classes[index].refill(front) {
            return Ok(());
        }
        self.take_budget(CHUNK_BYTES)?;
        let (header, is_zero) = match chunk_store::take(1) {
            Ok(taken) => taken,
            Err(refused) => {
                self.budget.give_back(CHUNK_BYTES);
                return Err(refused);
            }
        };
        let class = &mut self.classes[index];
        // SAFETY: fresh from the store.
        unsafe { class.add_chunk(header, is_zero, home) };
        let filled = class.refill(&mut self.fronts[index].free);
        assert!(filled, "a new chunk holds at least two blocks");
        Ok(())
    }

    /// Takes `bytes` from the budget, giving idle chunks of all classes back where it must.
    #[cold]
    pub(crate) fn take_budget(&mut self, bytes: usize) -> Result<(), PoolError> {
        let first_try = self.budget.take(bytes);
        if first_try.is_ok() || self.release_idle(GiveBack::Now) == 0 {
            return first_try;
        }
        self.budget.take(bytes)
    }

    /// Returns `bytes` taken by `take_budget` for something else than a chunk.
    pub(crate) fn give_back_budget(&mut self, bytes: usize) {
        self.budget.give_back(bytes);
    }

    /// Keeps blocks that other threads freed until they are wanted. Nothing is held.
    #[inline]
    pub(crate) fn hold(&mut self, returned: ReturnedBlocks) {
        debug_assert!(!self.is_holding(), "what is held would be lost");
        self.held = returned;
    }

    /// Whether blocks wait in `held`.
    #[inline]
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Puts the held blocks, whose lines are being prefetched, into the front lists: only a few, so that they are used
    /// before the lines are evicted again, in the order they were freed in.
    #[inline]
    pub(crate) fn absorb_near(&mut self) -> Returned {
        self.absorb(self.held.near_count())
    }

    /// Puts all held blocks into the front lists.
    pub(crate) fn absorb_held(&mut self) -> Returned {
        self.absorb(usize::MAX)
    }

    #[inline]
    fn absorb(&mut self, count_max: usize) -> Returned {
        let mut sum = Returned::default();
        let mut left_count = count_max;
        while left_count > 0
            && let Some((block, tag)) = self.held.next()
        {
            left_count -= 1;
            // SAFETY: only blocks of this pool are returned to it, after their holder freed them; their chunk's header
            // has the class.
            unsafe {
                let class = match CLASSES {
                    1 => 0,
                    _ => ChunkHeader::of(block).as_ref().class(),
                };
                self.push(usize::from(class), block);
            }
            sum.count += 1;
            sum.tag_sum += u64::from(tag);
        }
        self.remote_frees += sum.count;
        sum
    }

    /// Puts all ready blocks back to their chunks. O(ready blocks).
    fn spill_all(&mut self) {
        for (front, class) in self.fronts.iter_mut().zip(&mut self.classes) {
            class.spill(front.free.take());
        }
    }

    /// Counts every ready block at its chunk and gives back half of the chunks, and of the pages of
    /// others, that were idle since the last sweep; returns how many bytes. O(ready blocks).
    pub(crate) fn sweep(&mut self) -> usize {
        let rest_bytes = self.sweep_on(&mut SweepLimit::none());
        self.begin_sweep();
        rest_bytes + self.sweep_on(&mut SweepLimit::none())
    }

    /// Counts every ready block at its chunk and begins a sweep, when none is under way. O(ready blocks
    /// and chunks with room).
    pub(crate) fn begin_sweep(&mut self) {
        if self.is_sweeping() {
            return;
        }
        self.spill_all();
        self.classes.iter_mut().for_each(BlockClass::begin_sweep);
        self.next_swept = 0;
    }

    /// Whether a sweep is under way.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.next_swept < CLASSES
    }

    /// Goes on with the sweep under way as far as the limit lets it; returns how many bytes that gave
    /// back.
    pub(crate) fn sweep_on(&mut self, limit: &mut SweepLimit) -> usize {
        let mut given_back_bytes = 0;
        while let Some(class) = self.classes.get_mut(self.next_swept) {
            let swept = class.sweep_on(limit);
            self.budget.give_back(swept.chunk_count * CHUNK_BYTES);
            given_back_bytes += swept.chunk_count * CHUNK_BYTES + swept.page_bytes;
            if class.is_sweeping() {
                break;
            }
            self.next_swept += 1;
        }
        given_back_bytes
    }

    /// Gives all chunks without a live block back; returns how many. O(ready blocks).
    pub(crate) fn release_idle(&mut self, when: GiveBack) -> usize {
        self.spill_all();
        let count = self
            .classes
            .iter_mut()
            .map(|class| class.release_idle(when))
            .sum();
        self.budget.give_back(count * CHUNK_BYTES);
        count
    }

    /// Gives all memory back that no live block is in: chunks, and pages of others; returns how many bytes.
    /// O(ready blocks and chunks with room).
    pub(crate) fn release_unused(&mut self) -> usize {
        let chunk_count = self.release_idle(GiveBack::Now);
        let page_bytes = self.classes.iter_mut().map(BlockClass::empty_pages);
        chunk_count * CHUNK_BYTES + page_bytes.sum::<usize>()
    }

    /// The figures of class `index`. O(ready blocks and chunks with room of the class).
    pub(crate) fn class_figures(&self, index: usize) -> ClassFigures {
        let (front, class) = (&self.fronts[index], &self.classes[index]);
        let front_count = front.free.count();
        ClassFigures {
            block_bytes: class.block_bytes(),
            live_count: class.out_count() - front_count,
            cached_count: class.home_count() + front_count,
            lent_count: class.popped(front.pushed, front_count),
            chunks_taken: class.misses(),
            tail_bytes: class.tail_bytes(),
        }
    }

    /// The figures of every class that ever had memory, smallest first.
    pub(crate) fn figures(&self) -> impl Iterator<Item = ClassFigures> {
        (0..CLASSES)
            .filter(|&index| self.classes[index].misses() > 0)
            .map(|index| self.class_figures(index))
    }

    /// The figures of all classes together, in one walk.
    pub(crate) fn totals(&self) -> Totals {
        self.figures().fold(Totals::default(), |sum, class| Totals {
            live_count: sum.live_count + class.live_count,
            live_bytes: sum.live_bytes + class.live_count * class.block_bytes,
            cached_bytes: sum.cached_bytes + class.cached_count * class.block_bytes,
            tail_bytes: sum.tail_bytes + class.tail_bytes,
            lent_count: sum.lent_count + class.lent_count,
            chunks_taken: sum.chunks_taken + class.chunks_taken,
        })
    }

    /// Blocks lent and not known to be back.
    pub(crate) fn live_count(&self) -> usize {
        self.totals().live_count
    }

    /// Blocks of class `index` at the holders or ready.
    pub(crate) fn out_count(&self, index: usize) -> usize {
        self.classes[index].out_count()
    }

    /// Bytes taken from the budget and not given back.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.budget.reserved_bytes()
    }

    /// Blocks returned by other threads, in total.
    pub(crate) fn remote_frees(&self) -> u64 {
        self.remote_frees
    }
}

/// Current numbers of one class. Each number has a separate source: see the diagram in `block_class`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClassFigures {
    pub(crate) block_bytes: usize,
    pub(crate) live_count: usize,
    pub(crate) cached_count: usize,
    /// Blocks lent, ever.
    pub(crate) lent_count: u64,
    /// Chunks taken from the store, ever: as many allocations had to wait for one.
    pub(crate) chunks_taken: u64,
    pub(crate) tail_bytes: usize,
}

impl ClassFigures {
    /// Blocks lent without waiting for a chunk.
    pub(crate) fn hits(&self) -> u64 {
        self.lent_count.saturating_sub(self.chunks_taken)
    }
}

/// The same for all classes of a pool.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Totals {
    pub(crate) live_count: usize,
    /// In whole blocks.
    pub(crate) live_bytes: usize,
    pub(crate) cached_bytes: usize,
    pub(crate) tail_bytes: usize,
    pub(crate) lent_count: u64,
    pub(crate) chunks_taken: u64,
}

// A number for every thread, never used twice.

/// No thread's number: a pool without an owner.
pub(crate) const NOBODY: u64 = u64::MAX;
/// The number of every thread that never asked for one, and so owns nothing.
const UNNUMBERED: u64 = 0;

// Constant start and nothing to drop: usable until the thread's very last instruction.
thread_local!(static NUMBER: Cell<u64> = const { Cell::new(UNNUMBERED) });

/// The calling thread's number.
pub(crate) fn current() -> u64 {
    if NUMBER.get() == UNNUMBERED {
        NUMBER.set(next());
    }
    NUMBER.get()
}

/// Whether the calling thread has this number. One thread-local load.
#[inline]
pub(crate) fn is_current(number: u64) -> bool {
    NUMBER.get() == number
}

#[cold]
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(UNNUMBERED);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
#[path = "tests/thread_number.rs"]
mod thread_number_tests;
