use super::*;

unsafe fn never(_: NonNull<RemoteFrees>) {
    unreachable!("nothing is sent home here");
}

/// A class with its front list, as `LocalPool` has them.
pub(super) struct Bench {
    pub(super) class: BlockClass,
    front: FreeList,
    home: RemoteFrees,
}

impl Bench {
    pub(super) fn new(block_bytes: u32) -> Self {
        Self {
            class: BlockClass::new(block_bytes, 0),
            front: FreeList::new(),
            home: RemoteFrees::new(never, u16::MAX),
        }
    }

    pub(super) fn take(&mut self) -> NonNull<u8> {
        if self.front.is_empty() && !self.class.refill(&mut self.front) {
            let (header, is_zero) = chunk_store::take(1).unwrap();
            let home = NonNull::from(&self.home);
            // SAFETY: fresh from the store.
            unsafe { self.class.add_chunk(header, is_zero, home) };
            assert!(self.class.refill(&mut self.front));
        }
        self.front.pop().unwrap()
    }

    pub(super) fn put(&mut self, block: NonNull<u8>) {
        // SAFETY: the tests put what they took, once.
        unsafe { self.front.push(block) };
    }

    pub(super) fn spill(&mut self) {
        self.class.spill(self.front.take());
    }
}

/// Goal: spilled blocks are counted at their own chunk: exactly the chunks without a live block are idle, and leave on
/// request; for a size that divides the chunk and one that leaves a tail.
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
