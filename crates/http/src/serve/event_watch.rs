//! Repeated events of a server, as lines of its log.
//!
//! Shards only count. The controlling thread reads the counters once a second and logs those that have grown: at once
//! when it begins, then once a minute with the increase, until it ends. So a flood of peers costs a shard nothing here,
//! and the log two lines a minute for each kind.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::Limit;
use crate::log::{CountedEvent, LogLevel};
use crate::metrics::{ShardSnapshot, Snapshots};

/// How old news may be.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// One kind of event.
struct Kind {
    name: &'static str,
    level: LogLevel,
    /// What happened, and the remedy.
    sentence: &'static str,
    count: fn(&ShardSnapshot) -> u64,
}

const KINDS: [Kind; 11] = [
    Kind {
        name: "accept_failed",
        level: LogLevel::Warn,
        sentence: "connections could not be accepted, for lack of file descriptors or memory; \
                   raise the limit (ulimit -n)",
        count: |shard| shard.driver.accept_failures,
    },
    Kind {
        name: "connections_refused",
        level: LogLevel::Warn,
        sentence: "connections refused with 503: --max-connections are open and none is idle",
        count: |shard| shard.http.limit_hits(Limit::Connections),
    },
    Kind {
        name: "address_refused",
        level: LogLevel::Warn,
        sentence: "connections refused with 503: --max-connections-per-address from one address",
        count: |shard| shard.http.limit_hits(Limit::AddressConnections),
    },
    Kind {
        name: "connections_shed",
        level: LogLevel::Warn,
        sentence: "idle connections closed to make room for new ones",
        count: |shard| shard.http.connections_shed,
    },
    Kind {
        name: "access_log_dropped",
        level: LogLevel::Warn,
        sentence: "entries of the access log found no room and were dropped; raise \
                   --access-log-queue, or find a faster disk",
        count: |shard| shard.access_log.map_or(0, |log| log.dropped),
    },
    Kind {
        name: "receives_starved",
        level: LogLevel::Info,
        sentence: "receives waited for a buffer",
        count: |shard| shard.driver.receive_starvations,
    },
    Kind {
        name: "head_timeouts",
        level: LogLevel::Debug,
        sentence: "heads took longer than --head-timeout",
        count: |shard| shard.http.limit_hits(Limit::HeadTime),
    },
    Kind {
        name: "body_timeouts",
        level: LogLevel::Debug,
        sentence: "bodies came slower than --min-body-rate",
        count: |shard| shard.http.limit_hits(Limit::BodyRate),
    },
    Kind {
        name: "write_stalls",
        level: LogLevel::Debug,
        sentence: "connections cut: their peers did not take the response for --write-stall",
        count: |shard| shard.http.limit_hits(Limit::WriteStall),
    },
    Kind {
        name: "contended_bodies_cut",
        level: LogLevel::Warn,
        sentence: "uploads refused with 408: others waited for the memory that they held, and they \
                   were the slowest (--contended-grace)",
        count: |shard| shard.http.limit_hits(Limit::Contended),
    },
    Kind {
        name: "drain_cut",
        level: LogLevel::Warn,
        sentence: "connections cut: they were not done within --drain-timeout",
        count: |shard| shard.http.limit_hits(Limit::Drain),
    },
];

/// Counts of each kind at the last check.
pub(super) struct Watch {
    snapshots: Arc<Snapshots>,
    events: [CountedEvent; KINDS.len()],
}

impl Watch {
    pub(super) fn new(snapshots: Arc<Snapshots>) -> Self {
        Self {
            snapshots,
            events: KINDS.map(|kind| CountedEvent::new(kind.level, kind.name, kind.sentence)),
        }
    }

    /// Logs the events since the last check.
    pub(super) fn look(&mut self, now_ns: u64) {
        let counts = self.counts();
        for (event, count) in self.events.iter_mut().zip(counts) {
            event.look(count, now_ns);
        }
    }

    /// Of all shards together.
    fn counts(&self) -> [u64; KINDS.len()] {
        let mut counts = [0; KINDS.len()];
        for index in 0..self.snapshots.len() {
            let shard = self.snapshots.lock(index);
            for (count, kind) in counts.iter_mut().zip(&KINDS) {
                *count += (kind.count)(&shard);
            }
        }
        counts
    }
}

#[cfg(test)]
#[path = "tests/watch.rs"]
mod watch_tests;
