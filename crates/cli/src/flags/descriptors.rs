//! How many connections a server has descriptors for.
//!
//! The soft limit of open files is raised to the hard one, and what is left beside the server's own files bounds its
//! connections: they run out at a known and reported number, and not when the store opens a file.

use millpond_http::LimitValues;
use millpond_lab::doctor::{Machine, OTHER_FILES};

/// Of each shard: its listener, its ring or epoll, what wakes it, a spare one.
const FILES_PER_SHARD: u64 = 8;
/// Tables that the embedded store keeps open (its `max_open_files`), and its logs.
const STORE_FILES: u64 = 256 + 32;
/// Scrapers of `--metrics-listen`.
const METRICS_FILES: u64 = 64;

/// What a server of this kind has for its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ConnectionRoom {
    /// Files that may be open.
    limit: u64,
    /// Of these, what is kept for everything but connections.
    reserved: u64,
    /// Files of a connection: a proxy has one to an upstream beside each of its clients'.
    each: u64,
    shards: u64,
}

impl ConnectionRoom {
    /// Of this process, once its soft limit is the hard one.
    pub(super) fn of(server: &str, shards: usize, has_metrics: bool) -> Self {
        let limit = Machine::this().open_files();
        Self::within(
            limit.map_or(u64::MAX, |limit| limit.hard),
            server,
            shards,
            has_metrics,
        )
    }

    /// The same of a server that has so many other files open.
    pub(super) fn beside(self, files: u64) -> Self {
        Self {
            reserved: self.reserved.saturating_add(files),
            ..self
        }
    }

    fn within(limit: u64, server: &str, shards: usize, has_metrics: bool) -> Self {
        let shards = u64::try_from(shards).unwrap_or(u64::MAX);
        let store = if server == "entity" { STORE_FILES } else { 0 };
        let metrics = if has_metrics { METRICS_FILES } else { 0 };
        Self {
            limit,
            reserved: OTHER_FILES + store + metrics + FILES_PER_SHARD.saturating_mul(shards),
            each: if server == "proxy" { 2 } else { 1 },
            shards,
        }
    }

    /// Each shard also has sockets that are refused or closing.
    fn connections_max(self) -> u64 {
        let sockets = self.limit.saturating_sub(self.reserved) / self.each / self.shards.max(1);
        let sockets = usize::try_from(sockets).unwrap_or(usize::MAX);
        let connections = LimitValues::connections_within(sockets) as u64;
        connections.saturating_mul(self.shards)
    }

    /// As many of the connections that are wanted as there is room for; at least one for each shard, or the sentence that
    /// says what is missing.
    pub(super) fn connections(self, wanted: u64) -> Result<u64, String> {
        let room = self.connections_max();
        match room < self.shards.min(wanted) {
            false => Ok(wanted.min(room)),
            true => Err(format!(
                "{} files may be open (ulimit -n), and this server keeps {} for itself: raise the limit to {} or more",
                self.limit,
                self.reserved,
                self.needed(self.shards),
            )),
        }
    }

    /// What to say where it is less than what is wanted.
    pub(super) fn note(self, wanted: u64) -> Option<String> {
        let room = self.connections_max();
        let needed = self.needed(wanted);
        (room < wanted).then(|| {
            format!(
                "at most {room} of {wanted} connections (--max-connections): {} files may be open \
                 (ulimit -Hn), and {} of them are kept for other files; `ulimit -n {needed}` as root, or \
                 LimitNOFILE={needed} in a systemd unit, is enough for all",
                self.limit, self.reserved
            )
        })
    }

    fn needed(self, connections: u64) -> u64 {
        let share = connections.div_ceil(self.shards.max(1));
        let values = LimitValues {
            connections_max: usize::try_from(share).unwrap_or(usize::MAX),
            ..LimitValues::DEFAULT
        };
        let sockets = (values.sockets_max() as u64).saturating_mul(self.shards);
        sockets
            .saturating_mul(self.each)
            .saturating_add(self.reserved)
    }
}

#[cfg(test)]
#[path = "tests/descriptors.rs"]
mod tests;
