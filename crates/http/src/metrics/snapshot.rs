//! A copy of one shard's numbers, for the other shards and for SIGUSR1.

use crate::access_log::{AccessLogCounters, WriterCounters};
use crate::counters::HttpCounters;
use millpond_io::DriverCounters;
use millpond_io::proxy_protocol::ProxyHeadCounters;
use millpond_io::tls::TlsCounters;
use millpond_mempool::{ClassStats, PoolStats};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One shard's numbers at some moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSnapshot {
    pub(crate) http: HttpCounters,
    pub(crate) driver: DriverCounters,
    /// Of a server that speaks TLS.
    pub(crate) tls: Option<TlsCounters>,
    /// Of a server whose clients begin with a head of the PROXY protocol.
    pub(crate) proxy_heads: Option<ProxyHeadCounters>,
    pub(crate) driver_name: &'static str,
    /// With a log only.
    pub(crate) access_log: Option<AccessLogCounters>,
    pub(crate) pools: Vec<PoolStats>,
    pub(crate) classes: Vec<ClassStats>,
    /// What the pools have given back because nobody used it, ever.
    pub(crate) bytes_given_back: u64,
    /// Addresses of the buffers the kernel writes to, with pages or without.
    pub(crate) io_buffers_addressed_bytes: u64,
}

/// The latest copy of every shard. Locked for the time of a copy, about once a second.
#[derive(Debug)]
pub(crate) struct Snapshots {
    shards: Vec<Mutex<ShardSnapshot>>,
    /// Counts as it goes, and of all shards.
    pub(crate) log_writer: Option<Arc<WriterCounters>>,
}

impl Snapshots {
    pub(crate) fn new(shard_count: usize) -> Self {
        Self {
            shards: (0..shard_count).map(|_| Mutex::default()).collect(),
            log_writer: None,
        }
    }

    /// The place of one shard. A panic elsewhere leaves only numbers behind: still good to read.
    pub(crate) fn lock(&self, shard_index: usize) -> MutexGuard<'_, ShardSnapshot> {
        self.shards[shard_index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn to_vec(&self) -> Vec<ShardSnapshot> {
        (0..self.len())
            .map(|index| self.lock(index).clone())
            .collect()
    }
}
