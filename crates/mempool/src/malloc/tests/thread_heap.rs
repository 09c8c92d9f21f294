use super::*;
use crate::chunk::Chunk;

/// The fill of the blocks.
const BLOCK_MARK: u8 = 0xAB;
/// Every so many of these blocks stay alive: one or two in each chunk.
const LIVE_ONE_IN: usize = 40;
const SIZE_BYTES: usize = 1000;

fn is_marked(block: NonNull<u8>) -> bool {
    // SAFETY: the test's blocks stay mapped: each of their chunks has one that is alive.
    unsafe { block.add(SIZE_BYTES - 1).read() == BLOCK_MARK }
}

/// Goal: the free pages beside one live block in a chunk go to the system, some of it while the heap shrinks, the rest
/// sweep by sweep as time goes by; every sweep leaves no block ready, so that the next allocation takes the slow path;
/// live blocks keep their bytes, and the rest can be lent again.
#[test]
fn pages_go_as_a_heap_shrinks_and_as_time_goes_by() {
    let memory = Chunk::map().unwrap();
    let heap = memory.start().cast::<ThreadHeap>();
    let home = ThreadHeap::home(heap);
    // SAFETY: a chunk has room for a heap, and this one is exclusive.
    let owned = unsafe {
        ThreadHeap::init(heap);
        ThreadHeap::owned(heap)
    };
    let class = SizeClass::of(SIZE_BYTES);
    // Of 80, the pages that the two live ones reach into are more than a quarter.
    let count = if cfg!(miri) { 120 } else { 16_000 };
    let take = |owned: &mut OwnerPart| {
        let block = owned.pop(class).or_else(|| owned.pop_slow(class, home));
        let block = block.expect("there is memory");
        // SAFETY: the block is this long and ours.
        unsafe { block.write_bytes(BLOCK_MARK, SIZE_BYTES) };
        block
    };
    let blocks: Vec<_> = (0..count).map(|_| take(owned)).collect();
    let is_live = |index: &usize| index.is_multiple_of(LIVE_ONE_IN);
    let (live, freed): (Vec<usize>, Vec<usize>) = (0..count).partition(is_live);
    // As if a sweep had just been, far in the future: none is due by the clock until then.
    let start_ms = u64::MAX / 2;
    owned.pace.begin(start_ms, 0);
    for &index in &freed {
        // SAFETY: taken above, and not used any more.
        if unsafe { owned.push(class.index(), blocks[index]) } {
            owned.look_at(class.index());
        }
    }
    let count_marked = || {
        freed
            .iter()
            .filter(|&&index| is_marked(blocks[index]))
            .count()
    };
    let mut marked_counts = vec![count_marked()];
    // Miri is too slow for enough blocks to shrink.
    assert_eq!(marked_counts[0] < freed.len(), !cfg!(miri));
    for second in 1..=8 {
        owned.keep_up(start_ms + second * 1000);
        assert!(owned.pop(class).is_none(), "a block was still ready");
        marked_counts.push(count_marked());
    }
    assert!(
        marked_counts.is_sorted_by(|one, other| one >= other),
        "{marked_counts:?}"
    );
    assert!(
        marked_counts[8] < marked_counts[0] && marked_counts[8] < freed.len() / 4,
        "{marked_counts:?}"
    );
    assert!(live.iter().all(|&index| is_marked(blocks[index])));
    let again: Vec<_> = freed.iter().map(|_| take(owned)).collect();
    let mut all: Vec<_> = live
        .iter()
        .map(|&index| blocks[index])
        .chain(again)
        .collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "a block was lent twice");
    for block in all {
        // SAFETY: lent, and not used any more.
        if unsafe { owned.push(class.index(), block) } {
            owned.look_at(class.index());
        }
    }
    owned.settle(GiveBack::Now);
    assert_eq!(owned.figures(), HeapFigures::default());
}
