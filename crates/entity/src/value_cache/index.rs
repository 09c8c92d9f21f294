//! From an id's hash to its entry: buckets of one cache line, eight places each.
//!
//! Place: `value_cache` looks up and keeps the entries. Absent on purpose: growth and chains. A
//! full bucket makes the cache evict one of its eight, so no search is longer and no insert waits
//! for a table to be rebuilt.

use crate::key_hash::KeyHash;

const PLACES: usize = 8;

/// Each place is 0, or half the hash and the slot plus one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([u64; PLACES]);

/// Bytes of memory per place.
pub(super) const PLACE_BYTES: usize = size_of::<Bucket>() / PLACES;

pub(super) struct Index {
    buckets: Box<[Bucket]>,
}

impl Index {
    /// At most `places`, and at least one bucket.
    pub(super) fn new(places: usize) -> Self {
        let count = (places / PLACES).clamp(1, u32::MAX as usize);
        Self {
            buckets: vec![Bucket([0; PLACES]); count].into_boxed_slice(),
        }
    }

    /// Slots that may hold the key of this hash; nearly always none or the one.
    #[inline]
    pub(super) fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = u32> + '_ {
        let tag = hash.tag();
        let places = self.bucket(hash).0.iter();
        let matching = places.filter(move |&&place| (place >> 32) as u32 == tag);
        matching.filter_map(|&place| (place as u32).checked_sub(1))
    }

    /// Enters a slot below `u32::MAX`; false when the bucket is full.
    pub(super) fn insert(&mut self, hash: KeyHash, slot: u32) -> bool {
        let places = &mut self.bucket_mut(hash).0;
        let Some(free) = places.iter_mut().find(|place| **place == 0) else {
            return false;
        };
        *free = encode(hash, slot);
        true
    }

    /// Removes a slot entered under this hash.
    pub(super) fn remove(&mut self, hash: KeyHash, slot: u32) {
        let place = encode(hash, slot);
        for found in &mut self.bucket_mut(hash).0 {
            if *found == place {
                *found = 0;
            }
        }
    }

    /// All slots that share a bucket with this hash.
    pub(super) fn neighbours(&self, hash: KeyHash) -> impl Iterator<Item = u32> + '_ {
        let places = self.bucket(hash).0.iter();
        places.filter_map(|&place| (place as u32).checked_sub(1))
    }

    #[inline]
    fn bucket(&self, hash: KeyHash) -> &Bucket {
        &self.buckets[hash.scale_low(self.buckets.len())]
    }

    fn bucket_mut(&mut self, hash: KeyHash) -> &mut Bucket {
        let place = hash.scale_low(self.buckets.len());
        &mut self.buckets[place]
    }
}

fn encode(hash: KeyHash, slot: u32) -> u64 {
    u64::from(hash.tag()) << 32 | u64::from(slot + 1)
}
