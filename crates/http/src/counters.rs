//! Counters of a server: plain integers of one shard, added up only when they are read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limit;
use crate::status::StatusCode;

/// A number that one thread raises and any thread reads, perhaps a moment late: adding is a load and a store, no locked
/// instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`. Not atomic as a whole: only the owning thread may call it.
    #[inline]
    pub fn add(&self, count: u64) {
        self.set(self.value().wrapping_add(count));
    }

    /// Replaces the value; for gauges and maxima. Only the owning thread may call it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value, perhaps a moment old.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const CODES: usize = (StatusCode::CODE_MAX - StatusCode::CODE_MIN + 1) as usize;

/// Counts since the shard started.
#[derive(Clone, Debug)]
pub struct HttpCounters {
    /// Requests handed to a service, `/metrics` included.
    pub requests: u64,
    /// Connections taken.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Idle connections closed to make room for new ones, when there were as many as may be, or
    /// descriptors ran out.
    pub connections_shed: u64,
    /// Requests that a service had to cancel because their client closed its connection.
    pub requests_cancelled: u64,
    limit_hits: [u64; Limit::COUNT],
    responses: [u64; CODES],
}

impl Default for HttpCounters {
    fn default() -> Self {
        Self {
            requests: 0,
            connections_accepted: 0,
            connections_open: 0,
            connections_shed: 0,
            requests_cancelled: 0,
            limit_hits: [0; Limit::COUNT],
            responses: [0; CODES],
        }
    }
}

impl HttpCounters {
    /// A final response was written.
    #[inline]
    pub(crate) fn count_response(&mut self, status: StatusCode) {
        self.responses[usize::from(status.code() - StatusCode::CODE_MIN)] += 1;
    }

    /// A peer ran into this limit.
    pub(crate) fn count_limit_hit(&mut self, limit: Limit) {
        self.limit_hits[limit as usize] += 1;
    }

    /// How often peers ran into this limit.
    #[must_use]
    pub fn limit_hits(&self, limit: Limit) -> u64 {
        self.limit_hits[limit as usize]
    }

    /// Responses per status, those that occurred.
    pub fn responses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (StatusCode::CODE_MIN..)
            .zip(self.responses)
            .filter(|&(_, count)| count > 0)
    }
}
