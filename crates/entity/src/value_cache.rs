//! Values a shard returns by itself: one lookup instead of a read of the engine.
//!
//! `handler` looks here first; values found by the engine or a read thread are copied in, and a put's buffers return
//! from the commit and stay. `stamps` decides which of them are current and has the proof. Keys and values are in the
//! shard's block pool, so that they count in its accounting and, with pools off, are real malloc traffic.
//!
//! Eviction is CLOCK: a hit sets a bit, and a hand that goes round takes the first entry without
//! one.

use std::sync::Arc;

use millpond_mempool::{BlockPool, Buffer};

use crate::key::KeyHash;
use crate::metrics::{ShardCounters, ValueCacheCounters};
use crate::stamps::{Stamp, Stamps};

/// The index has a place for each this many bytes: with values of 1 KiB it is a fifth full, and one
/// bucket in 10,000 has no room for the keys that fall into it.
const BYTES_PER_PLACE: usize = 256;

/// An entry may take this part of the cache at most; a larger one would empty it for one reader.
const ENTRY_SHARE: usize = 8;

/// After so many new bytes the cache trims the pool's free memory: if new values have other lengths than evicted ones,
/// no free block fits, and its pages would stay for a while beside the new ones.
const LOOK_SHARE: usize = 64;

/// So much of the cache may be free in the pool; more goes back to the system.
const FREE_SHARE: usize = 16;

/// Bytes of a slot, filled or free: the list of slots never shrinks.
const SLOT_BYTES: usize = size_of::<Option<Entry>>() + size_of::<u32>();

/// One value and what it takes to prove it.
struct Entry {
    key: Buffer,
    value: Buffer,
    hash: KeyHash,
    stamp: Stamp,
    /// Read since the hand passed.
    referenced: bool,
}

impl Entry {
    /// Bytes freed with the entry; its slot stays.
    fn buffer_bytes(&self) -> usize {
        self.key.capacity() + self.value.capacity()
    }
}

/// The cache of one shard.
///
/// Invariant: the index holds each occupied slot once, under its entry's hash, and no key twice;
/// `used_bytes` is the sum of `Entry::buffer_bytes` and of `SLOT_BYTES` for each slot, and at most
/// `limit_bytes`.
pub struct ValueCache {
    stamps: Arc<Stamps>,
    counters: Arc<ShardCounters>,
    index: Index,
    slots: Vec<Option<Entry>>,
    free_slots: Vec<u32>,
    hand: usize,
    used_bytes: usize,
    limit_bytes: usize,
    /// New bytes since the pool's free memory was checked.
    unlooked_bytes: usize,
}

/// The result of [`ValueCache::get`].
pub enum Lookup<'a> {
    /// The value, proved to be current.
    Hit(&'a [u8]),
    /// Read the engine, then offer the result to [`ValueCache::fill`].
    Miss(Missed),
}

/// The moment before a read of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Missed {
    hash: KeyHash,
    /// `None`: a write is under way, and the engine's result may not be kept.
    pub stamp: Option<Stamp>,
}

impl ValueCache {
    /// A cache of at most `memory_bytes`, its index included. Without memory it keeps nothing.
    #[must_use]
    pub fn new(memory_bytes: usize, stamps: Arc<Stamps>, counters: Arc<ShardCounters>) -> Self {
        let places = memory_bytes / BYTES_PER_PLACE;
        Self {
            stamps,
            counters,
            index: Index::new(places),
            slots: Vec::new(),
            free_slots: Vec::new(),
            hand: 0,
            used_bytes: 0,
            limit_bytes: memory_bytes - places * PLACE_BYTES,
            unlooked_bytes: 0,
        }
    }

    /// Looks a key up. No heap call; a stale entry is dropped.
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> Lookup<'_> {
        let hash = self.stamps.hash(key);
        let stamp = self.stamps.current(hash);
        if let Some(slot) = self.find(hash, key) {
            if self.is_under(slot, stamp) {
                self.count().hits.add(1);
                return Lookup::Hit(self.touch(slot));
            }
            self.remove_slot(slot);
            self.publish();
        }
        self.count().misses.add(1);
        Lookup::Miss(Missed { hash, stamp })
    }

    /// Keeps a copy of what the engine was found to hold after `missed`, if that is still so.
    pub fn fill(&mut self, blocks: &BlockPool, key: &[u8], value: &[u8], missed: Missed) {
        let Some(stamp) = missed.stamp else { return };
        if !self.stamps.is_current(missed.hash, stamp) {
            return;
        }
        if SLOT_BYTES + key.len() + value.len() > self.entry_bytes_max() {
            return;
        }
        // Without memory for a copy there is none: the response does not depend on it.
        let Ok(key) = copy(blocks, key) else { return };
        let Ok(value) = copy(blocks, value) else {
            return;
        };
        self.keep(missed.hash, key, value, stamp);
        self.look_at_pool(blocks);
    }

    /// Like [`fill`](Self::fill), for a read by a store thread: `stamp` is from before it.
    pub fn fill_late(&mut self, blocks: &BlockPool, key: &[u8], value: &[u8], stamp: Stamp) {
        let missed = Missed {
            hash: self.stamps.hash(key),
            stamp: Some(stamp),
        };
        self.fill(blocks, key, value, missed);
    }

    /// Keeps what a commit made durable; `stamp` is what the committer marked the job with.
    pub fn insert(&mut self, blocks: &BlockPool, key: Buffer, value: Buffer, stamp: Stamp) {
        let hash = self.stamps.hash(&key);
        if self.stamps.is_current(hash, stamp) {
            self.keep(hash, key, value, stamp);
            self.look_at_pool(blocks);
        }
    }

    /// Drops a key that is known to be gone, to have its memory back at once.
    pub fn remove(&mut self, key: &[u8]) {
        if let Some(slot) = self.find(self.stamps.hash(key), key) {
            self.remove_slot(slot);
            self.publish();
        }
    }

    /// Bytes that entries and the slots for them hold.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Maximum bytes of entries and their slots.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn keep(&mut self, hash: KeyHash, key: Buffer, value: Buffer, stamp: Stamp) {
        if let Some(slot) = self.find(hash, &key) {
            self.remove_slot(slot);
        }
        let entry = Entry {
            key,
            value,
            hash,
            stamp,
            referenced: false,
        };
        if self.make_room(entry.buffer_bytes()) {
            let slot = self.place(entry);
            if !self.index.insert(hash, slot) {
                self.evict_neighbour(hash);
                let entered = self.index.insert(hash, slot);
                debug_assert!(entered, "a neighbour has made room");
            }
        }
        self.publish();
    }

    /// Has the pool give back what is free in it, where that is much.
    #[inline]
    fn look_at_pool(&mut self, blocks: &BlockPool) {
        if self.unlooked_bytes > self.limit_bytes / LOOK_SHARE {
            self.unlooked_bytes = 0;
            if blocks.stats().cached_bytes > (self.limit_bytes / FREE_SHARE) as u64 {
                blocks.release_unused();
            }
        }
    }

    /// Whether an entry with these buffers fits; others have been evicted for it.
    fn make_room(&mut self, buffer_bytes: usize) -> bool {
        if SLOT_BYTES + buffer_bytes > self.entry_bytes_max() {
            return false;
        }
        while self.used_bytes + self.next_slot_bytes() + buffer_bytes > self.limit_bytes {
            // Only a cache of a few hundred bytes can be full of free slots.
            if self.is_empty() {
                return false;
            }
            self.evict();
        }
        true
    }

    /// Puts an entry into a free slot. It is in the index as soon as the caller has entered it.
    fn place(&mut self, entry: Entry) -> u32 {
        self.used_bytes += self.next_slot_bytes() + entry.buffer_bytes();
        self.unlooked_bytes += entry.buffer_bytes();
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = Some(entry);
            return slot;
        }
        self.slots.push(Some(entry));
        // The index bounds the entries, and has fewer than 2^32 places.
        (self.slots.len() - 1) as u32
    }

    /// Bytes the slot of the next entry adds: none while one is free.
    fn next_slot_bytes(&self) -> usize {
        match self.free_slots.is_empty() {
            true => SLOT_BYTES,
            false => 0,
        }
    }

    /// The hand goes on to the first entry that was not read since it last passed.
    fn evict(&mut self) {
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % self.slots.len();
            match &mut self.slots[slot] {
                Some(entry) if entry.referenced => entry.referenced = false,
                Some(_) => {
                    self.count().evictions.add(1);
                    return self.remove_slot(slot as u32);
                }
                None => {}
            }
        }
    }

    /// Makes room in a full bucket: one that was not read lately goes, or else the first.
    fn evict_neighbour(&mut self, hash: KeyHash) {
        let unread = |slot: &u32| !self.entry(*slot).referenced;
        let mut neighbours = self.index.neighbours(hash);
        let first = neighbours.next();
        let victim = first.filter(unread).or_else(|| neighbours.find(unread));
        drop(neighbours);
        if let Some(slot) = victim.or(first) {
            self.count().evictions.add(1);
            self.remove_slot(slot);
        }
    }

    fn remove_slot(&mut self, slot: u32) {
        if let Some(entry) = self.slots[slot as usize].take() {
            self.index.remove(entry.hash, slot);
            self.used_bytes -= entry.buffer_bytes();
            self.free_slots.push(slot);
        }
    }

    #[inline]
    fn find(&self, hash: KeyHash, key: &[u8]) -> Option<u32> {
        self.index
            .candidates(hash)
            .find(|&slot| *self.entry(slot).key == *key)
    }

    #[inline]
    fn is_under(&self, slot: u32, stamp: Option<Stamp>) -> bool {
        Some(self.entry(slot).stamp) == stamp
    }

    #[inline]
    fn touch(&mut self, slot: u32) -> &[u8] {
        let entry = self.slots[slot as usize].as_mut().expect(OCCUPIED);
        // Most are set already: then no cache line is made dirty.
        if !entry.referenced {
            entry.referenced = true;
        }
        &entry.value
    }

    #[inline]
    fn entry(&self, slot: u32) -> &Entry {
        self.slots[slot as usize].as_ref().expect(OCCUPIED)
    }

    fn entry_bytes_max(&self) -> usize {
        self.limit_bytes / ENTRY_SHARE
    }

    fn count(&self) -> &ValueCacheCounters {
        &self.counters.value_cache
    }

    /// Shows the two gauges to other threads.
    fn publish(&self) {
        self.count().bytes.set(self.used_bytes as u64);
        self.count().entries.set(self.len() as u64);
    }
}

const OCCUPIED: &str = "the index names occupied slots only";

fn copy(blocks: &BlockPool, bytes: &[u8]) -> Result<Buffer, millpond_mempool::PoolError> {
    if bytes.is_empty() {
        return Ok(Buffer::new());
    }
    let mut copy = Buffer::with_capacity(blocks, bytes.len())?;
    copy.append_within_capacity(bytes);
    Ok(copy)
}

// From an id's hash to its entry: buckets of one cache line, eight places each.
//
// Place: `value_cache` looks up and keeps the entries. A full bucket makes the cache evict one of
// its eight, so no search is longer and no insert waits for a table to be rebuilt.

const PLACES: usize = 8;

/// Each place is 0, or half the hash and the slot plus one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([u64; PLACES]);

/// Bytes of memory per place.
const PLACE_BYTES: usize = size_of::<Bucket>() / PLACES;

struct Index {
    buckets: Box<[Bucket]>,
}

impl Index {
    /// At most `places`, and at least one bucket.
    fn new(places: usize) -> Self {
        let count = (places / PLACES).clamp(1, u32::MAX as usize);
        Self {
            buckets: vec![Bucket([0; PLACES]); count].into_boxed_slice(),
        }
    }

    /// Slots that may hold the key of this hash; nearly always none or the one.
    #[inline]
    fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = u32> + '_ {
        let tag = hash.tag();
        let places = self.bucket(hash).0.iter();
        let matching = places.filter(move |&&place| (place >> 32) as u32 == tag);
        matching.filter_map(|&place| (place as u32).checked_sub(1))
    }

    /// Enters a slot below `u32::MAX`; false when the bucket is full.
    fn insert(&mut self, hash: KeyHash, slot: u32) -> bool {
        let places = &mut self.bucket_mut(hash).0;
        let Some(free) = places.iter_mut().find(|place| **place == 0) else {
            return false;
        };
        *free = encode(hash, slot);
        true
    }

    /// Removes a slot entered under this hash.
    fn remove(&mut self, hash: KeyHash, slot: u32) {
        let place = encode(hash, slot);
        for found in &mut self.bucket_mut(hash).0 {
            if *found == place {
                *found = 0;
            }
        }
    }

    /// All slots that share a bucket with this hash.
    fn neighbours(&self, hash: KeyHash) -> impl Iterator<Item = u32> + '_ {
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
