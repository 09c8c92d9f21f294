//! Small files in pooled memory, one cache per shard.
//!
//! An answer from here costs no system call. A file is looked at again, by name, when its last look
//! is a second old: so for up to [`FRESH_NS`] a client may get what the file was before, complete and
//! with the validators that belong to it. Deleting a file takes as long to show.
//!
//! Absent on purpose: files that are missing (each is asked for anew), and watching for changes.
//! What is thrown out is found by a clock hand: a use between two passes saves an entry.

use super::version::{Validators, Version};
use crate::head_text::FieldValue;
use millpond_mempool::Buffer;
use std::collections::HashMap;

/// How long an entry is believed without looking.
pub(super) const FRESH_NS: u64 = 1_000_000_000;

/// The largest file kept: with its head it fits into the largest pooled block, so that an answer
/// makes no heap call.
pub(super) const FILE_BYTES_MAX: u64 = 31 * 1024;

/// What an entry takes besides name and bytes: itself, its place in the map, rounding.
const ENTRY_BYTES: usize = 384;

/// One file.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) version: Version,
    pub(super) validators: Validators,
    pub(super) media_type: FieldValue<'static>,
    pub(super) body: Buffer,
}

#[derive(Debug)]
struct Entry {
    name: Box<[u8]>,
    file: CachedFile,
    looked_at_ns: u64,
    is_used: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + 2 * self.name.len() + self.file.body.capacity()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cache {
    places: HashMap<Box<[u8]>, usize>,
    entries: Vec<Entry>,
    hand: usize,
    bytes: usize,
    capacity_bytes: usize,
}

/// What the cache knows of a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Known {
    /// As it was less than a second ago.
    Fresh(usize),
    /// As it was before: compare versions.
    Old(usize),
    Nothing,
}

impl Cache {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Self {
            places: HashMap::new(),
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
            capacity_bytes,
        }
    }

    #[inline]
    pub(super) fn find(&mut self, name: &[u8], now_ns: u64) -> Known {
        let Some(&place) = self.places.get(name) else {
            return Known::Nothing;
        };
        let entry = &mut self.entries[place];
        entry.is_used = true;
        match now_ns.saturating_sub(entry.looked_at_ns) < FRESH_NS {
            true => Known::Fresh(place),
            false => Known::Old(place),
        }
    }

    /// Where a name is, fresh or not.
    pub(super) fn place_of(&self, name: &[u8]) -> Option<usize> {
        self.places.get(name).copied()
    }

    #[inline]
    pub(super) fn file(&self, place: usize) -> &CachedFile {
        &self.entries[place].file
    }

    /// The file is still as it is here.
    pub(super) fn refresh(&mut self, place: usize, now_ns: u64) {
        self.entries[place].looked_at_ns = now_ns;
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(place) = self.places.remove(name) {
            self.remove_place(place);
        }
    }

    /// The place's name is out of the map already.
    fn remove_place(&mut self, place: usize) {
        let entry = self.entries.swap_remove(place);
        self.bytes -= entry.bytes();
        if let Some(moved) = self.entries.get(place)
            && let Some(its_place) = self.places.get_mut(&moved.name)
        {
            *its_place = place;
        }
    }

    /// Whether a body of this size could ever be kept.
    pub(super) fn takes(&self, size_bytes: u64) -> bool {
        size_bytes <= FILE_BYTES_MAX
            && ENTRY_BYTES as u64 + size_bytes <= self.capacity_bytes as u64
    }

    /// Keeps a file in the place of an earlier version of it; others make room. Returns where, and
    /// how many were thrown out, unless it is too large for the whole cache.
    pub(super) fn insert(
        &mut self,
        name: &[u8],
        file: CachedFile,
        now_ns: u64,
    ) -> Option<(usize, u64)> {
        self.remove(name);
        let entry = Entry {
            name: name.into(),
            file,
            looked_at_ns: now_ns,
            is_used: false,
        };
        let bytes = entry.bytes();
        if bytes > self.capacity_bytes {
            return None;
        }
        let mut evicted_count = 0;
        while self.bytes + bytes > self.capacity_bytes {
            self.evict_one();
            evicted_count += 1;
        }
        self.bytes += bytes;
        self.places.insert(entry.name.clone(), self.entries.len());
        self.entries.push(entry);
        Some((self.entries.len() - 1, evicted_count))
    }

    /// There is at least one entry.
    fn evict_one(&mut self) {
        loop {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            let entry = &mut self.entries[self.hand];
            if !std::mem::take(&mut entry.is_used) {
                self.places.remove(&entry.name);
                return self.remove_place(self.hand);
            }
            self.hand += 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::version::tests::version;
    use super::*;
    use millpond_mempool::{BlockPool, PoolMode};
    use proptest::prelude::*;
    use std::time::SystemTime;

    fn file(blocks: &BlockPool, bytes: &[u8]) -> CachedFile {
        let mut body = Buffer::new();
        body.extend_from_slice(blocks, bytes).unwrap();
        let version = version(bytes.len() as u64, 1);
        CachedFile {
            version,
            validators: Validators::new(&version, SystemTime::UNIX_EPOCH),
            media_type: FieldValue::TEXT_PLAIN,
            body,
        }
    }

    /// Goal: an entry is fresh for a second from its last look, and a look renews it.
    #[test]
    fn an_entry_is_believed_for_a_second() {
        let blocks = BlockPool::new("test", PoolMode::On);
        let mut cache = Cache::new(1 << 20);
        assert_eq!(cache.find(b"a", 0), Known::Nothing);
        assert_eq!(cache.insert(b"a", file(&blocks, b"1"), 5).unwrap(), (0, 0));
        assert_eq!(cache.find(b"a", 4 + FRESH_NS), Known::Fresh(0));
        assert_eq!(cache.find(b"a", 5 + FRESH_NS), Known::Old(0));
        cache.refresh(0, 5 + FRESH_NS);
        assert_eq!(cache.find(b"a", 6 + FRESH_NS), Known::Fresh(0));
        cache.insert(b"a", file(&blocks, b"2"), 9).unwrap();
        assert_eq!((cache.len(), &*cache.file(0).body), (1, &b"2"[..]));
    }

    /// Goal: room is made by throwing out what was not used lately; what never fits is given back.
    #[test]
    fn used_entries_stay() {
        let blocks = BlockPool::new("test", PoolMode::On);
        let one = ENTRY_BYTES + 2 + file(&blocks, &[0; 100]).body.capacity();
        let mut cache = Cache::new(3 * one);
        for name in [b"a", b"b", b"c"] {
            cache.insert(name, file(&blocks, &[0; 100]), 0).unwrap();
        }
        assert_ne!(cache.find(b"a", 0), Known::Nothing);
        let (_, evicted_count) = cache.insert(b"d", file(&blocks, &[0; 100]), 0).unwrap();
        assert_eq!(evicted_count, 1);
        assert_ne!(cache.find(b"a", 0), Known::Nothing);
        assert_ne!(cache.find(b"d", 0), Known::Nothing);
        assert_eq!(cache.insert(b"e", file(&blocks, &[0; 3000]), 0), None);
        assert_eq!(cache.len(), 3);
        assert!(!cache.takes(3 * one as u64) && cache.takes(100));
        assert!(!Cache::new(1 << 30).takes(FILE_BYTES_MAX + 1));
    }

    proptest! {
        /// Goal: after any insertions and removals every name leads to its own bytes, and the sum of
        /// bytes is that of the entries and below the limit.
        #[test]
        fn names_lead_to_their_own_bytes(steps in proptest::collection::vec((0_u8..12, 0_usize..4), 0..200)) {
            let blocks = BlockPool::new("test", PoolMode::On);
            let mut cache = Cache::new(8 * (ENTRY_BYTES + 66));
            let mut latest = HashMap::new();
            for (name, kind) in steps {
                match kind {
                    0 => cache.remove(&[name]),
                    1 => { cache.find(&[name], 0); }
                    _ => {
                        let body = [name, kind as u8, latest.len() as u8];
                        latest.insert(name, body);
                        cache.insert(&[name], file(&blocks, &body), 0).unwrap();
                    }
                }
                let sum: usize = cache.entries.iter().map(Entry::bytes).sum();
                prop_assert_eq!(sum, cache.bytes());
                prop_assert!(sum <= cache.capacity_bytes);
                prop_assert_eq!(cache.places.len(), cache.len());
                for name in 0..12 {
                    if let Known::Fresh(place) = cache.find(&[name], 0) {
                        prop_assert_eq!(&*cache.file(place).body, &latest[&name][..]);
                    }
                }
            }
        }
    }
}
