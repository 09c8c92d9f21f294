//! The entity server's lines of `/metrics`, summed over its shards.
//!
//! Place: `http::server` serves `/metrics` and calls the service of its shard; every shard sees all counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use millpond_http::log::LogLevel;
use millpond_http::{MetricsText, log};

use crate::store::{DataSizes, Disk, EngineGauges, Room};

/// Every counter of one server.
pub struct Metrics {
    shards: Box<[Arc<ShardCounters>]>,
    commits: Arc<CommitCounters>,
    panics: Arc<ThreadPanics>,
}

impl Metrics {
    /// Over these counters.
    #[must_use]
    pub fn new(
        shards: Box<[Arc<ShardCounters>]>,
        commits: Arc<CommitCounters>,
        panics: Arc<ThreadPanics>,
    ) -> Self {
        Self {
            shards,
            commits,
            panics,
        }
    }

    /// Writes the lines.
    pub fn write(&self, engine: &EngineCounters, out: &mut MetricsText<'_>) {
        let counter = |out: &mut MetricsText<'_>, name: &str, help: &str, value: u64| {
            out.describe(name, "counter", help);
            out.sample(name, &[], value);
        };
        counter(
            out,
            "millpond_entity_puts_total",
            "Acknowledged puts.",
            self.sum(|s| &s.puts),
        );
        counter(
            out,
            "millpond_entity_deletes_total",
            "Acknowledged deletes.",
            self.sum(|s| &s.deletes),
        );
        let gets = "millpond_entity_gets_total";
        out.describe(gets, "counter", "Answered reads.");
        out.sample(gets, &[("result", &"hit")], self.sum(|s| &s.get_hits));
        out.sample(gets, &[("result", &"miss")], self.sum(|s| &s.get_misses));
        counter(
            out,
            "millpond_entity_cold_reads_total",
            "Reads handed to a read thread because memory could not answer.",
            self.sum(|s| &s.cold_reads),
        );
        counter(
            out,
            "millpond_entity_overloads_total",
            "Requests refused because too many waited for the store.",
            self.sum(|s| &s.overloads),
        );
        counter(
            out,
            "millpond_entity_store_failures_total",
            "Requests refused because the store failed.",
            self.sum(|s| &s.store_failures),
        );
        counter(
            out,
            "millpond_entity_too_few_replicas_total",
            "Requests that fewer copies answered than were asked for.",
            self.sum(|s| &s.too_few_replicas),
        );
        counter(
            out,
            "millpond_entity_disk_full_total",
            "Writes refused because the disk has no room.",
            self.sum(|s| &s.no_room),
        );
        self.write_commits(out, counter);
        write_engine(engine, out);
        write_sizes(engine, out);
        self.write_ranges(out, counter);
        self.write_value_cache(out);
        let in_flight = "millpond_entity_jobs_in_flight";
        out.describe(in_flight, "gauge", "Requests that wait for the store.");
        out.sample(in_flight, &[], self.sum(|s| &s.jobs_in_flight));
        self.write_health(out, counter);
    }

    fn write_health(
        &self,
        out: &mut MetricsText<'_>,
        counter: impl Fn(&mut MetricsText<'_>, &str, &str, u64),
    ) {
        let commits = &self.commits;
        let panics = "millpond_entity_thread_panics_total";
        out.describe(
            panics,
            "counter",
            "Panics of the store's threads, which go on after them; the writer refuses writes then.",
        );
        for thread in StoreThread::ALL {
            out.sample(
                panics,
                &[("thread", &thread.name())],
                self.panics.count(thread),
            );
        }
        let poisoned = "millpond_entity_poisoned";
        out.describe(
            poisoned,
            "gauge",
            "1 after a commit that failed for good: writes are refused.",
        );
        out.sample(poisoned, &[], u64::from(commits.is_poisoned()));
        let paused = "millpond_entity_paused";
        out.describe(
            paused,
            "gauge",
            "1 while the engine is short of descriptors, memory or room: writes are answered 503 until it goes on.",
        );
        out.sample(paused, &[], u64::from(commits.is_paused()));
        counter(
            out,
            "millpond_entity_recoveries_total",
            "How often writes went on after that without a restart.",
            commits.recoveries.value(),
        );
        counter(
            out,
            "millpond_entity_dead_parts_deleted_total",
            "Parts of large values that were deleted because their values were overwritten, deleted, ended or cut off.",
            commits.dead_parts_deleted.value(),
        );
    }

    fn write_commits(
        &self,
        out: &mut MetricsText<'_>,
        counter: impl Fn(&mut MetricsText<'_>, &str, &str, u64),
    ) {
        let commits = &self.commits;
        for (name, help, value) in [
            (
                "millpond_entity_commits_total",
                "Batches written.",
                &commits.commits,
            ),
            (
                "millpond_entity_wal_syncs_total",
                "Syncs of the write-ahead log.",
                &commits.syncs,
            ),
            (
                "millpond_entity_batch_jobs_total",
                "Writes in all batches; over commits: the mean batch.",
                &commits.batch_jobs,
            ),
            (
                "millpond_entity_batch_bytes_total",
                "Key and value bytes in all batches.",
                &commits.batch_bytes,
            ),
        ] {
            counter(out, name, help, value.value());
        }
        let largest = "millpond_entity_batch_jobs_max";
        out.describe(largest, "gauge", "Writes in the largest batch.");
        out.sample(largest, &[], commits.batch_jobs_max.value());
    }

    fn write_ranges(
        &self,
        out: &mut MetricsText<'_>,
        counter: impl Fn(&mut MetricsText<'_>, &str, &str, u64),
    ) {
        counter(
            out,
            "millpond_entity_ranges_total",
            "Range reads begun.",
            self.sum(|s| &s.ranges),
        );
        counter(
            out,
            "millpond_entity_slow_readers_disconnected_total",
            "Readers of large values and ranges that were cut because others waited for what they held.",
            self.sum(|s| &s.slow_readers_cut),
        );
        counter(
            out,
            "millpond_entity_range_records_total",
            "Records written by range reads.",
            self.sum(|s| &s.range_records),
        );
        counter(
            out,
            "millpond_entity_range_bytes_total",
            "Ids and values written by range reads.",
            self.sum(|s| &s.range_bytes),
        );
        let open = "millpond_entity_ranges_open";
        out.describe(
            open,
            "gauge",
            "Range reads under way, each with a snapshot.",
        );
        out.sample(open, &[], self.sum(|s| &s.ranges_open));
    }

    fn write_value_cache(&self, out: &mut MetricsText<'_>) {
        let lookups = "millpond_entity_value_cache_lookups_total";
        out.describe(lookups, "counter", "Reads that asked the value caches.");
        let hits = self.sum(|s| &s.value_cache.hits);
        out.sample(lookups, &[("result", &"hit")], hits);
        let misses = self.sum(|s| &s.value_cache.misses);
        out.sample(lookups, &[("result", &"miss")], misses);
        let evictions = "millpond_entity_value_cache_evictions_total";
        out.describe(evictions, "counter", "Values that made room for others.");
        out.sample(evictions, &[], self.sum(|s| &s.value_cache.evictions));
        let bytes = "millpond_entity_value_cache_bytes";
        out.describe(bytes, "gauge", "What the value caches hold.");
        out.sample(bytes, &[], self.sum(|s| &s.value_cache.bytes));
        let entries = "millpond_entity_value_cache_entries";
        out.describe(entries, "gauge", "Values in the value caches.");
        out.sample(entries, &[], self.sum(|s| &s.value_cache.entries));
    }

    fn sum(&self, counter: impl Fn(&ShardCounters) -> &Counter) -> u64 {
        self.shards.iter().map(|shard| counter(shard).value()).sum()
    }
}

fn write_sizes(engine: &EngineCounters, out: &mut MetricsText<'_>) {
    for (name, help, value) in [
        (
            "millpond_entity_live_bytes",
            "Bytes of entities that are still needed, as the engine estimates, without those in memory.",
            &engine.live_bytes,
        ),
        ("millpond_entity_tables", "Table files.", &engine.tables),
        (
            "millpond_entity_table_bytes",
            "Bytes of table files on the disk.",
            &engine.table_bytes,
        ),
        (
            "millpond_entity_log_bytes",
            "Bytes of write-ahead logs on the disk, which a start reads.",
            &engine.log_bytes,
        ),
        (
            "millpond_entity_start_log_torn",
            "1: at the last start the log ended in the middle of a write, as after a crash; nobody was told it was done.",
            &engine.log_was_torn,
        ),
        (
            "millpond_entity_start_lost_writes",
            "Writes that may have been lost at the last start and were accepted with --accept-loss.",
            &engine.lost_at_start,
        ),
    ] {
        out.describe(name, "gauge", help);
        out.sample(name, &[], value.value());
    }
}

fn write_engine(engine: &EngineCounters, out: &mut MetricsText<'_>) {
    for (name, help, value) in [
        (
            "millpond_entity_engine_memtable_bytes",
            "What the engine's memtables hold.",
            &engine.memtable_bytes,
        ),
        (
            "millpond_entity_engine_block_cache_bytes",
            "What the engine's block cache holds.",
            &engine.block_cache_bytes,
        ),
        (
            "millpond_entity_engine_table_reader_bytes",
            "What readers of tables hold besides.",
            &engine.table_reader_bytes,
        ),
        (
            "millpond_entity_engine_level0_tables",
            "Tables not merged yet: from 20 on writes are slowed down, at 36 stopped.",
            &engine.level0_tables,
        ),
        (
            "millpond_entity_engine_compaction_pending_bytes",
            "Bytes that compaction has yet to rewrite.",
            &engine.compaction_pending_bytes,
        ),
        (
            "millpond_entity_engine_compactions",
            "Compactions under way.",
            &engine.compactions,
        ),
        (
            "millpond_entity_engine_flushes",
            "Memtables being written out.",
            &engine.flushes,
        ),
        (
            "millpond_entity_engine_write_bytes_per_second_max",
            "To what the engine slows writes down; 0: it does not.",
            &engine.write_bytes_per_s_max,
        ),
        (
            "millpond_entity_engine_writes_stopped",
            "1: compaction does not keep up, and writes are refused with 503 meanwhile.",
            &engine.writes_are_stopped,
        ),
        (
            "millpond_entity_accepted_loss_writes",
            "Writes that may have been lost and were accepted with --accept-loss, in the life of the data.",
            &engine.accepted_loss,
        ),
        (
            "millpond_entity_disk_free_bytes",
            "Room on the disk that holds the data.",
            &engine.disk_free_bytes,
        ),
        (
            "millpond_entity_disk_reserve_bytes",
            "With less room puts are refused with 507, with half of it deletes too.",
            &engine.disk_reserve_bytes,
        ),
    ] {
        out.describe(name, "gauge", help);
        out.sample(name, &[], value.value());
    }
}

// The server's counters, without a locked instruction on the path.
//
// Each counter has one writing thread; others read it when `/metrics` is asked for and may see it a
// moment late.

pub use millpond_http::counters::Counter;

/// Counters of one shard. Aligned to two cache lines, the unit in which CPUs prefetch, so that shards do not slow each
/// other by counting.
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
    /// Requests to which fewer copies responded than requested.
    pub too_few_replicas: Counter,
    /// Jobs handed over and without a result yet.
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

/// Counters of one shard's value cache, and its two gauges.
#[derive(Debug, Default)]
pub struct ValueCacheCounters {
    /// Lookups that found a current value.
    pub hits: Counter,
    /// Lookups that did not.
    pub misses: Counter,
    /// Entries that made room for others.
    pub evictions: Counter,
    /// Bytes that entries hold now.
    pub bytes: Counter,
    /// Entries now.
    pub entries: Counter,
}

/// Counters of the writer thread.
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
    /// Parts deleted because their value is dead.
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

    /// Whether the engine was short of a resource, and is tried again until it writes.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.paused.store(is_paused, Ordering::Release);
    }

    /// Whether the engine accepts no write at the moment.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Which writes the disk has room for, as seen last.
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
    /// The current read gets 503.
    Reader,
    /// The current range read is cut, or gets 503.
    Scanner,
    /// The current checkpoint gets 500.
    Monitor,
}

impl StoreThread {
    /// All, in their order.
    pub const ALL: [Self; 4] = [Self::Writer, Self::Reader, Self::Scanner, Self::Monitor];

    /// As on `/metrics`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Scanner => "scanner",
            Self::Monitor => "monitor",
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Self::Writer => "writes are refused until a restart, reads go on",
            Self::Reader => "the read at hand is answered 503, others go on",
            Self::Scanner => "the range read at hand is cut or answered 503, others go on",
            Self::Monitor => "the checkpoint at hand is answered 500, its work goes on",
        }
    }
}

/// How often threads of the store have panicked.
#[derive(Debug, Default)]
pub struct ThreadPanics([AtomicU64; StoreThread::ALL.len()]);

impl ThreadPanics {
    /// Counts and logs it.
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

/// The monitor's last values; all are gauges.
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
    /// Room that must be left there.
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
