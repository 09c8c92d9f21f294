//! Giving back what a class has not needed for a while.
//!
//! On the path: a shard's upkeep begins a sweep of its pool now and then and goes on with it tick by tick,
//! a few system calls at a time. Absent on purpose: any clock; how long "a while" is, is whoever sweeps'.

use super::BlockClass;
use crate::chunk_header::ChunkHeader;
use crate::chunk_shelf::PageLayout;
use crate::chunk_store::GiveBack;

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

    /// What is lent next fills up the fullest chunks, so that the others can run empty. Nothing to do
    /// where no block came or went since the last sweep.
    pub(crate) fn put_fullest_first(&mut self) {
        debug_assert!(self.unswept.is_none(), "a sweep goes through the list");
        if self.has_news {
            self.roomy.order_by_fullness(self.blocks_per_chunk());
        }
    }

    /// Chunks that a sweep would look at.
    pub(crate) fn unswept_count(&self) -> usize {
        if self.has_news { self.roomy.len() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Bench;
    use super::*;
    use crate::chunk::{CHUNK_BYTES, DISCARDS};

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
}
