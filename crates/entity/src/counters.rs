//! What the server counts, without a locked instruction on the path.
//!
//! Each counter has one writing thread; others read it when `/metrics` is asked for and may see
//! it a moment late. Absent on purpose: histograms of latency, which the load generator measures
//! where it matters, at the client.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use millpond_http::log::{self, LogLevel};

use crate::store::{DataSizes, Disk, EngineGauges, Room};

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
    /// Writes refused because the disk has no room.
    pub no_room: Counter,
    /// Writes refused because the store is poisoned, and reads that failed.
    pub store_failures: Counter,
    /// Requests that fewer copies answered than were asked for.
    pub too_few_replicas: Counter,
    /// Jobs handed over and not answered yet.
    pub jobs_in_flight: Counter,
    /// Range reads begun.
    pub ranges: Counter,
    /// Range reads whose end is not written yet.
    pub ranges_open: Counter,
    /// Readers of large values and ranges that were cut because others waited for what they held.
    pub slow_readers_cut: Counter,
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
    /// Parts that were deleted because nobody could read them any more.
    pub dead_parts_deleted: Counter,
    /// How often writes went on after something that they were short of was there again.
    pub recoveries: Counter,
    poisoned: AtomicBool,
    paused: AtomicBool,
    stopped: AtomicBool,
    /// A [`Room`], by its number.
    room: AtomicU8,
}

impl CommitCounters {
    /// Whether a commit or a sync has failed for good since the start.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// Whether the engine was short of something, and is tried again until it writes.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.paused.store(is_paused, Ordering::Release);
    }

    /// Whether the engine lets no write in at the moment.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// For whom the disk has room, as seen last.
    #[must_use]
    pub fn room(&self) -> Room {
        match self.room.load(Ordering::Relaxed) {
            0 => Room::Enough,
            1 => Room::ForDeletes,
            _ => Room::None,
        }
    }

    pub(crate) fn set_stopped(&self, is_stopped: bool) {
        self.stopped.store(is_stopped, Ordering::Relaxed);
    }

    pub(crate) fn set_room(&self, room: Room) {
        self.room.store(room as u8, Ordering::Relaxed);
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

/// A thread of the store that goes on after a panic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreThread {
    /// Writes are refused from then on.
    Writer,
    /// The read at hand is answered 503.
    Reader,
    /// The range read at hand is cut, or answered 503.
    Scanner,
    /// The checkpoint at hand is answered 500.
    Keeper,
}

impl StoreThread {
    /// All, in their order.
    pub const ALL: [Self; 4] = [Self::Writer, Self::Reader, Self::Scanner, Self::Keeper];

    /// As on `/metrics`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Scanner => "scanner",
            Self::Keeper => "keeper",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Self::Writer => "writes are refused until a restart, reads go on",
            Self::Reader => "the read at hand is answered 503, others go on",
            Self::Scanner => "the range read at hand is cut or answered 503, others go on",
            Self::Keeper => "the checkpoint at hand is answered 500, its work goes on",
        }
    }
}

/// How often threads of the store have panicked.
#[derive(Debug, Default)]
pub struct ThreadPanics([AtomicU64; StoreThread::ALL.len()]);

impl ThreadPanics {
    /// Counts it and says so.
    pub(crate) fn note(&self, thread: StoreThread) {
        self.0[thread as usize].fetch_add(1, Ordering::Relaxed);
        let (name, consequence) = (thread.name(), thread.consequence());
        log::write(
            LogLevel::Error,
            format_args!("the store's {name} thread panicked: {consequence}"),
        );
    }

    /// How often this thread has.
    #[must_use]
    pub fn count(&self, thread: StoreThread) -> u64 {
        self.0[thread as usize].load(Ordering::Relaxed)
    }

    /// Whether any has.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }
}

/// What the keeper saw last; all of it gauges.
#[derive(Debug, Default)]
pub struct EngineCounters {
    /// As in [`EngineGauges`], like those that follow.
    pub memtable_bytes: Counter,
    /// Blocks.
    pub block_cache_bytes: Counter,
    /// Readers of tables.
    pub table_reader_bytes: Counter,
    /// Tables to be merged.
    pub level0_tables: Counter,
    /// Bytes to be merged.
    pub compaction_pending_bytes: Counter,
    /// Mergers at work.
    pub compactions: Counter,
    /// Memtables being written out.
    pub flushes: Counter,
    /// To how much writes are held down.
    pub write_bytes_per_s_max: Counter,
    /// 1: writes wait.
    pub writes_are_stopped: Counter,
    /// Writes accepted as lost.
    pub accepted_loss: Counter,
    /// As in [`DataSizes`], like those that follow.
    pub live_bytes: Counter,
    /// Table files.
    pub tables: Counter,
    /// Their bytes.
    pub table_bytes: Counter,
    /// Bytes of logs.
    pub log_bytes: Counter,
    /// 1: the log was torn at the start.
    pub log_was_torn: Counter,
    /// Writes accepted as lost at the start.
    pub lost_at_start: Counter,
    /// Room on the disk.
    pub disk_free_bytes: Counter,
    /// What has to be left there.
    pub disk_reserve_bytes: Counter,
}

impl EngineCounters {
    pub(crate) fn publish(&self, gauges: &EngineGauges) {
        self.memtable_bytes.set(gauges.memtable_bytes);
        self.block_cache_bytes.set(gauges.block_cache_bytes);
        self.table_reader_bytes.set(gauges.table_reader_bytes);
        self.level0_tables.set(gauges.level0_tables);
        self.compaction_pending_bytes
            .set(gauges.compaction_pending_bytes);
        self.compactions.set(gauges.compactions);
        self.flushes.set(gauges.flushes);
        self.write_bytes_per_s_max.set(gauges.write_bytes_per_s_max);
        self.writes_are_stopped
            .set(gauges.writes_are_stopped.into());
        self.accepted_loss.set(gauges.accepted_loss);
    }

    pub(crate) fn publish_sizes(&self, sizes: &DataSizes) {
        self.live_bytes.set(sizes.live_bytes);
        self.tables.set(sizes.tables);
        self.table_bytes.set(sizes.table_bytes);
        self.log_bytes.set(sizes.log_bytes);
        self.log_was_torn.set(sizes.log_was_torn.into());
        self.lost_at_start.set(sizes.lost_at_start);
    }

    pub(crate) fn publish_disk(&self, disk: &Disk) {
        self.disk_free_bytes.set(disk.free_bytes);
        self.disk_reserve_bytes.set(disk.reserve_bytes);
    }
}
