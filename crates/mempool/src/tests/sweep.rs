use super::tests::Bench;
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
/// what a whole one does. After a flood a whole one made so many that a shard stood still for
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

/// Goal: chunks lent from while a sweep is under way do not leave, whichever list they are in, and the sweep still
/// ends.
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
    // Chunks are filled up, the one that is checked next too, and then all others are used; others become idle and
    // leave by another path.
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
    // Those with one block each, and a sweep that is about to check them when they become idle.
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
