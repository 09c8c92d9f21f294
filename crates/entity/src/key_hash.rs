//! The hash of an id: folded multiplication, seeded at random for each server.
//!
//! On the path: once per read for `stamps` and `value_cache`, twice per write. A few nanoseconds
//! for a short id, where the standard library's costs ten times that.
//! Absent on purpose: strength against someone who sees hashes. Nobody does, the seed is random,
//! and ids that collide cost misses: no search here grows with their number.

use std::hash::{BuildHasher, RandomState};

/// The hash of one id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Spreads the hash over `0..count` by its high half.
    #[inline]
    pub(crate) fn scale_high(self, count: usize) -> usize {
        ((u128::from(self.0) * count as u128) >> 64) as usize
    }

    /// Spreads the hash over `0..count` by its low half; `count` is below 2^32.
    #[inline]
    pub(crate) fn scale_low(self, count: usize) -> usize {
        (((self.0 & u64::from(u32::MAX)) * count as u64) >> 32) as usize
    }

    /// The high half, to tell apart what the low half put together.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Hashes ids under one seed.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    seeds: [u64; 2],
}

impl KeyHasher {
    /// With a seed that no client can know.
    #[must_use]
    pub fn random() -> Self {
        // The standard library seeds from the system and shows it only through SipHash.
        let random = RandomState::new();
        Self {
            seeds: [random.hash_one(0), random.hash_one(1)],
        }
    }

    /// O(`key.len()`), 16 bytes a step.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let [first, second] = self.seeds;
        // The length tells a key from the same key with zero bytes behind it.
        let mut state = first ^ (key.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (chunks, rest) = key.as_chunks::<16>();
        for chunk in chunks {
            state = mix(state, second, chunk);
        }
        if !rest.is_empty() {
            let mut padded = [0; 16];
            padded[..rest.len()].copy_from_slice(rest);
            state = mix(state, second, &padded);
        }
        KeyHash(fold(state ^ second, 0xD6E8_FEB8_6659_FD93))
    }
}

#[inline]
fn mix(state: u64, seed: u64, chunk: &[u8; 16]) -> u64 {
    let bytes = u128::from_le_bytes(*chunk);
    fold(state ^ bytes as u64, seed ^ (bytes >> 64) as u64)
}

/// Both halves of the product, so that each bit of the factors reaches each bit of the result.
#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ids as clients number them spread evenly over few and many places, by both halves.
    #[test]
    fn numbered_ids_spread_evenly() {
        let hasher = KeyHasher::random();
        for name in ["", "key", "a prefix of more than sixteen bytes "] {
            let (mut high, mut low) = (vec![0_u32; 64], vec![0_u32; 64]);
            for number in 0..64_000 {
                let hash = hasher.hash(format!("{name}{number}").as_bytes());
                high[hash.scale_high(64)] += 1;
                low[hash.scale_low(64)] += 1;
            }
            // 1,000 each with a deviation of 32: eight of them never happen by chance.
            for count in high.into_iter().chain(low) {
                assert!((744..1256).contains(&count), "{name}: {count}");
            }
        }
    }

    /// Goal: length, order and every byte matter, and so does the seed.
    #[test]
    fn near_misses_differ() {
        let hasher = KeyHasher::random();
        let keys: [&[u8]; 8] = [
            b"a",
            b"a\0",
            b"\0a",
            b"",
            b"0123456789abcdef",
            b"0123456789abcdeg",
            b"0123456789abcdef\0",
            b"89abcdef01234567",
        ];
        for (n, one) in keys.iter().enumerate() {
            assert_eq!(hasher.hash(one), hasher.hash(one));
            assert_ne!(hasher.hash(one), KeyHasher::random().hash(one));
            for other in &keys[n + 1..] {
                assert_ne!(hasher.hash(one), hasher.hash(other));
            }
        }
    }
}
