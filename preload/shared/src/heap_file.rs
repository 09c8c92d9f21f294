//! The file that the heap trace writes and the lab reads: counters of threads, samples of live
//! blocks, and lifetimes of freed ones.
//!
//! ```text
//! header | processes | lifetimes | filter | threads | buckets of sampled living blocks
//! ```
//!
//! All numbers are native-endian 64-bit words. The lab creates the file, writes the header's first
//! words and leaves the rest zero.
//!
//! Identities: bytes asked for = sum of `bytes` over threads; calls that ask for memory = sum of
//! `sizes` over threads and classes; the sample of a living block is in exactly one bucket entry.

use core::sync::atomic::{AtomicU8, AtomicU64};

/// First word of the file; the last letter grows with the layout.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"mpTrace3");
/// Threads that can be counted each on its own at any time; more share the first record.
pub const THREADS: usize = 1024;
/// Processes whose blocks can be distinguished; later ones are counted, but not sampled.
pub const PROCESSES: usize = 4096;
/// Classes of sizes: see [`size_class`].
pub const SIZE_CLASSES: usize = 312;
/// Classes of lifetimes: the number of bits of the nanoseconds.
pub const LIFETIME_CLASSES: usize = 64;
/// Entries of the filter, one byte each: half of what the nearest cache holds, since every free asks.
pub const FILTER_ENTRIES: usize = 1 << 14;
/// Groups of entries for samples that live.
pub const BUCKETS: usize = 1 << 13;
/// Samples in one group.
pub const BUCKET_ENTRIES: usize = 16;
/// Weights are written in so many parts of one: a large block weighs hardly more than one, and what is
/// cut off must not add up over millions.
pub const WEIGHT_PARTS: u64 = 1 << 16;

/// The whole file.
#[repr(C)]
pub struct HeapFile {
    /// Of all.
    pub header: Header,
    /// One for each process, by its number. The first one belongs to no process.
    pub processes: [Process; PROCESSES],
    /// Of sampled blocks that were given back.
    pub lifetimes: Lifetimes,
    /// How many living samples' addresses fall on each entry: 0 spares a search.
    pub filter: [AtomicU8; FILTER_ENTRIES],
    /// The first one is shared by threads that got none of their own.
    pub threads: [Thread; THREADS],
    /// Sampled blocks that live.
    pub buckets: [Bucket; BUCKETS],
}

/// The first words.
#[repr(C, align(128))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The size of the file.
    pub file_bytes: AtomicU64,
    /// The mean distance of samples; 0 for none.
    pub mean_bytes: AtomicU64,
    /// Processes that the object was loaded into, forks not counted.
    pub attached: AtomicU64,
    /// Numbers given to processes so far, forks counted.
    pub process_numbers: AtomicU64,
    /// Numbers given to threads so far.
    pub thread_numbers: AtomicU64,
    /// Samples taken.
    pub samples: AtomicU64,
    /// Samples that found no room: live bytes are then too low.
    pub dropped: AtomicU64,
    /// Bytes that live, by the samples.
    pub live_bytes: AtomicU64,
    /// The most of them at any time.
    pub peak_live_bytes: AtomicU64,
}

/// A process that was traced.
#[repr(C)]
pub struct Process {
    /// Its id; 0 once it has ended in order, or was replaced by another program.
    pub pid: AtomicU64,
    /// Bytes of its that live, by the samples.
    pub live_bytes: AtomicU64,
}

/// Blocks that were given back, by how long they lived. Weights, not samples.
#[repr(C, align(128))]
pub struct Lifetimes {
    /// Blocks, in parts of one ([`WEIGHT_PARTS`]).
    pub blocks: [AtomicU64; LIFETIME_CLASSES],
    /// Their bytes.
    pub bytes: [AtomicU64; LIFETIME_CLASSES],
    /// Blocks given back by another thread than the one that asked for them, in the same parts.
    pub crossed: AtomicU64,
}

/// The counts of one thread. No other thread writes it, except for the first record of all.
#[repr(C, align(128))]
pub struct Thread {
    /// 1 while a thread has it.
    pub taken: AtomicU64,
    /// The thread's number.
    pub number: AtomicU64,
    /// Bytes until the next sample, as a signed number.
    pub left_bytes: AtomicU64,
    /// State of its random numbers.
    pub random: AtomicU64,
    /// Bytes asked for.
    pub bytes: AtomicU64,
    /// Blocks given back.
    pub frees: AtomicU64,
    /// realloc of existing blocks; they are in `sizes` as well.
    pub reallocations: AtomicU64,
    /// Calls that asked for memory, by class of size.
    pub sizes: [AtomicU64; SIZE_CLASSES],
}

/// Samples whose addresses fall together.
#[repr(C, align(128))]
pub struct Bucket {
    /// [`key`] of each; 0 for a free place, 1 for one that is being filled.
    pub keys: [AtomicU64; BUCKET_ENTRIES],
    /// The data of each.
    pub blocks: [Block; BUCKET_ENTRIES],
}

/// A sampled block that lives.
#[repr(C)]
pub struct Block {
    /// As asked for.
    pub size_bytes: AtomicU64,
    /// On the monotonic clock.
    pub born_ns: AtomicU64,
    /// The number of the thread that asked for it.
    pub thread: AtomicU64,
}

/// A place that is being filled.
pub const BUSY: u64 = 1;
const PROCESS_SHIFT: u32 = 48;

/// A block's address and the number of its process, in one word: no address of a program has the
/// uppermost bits set.
#[inline]
#[must_use]
pub const fn key(address: usize, process: u64) -> u64 {
    (address as u64 & ((1 << PROCESS_SHIFT) - 1)) | process << PROCESS_SHIFT
}

/// The number of the process in a key.
#[must_use]
pub const fn process_of(key: u64) -> usize {
    (key >> PROCESS_SHIFT) as usize
}

/// The address of the block in a key.
#[inline]
#[must_use]
pub const fn address_of(key: u64) -> u64 {
    key & ((1 << PROCESS_SHIFT) - 1)
}

/// Where an address falls in the filter, and its bucket.
#[inline]
#[must_use]
pub const fn places(address: usize) -> (usize, usize) {
    // The lowest bits are the same for all.
    let spread = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let filter = spread >> (64 - FILTER_ENTRIES.trailing_zeros());
    let bucket = spread >> 32 & (BUCKETS as u64 - 1);
    (filter as usize, bucket as usize)
}

/// Eight classes to each doubling; sizes below 16 have one each.
#[inline]
#[must_use]
pub const fn size_class(size_bytes: usize) -> usize {
    if size_bytes < 8 {
        return size_bytes;
    }
    let octave = size_bytes.ilog2() as usize - 3;
    let class = octave * 8 + (size_bytes >> octave);
    if class < SIZE_CLASSES {
        class
    } else {
        SIZE_CLASSES - 1
    }
}

/// The smallest and the largest size of a class; the last class has no end.
#[must_use]
pub const fn class_bounds(class: usize) -> (u64, u64) {
    if class < 8 {
        return (class as u64, class as u64);
    }
    let octave = (class / 8 - 1) as u32;
    let low = ((class % 8 + 8) as u64) << octave;
    if class + 1 >= SIZE_CLASSES {
        return (low, u64::MAX);
    }
    (low, low + (1 << octave) - 1)
}

/// The class of a lifetime: its number of bits.
#[must_use]
pub const fn lifetime_class(lifetime_ns: u64) -> usize {
    let bits = (u64::BITS - lifetime_ns.leading_zeros()) as usize;
    if bits < LIFETIME_CLASSES {
        bits
    } else {
        LIFETIME_CLASSES - 1
    }
}

const _: () = {
    assert!(PROCESSES <= 1 << (u64::BITS - PROCESS_SHIFT));
    assert!(size_of::<HeapFile>() < 16 << 20);
    assert!(FILTER_ENTRIES.is_power_of_two() && BUCKETS.is_power_of_two());
    assert!(core::mem::offset_of!(Thread, sizes) == 56);
};

#[cfg(test)]
#[path = "tests/heap_file.rs"]
mod tests;
