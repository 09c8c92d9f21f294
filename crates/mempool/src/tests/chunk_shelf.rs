use super::*;
use crate::chunk::Chunk;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::slice;

/// Goal: every block begins in one page, in the order of their places, for all kinds of sizes.
#[test]
fn pages_share_the_blocks_out() {
    for block_bytes in [16, 24, 56, 64, 144, 1000, 4096, 5120, 22528, 32768] {
        let all: Vec<u32> = (0..PAGE_COUNT)
            .flat_map(|page| blocks_beginning_in(page, block_bytes))
            .collect();
        assert!(all.into_iter().eq(0..CHUNK_BYTES as u32 / block_bytes));
    }
}

/// Goal: of some pages, the higher ones, and the odd one out too.
#[test]
fn upper_half_rounds_up() {
    assert_eq!(upper_half(0b1011_0001), 0b1010_0000);
    assert_eq!(upper_half(0b1), 0b1);
    assert_eq!(upper_half(0b1_0101), 0b1_0100);
}

/// A chunk and its books, and what is out of it.
struct Bench {
    chunk: Chunk,
    shelf: ChunkShelf,
    block_bytes: u32,
    out: BTreeSet<NonNull<u8>>,
}

impl Bench {
    fn new(block_bytes: u32) -> Self {
        Self {
            chunk: Chunk::map().unwrap(),
            shelf: ChunkShelf::new(block_bytes, true),
            block_bytes,
            out: BTreeSet::new(),
        }
    }

    /// Takes all blocks, each once, and fills them with a mark of their own.
    fn take_all(&mut self) {
        while self.shelf.has_room() {
            let mut front = FreeList::new();
            // SAFETY: the chunk and the books are this bench's.
            let count = unsafe {
                self.shelf
                    .fill(&mut front, self.chunk.start(), self.block_bytes)
            };
            for _ in 0..count {
                let block = front.pop().unwrap();
                assert!(self.out.insert(block), "a block was out already");
                // SAFETY: the block is out, and ours.
                unsafe { block.write_bytes(mark(block), self.block_bytes as usize) };
            }
            assert!(front.is_empty());
        }
        let block_count = CHUNK_BYTES as u32 / self.block_bytes;
        assert_eq!(self.shelf.out_count(), block_count);
        assert_eq!(self.out.len(), block_count as usize);
    }

    fn put_unless(&mut self, stays: impl Fn(usize) -> bool) {
        let start = self.chunk.start();
        let block_bytes = self.block_bytes as usize;
        let going: Vec<_> = self
            .out
            .iter()
            .copied()
            .filter(|block| !stays((block.addr().get() - start.addr().get()) / block_bytes))
            .collect();
        for block in going {
            self.out.remove(&block);
            // SAFETY: it was out and is not used any more.
            unsafe { self.shelf.put(block, self.block_bytes) };
        }
    }

    fn sweep(&mut self) {
        // SAFETY: the chunk and the books are this bench's.
        unsafe {
            self.shelf
                .sweep(self.chunk.start(), &PageLayout::new(self.block_bytes))
        };
    }

    fn check_contents(&self) {
        let block_bytes = self.block_bytes as usize;
        for block in &self.out {
            // SAFETY: the block is out, and was filled by `take_all`.
            let bytes = unsafe { slice::from_raw_parts(block.as_ptr(), block_bytes) };
            // In one comparison: a loop over them takes Miri minutes.
            assert!(
                *bytes == vec![mark(*block); block_bytes],
                "written by another"
            );
        }
    }

    /// Pages that read as zero: those given back.
    fn zero_pages(&self) -> usize {
        let is_zero = |page: &usize| {
            // SAFETY: all of the chunk was written to, or is zero.
            let bytes = unsafe {
                let start = self.chunk.start().add(page * PAGE_BYTES);
                slice::from_raw_parts(start.as_ptr(), PAGE_BYTES)
            };
            *bytes == [0; PAGE_BYTES]
        };
        (0..PAGE_COUNT).filter(is_zero).count()
    }
}

/// Never 0, and different for neighbours.
fn mark(block: NonNull<u8>) -> u8 {
    (block.addr().get() / 16 % 251) as u8 + 1
}

/// Goal: pages that only free blocks reach into go back, half of them each sweep after the one
/// that found them; live blocks keep their bytes, and all others can be lent again, once each.
#[test]
fn pages_without_live_blocks_go_back() {
    let sizes = [16, 56, 144, 1008, 4096, 5120, 16384];
    for &block_bytes in &sizes[if cfg!(miri) { 3 } else { 0 }..] {
        let mut bench = Bench::new(block_bytes);
        bench.take_all();
        // The tail, too short for a block.
        let untouched = bench.zero_pages();
        let survivor = bench.out.len() / 2;
        bench.put_unless(|index| index == survivor);
        bench.sweep();
        assert_eq!(
            bench.zero_pages(),
            untouched,
            "{block_bytes}: not idle for long yet"
        );
        let mut zero_pages = Vec::new();
        for _ in 0..7 {
            bench.sweep();
            bench.check_contents();
            zero_pages.push(bench.zero_pages() - untouched);
        }
        assert!(
            zero_pages[0] >= 4 && zero_pages[0] <= 8,
            "{block_bytes}: {zero_pages:?}"
        );
        assert!(
            *zero_pages.last().unwrap() >= 11,
            "{block_bytes}: {zero_pages:?}"
        );
        bench.take_all();
        bench.check_contents();
    }
}

/// Goal: a page that was used since the last sweep is not idle, though it was at both.
#[test]
fn pages_in_use_in_between_stay() {
    let mut bench = Bench::new(1024);
    bench.take_all();
    for _ in 0..5 {
        bench.put_unless(|index| index == 0);
        bench.sweep();
        bench.take_all();
        bench.check_contents();
    }
    assert_eq!(bench.zero_pages(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 100 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Goal: after any puts, fills and sweeps, the pages found by counting are those found by checking every lent
    /// block, and no such block reaches into a page without memory.
    #[test]
    fn counting_finds_what_looking_finds(
        block_bytes in prop::sample::select(
            [48, 144, 1008, 3072, 5120, 12_288, 32_768][if cfg!(miri) { 2 } else { 0 }..].to_vec()
        ),
        steps in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, any::<bool>(), any::<bool>()), 1..12),
    ) {
        let mut bench = Bench::new(block_bytes);
        bench.take_all();
        let count = CHUNK_BYTES / block_bytes as usize;
        for (from, length, is_thin, is_refilled) in steps {
            let from = (from * count as f64) as usize;
            let leaving = from..from + (length * count as f64) as usize + 1;
            bench.put_unless(|index| !leaving.contains(&index) || is_thin && index % 3 == 0);
            bench.sweep();
            if is_refilled {
                bench.take_all();
            }
            let reached = bench
                .out
                .iter()
                .flat_map(|block| pages_of(block.addr().get() % CHUNK_BYTES, block_bytes))
                .fold(0, |pages: Pages, page| pages | 1 << page);
            let with_blocks = pages_of(0, (count * block_bytes as usize) as u32)
                .fold(0, |pages: Pages, page| pages | 1 << page);
            let shelf = &bench.shelf;
            prop_assert_eq!(shelf.absent & reached, 0);
            prop_assert_eq!(
                shelf.pages_without_live(&PageLayout::new(block_bytes)),
                with_blocks & !reached & !shelf.absent
            );
        }
    }
}
