//! malloc against a model: any sequence of calls gives blocks that are aligned, apart from each other, as long as
//! reported, and whose bytes stay as written.
#![allow(unsafe_code)]

use millpond_mempool::malloc;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Call {
    Allocate(usize),
    Zeroed(usize),
    Aligned {
        align_bits: u32,
        size: usize,
    },
    /// The block to resize, among those there are.
    Resize {
        which: usize,
        size: usize,
    },
    Free {
        which: usize,
    },
    Trim,
}

/// Sizes of every kind of block: of a class, a run of chunks, a mapping of its own.
fn size() -> impl Strategy<Value = usize> {
    let longest = if cfg!(miri) {
        70_000..80_000
    } else {
        3_900_000_usize..4_300_000
    };
    let long = if cfg!(miri) {
        30_000..40_000
    } else {
        30_000_usize..400_000
    };
    prop_oneof![
        8 => 0_usize..600,
        4 => 0_usize..40_000,
        2 => long,
        1 => longest,
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => size().prop_map(Call::Allocate),
        2 => size().prop_map(Call::Zeroed),
        2 => (0_u32..24, size()).prop_map(|(align_bits, size)| Call::Aligned { align_bits, size }),
        3 => (any::<usize>(), size()).prop_map(|(which, size)| Call::Resize { which, size }),
        5 => any::<usize>().prop_map(|which| Call::Free { which }),
        1 => Just(Call::Trim),
    ]
}

/// The blocks lent, by address: their size and what fills them.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<usize, (*mut u8, usize, u8)>,
    marks: u8,
}

impl Model {
    fn add(&mut self, block: *mut u8, size: usize) {
        assert!(!block.is_null());
        // SAFETY: just lent.
        let usable = unsafe { malloc::usable_bytes(block) };
        assert!(usable >= size);
        let start = block.addr();
        if let Some((&before, &(_, len, _))) = self.blocks.range(..=start).next_back() {
            assert!(
                before + len <= start,
                "the block before reaches into this one"
            );
        }
        if let Some((&after, _)) = self.blocks.range(start..).next() {
            assert!(
                start + usable <= after,
                "this block reaches into the next one"
            );
        }
        self.marks = self.marks.wrapping_add(1);
        // SAFETY: lent to us, this long.
        unsafe { block.write_bytes(self.marks, usable) };
        self.blocks.insert(start, (block, usable, self.marks));
    }

    /// Takes a block out after a check of every 16th of its bytes, and the last.
    fn take(&mut self, which: usize) -> Option<(*mut u8, usize, u8)> {
        let index = which.checked_rem(self.blocks.len())?;
        let start = *self.blocks.keys().nth(index)?;
        let (block, usable, mark) = self.blocks.remove(&start)?;
        check(block, usable, mark);
        Some((block, usable, mark))
    }
}

fn check(block: *mut u8, len: usize, mark: u8) {
    let places = (0..len).step_by(16).chain(len.checked_sub(1));
    for place in places {
        // SAFETY: the block is ours, and so long.
        let byte = unsafe { block.add(place).read() };
        assert_eq!(byte, mark, "byte {place} of {len}");
    }
}

impl Model {
    fn run(&mut self, call: &Call) {
        match *call {
            Call::Allocate(size) => {
                let block = malloc::allocate(size);
                assert!(block.addr().is_multiple_of(16));
                self.add(block, size);
            }
            Call::Zeroed(size) => {
                let block = malloc::allocate_zeroed(size);
                check(block, size, 0);
                self.add(block, size);
            }
            Call::Aligned { align_bits, size } => {
                let block = malloc::allocate_aligned(1 << align_bits, size);
                assert!(block.addr().is_multiple_of(1 << align_bits));
                self.add(block, size);
            }
            Call::Resize { which, size } => {
                let Some((block, usable, mark)) = self.take(which) else {
                    return;
                };
                // SAFETY: the block is lent, and only the result is used from here.
                let resized = unsafe { malloc::reallocate(block, size) };
                check(resized, size.min(usable), mark);
                self.add(resized, size);
            }
            Call::Free { which } => {
                if let Some((block, ..)) = self.take(which) {
                    // SAFETY: lent, and not used again.
                    unsafe { malloc::free(block) };
                }
            }
            Call::Trim => {
                malloc::trim();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Goal: the model's promises hold after every call, and all of it can be given back.
    #[test]
    fn blocks_are_apart_and_keep_their_bytes(
        calls in prop::collection::vec(call(), 1..if cfg!(miri) { 12 } else { 120 }),
    ) {
        let mut model = Model::default();
        for call in &calls {
            model.run(call);
        }
        while let Some((block, ..)) = model.take(0) {
            // SAFETY: lent, and not used again.
            unsafe { malloc::free(block) };
        }
        let stats = malloc::stats();
        prop_assert_eq!(
            stats.heap_chunk_bytes,
            stats.live_bytes + stats.cached_bytes + stats.waste_bytes
        );
        prop_assert_eq!((stats.live_count, stats.mapped_count), (0, 0));
    }
}
