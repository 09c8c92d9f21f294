//! One size class: its chunks, and what of them is not in the front list.
//!
//! `local_pool` pops from and pushes to the class's front list; only when that is empty or must
//! shrink does it come here, where every block is counted at its own chunk.
//!
//! ```text
//!                refill                     live = blocks at the holders
//!   chunks  ----------------->  front       front = blocks in the front list
//!  (uncut,  <-----------------    | ^       out   = live + front
//!   free)        spill        pop v | push  chunks * blocks_per_chunk = out + free + uncut
//!                               holders
//! ```
//! Refilling takes from the fullest of the chunks with room, so that the others can run empty; chunks are cut a page at
//! a time, so that pages never wanted are never touched. Chunks are not counted on every allocate and free, which would
//! cost a cache miss each; `spill` does it for many blocks at once.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::chunk::CHUNK_BYTES;
use crate::chunk::ChunkList;
use crate::chunk::{ChunkHeader, ChunkUse};
use crate::chunk_shelf::{ChunkShelf, PageLayout};
use crate::chunk_store;
use crate::chunk_store::GiveBack;
use crate::free_list::FreeList;
use crate::remote_free::RemoteFrees;

/// Chunks with room that are searched for the fullest.
const LOOKED_AT_MAX: usize = 8;

/// Blocks of one size.
/// Invariant: every chunk of the class is in one list: in `full` when all its blocks are out, in
/// `idle`, where it counts as uncut from its start, when all are home, else in `roomy`.
pub(crate) struct BlockClass {
    /// Blocks moved to the front list, ever, and from it back to their chunks, ever.
    filled: u64,
    spilled: u64,
    /// Chunks taken from the store, ever, and given back, ever.
    chunks_taken: u64,
    chunks_given_back: u64,
    roomy: ChunkList,
    full: ChunkList,
    idle: ChunkList,
    /// The fewest chunks that were idle at any time since the last sweep.
    idle_low_count: usize,
    /// The next entry of `roomy` for the sweep under way; those before it are done, or were added since.
    unswept: Option<NonNull<ChunkHeader>>,
    /// Of the sweep under way, as many of `idle` are still to leave. At most as many as there are.
    leaving_count: usize,
    /// Whether a sweep may have work.
    has_news: bool,
    block_bytes: u32,
    class: u8,
}

impl BlockClass {
    /// A class without memory. `class` is its number in its owner's table.
    pub(crate) const fn new(block_bytes: u32, class: u8) -> Self {
        Self {
            filled: 0,
            spilled: 0,
            chunks_taken: 0,
            chunks_given_back: 0,
            roomy: ChunkList::new(),
            full: ChunkList::new(),
            idle: ChunkList::new(),
            idle_low_count: 0,
            unswept: None,
            leaving_count: 0,
            has_news: false,
            block_bytes,
            class,
        }
    }

    /// Fills the empty front list from the class's own chunks; `false` when they have no block.
    pub(crate) fn refill(&mut self, front: &mut FreeList) -> bool {
        let Some(header) = self.fullest_roomy().or_else(|| self.reuse_idle()) else {
            return false;
        };
        // SAFETY: the chunk is this class's; no other reference to its shelf lives.
        let shelf = unsafe { ChunkHeader::shelf(header) };
        // SAFETY: as above; the chunk is cut into this class's blocks.
        let count =
            unsafe { shelf.fill(front, ChunkHeader::chunk_start(header), self.block_bytes) };
        self.filled += u64::from(count);
        self.has_news = true;
        if !shelf.has_room() {
            // SAFETY: chunks with room are in `roomy`, and this one had some.
            unsafe {
                self.leave_roomy(header);
                self.full.push(header);
            }
        }
        true
    }

    /// Adds a chunk fresh from the store, of which it may be known that it has no memory yet;
    /// `refill` finds it.
    ///
    /// # Safety
    /// The store lent the chunk to the caller, which gives it away; `home` is where its blocks go when
    /// other threads free them.
    pub(crate) unsafe fn add_chunk(
        &mut self,
        header: NonNull<ChunkHeader>,
        is_absent: bool,
        home: NonNull<RemoteFrees>,
    ) {
        // SAFETY: the caller's promise; the chunk is in no list.
        unsafe {
            let (class, block_bytes) = (self.class, self.block_bytes);
            ChunkHeader::dedicate(header, ChunkUse::Blocks, home.as_ptr(), class, block_bytes);
            *ChunkHeader::shelf(header) = ChunkShelf::new(block_bytes, is_absent);
            self.roomy.push(header);
        }
        self.chunks_taken += 1;
    }

    /// Of the first few chunks with room, the one with the fewest blocks home.
    fn fullest_roomy(&self) -> Option<NonNull<ChunkHeader>> {
        // SAFETY: listed chunks are this class's; the reference ends with the closure.
        let out_count =
            |header: &NonNull<ChunkHeader>| unsafe { ChunkHeader::shelf(*header).out_count() };
        self.roomy.iter().take(LOOKED_AT_MAX).max_by_key(out_count)
    }

    fn reuse_idle(&mut self) -> Option<NonNull<ChunkHeader>> {
        let header = self.idle.pop()?;
        self.note_fewer_idle();
        // SAFETY: it is in no list now.
        unsafe { self.roomy.push(header) };
        Some(header)
    }

    /// Puts blocks that were in the front list back to their chunks; returns how many bytes.
    pub(crate) fn spill(&mut self, mut blocks: FreeList) -> usize {
        let before = self.spilled;
        while let Some(block) = blocks.pop() {
            let header = ChunkHeader::of(block);
            // SAFETY: the block is of a chunk of this class, and no other reference to its shelf
            // lives; a popped block is unused.
            unsafe {
                let shelf = ChunkHeader::shelf(header);
                let had_room = shelf.has_room();
                shelf.put(block, self.block_bytes);
                let is_idle = shelf.out_count() == 0;
                match (had_room, is_idle) {
                    (true, true) => self.leave_roomy(header),
                    (false, _) => self.full.remove(header),
                    (true, false) => {}
                }
                if !had_room && !is_idle {
                    self.roomy.push(header);
                }
                if is_idle {
                    ChunkHeader::shelf(header).restart(self.block_bytes);
                    self.idle.push(header);
                }
            }
            self.spilled += 1;
            self.has_news = true;
        }
        (self.spilled - before) as usize * self.block_bytes()
    }

    /// A chunk with room is about to be none.
    ///
    /// # Safety
    /// The chunk is in `roomy`.
    unsafe fn leave_roomy(&mut self, header: NonNull<ChunkHeader>) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.unswept == Some(header) {
                self.unswept = self.roomy.behind(header);
            }
            self.roomy.remove(header);
        }
    }

    /// An idle chunk has left the list: fewer of them are to leave only when there are no others.
    fn note_fewer_idle(&mut self) {
        let count = self.idle.len();
        self.leaving_count = self.leaving_count.min(count);
        self.idle_low_count = self.idle_low_count.min(count - self.leaving_count);
    }

    /// Gives back all pages without a block that is lent, of chunks that have one; returns how many
    /// bytes. Blocks in the front list count as lent.
    pub(crate) fn empty_pages(&mut self) -> usize {
        self.sum_over_roomy(|shelf, start, layout| {
            // SAFETY: as in `sweep`.
            unsafe { shelf.empty_pages(start, layout) }
        })
    }

    fn sum_over_roomy(
        &self,
        mut visit: impl FnMut(&mut ChunkShelf, NonNull<u8>, &PageLayout) -> usize,
    ) -> usize {
        let layout = PageLayout::new(self.block_bytes);
        let visit_chunk = |header| {
            // SAFETY: the chunk is this class's; no other reference to its shelf lives.
            let shelf = unsafe { ChunkHeader::shelf(header) };
            visit(shelf, ChunkHeader::chunk_start(header), &layout)
        };
        self.roomy.iter().map(visit_chunk).sum()
    }

    /// Gives all idle chunks back; returns how many.
    pub(crate) fn release_idle(&mut self, when: GiveBack) -> usize {
        let count = self.idle.len();
        self.release(count, when);
        count
    }

    fn release(&mut self, count: usize, when: GiveBack) {
        for _ in 0..count {
            let Some(header) = self.idle.pop() else { break };
            // SAFETY: an idle chunk's blocks are all home, and it is in no list any more.
            unsafe { chunk_store::give_back(header, when) };
            self.chunks_given_back += 1;
            self.leaving_count = self.leaving_count.saturating_sub(1);
        }
        self.note_fewer_idle();
    }

    /// Size of every block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// Chunks the class has.
    pub(crate) fn chunk_count(&self) -> usize {
        (self.chunks_taken - self.chunks_given_back) as usize
    }

    /// Chunks taken from the store, ever.
    pub(crate) fn misses(&self) -> u64 {
        self.chunks_taken
    }

    /// Blocks at the holders or in the front list.
    pub(crate) fn out_count(&self) -> usize {
        (self.filled - self.spilled) as usize
    }

    /// Blocks popped from the front list, ever, when `pushed` were pushed to it and `front_count`
    /// are in it.
    pub(crate) fn popped(&self, pushed: u64, front_count: usize) -> u64 {
        self.filled + pushed - self.spilled - front_count as u64
    }

    /// Blocks in the chunks, free or uncut. Counted chunk by chunk: O(chunks with room).
    pub(crate) fn home_count(&self) -> usize {
        let per_chunk = self.blocks_per_chunk() as usize;
        // SAFETY: listed chunks are this class's; the reference ends with the closure.
        let home_count = |header: NonNull<ChunkHeader>| unsafe {
            per_chunk - ChunkHeader::shelf(header).out_count() as usize
        };
        let roomy: usize = self.roomy.iter().map(home_count).sum();
        roomy + self.idle.iter().map(home_count).sum::<usize>()
    }

    /// Bytes at the ends of chunks, too short for a block.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.chunk_count() * (CHUNK_BYTES % self.block_bytes())
    }

    fn blocks_per_chunk(&self) -> u32 {
        CHUNK_BYTES as u32 / self.block_bytes
    }
}

impl Drop for BlockClass {
    /// Gives all chunks back: the thread that frees a pool is the last, so no block is in use, though many may never
    /// have been returned.
    fn drop(&mut self) {
        for list in [&mut self.idle, &mut self.roomy, &mut self.full] {
            while let Some(header) = list.pop() {
                // SAFETY: the chunk is this class's, in no list any more, and its blocks are unused.
                unsafe { chunk_store::give_back(header, GiveBack::Later) };
            }
        }
    }
}

// Giving back what a class has not needed for a while.

/// How much of a sweep may be done at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepLimit {
    /// System calls. The pages of the last chunk may take some more, fewer than 8.
    pub(crate) calls: u32,
    /// Chunks with room that are checked.
    pub(crate) looks: u32,
}

impl SweepLimit {
    /// No limit.
    pub(crate) const fn none() -> Self {
        Self {
            calls: u32::MAX,
            looks: u32::MAX,
        }
    }

    fn is_met(self) -> bool {
        self.calls == 0 || self.looks == 0
    }
}

/// Result of a sweep.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Swept {
    pub(crate) chunk_count: usize,
    /// Pages of chunks that stay: addressed on, but without memory.
    pub(crate) page_bytes: usize,
}

impl BlockClass {
    /// Gives back half, rounded up, of the chunks that were idle all the time since the last sweep,
    /// and the same of the pages of the others. A class in use keeps what it needs, an idle one
    /// shrinks to nothing soon. Blocks in the front list count as in use: spill them before. Puts
    /// the fullest chunks first, so that what is lent next fills them up and the others can run
    /// empty.
    pub(crate) fn sweep(&mut self) -> Swept {
        self.begin_sweep();
        self.sweep_on(&mut SweepLimit::none())
    }

    /// Begins a sweep, when none is under way: determines the chunks to check, and how much is to leave.
    pub(crate) fn begin_sweep(&mut self) {
        debug_assert!(!self.is_sweeping(), "one sweep after the other");
        if !self.has_news {
            return;
        }
        self.put_fullest_first();
        self.unswept = self.roomy.first();
        self.leaving_count = self.idle_low_count.div_ceil(2);
        self.idle_low_count = self.idle.len() - self.leaving_count;
        self.has_news = self.idle_low_count > 0;
    }

    /// Whether a sweep is under way.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.unswept.is_some() || self.leaving_count > 0
    }

    /// Continues the sweep under way until it is done or the limit is met; subtracts the work from the limit. Chunks
    /// that are used in between do not leave.
    pub(crate) fn sweep_on(&mut self, limit: &mut SweepLimit) -> Swept {
        let mut swept = Swept::default();
        if !self.is_sweeping() {
            return swept;
        }
        let layout = PageLayout::new(self.block_bytes);
        while let Some(header) = self.unswept
            && !limit.is_met()
        {
            // SAFETY: the chunk is in this list, of this class, and cut into its blocks; no other
            // reference to its shelf lives.
            unsafe {
                self.unswept = self.roomy.behind(header);
                let shelf = ChunkHeader::shelf(header);
                let pages = shelf.sweep(ChunkHeader::chunk_start(header), &layout);
                self.has_news |= shelf.has_idle_pages();
                swept.page_bytes += pages.bytes;
                limit.calls = limit.calls.saturating_sub(pages.runs);
            }
            limit.looks -= 1;
        }
        while self.leaving_count > 0 && !limit.is_met() {
            self.release(1, GiveBack::Now);
            limit.calls -= 1;
            swept.chunk_count += 1;
        }
        swept
    }

    /// The next allocations fill the fullest chunks, so that the others can run empty. Nothing to do if no block was
    /// lent or returned since the last sweep.
    pub(crate) fn put_fullest_first(&mut self) {
        debug_assert!(self.unswept.is_none(), "a sweep goes through the list");
        if self.has_news {
            self.roomy.order_by_fullness(self.blocks_per_chunk());
        }
    }

    /// Chunks that a sweep would check.
    pub(crate) fn unswept_count(&self) -> usize {
        if self.has_news { self.roomy.len() } else { 0 }
    }
}

#[cfg(test)]
#[path = "tests/block_class.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/sweep.rs"]
mod sweep_tests;
