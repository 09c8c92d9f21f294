//! Settings of an operator, with the reasons for the defaults.
//!
//! Place: `cli` fills it from flags; `server` derives the engine's and the executor's limits.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::access::Access;
use crate::access::AllowedHosts;
use crate::budget::{MEMORY_BYTES_DEFAULT, MemoryBudget};

/// The entity server's own settings; sockets, shards and pools are `ServeConfig`'s.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EntityConfig {
    /// Where the data lives. Created if only the last component is missing.
    pub data: PathBuf,
    /// When a write counts as done.
    pub sync: SyncPolicy,
    /// The largest value; a larger body gets 413.
    pub value_bytes_max: u64,
    /// Memory for cached reads: single values, in the shards' pools and in equal shares (`value_cache`). 128 MiB keep
    /// 100,000 values of 1 KiB (118 MB with keys and entries, 10 MiB for lookup and stamps) in one shard. Every shard
    /// keeps its own copies.
    pub cache_bytes: u64,
    /// Memory for the engine's blocks, indexes and filters.
    pub block_cache_bytes: u64,
    /// Memory for writes not yet in tables: three memtables of 16 MiB by default.
    pub memtable_bytes: u64,
    /// Requests that may wait for the store at once, all shards together; one more gets 503. At 300,000 puts a second
    /// 4,096 is a wait of 14 ms.
    pub jobs_in_flight_max: usize,
    /// Bytes that waiting requests may hold, all shards together.
    pub bytes_in_flight_max: u64,
    /// Bytes of large values that come in at once, and as many that go out (`large`), all shards together; a value
    /// beyond that gets 503, unless it is alone.
    pub large_bytes_max: u64,
    /// Longest wait of a read for that memory; then the response is 503. The holder may be a client that
    /// reads slowly.
    pub large_wait_max: Duration,
    /// Bytes that are committed at once, or one job if that is larger.
    pub batch_bytes_max: u64,
    /// Threads for reads that need the disk.
    pub read_threads: usize,
    /// Range reads open at once, all shards together; one more gets 503. Each holds a turn of 32 KiB, or one record
    /// where that is larger, and keeps overwritten values on the disk.
    pub scans_max: usize,
    /// Room on the disk that writes leave to the engine: with less, puts get 507, and with less than half of it deletes
    /// too. `None`: see `store::rocksdb`.
    pub disk_reserve_bytes: Option<u64>,
    /// Where `PUT /v0/admin/checkpoint` makes its directories; `None`: it is refused.
    pub checkpoints: Option<PathBuf>,
    /// How tables are packed.
    pub compression: Compression,
    /// A directory that has lost data is served as far as it can be read, after every file of it was put aside;
    /// otherwise it is refused, unchanged.
    pub accepts_loss: bool,
    /// Nothing is written: reads are served, writes refused. For a read-only mount, a full disk, a backup.
    pub reads_only: bool,
    /// Permissions for reading and writing.
    pub access: Access,
    /// Under which names the server may be asked.
    pub allowed_hosts: AllowedHosts,
}

impl EntityConfig {
    /// The defaults, on `data`.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        Self::with_memory(data, MEMORY_BYTES_DEFAULT)
    }

    /// The defaults, on `data`, with so much memory (`budget`).
    #[must_use]
    pub fn with_memory(data: PathBuf, memory_bytes: u64) -> Self {
        let budget = MemoryBudget::split(memory_bytes);
        Self {
            data,
            sync: SyncPolicy::Always,
            value_bytes_max: 64 << 20,
            cache_bytes: budget.cache_bytes,
            block_cache_bytes: budget.block_cache_bytes,
            memtable_bytes: budget.memtable_bytes,
            jobs_in_flight_max: 4096,
            bytes_in_flight_max: budget.bytes_in_flight_max,
            large_bytes_max: budget.large_bytes_max,
            large_wait_max: Duration::from_secs(5),
            batch_bytes_max: budget.batch_bytes_max,
            read_threads: 2,
            scans_max: budget.scans_max,
            disk_reserve_bytes: None,
            checkpoints: None,
            compression: Compression::default(),
            accepts_loss: false,
            reads_only: false,
            access: Access::default(),
            allowed_hosts: AllowedHosts::default(),
        }
    }
}

/// Compression of tables, except those just written from a memtable. Existing tables can be read whatever this is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Compression {
    /// Not at all: for values that are packed already.
    None,
    /// Quickly, by about a third of what JSON takes.
    #[default]
    Lz4,
    /// Smaller, for three to five times the CPU; the bundled engine lacks it.
    Zstd,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SyncPolicy {
    /// After its log is synced: it survives the loss of power.
    #[default]
    Always,
    /// After its log is handed to the kernel, which is synced this often: it survives the end of
    /// the process, and the loss of power may take the last interval.
    Interval {
        /// Milliseconds from a write to the sync that covers it, at most.
        ms: NonZeroU32,
    },
    /// After its log is handed to the kernel, which writes it when it likes.
    Off,
}

impl SyncPolicy {
    /// The longest time from an unsynced write to its sync; `None`: there is no such sync.
    #[must_use]
    pub fn interval(self) -> Option<Duration> {
        match self {
            Self::Interval { ms } => Some(Duration::from_millis(ms.get().into())),
            Self::Always | Self::Off => None,
        }
    }
}

/// The text is none of the policies.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown sync policy {text:?}: use always, interval:MS (1 or more milliseconds) or off")]
pub struct SyncPolicyError {
    /// The text given.
    pub text: String,
}

impl FromStr for SyncPolicy {
    type Err = SyncPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let interval = || text.strip_prefix("interval:")?.parse().ok();
        match text {
            "always" => Ok(Self::Always),
            "off" => Ok(Self::Off),
            _ => match interval() {
                Some(ms) => Ok(Self::Interval { ms }),
                None => Err(SyncPolicyError {
                    text: text.to_owned(),
                }),
            },
        }
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => formatter.write_str("always"),
            Self::Interval { ms } => write!(formatter, "interval:{ms}"),
            Self::Off => formatter.write_str("off"),
        }
    }
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;
