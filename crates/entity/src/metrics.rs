//! The entity server's lines of `/metrics`, summed over its shards.
//!
//! Place: `http::server` answers `/metrics` and asks the service of the shard it runs on; every
//! shard sees all counters. Absent on purpose: requests, connections and pools, which `http`
//! writes for every server.

use std::sync::Arc;

use millpond_http::MetricsText;

use crate::counters::{
    CommitCounters, Counter, EngineCounters, ShardCounters, StoreThread, ThreadPanics,
};

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
            "millpond_entity_no_room_total",
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
            "millpond_entity_slow_readers_cut_total",
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
            "millpond_entity_engine_write_bytes_per_s_max",
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
