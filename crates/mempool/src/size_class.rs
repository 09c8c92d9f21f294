//! Bytes asked for to size class, and back.
//!
//! On the path: `block_pool` turns a request into a class, and `block_class` serves it.
//! Four classes per doubling from 64 B to 32 KiB: 64, 80, 96, 112, 128, 160, ... 28672, 32768. All
//! are multiples of 16, malloc's alignment. Absent on purpose: a class for requests over 32 KiB.
//! They go to malloc, which returns such memory to the system better than a pool of rare sizes.
use crate::chunk::CHUNK_BYTES;

/// The smallest block: one cache line, and room for what a remote free writes into it.
pub(crate) const BLOCK_BYTES_MIN: usize = 64;
/// The largest block of a class. Two fill a chunk.
pub(crate) const POOLED_BYTES_MAX: usize = 32 * 1024;
/// Nine doublings in four steps each, and the smallest class.
pub(crate) const CLASS_COUNT: usize =
    1 + STEPS_PER_DOUBLING * (POOLED_BYTES_MAX / BLOCK_BYTES_MIN).ilog2() as usize;
const STEPS_PER_DOUBLING: usize = 4;

/// A request wastes at most this share of its block, and a class this share of its chunk.
const WASTE_PERCENT_MAX: usize = 25;

static BLOCK_BYTES: [u32; CLASS_COUNT] = block_bytes_table();

/// Number of a size class, below `CLASS_COUNT`, or the mark of a block straight from malloc.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// Not a class: the block came from malloc and goes back there.
    pub(crate) const DIRECT: Self = Self(u8::MAX);

    /// The smallest class whose blocks hold `size_bytes`, which is at most `POOLED_BYTES_MAX`.
    #[inline]
    pub(crate) const fn of(size_bytes: usize) -> Self {
        debug_assert!(size_bytes <= POOLED_BYTES_MAX);
        if size_bytes <= BLOCK_BYTES_MIN {
            return Self(0);
        }
        // The highest bit of the last byte's offset is the doubling, the two below it the step.
        let last = size_bytes - 1;
        let doubling = last.ilog2();
        let step = (last >> (doubling - STEPS_PER_DOUBLING.ilog2())) % STEPS_PER_DOUBLING;
        let doublings = (doubling - BLOCK_BYTES_MIN.ilog2()) as usize;
        Self((doublings * STEPS_PER_DOUBLING + step + 1) as u8)
    }

    /// The class's place in a table.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Size of every block of the class; none for a block straight from malloc.
    #[inline]
    pub(crate) fn block_bytes(self) -> Option<usize> {
        BLOCK_BYTES.get(self.index()).map(|&bytes| bytes as usize)
    }
}

/// Every class's block size, smallest first.
pub(crate) fn block_sizes() -> impl Iterator<Item = usize> {
    BLOCK_BYTES.iter().map(|&bytes| bytes as usize)
}

const fn block_bytes_table() -> [u32; CLASS_COUNT] {
    let mut table = [BLOCK_BYTES_MIN as u32; CLASS_COUNT];
    let mut index = 1;
    while index < CLASS_COUNT {
        let doublings = (index - 1) / STEPS_PER_DOUBLING;
        let step = (index - 1) % STEPS_PER_DOUBLING;
        let quarter = (BLOCK_BYTES_MIN / STEPS_PER_DOUBLING) << doublings;
        table[index] = (quarter * (STEPS_PER_DOUBLING + step + 1)) as u32;
        index += 1;
    }
    table
}

/// The promises of the class table, refused at compile time when broken.
const _: () = {
    let table = block_bytes_table();
    assert!(table[0] as usize == BLOCK_BYTES_MIN);
    assert!(table[CLASS_COUNT - 1] as usize == POOLED_BYTES_MAX);
    let mut index = 0;
    while index < CLASS_COUNT {
        let block_bytes = table[index] as usize;
        assert!(
            block_bytes.is_multiple_of(16),
            "blocks keep malloc's alignment"
        );
        assert!(
            SizeClass::of(block_bytes).index() == index,
            "a full block is of its own class"
        );
        let tail_bytes = CHUNK_BYTES % block_bytes;
        assert!(
            tail_bytes * 100 <= CHUNK_BYTES * WASTE_PERCENT_MAX,
            "the chunk is well filled"
        );
        if index > 0 {
            let least_bytes = table[index - 1] as usize + 1;
            assert!(
                SizeClass::of(least_bytes).index() == index,
                "one byte more is the next class"
            );
            let waste_bytes = block_bytes - least_bytes;
            assert!(
                waste_bytes * 100 <= block_bytes * WASTE_PERCENT_MAX,
                "the block is well used"
            );
        }
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: for every size the arithmetic picks what a search of the table picks.
    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for size_bytes in 0..=POOLED_BYTES_MAX {
            let found = block_sizes().position(|block| block >= size_bytes);
            assert_eq!(
                Some(SizeClass::of(size_bytes).index()),
                found,
                "{size_bytes} bytes"
            );
        }
        assert_eq!(SizeClass::DIRECT.block_bytes(), None);
    }
}
