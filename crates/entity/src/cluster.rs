//! Entities on a cluster of Apache Cassandra or ScyllaDB, instead of an engine of this process.
//!
//! ```text
//! shard: handler -> ShardLink::submit -> WorkQueue -> worker: write, read    (one task for each job)
//! shard: range   -> ScanLink::ask     -> WorkQueue -> worker: scan           (one task for each turn)
//!                                                  `-> statements at a level -> driver -> nodes
//! shard:         <- io::Mailbox <- answers, each when its copies have answered
//! ```
//!
//! One thread of its own (`worker`) runs the driver and everything that waits for the nodes; shards send jobs and get
//! results by queue, as with the other engines.
//!
//! **Layout** (`statements`). An id's partition is one of `buckets`, by a hash of the id (`bucket`); within a partition
//! rows are sorted by id. So a read or write goes to the copies of one partition, load spreads over all nodes whatever
//! the ids look like, and a range is the merge of `buckets` sorted lists (`scan`): the API's order, by unsigned bytes.
//! The other layout, a partition for each id, spreads just as well, but its only order is that of hashes: a range of
//! ids would read everything. The cost of this one: every range reads all partitions, however short it is, and a
//! partition grows with the data.
//!
//! **Guarantees.** A write acknowledged by the requested number of copies is 201 or 202; any other end is 504, because
//! it may still have been done (`worker`). A write carries the time at which it left its shard, by this process's
//! clock, which never goes back; the newest wins on every node. So writes of one server take effect in the order in
//! which it received them, and those of several servers in the order of their clocks. With a quorum for both, reads
//! return acknowledged writes.
//!
//! **Conditions** (If-Match, If-None-Match) take light-weight transactions, which have times of their
//! own and must not be mixed with plain writes: a plain one with a clock ahead would win over a later
//! transaction. So a keyspace has them for all its writes or for none (`conditions=on`), and what it was
//! made with stays.
//!
//! Invariants: nothing is cached here, since other servers write; only statements that may be executed twice are sent
//! twice, by a retry or speculatively (`statements`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::EntityConfig;
use crate::data_dir::DataDirError;
use crate::store::{CachedRead, Disk, Engine, EngineGauges, EngineInfo, Linkage, StoreError};
use std::path::Path;

mod security;
mod worker;
mod write;
mod scan;
mod plan;
mod statements;

pub use crate::cluster_url::{
    ClusterLogin, ClusterSecurity, ClusterTls, ClusterUrl, ClusterUrlError,
};
pub(crate) use worker::Starter;

/// The largest value. Every copy holds a write in memory and in its log as a whole; the nodes' own limit
/// is half a log segment, 4 MiB or more.
pub const VALUE_BYTES_MAX: u64 = 1 << 20;

/// Why a cluster cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No node responded.
    #[error("{url} cannot be reached: {cause}")]
    Connect {
        /// Which one.
        url: String,
        /// The driver's sentence.
        cause: String,
    },
    /// The nodes do not know the user, or the password is wrong.
    #[error(
        "{url} does not let {user} in: check --store-user and what stands in --store-password-file"
    )]
    Login {
        /// Which one.
        url: String,
        /// The user name.
        user: String,
    },
    /// The nodes demand authentication.
    #[error("{url} asks for a password: give --store-user NAME and --store-password-file FILE")]
    LoginMissing {
        /// Which one.
        url: String,
    },
    /// The nodes respond neither in plaintext nor with a refusal.
    #[error(
        "{url} closes the connection, or answers in another protocol than CQL: give --store-tls if its \
         nodes speak TLS, or another port"
    )]
    NotPlaintext {
        /// Which one.
        url: String,
    },
    /// A handshake failed.
    #[error("there is no TLS with {url}: {cause}")]
    Handshake {
        /// Which one.
        url: String,
        /// The fault and the remedy.
        cause: String,
    },
    /// A file of certificates or keys cannot be used.
    #[error("TLS with the nodes of --store: {0}")]
    Tls(String),
    /// It is missing, and was not to be made.
    #[error(
        "there is no keyspace {keyspace}: name one that millpond has made, or have it made by \
         cassandra://.../{keyspace}?create=COPIES"
    )]
    NoKeyspace {
        /// Which one.
        keyspace: String,
    },
    /// The cluster refused to make, or to show, tables or settings.
    #[error("cannot {operation}: {cause}")]
    Schema {
        /// The operation attempted.
        operation: String,
        /// The driver's sentence.
        cause: String,
    },
    /// Made otherwise than asked for.
    #[error(
        "keyspace {keyspace} has {name} {kept}, not {asked}: leave it out, or name another keyspace"
    )]
    Setting {
        /// Which one.
        keyspace: String,
        /// Of what.
        name: &'static str,
        /// The value it was created with.
        kept: String,
        /// The value requested.
        asked: String,
    },
    /// Made by another program, or by a later build.
    #[error(
        "keyspace {keyspace} is of format {found:?} where this build knows {known}: use a build as new"
    )]
    Format {
        /// Which one.
        keyspace: String,
        /// The version found there.
        found: String,
        /// The version supported here.
        known: u32,
    },
    /// The keyspace does not say how many copies it has.
    #[error(
        "keyspace {keyspace} has a replication strategy that is not known here: use SimpleStrategy or \
         NetworkTopologyStrategy"
    )]
    Replication {
        /// Which one.
        keyspace: String,
    },
    /// There is no directory to copy.
    #[error("checkpoints copy a data directory, and a cluster has none: leave --checkpoints out")]
    Checkpoints,
    /// One server for each connection to a cluster.
    #[error("this connection to the cluster serves, or has served, already: make another one")]
    Served,
    /// No thread for the driver.
    #[error("cannot start the thread for the cluster: {0}")]
    Thread(String),
}

/// A connection to a cluster, as shards and the monitor see it.
#[derive(Debug)]
pub struct ClusterEngine {
    facts: Facts,
    nodes_connected: Arc<AtomicUsize>,
    starter: Mutex<Option<Starter>>,
    /// From where its shards count (`record::Versions`), at random: several servers write to one cluster.
    versions_from: usize,
}

/// Properties of a connected cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Facts {
    /// Of the node that was asked.
    pub(crate) version: String,
    /// Copies of everything.
    pub(crate) replicas: u16,
    /// See `ClusterUrl`.
    pub(crate) buckets: u16,
    /// See `ClusterUrl`.
    pub(crate) conditions: bool,
}

impl ClusterEngine {
    /// Connects, creates the keyspace if configured, and reads its properties. Waits for all of it.
    ///
    /// # Errors
    /// [`ClusterError`], one sentence.
    pub fn connect(url: &ClusterUrl, security: &ClusterSecurity) -> Result<Self, ClusterError> {
        let nodes_connected = Arc::new(AtomicUsize::new(1));
        let (facts, starter) = worker::connect(url, security, Arc::clone(&nodes_connected))?;
        Ok(Self {
            facts,
            nodes_connected,
            starter: Mutex::new(Some(starter)),
            versions_from: random_source(),
        })
    }

    /// Reads the files that TLS with the nodes of `url` takes, and lets them go.
    ///
    /// # Errors
    /// [`ClusterError::Tls`], one sentence.
    pub fn check_files(url: &ClusterUrl, security: &ClusterSecurity) -> Result<(), ClusterError> {
        security::tls_config(url, security).map(drop)
    }

    /// The settings of a configuration that apply to a cluster.
    pub(crate) fn config(&self, config: &EntityConfig) -> Result<EntityConfig, ClusterError> {
        if config.checkpoints.is_some() {
            return Err(ClusterError::Checkpoints);
        }
        Ok(EntityConfig {
            // Other servers write, without notice.
            cache_bytes: 0,
            value_bytes_max: config.value_bytes_max.min(VALUE_BYTES_MAX),
            read_threads: 1,
            ..config.clone()
        })
    }

    pub(crate) fn take_starter(&self) -> Result<Starter, ClusterError> {
        let mut starter = self.starter.lock().unwrap_or_else(PoisonError::into_inner);
        starter.take().ok_or(ClusterError::Served)
    }
}

/// The random state that the standard library seeds its maps with.
fn random_source() -> usize {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id()) as usize % crate::record::SHARDS_MAX
}

impl Engine for ClusterEngine {
    fn get_cached<R>(
        &self,
        _key: &[u8],
        _found: impl FnOnce(&[u8]) -> R,
    ) -> Result<CachedRead<R>, StoreError> {
        Ok(CachedRead::NotCached)
    }

    fn engine(&self) -> EngineInfo {
        EngineInfo {
            name: "cassandra",
            version: self.facts.version.clone(),
            linkage: Linkage::Remote,
        }
    }

    fn gauges(&self) -> EngineGauges {
        EngineGauges::default()
    }

    fn checkpoint(&self, path: &Path) -> Result<(), DataDirError> {
        Err(DataDirError::Engine {
            path: path.to_owned(),
            cause: ClusterError::Checkpoints.to_string(),
        })
    }

    fn disk(&self) -> Option<Disk> {
        None
    }

    fn replicas(&self) -> u16 {
        self.facts.replicas
    }

    fn judges_conditions(&self) -> bool {
        self.facts.conditions
    }

    fn is_reachable(&self) -> bool {
        self.nodes_connected.load(Ordering::Relaxed) > 0
    }

    fn versions_from(&self) -> usize {
        self.versions_from
    }
}
