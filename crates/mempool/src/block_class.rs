//! One size class: its chunks, and what of them is not in the front list.
//!
//! On the path: `local_pool` pops from and pushes to the class's front list; only when that is empty
//! or must shrink does it come here, where every block is counted at its own chunk.
//!
//! ```text
//!                refill                     live = blocks at the holders
//!   chunks  ----------------->  front       front = blocks in the front list
//!  (uncut,  <-----------------    | ^       out   = live + front
//!   free)        spill        pop v | push  chunks * blocks_per_chunk = out + free + uncut
//!                               holders
//! ```
//! Refilling takes from the fullest of the chunks with room, so that the others can run empty;
//! chunks are cut a page at a time, so that pages never wanted are never touched.
//! Absent on purpose: counting at the chunk on every allocate and free. It would cost a cache miss
//! each; `spill` does it for many blocks at once.
#![allow(unsafe_code)]
use crate::chunk::CHUNK_BYTES;
use crate::chunk_header::{ChunkHeader, ChunkUse};
use crate::chunk_list::ChunkList;
use crate::chunk_shelf::{ChunkShelf, PageLayout};
use crate::chunk_store::{self, GiveBack};
use crate::free_list::FreeList;
use crate::remote_free::RemoteFrees;
use std::ptr::NonNull;

/// Chunks with room that are looked at to find the fullest.
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
    /// Of the sweep under way, which of `roomy` is looked at next; those before it were, or came since.
    unswept: Option<NonNull<ChunkHeader>>,
    /// Of the sweep under way, as many of `idle` are still to leave. At most as many as there are.
    leaving_count: usize,
    /// Whether a sweep may find something to do.
    has_news: bool,
    block_bytes: u32,
    class: u8,
}

/// How much of a sweep may be done at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepLimit {
    /// System calls. The pages of the last chunk may take some more, fewer than 8.
    pub(crate) calls: u32,
    /// Chunks with room that are looked at.
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

/// What a sweep gave back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Swept {
    pub(crate) chunk_count: usize,
    /// Pages of chunks that stay: addressed on, but without memory.
    pub(crate) page_bytes: usize,
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
    /// The store lent the chunk to the caller, who gives it away; `home` is where its blocks go when
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

    /// Gives back half, rounded up, of the chunks that were idle all the time since the last sweep,
    /// and the same of the pages of the others. A class in use keeps what it needs, an idle one
    /// shrinks to nothing soon. Blocks in the front list count as in use: spill them before. Puts
    /// the fullest chunks first, so that what is lent next fills them up and the others can run
    /// empty.
    pub(crate) fn sweep(&mut self) -> Swept {
        self.begin_sweep();
        self.sweep_on(&mut SweepLimit::none())
    }

    /// Begins a sweep, when none is under way: sees what is to be looked at, and what is to leave.
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

    /// Goes on with the sweep under way until it is done or the limit is met, from which is taken what
    /// was done. What is wanted in between does not leave.
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

    /// What is lent next fills up the fullest chunks, so that the others can run empty. Nothing to do
    /// where no block came or went since the last sweep.
    pub(crate) fn put_fullest_first(&mut self) {
        debug_assert!(self.unswept.is_none(), "a sweep goes through the list");
        if self.has_news {
            self.roomy.order_by_fullness(self.blocks_per_chunk());
        }
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

    /// Chunks that a sweep would look at.
    pub(crate) fn unswept_count(&self) -> usize {
        if self.has_news { self.roomy.len() } else { 0 }
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
    /// Gives all chunks back: whoever frees a pool is the last, so no block is in use, though many
    /// may never have come home.
    fn drop(&mut self) {
        for list in [&mut self.idle, &mut self.roomy, &mut self.full] {
            while let Some(header) = list.pop() {
                // SAFETY: the chunk is this class's, in no list any more, and its blocks are unused.
                unsafe { chunk_store::give_back(header, GiveBack::Later) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::DISCARDS;

    unsafe fn never(_: NonNull<RemoteFrees>) {
        unreachable!("nothing is sent home here");
    }

    /// A class with its front list, as `LocalPool` has them.
    struct Bench {
        class: BlockClass,
        front: FreeList,
        home: RemoteFrees,
    }

    impl Bench {
        fn new(block_bytes: u32) -> Self {
            Self {
                class: BlockClass::new(block_bytes, 0),
                front: FreeList::new(),
                home: RemoteFrees::new(never, u16::MAX),
            }
        }

        fn take(&mut self) -> NonNull<u8> {
            if self.front.is_empty() && !self.class.refill(&mut self.front) {
                let (header, is_zero) = chunk_store::take(1).unwrap();
                let home = NonNull::from(&self.home);
                // SAFETY: fresh from the store.
                unsafe { self.class.add_chunk(header, is_zero, home) };
                assert!(self.class.refill(&mut self.front));
            }
            self.front.pop().unwrap()
        }

        fn put(&mut self, block: NonNull<u8>) {
            // SAFETY: the tests put what they took, once.
            unsafe { self.front.push(block) };
        }

        fn spill(&mut self) {
            self.class.spill(self.front.take());
        }
    }

    /// Goal: what spills is counted at its own chunk: exactly the chunks without a live block are
    /// idle, and go when told; for a size that divides the chunk and one that leaves a tail.
    #[test]
    fn exactly_the_chunks_without_a_live_block_go() {
        for block_bytes in [16 * 1024, 12 * 1024] {
            let mut bench = Bench::new(block_bytes);
            let per_chunk = CHUNK_BYTES / block_bytes as usize;
            let blocks: Vec<_> = (0..4 * per_chunk).map(|_| bench.take()).collect();
            // The first block of the first chunk and all of the second stay; the others go.
            let (live, freed): (Vec<_>, Vec<_>) = blocks
                .iter()
                .enumerate()
                .partition(|(index, _)| *index == 0 || index / per_chunk == 1);
            for (_, block) in freed {
                bench.put(*block);
            }
            bench.spill();
            assert_eq!(bench.class.release_idle(GiveBack::Now), 2);
            assert_eq!(bench.class.home_count(), per_chunk - 1);
            assert_eq!(bench.class.out_count(), per_chunk + 1);
            let mut all: Vec<NonNull<u8>> = live.into_iter().map(|(_, block)| *block).collect();
            all.extend((0..per_chunk + 1).map(|_| bench.take()));
            all.sort();
            for pair in all.windows(2) {
                assert!(pair[1].addr().get() - pair[0].addr().get() >= block_bytes as usize);
            }
            all.into_iter().for_each(|block| bench.put(block));
            bench.spill();
            assert_eq!(
                bench.class.chunk_count(),
                bench.class.release_idle(GiveBack::Now)
            );
        }
    }

    /// Goal: only chunks idle since the sweep before go, half of them, rounded up; one that was in
    /// use in between stays.
    #[test]
    fn sweep_goes_by_the_low_water_mark() {
        let mut bench = Bench::new(32 * 1024);
        let blocks: Vec<_> = (0..10).map(|_| bench.take()).collect();
        blocks.into_iter().for_each(|block| bench.put(block));
        let mut swept = Vec::new();
        for _ in 0..5 {
            bench.spill();
            swept.push(bench.class.sweep().chunk_count);
            // One chunk is in use for a moment of every interval.
            let block = bench.take();
            bench.put(block);
        }
        assert_eq!(swept, [0, 2, 1, 1, 0]);
        assert_eq!(bench.class.chunk_count(), 1);
        bench.spill();
        assert_eq!(bench.class.release_idle(GiveBack::Later), 1);
    }

    /// Goal: a sweep in parts makes no more calls at a time than its limit says, and gives back in the end
    /// what a whole one does. After a crowd a whole one made so many that a shard stood still for
    /// milliseconds.
    #[test]
    fn a_sweep_in_parts_makes_few_calls_at_a_time() {
        // Chunks that leave whole; chunks that one block each keeps from it.
        for (block_bytes, is_hollow, calls_over_max) in [(16 * 1024, false, 0), (1024, true, 7)] {
            let chunk_count = if cfg!(miri) { 6 } else { 100 };
            let per_chunk = CHUNK_BYTES / block_bytes as usize;
            let [mut whole, mut in_parts] = [0, 1].map(|_| {
                let mut bench = Bench::new(block_bytes);
                let blocks: Vec<_> = (0..chunk_count * per_chunk).map(|_| bench.take()).collect();
                let is_leaving = |index: &usize| !is_hollow || !index.is_multiple_of(per_chunk);
                let leaving = (0..blocks.len()).filter(is_leaving);
                leaving.for_each(|index| bench.put(blocks[index]));
                bench.spill();
                assert_eq!(
                    bench.class.sweep(),
                    Swept::default(),
                    "not idle for long yet"
                );
                bench
            });
            let calls_before = DISCARDS.get();
            let expected = whole.class.sweep();
            let calls = DISCARDS.get() - calls_before;
            assert!(calls as usize >= chunk_count / 2, "{calls}");
            in_parts.class.begin_sweep();
            let (mut swept, mut calls_in_parts) = (Swept::default(), 0);
            while in_parts.class.is_sweeping() {
                let calls_before = DISCARDS.get();
                let mut limit = SweepLimit { calls: 4, looks: 3 };
                let part = in_parts.class.sweep_on(&mut limit);
                let calls_now = DISCARDS.get() - calls_before;
                assert!(calls_now <= 4 + calls_over_max, "{calls_now} calls at once");
                calls_in_parts += calls_now;
                swept.chunk_count += part.chunk_count;
                swept.page_bytes += part.page_bytes;
            }
            assert_eq!((swept, calls_in_parts), (expected, calls), "{block_bytes}");
            assert_eq!(in_parts.class.sweep(), whole.class.sweep(), "the next one");
        }
    }

    /// Goal: what is lent while a sweep is under way does not leave, from whichever list it comes, and the
    /// sweep ends all the same.
    #[test]
    fn what_is_wanted_during_a_sweep_stays() {
        let mut bench = Bench::new(16 * 1024);
        let blocks: Vec<_> = (0..4 * 20).map(|_| bench.take()).collect();
        // Ten chunks with one block each, ten idle ones.
        let leaving = (0..blocks.len()).filter(|index| *index >= 40 || !index.is_multiple_of(4));
        leaving.for_each(|index| bench.put(blocks[index]));
        bench.spill();
        bench.class.sweep();
        bench.class.begin_sweep();
        let mut limit = SweepLimit { calls: 2, looks: 1 };
        bench.class.sweep_on(&mut limit);
        let check = |class: &BlockClass| {
            let next = class.unswept;
            assert!(next.is_none_or(|next| class.roomy.iter().any(|header| header == next)));
            assert!(class.leaving_count <= class.idle.len());
        };
        // Chunks are filled up, the one that is looked at next too, and then all others are wanted; others
        // fall idle and leave by another way.
        let mut taken = Vec::new();
        for count in [3, 1, 40, 26] {
            taken.extend((0..count).map(|_| bench.take()));
            check(&bench.class);
        }
        assert_eq!(bench.class.chunk_count(), 20, "nothing new was needed");
        for block in taken {
            bench.put(block);
            bench.spill();
            check(&bench.class);
        }
        while bench.class.is_sweeping() {
            let mut limit = SweepLimit { calls: 1, looks: 1 };
            bench.class.sweep_on(&mut limit);
        }
        assert_eq!(bench.class.chunk_count(), 20, "all were in use in between");
        assert_eq!(bench.class.out_count(), 10);
        // Those with one block each, and a sweep that is about to look at them when they fall idle.
        bench.class.sweep();
        bench.class.begin_sweep();
        assert!(bench.class.unswept.is_some());
        for index in 0..10 {
            bench.put(blocks[4 * index]);
            bench.spill();
            check(&bench.class);
            bench.class.release_idle(GiveBack::Now);
            check(&bench.class);
        }
        assert_eq!(bench.class.chunk_count(), 0);
        assert!(!bench.class.is_sweeping());
    }

    /// Goal: after a sweep the chunk with the fewest blocks at home is filled up first.
    #[test]
    fn fullest_chunk_is_filled_first() {
        let mut bench = Bench::new(8 * 1024);
        let blocks: Vec<_> = (0..8 * 4).map(|_| bench.take()).collect();
        // Of four chunks, three lose 6, 1 and 3 of their 8 blocks.
        let freed = [0..6, 8..9, 16..19];
        for range in freed.clone() {
            blocks[range].iter().for_each(|block| bench.put(*block));
        }
        bench.spill();
        bench.class.sweep();
        let chunk_of = |block: NonNull<u8>| ChunkHeader::of(block);
        let refilled: Vec<_> = (0..10).map(|_| chunk_of(bench.take())).collect();
        let expected = [(8, 1), (16, 3), (0, 6)]
            .into_iter()
            .flat_map(|(index, count)| vec![chunk_of(blocks[index]); count]);
        assert!(refilled.into_iter().eq(expected));
    }
}
