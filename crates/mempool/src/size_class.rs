//! Bytes asked for to size class, and back.
//!
//! `block_pool` and the malloc heap turn a request into a class, and `block_class` serves it. Steps of 16 bytes to 128,
//! then eight classes per doubling to 32 KiB, and one more just above each power of two: 16, 32, ... 128, 144, 160, ...
//! 256, 272, 288, ... 512, 528, 576, ... 30720, 32768. All are multiples of 16, malloc's alignment. The three below a
//! cache line exist because small requests are the most frequent in real programs; a pool that lends such blocks to
//! several threads and must not share a line requests the alignment. Eight steps instead of the usual four halve the
//! waste of rounding up, for 32 more entries in a table. The class above a power of two is for a round size with a
//! program's own header before it, the usual form of buffers and values: the next step would waste a tenth of each. Two
//! blocks of a class must fit a chunk.

use std::mem::MaybeUninit;

use crate::chunk::CHUNK_BYTES;

/// The largest block that is kept for the next request; larger ones are malloc's each time.
// Two fill a chunk.
pub const POOLED_BYTES_MAX: usize = 32 * 1024;
/// The smallest block, the step between small classes, and every block's alignment.
pub(crate) const BLOCK_ALIGN_BYTES: usize = 16;

/// Up to here classes are `BLOCK_ALIGN_BYTES` apart.
const SMALL_BYTES_MAX: usize = 128;
const SMALL_COUNT: usize = SMALL_BYTES_MAX / BLOCK_ALIGN_BYTES;
const STEPS_PER_DOUBLING: usize = 8;
/// Room for a header before so many times its size, at least one of `BLOCK_ALIGN_BYTES`.
const BYTES_PER_HEADER_BYTE: usize = 32;
const DOUBLING_COUNT: usize = (POOLED_BYTES_MAX / SMALL_BYTES_MAX).ilog2() as usize;
/// Eight small ones, and eight doublings in eight steps each, all but the first with one above its
/// power of two.
pub(crate) const CLASS_COUNT: usize =
    SMALL_COUNT + STEPS_PER_DOUBLING * DOUBLING_COUNT + DOUBLING_COUNT - 1;

/// A request of more than a cache line wastes at most this share of its block.
const WASTE_PERCENT_MAX: usize = 25;
const WASTE_BOUNDED_FROM_BYTES: usize = 64;
/// A class leaves at most this share of a chunk uncut. Those pages are addressed, never touched.
const TAIL_PERCENT_MAX: usize = 32;

/// Every class's block size, smallest first.
pub(crate) const BLOCK_BYTES: [u32; CLASS_COUNT] = block_bytes_table();

/// The class for every size in steps of `BLOCK_ALIGN_BYTES`: 2 KiB, of which a program touches the lines of the sizes
/// it requests.
const CLASS_OF: [u8; POOLED_BYTES_MAX / BLOCK_ALIGN_BYTES + 1] = {
    let mut table = [0; POOLED_BYTES_MAX / BLOCK_ALIGN_BYTES + 1];
    let (mut step, mut index) = (0, 0);
    while step < table.len() {
        if step * BLOCK_ALIGN_BYTES > BLOCK_BYTES[index] as usize {
            index += 1;
        }
        table[step] = index as u8;
        step += 1;
    }
    table
};

/// Number of a size class, below `CLASS_COUNT`, or the mark of a block straight from malloc.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// Not a class: the block came from malloc and goes back there.
    pub(crate) const DIRECT: Self = Self(u8::MAX);

    /// The smallest class whose blocks hold `size_bytes`, which is at most `POOLED_BYTES_MAX`.
    /// One load.
    #[inline(always)]
    pub(crate) const fn of(size_bytes: usize) -> Self {
        Self(CLASS_OF[size_bytes.div_ceil(BLOCK_ALIGN_BYTES)])
    }

    /// The smallest class whose blocks hold `size_bytes` and all begin at multiples of
    /// `align_bytes`, a power of two; neither is over `POOLED_BYTES_MAX`. Chunks are aligned to
    /// more, so a block size that is such a multiple is enough; the next power of two is one.
    #[inline]
    pub(crate) const fn of_aligned(size_bytes: usize, align_bytes: usize) -> Self {
        let mut class = Self::of(if size_bytes > align_bytes {
            size_bytes
        } else {
            align_bytes
        });
        while !(BLOCK_BYTES[class.index()] as usize).is_multiple_of(align_bytes) {
            class.0 += 1;
        }
        class
    }

    /// The class with this `index`.
    #[inline(always)]
    pub(crate) const fn from_index(index: u8) -> Self {
        Self(index)
    }

    /// The class's place in a table.
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Size of every block of the class; none for a block straight from malloc.
    #[inline]
    pub(crate) fn block_bytes(self) -> Option<usize> {
        BLOCK_BYTES.get(self.index()).map(|&bytes| bytes as usize)
    }
}

const fn block_bytes_table() -> [u32; CLASS_COUNT] {
    let mut table = [0; CLASS_COUNT];
    let mut index = 0;
    while index < SMALL_COUNT {
        table[index] = ((index + 1) * BLOCK_ALIGN_BYTES) as u32;
        index += 1;
    }
    let mut round_bytes = SMALL_BYTES_MAX;
    while round_bytes < POOLED_BYTES_MAX {
        let step_bytes = round_bytes / STEPS_PER_DOUBLING;
        if step_bytes > BLOCK_ALIGN_BYTES {
            let header_bytes = round_bytes / BYTES_PER_HEADER_BYTE;
            let header_bytes = header_bytes.next_multiple_of(BLOCK_ALIGN_BYTES);
            table[index] = (round_bytes + header_bytes) as u32;
            index += 1;
        }
        let mut step = 1;
        while step <= STEPS_PER_DOUBLING {
            table[index] = (round_bytes + step * step_bytes) as u32;
            index += 1;
            step += 1;
        }
        round_bytes *= 2;
    }
    assert!(index == CLASS_COUNT, "the table is full");
    table
}

/// The promises of the class table, refused at compile time when broken.
const _: () = {
    let table = block_bytes_table();
    assert!(table[0] as usize == BLOCK_ALIGN_BYTES);
    assert!(table[CLASS_COUNT - 1] as usize == POOLED_BYTES_MAX);
    let mut index = 0;
    while index < CLASS_COUNT {
        let block_bytes = table[index] as usize;
        assert!(
            block_bytes.is_multiple_of(BLOCK_ALIGN_BYTES),
            "blocks keep malloc's alignment"
        );
        assert!(
            SizeClass::of(block_bytes).index() == index,
            "a full block is of its own class"
        );
        let tail_bytes = CHUNK_BYTES % block_bytes;
        assert!(
            tail_bytes * 100 <= CHUNK_BYTES * TAIL_PERCENT_MAX,
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
                block_bytes <= WASTE_BOUNDED_FROM_BYTES
                    || waste_bytes * 100 <= block_bytes * WASTE_PERCENT_MAX,
                "the block is well used"
            );
        }
        index += 1;
    }
};

// Letting a system call write into memory that holds nothing yet, without unsafe at the caller's.

/// Calls `fill` with the room; returns how many bytes from the room's beginning it initialised,
/// which is the length of the slice it returns.
///
/// # Panics
/// When `fill` returns something else than a beginning of the room.
pub(crate) fn fill_beginning<E>(
    room: &mut [MaybeUninit<u8>],
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<&mut [u8], E>,
) -> Result<usize, E> {
    let (room_start, room_bytes) = (room.as_ptr().addr(), room.len());
    let filled = fill(room)?;
    // A slice of initialised bytes that begins where the room begins and ends inside it is the proof: only `fill`,
    // which had exclusive access to the room, can have made it.
    let is_beginning = filled.as_ptr().addr() == room_start && filled.len() <= room_bytes;
    assert!(
        filled.is_empty() || is_beginning,
        "`fill` must return the beginning of its room"
    );
    Ok(filled.len())
}

#[cfg(test)]
#[path = "tests/size_class.rs"]
mod tests;
