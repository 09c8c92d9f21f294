//! Freed blocks in the order of their freeing: the longer a block waits for its reuse, the more
//! stray writes are found in it.
use super::mapped_vec::MappedVec;
use crate::PoolError;

/// The most blocks that wait. With guard pages each may be a mapping of the process, which has
/// 65530 of them, for all pools of all threads.
/// Few under Miri, to be filled in a moment.
pub(super) const BLOCKS_MAX: usize = if cfg!(miri) { 64 } else { 2048 };
/// The most bytes of memory that wait. Guarded blocks count nothing: they keep addresses alone.
pub(super) const BYTES_MAX: usize = if cfg!(miri) { 512 << 10 } else { 4 << 20 };

/// One waiting block.
#[derive(Clone, Copy)]
struct Entry {
    address: usize,
    bytes: usize,
}

/// A first-in-first-out queue, bounded in blocks and bytes.
/// Invariant: `len` entries from `oldest` on, around the end of `ring`, are the waiting blocks, and
/// `bytes` is their sum.
pub(super) struct Quarantine {
    ring: MappedVec<Entry>,
    oldest: usize,
    len: usize,
    bytes: usize,
}

impl Quarantine {
    /// Without memory.
    pub(super) const fn new() -> Self {
        Self {
            ring: MappedVec::new(),
            oldest: 0,
            len: 0,
            bytes: 0,
        }
    }

    /// Makes room for all that may ever wait: a free cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), PoolError> {
        if self.ring.is_empty() {
            let nothing = Entry {
                address: 0,
                bytes: 0,
            };
            // One more: a block enters before the oldest leaves.
            self.ring = MappedVec::filled(nothing, BLOCKS_MAX + 1)?;
        }
        Ok(())
    }

    /// Blocks waiting.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The newest of all. Whoever calls takes the oldest out while [`is_over`](Self::is_over).
    pub(super) fn push(&mut self, address: usize, bytes: usize) {
        assert!(
            self.len < self.ring.len(),
            "room for every waiting block was reserved"
        );
        let place = (self.oldest + self.len) % self.ring.len();
        self.ring[place] = Entry { address, bytes };
        self.len += 1;
        self.bytes += bytes;
    }

    /// Whether more waits than may.
    pub(super) fn is_over(&self) -> bool {
        self.len > BLOCKS_MAX || self.bytes > BYTES_MAX
    }

    /// Takes the oldest block out.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        let entry = self.ring[self.oldest];
        self.oldest = (self.oldest + 1) % self.ring.len();
        self.bytes -= entry.bytes;
        Some(entry.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: first in, first out, around the ring's end, and never more than either bound.
    #[test]
    fn oldest_leaves_first_and_bounds_hold() {
        let mut quarantine = Quarantine::new();
        quarantine.reserve().unwrap();
        let mut next_out = 0;
        for address in 0..5 * BLOCKS_MAX {
            // Late ones are so large that the bytes bind.
            let bytes = if address < 3 * BLOCKS_MAX {
                1
            } else {
                BYTES_MAX / 10
            };
            quarantine.push(address, bytes);
            while quarantine.is_over() {
                assert_eq!(quarantine.pop(), Some(next_out));
                next_out += 1;
            }
            assert!(quarantine.len() <= BLOCKS_MAX && quarantine.bytes <= BYTES_MAX);
            if address == 3 * BLOCKS_MAX - 1 {
                assert_eq!(quarantine.len(), BLOCKS_MAX);
            }
        }
        assert_eq!(quarantine.len(), 10);
        while quarantine.pop().is_some() {
            next_out += 1;
        }
        assert_eq!((next_out, quarantine.bytes), (5 * BLOCKS_MAX, 0));
        quarantine.push(7, BYTES_MAX + 1);
        assert!(quarantine.is_over());
    }
}
