//! Small files in pooled memory, one cache per shard.
//!
//! A response from here costs no system call. A file is checked again, by name, a second after its last check: so for
//! up to [`FRESH_NS`] a client may get the file's earlier content, complete and with the validators that belong to it.
//! Deleting a file takes as long to show.
//!
//! Evicted entries are found by a clock hand: a use between two passes saves an entry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_mempool::Buffer;

use crate::head_text::FieldValue;
use crate::metrics::MetricsText;

use super::selection::{Validators, Version};

/// How long an entry is valid without a check.
pub(super) const FRESH_NS: u64 = 1_000_000_000;

/// The largest file kept: with its head it fits into the largest pooled block, so that a response
/// makes no heap call.
pub(super) const FILE_BYTES_MAX: u64 = 31 * 1024;

/// Memory of an entry besides name and bytes: itself, its place in the map, rounding.
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
struct CacheEntry {
    name: Box<[u8]>,
    file: CachedFile,
    looked_at_ns: u64,
    is_used: bool,
}

impl CacheEntry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + 2 * self.name.len() + self.file.body.capacity()
    }
}

/// Small files in memory, by name.
#[derive(Debug)]
pub(super) struct Cache {
    places: HashMap<Box<[u8]>, usize>,
    entries: Vec<CacheEntry>,
    hand: usize,
    bytes: usize,
    capacity_bytes: usize,
}

/// The cache's result for a name.
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

    /// Whether a body of this size fits the cache.
    pub(super) fn takes(&self, size_bytes: u64) -> bool {
        size_bytes <= FILE_BYTES_MAX
            && ENTRY_BYTES as u64 + size_bytes <= self.capacity_bytes as u64
    }

    /// Keeps a file instead of an earlier version of it; others make room. Returns where, and
    /// how many were thrown out, unless it is too large for the whole cache.
    pub(super) fn insert(
        &mut self,
        name: &[u8],
        file: CachedFile,
        now_ns: u64,
    ) -> Option<(usize, u64)> {
        self.remove(name);
        let entry = CacheEntry {
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

// Counters for the files of one shard; other threads read them a moment late.

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Only the owning thread may call it: not atomic as a whole.
    pub(super) fn add(&self, count: u64) {
        self.set(self.value() + count);
    }

    /// Only the owning thread may call it.
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($field:ident $kind:literal $name:literal $help:literal;)*) => {
        /// Aligned to the two cache lines that CPUs fetch at a time, so that shards do not slow each
        /// other by counting.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(super) struct FileCounters {
            $(#[doc = $help] pub(super) $field: Counter,)*
        }

        /// The sums over all shards.
        pub(super) fn write_metrics(shards: &[FileCounters], out: &mut MetricsText<'_>) {
            $(
                let sum: u64 = shards.iter().map(|shard| shard.$field.value()).sum();
                out.describe($name, $kind, $help);
                out.sample($name, &[], sum);
            )*
        }
    };
}

counters! {
    cache_hits "counter" "millpond_files_cache_hits_total"
        "Requests answered from the cache of small files.";
    cache_misses "counter" "millpond_files_cache_misses_total"
        "Requests for which a file was opened.";
    cache_evictions "counter" "millpond_files_cache_evictions_total"
        "Files that made room for others in the cache.";
    cache_entries "gauge" "millpond_files_cache_entries"
        "Files in the cache now.";
    cache_bytes "gauge" "millpond_files_cache_bytes"
        "Bytes that the cache holds now.";
    not_modified "counter" "millpond_files_not_modified_total"
        "Requests answered with 304, because the client has the file.";
    partial "counter" "millpond_files_partial_total"
        "Requests answered with 206, a range.";
    body_bytes "counter" "millpond_files_body_bytes_total"
        "Bytes of files written to clients.";
    cold_opens "counter" "millpond_files_cold_opens_total"
        "Files whose names were not in memory and were opened by the disk thread.";
    cold_reads "counter" "millpond_files_cold_reads_total"
        "Reads of bytes that were not in memory, done by the disk thread.";
    transfers "gauge" "millpond_files_transfers"
        "Requests now that wait for the disk or whose file is being sent.";
    transfers_aborted "counter" "millpond_files_transfers_aborted_total"
        "Responses cut short because their file shrank or could not be read while it was sent.";
}

#[cfg(test)]
#[path = "tests/cache.rs"]
mod tests;
