//! Two small pieces of arithmetic for balancing: a hash of bytes, and numbers nobody can foresee.
//!
//! Absent on purpose: a secret key. A client may choose its key so that it lands on a given upstream;
//! it could as well ask that often.

/// Spreads every bit over all others: the finisher of splitmix64.
#[inline]
pub(super) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The same number for the same bytes, on every shard and after every restart: FNV-1a, mixed.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// From 0 to `limit - 1`; `limit` is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // The product's upper half: off by less than one in 2^32 for any limit that occurs.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the published first outputs of splitmix64 from seed 0, and those of FNV-1a.
    #[test]
    fn the_numbers_are_the_published_ones() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(hash(b""), mix(0xcbf2_9ce4_8422_2325));
        assert_eq!(hash(b"a"), mix(0xaf63_dc4c_8601_ec8c));
        for limit in [1, 2, 3, 1000] {
            assert!((0..1000).all(|_| random.below(limit) < limit));
        }
    }
}
