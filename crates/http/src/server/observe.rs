//! `/metrics`, and the copy of this shard's numbers that the others read.

use super::Server;
use crate::metrics::MetricsText;
use crate::metrics::report::write_all;
use crate::service::Service;
use crate::status::StatusCode;
use millpond_io::{Driver, ShardContext, TimerId};

/// How old the numbers of a shard may be that did something in the meantime.
const BEAT_NS: u64 = 1_000_000_000;
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a shard does about once a second while anything happens, and a few times after: publish
/// its numbers, and give memory back once nobody uses it. Then it sleeps until the next event.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    pub(super) timer: Option<TimerId>,
    pub(super) beats_left: u8,
    is_scheduled: bool,
    requests_last: u64,
}

impl Heartbeat {
    /// Each quiet beat returns half of the idle chunks; after so many hardly one is left.
    pub(super) const BEATS_AFTER_EVENT: u8 = 8;
}

impl<S: Service> Server<S> {
    pub(super) fn beat<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let requests = self.exchange.counters.requests;
        if requests == self.heartbeat.requests_last {
            shard.pools.blocks.trim();
        }
        self.heartbeat.requests_last = requests;
        self.heartbeat.beats_left = self.heartbeat.beats_left.saturating_sub(1);
        self.heartbeat.is_scheduled = false;
        self.publish(shard);
    }

    /// Copies this shard's numbers to where the others read them.
    #[cold]
    pub(super) fn publish<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let mut snapshot = self.snapshots.lock(shard.shard_index);
        snapshot.http.clone_from(&self.exchange.counters);
        snapshot.driver = shard.driver.counters();
        snapshot.driver_name = shard.driver.name();
        snapshot.pools.clear();
        snapshot.pools.push(self.connections.stats());
        shard.visit_pool_stats(&mut |stats| snapshot.pools.push(stats));
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

    /// Answers the requests for `/metrics` of this tick.
    #[inline]
    pub(super) fn answer_metrics<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if !self.exchange.metrics_requests.is_empty() {
            self.write_metrics(shard);
        }
    }

    #[cold]
    fn write_metrics<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.publish(shard);
        let blocks = self.exchange.blocks.clone();
        let mut text = MetricsText::new(&blocks);
        write_all(&mut text, &self.snapshots.to_vec(), &self.build_labels);
        self.service.write_metrics(&mut text);
        let text = text.finish();
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
}
