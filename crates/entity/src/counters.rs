//! What the server counts, without a locked instruction on the path.
//!
//! Each counter has one writing thread; others read it when `/metrics` is asked for and may see
//! it a moment late. Absent on purpose: histograms of latency, which the load generator measures
//! where it matters, at the client.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A number that one thread raises and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Not atomic as a whole: only the owning thread may call it.
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Replaces the value; for gauges and maxima. Only the owning thread may call it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value, perhaps a moment old.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one shard counts. Aligned to two cache lines, the unit in which CPUs prefetch, so that
/// shards do not slow each other by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ShardCounters {
    /// Acknowledged puts.
    pub puts: Counter,
    /// Acknowledged deletes.
    pub deletes: Counter,
    /// Reads that found a value.
    pub get_hits: Counter,
    /// Reads that found none.
    pub get_misses: Counter,
    /// Reads handed to a read thread, because only the disk knew.
    pub cold_reads: Counter,
    /// Requests refused because too many waited already, or no memory was left.
    pub overloads: Counter,
    /// Writes refused because the store is poisoned, and reads that failed.
    pub store_failures: Counter,
    /// Jobs handed over and not answered yet.
    pub jobs_in_flight: Counter,
    /// Range reads begun.
    pub ranges: Counter,
    /// Range reads whose end is not written yet.
    pub ranges_open: Counter,
    /// Records of range reads, written.
    pub range_records: Counter,
    /// Their bytes, ids included.
    pub range_bytes: Counter,
    /// The shard's value cache.
    pub value_cache: ValueCacheCounters,
}

/// What one shard's value cache counts, and its two gauges.
#[derive(Debug, Default)]
pub struct ValueCacheCounters {
    /// Look-ups that found a current value.
    pub hits: Counter,
    /// Look-ups that did not.
    pub misses: Counter,
    /// Entries that made room for others.
    pub evictions: Counter,
    /// Bytes that entries hold now.
    pub bytes: Counter,
    /// Entries now.
    pub entries: Counter,
}

/// What the writer thread counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CommitCounters {
    /// Batches written.
    pub commits: Counter,
    /// Syncs of the write-ahead log.
    pub syncs: Counter,
    /// Sum of jobs over all batches.
    pub batch_jobs: Counter,
    /// The largest batch, in jobs.
    pub batch_jobs_max: Counter,
    /// Sum of key and value bytes over all batches.
    pub batch_bytes: Counter,
    poisoned: AtomicBool,
}

impl CommitCounters {
    /// Whether a commit or a sync has failed since the start.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn count_commit(&self, jobs: usize, bytes: usize) {
        let jobs = jobs as u64;
        self.commits.add(1);
        self.batch_jobs.add(jobs);
        self.batch_jobs_max
            .set(self.batch_jobs_max.value().max(jobs));
        self.batch_bytes.add(bytes as u64);
    }

    pub(crate) fn count_sync(&self) {
        self.syncs.add(1);
    }
}
