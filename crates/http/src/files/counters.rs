//! What the files of one shard count; others read it a moment late.

use crate::metrics::MetricsText;
use std::sync::atomic::{AtomicU64, Ordering};

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
    cut "counter" "millpond_files_cut_total"
        "Answers cut short, because their file shrank or could not be read while being sent.";
}
