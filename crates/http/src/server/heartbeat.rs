//! The beat of a shard, about once a second: it publishes the shard's numbers, which `/metrics` of any shard
//! shows, and gives memory back that nothing used.

use millpond_io::{Driver, ShardContext, TimerId};
use millpond_mempool::{Buffer, PoolError, give_back_free_heap};

use crate::access_log::ShardLog;
use crate::metrics::write_all;
use crate::metrics::{MetricsText, PROMETHEUS_TEXT};
use crate::service::Service;
use crate::status::StatusCode;

use super::Server;

/// How old the numbers of a shard may be that did something in the meantime.
const BEAT_NS: u64 = 1_000_000_000;

/// Work of a shard about once a second while events come, and a few times after: publish its numbers, and give back
/// memory that was unused in between. Then it sleeps until the next event.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    pub(super) timer: Option<TimerId>,
    pub(super) beats_left: u8,
    is_scheduled: bool,
    bytes_given_back: u64,
    large_blocks: LargeBlocks,
}

impl Heartbeat {
    /// The first beat ends the interval that something happened in, the second gives back half of
    /// what was idle in the whole next one; as long as that was anything, more follow.
    pub(super) const BEATS_AFTER_EVENT: u8 = 2;
}

/// Whether much memory was freed lately and stays free. Blocks over 32 KiB are malloc's, which keeps freed memory below
/// blocks still in use: after a flood with much held memory, for good.
#[derive(Debug, Default)]
struct LargeBlocks {
    live_bytes_max: u64,
    low_beats: u8,
}

impl LargeBlocks {
    /// Less than this is not worth malloc's walk through its free memory.
    const FALL_BYTES_MIN: u64 = 4 << 20;
    /// A fall that lasted for so many beats lasts.
    const LOW_BEATS: u8 = 2;

    /// Once for each fall: it lasted.
    fn fell(&mut self, live_bytes: u64) -> bool {
        if live_bytes + Self::FALL_BYTES_MIN > self.live_bytes_max {
            self.live_bytes_max = self.live_bytes_max.max(live_bytes);
            self.low_beats = 0;
            return false;
        }
        self.low_beats += 1;
        if self.low_beats < Self::LOW_BEATS {
            return false;
        }
        *self = Self {
            live_bytes_max: live_bytes,
            low_beats: 0,
        };
        true
    }
}

impl<S: Service> Server<S> {
    pub(super) fn beat<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.heartbeat.beats_left = self.heartbeat.beats_left.saturating_sub(1);
        let log = self.exchange.access_log.as_deref_mut();
        let bytes_given_back = shard.trim_pools()
            + self.connections.trim()
            + log.map_or(0, ShardLog::trim)
            + self.exchange.trim()
            + self.service.trim_pools();
        self.heartbeat.bytes_given_back += bytes_given_back as u64;
        let live_bytes = shard.pools.blocks.stats().live_bytes;
        if self.heartbeat.large_blocks.fell(live_bytes) {
            give_back_free_heap();
        }
        if bytes_given_back > 0 || self.heartbeat.large_blocks.low_beats > 0 {
            self.heartbeat.beats_left = self.heartbeat.beats_left.max(1);
        }
        self.heartbeat.is_scheduled = false;
        self.publish(shard);
    }

    /// Copies this shard's numbers to where the others read them.
    #[cold]
    pub(super) fn publish<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let mut snapshot = self.snapshots.lock(shard.shard_index);
        snapshot.http.clone_from(&self.exchange.counters);
        snapshot.routes = self.service.routes();
        self.exchange.durations.copy_to(&mut snapshot.durations);
        snapshot.driver = shard.driver.counters();
        snapshot.tls = shard.driver.tls_counters();
        snapshot.proxy_heads = shard.driver.proxy_head_counters();
        snapshot.driver_name = shard.driver.name();
        snapshot.pools.clear();
        snapshot.pools.push(self.connections.stats());
        snapshot.pools.extend(self.exchange.pool_stats());
        snapshot.access_log = None;
        if let Some(log) = self.exchange.access_log.as_deref() {
            snapshot.access_log = Some(log.counters());
            snapshot.pools.push(log.stats());
        }
        let visit = &mut |stats| snapshot.pools.push(stats);
        self.service.visit_pool_stats(visit);
        shard.visit_pool_stats(&mut |stats| snapshot.pools.push(stats));
        snapshot.bytes_given_back = self.heartbeat.bytes_given_back;
        snapshot.io_buffers_addressed_bytes = shard.pools.io_buffers.addressed_bytes() as u64;
        snapshot.classes.clear();
        snapshot.classes.extend(shard.pools.blocks.class_stats());
    }

    #[inline]
    pub(super) fn keep_beating<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if self.heartbeat.is_scheduled || self.heartbeat.beats_left == 0 {
            return;
        }
        if let Some(timer) = self.heartbeat.timer {
            self.heartbeat.is_scheduled = true;
            shard.timers.set(timer, shard.now_ns + BEAT_NS);
        }
    }

    /// Responds to the requests for `/metrics` of this tick.
    #[inline]
    pub(super) fn answer_metrics<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if !self.exchange.metrics_requests.is_empty() {
            self.write_metrics(shard);
        }
    }

    #[cold]
    fn write_metrics<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let text = self.metrics_text(shard);
        let tokens = std::mem::take(&mut self.exchange.metrics_requests);
        self.complete(shard, |_service, completions| {
            for &token in &tokens {
                completions.respond(token, |response, _pools| {
                    // Without memory nothing is sent, which becomes 503.
                    if let Ok(text) = &text {
                        let _ = response.send(StatusCode::OK, Some(PROMETHEUS_TEXT), text);
                    }
                });
            }
        });
    }

    /// The listener for metrics gets its text, if it asked for one.
    pub(super) fn answer_scrape<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let scrape = self.scrape.as_ref().filter(|scrape| scrape.take_question());
        if let Some(scrape) = scrape.cloned() {
            // Without memory for all of it there is none of it.
            let text = self.metrics_text(shard).map(|text| text.to_vec());
            scrape.answer(text.unwrap_or_default());
        }
    }

    /// The numbers of all shards, and what the service of this one adds.
    #[cold]
    fn metrics_text<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
    ) -> Result<Buffer, PoolError> {
        self.publish(shard);
        let blocks = self.exchange.blocks.clone();
        let mut text = MetricsText::new(&blocks);
        let (limits, snapshots) = (&self.exchange.limits, self.snapshots.to_vec());
        let log_writer = self.snapshots.log_writer.as_deref();
        write_all(
            &mut text,
            &snapshots,
            limits,
            &self.build_labels,
            log_writer,
        );
        self.service.write_metrics(&mut text);
        text.finish()
    }
}

#[cfg(test)]
#[path = "tests/observe.rs"]
mod observe_tests;
