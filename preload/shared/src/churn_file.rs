//! The file by which a heap is aged: the program that measures says what is to be done, the object in the server counts
//! what it did.

use core::sync::atomic::AtomicU64;

/// First word of the file.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"mpChurn1");

/// Nothing is done.
pub const REST: u64 = 0;
/// With every call of malloc, blocks are allocated and freed at random.
pub const CHURN: u64 = 1;
/// With every call of malloc, blocks are freed, except for one in [`KEPT_ONE_IN`], which stays where it is.
pub const SETTLE: u64 = 2;

/// Blocks that a process can have.
pub const SLOTS: usize = 1 << 14;
/// The blocks that stay after [`SETTLE`].
pub const KEPT_ONE_IN: usize = 16;
/// Blocks that are visited with each call of malloc.
pub const SLOTS_PER_CALL: usize = 8;
/// Sizes are from this power of two to less than the other, each power as often as the next.
pub const SIZE_BITS: (u32, u32) = (4, 14);

/// The whole file.
#[repr(C, align(64))]
pub struct ChurnFile {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`REST`], [`CHURN`] or [`SETTLE`].
    pub mode: AtomicU64,
    /// Blocks allocated and freed so far, in all processes.
    pub blocks: AtomicU64,
    /// Bytes of blocks that are not freed, in all processes, those that have ended included.
    pub live_bytes: AtomicU64,
}

/// The size of a block, out of 64 random bits.
#[must_use]
pub const fn size_bytes(random: u64) -> usize {
    let (low, high) = SIZE_BITS;
    let power = low + ((random >> 32) % (high - low) as u64) as u32;
    let least = 1_usize << power;
    least + (random as usize & (least - 1))
}

#[cfg(test)]
#[path = "tests/churn_file.rs"]
mod tests;
