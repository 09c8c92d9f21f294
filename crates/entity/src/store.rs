//! The interface of an engine, and the engines.
//!
//! Shards read through [`Engine::get_cached`], which never waits for a disk; read threads follow up
//! with [`Store::get`]; the writer thread alone calls [`Store::commit`], the scan thread alone
//! [`Store::hold`]s the engine for its snapshots. One flat, sorted map of bytes to bytes is all the
//! interface promises, so that `memory` can be its oracle.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use crate::data_dir::DataDirError;
use crate::monitor::Upkeep;
use crate::parts::PartSets;

pub mod rocksdb;
pub(crate) mod accept_loss;
pub(crate) mod backup_files;
mod examine;
mod inventory;
mod lock;
mod manifest;
mod replaceable;
pub(crate) mod opening;
pub mod upkeep;
pub mod memory;
pub mod faulty;
#[cfg(system_rocksdb)]
mod system_stub;

pub use accept_loss::Gap;
pub use examine::{Loss, Missing};

/// One change of one entity, inside a batch. A later change of the same id wins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Write<'a> {
    /// Sets the entity, whether it exists or not.
    Put {
        /// The id, decoded.
        key: &'a [u8],
        /// Bytes stored before `value`, if they are not part of it already.
        head: &'a [u8],
        /// The new value, possibly empty.
        value: &'a [u8],
    },
    /// Removes the entity; removing an absent one is no error.
    Delete {
        /// The id, decoded.
        key: &'a [u8],
    },
}

/// Required durability of a batch when [`Store::commit`] returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// It survives the loss of power: the write-ahead log is synced.
    Synced,
    /// It survives the end of this process: the write-ahead log is handed to the kernel.
    Written,
    /// The same, for writes that are not acknowledged: parts, until the record that names them is written, with which
    /// they are synced.
    Unacknowledged,
}

/// The result of a read that may not wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CachedRead<R> {
    /// The entity exists; the visitor's result for its value.
    Found(R),
    /// The entity does not exist: known for certain from memory.
    Absent,
    /// Needs the disk: call [`Store::get`] on a thread that may wait.
    NotCached,
}

/// An engine refused or failed. The cause is the engine's own sentence.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the store failed to {operation}: {cause}")]
pub struct StoreError {
    /// The operation: `read`, `scan`, `commit`, `sync`, or one of `upkeep`.
    pub operation: &'static str,
    /// The engine's sentence.
    pub cause: String,
    /// Whether it can work again in this process.
    pub failure: Failure,
}

/// Whether an engine can work again without a restart of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// Something that the machine was short of (descriptors, memory, room) stopped it before anything was
    /// synced: [`Store::recover`] may get it to work again.
    Passing,
    /// All other failures, failed syncs included: the state on the disk is known only after a restart.
    Lasting,
}

/// How an engine is doing at a moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EngineGauges {
    /// Memory of memtables.
    pub memtable_bytes: u64,
    /// Memory of the block cache.
    pub block_cache_bytes: u64,
    /// Other memory of table readers.
    pub table_reader_bytes: u64,
    /// Tables that were written out and not merged yet.
    pub level0_tables: u64,
    /// Bytes that mergers have yet to rewrite, as the engine estimates.
    pub compaction_pending_bytes: u64,
    /// Mergers at work.
    pub compactions: u64,
    /// Memtables being written out.
    pub flushes: u64,
    /// To how much the engine holds writes down, because mergers do not keep up; 0: it does not.
    pub write_bytes_per_s_max: u64,
    /// Writes wait until mergers have caught up.
    pub writes_are_stopped: bool,
    /// Writes that may have been lost and were accepted as lost, in the life of the data.
    pub accepted_loss: u64,
}

/// How large the data is, and what its last start found.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DataSizes {
    /// Bytes that are still needed, as the engine estimates.
    pub live_bytes: u64,
    /// Table files, and their bytes on the disk.
    pub tables: u64,
    /// Their bytes on the disk.
    pub table_bytes: u64,
    /// Bytes of write-ahead logs on the disk.
    pub log_bytes: u64,
    /// Whether the log ended in the middle of a write at the last start, as after a crash: it was not acknowledged.
    pub log_was_torn: bool,
    /// Writes that were accepted as lost at the last start.
    pub lost_at_start: u64,
}

/// Room on the disk that holds the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Disk {
    /// Free bytes.
    pub free_bytes: u64,
    /// Room that must be left for the engine, which needs room to free room.
    pub reserve_bytes: u64,
}

/// Which writes a disk has room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// All.
    Enough,
    /// Less than the reserve is left: deletes, which lead to room.
    ForDeletes,
    /// Less than half of the reserve is left: no writes.
    None,
}

impl Disk {
    /// Which writes there is room for.
    #[must_use]
    pub fn room(&self) -> Room {
        if self.free_bytes >= self.reserve_bytes {
            return Room::Enough;
        }
        match self.free_bytes >= self.reserve_bytes / 2 {
            true => Room::ForDeletes,
            false => Room::None,
        }
    }
}

/// The engine that really ran, for results and `/metrics`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EngineInfo {
    /// `rocksdb`, `memory` or `cassandra`.
    pub name: &'static str,
    /// As the running library reports it, not as the build asked for it.
    pub version: String,
    /// Where the library came from.
    pub linkage: Linkage,
}

impl fmt::Display for EngineInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {} ({})",
            self.name, self.version, self.linkage
        )
    }
}

/// Where the engine's code came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Linkage {
    /// The distribution's shared library.
    System,
    /// Compiled together with this crate.
    Bundled,
    /// The same, without the engine's counters per thread (`-DNPERF_CONTEXT`), which nothing here reads: a small put takes
    /// half the instructions.
    BundledWithoutCounters,
    /// It runs elsewhere, and is spoken to.
    Remote,
}

impl Linkage {
    /// That of the embedded engine in this build.
    #[must_use]
    pub const fn of_this_build() -> Self {
        if cfg!(system_rocksdb) {
            Self::System
        } else if cfg!(rocksdb_without_counters) {
            Self::BundledWithoutCounters
        } else {
            Self::Bundled
        }
    }
}

impl fmt::Display for Linkage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::System => "system",
            Self::Bundled => "bundled",
            Self::BundledWithoutCounters => "bundled without thread counters",
            Self::Remote => "remote",
        })
    }
}

/// The view of a snapshot: a key and its value at a time.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// The map at one moment.
pub trait Snapshot {
    /// Shows the entities from `from` on (inclusive) to `end` (exclusive; none: to the last) in
    /// the order of their unsigned bytes, until `visit` breaks. May wait for a disk. Between two
    /// calls nothing but the snapshot itself is held.
    ///
    /// # Errors
    /// When the engine fails; entries shown until then are valid.
    fn visit(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;
}

/// The interface of an engine for shards and the monitor: a [`Store`] of this process, or a cluster.
pub trait Engine: Send + Sync + 'static {
    /// Reads without ever waiting for a disk; `found` sees the value in place.
    ///
    /// # Errors
    /// When the engine fails; never for an absent entity.
    fn get_cached<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<CachedRead<R>, StoreError>;

    /// Which engine this is.
    fn engine(&self) -> EngineInfo;

    /// A thread that will call it often has begun.
    fn thread_started(&self) {}

    /// How it is doing. Takes the engine's locks: never on a shard.
    fn gauges(&self) -> EngineGauges;

    /// Makes the new directory `path` a copy as of now, while reads and writes go on; for as long as
    /// writing the memtables out takes. Marked as a backup last of all.
    ///
    /// # Errors
    /// [`DataDirError`]; incomplete files can then be removed.
    fn checkpoint(&self, path: &Path) -> Result<(), DataDirError>;

    /// The disk that holds the data; `None`: none does. A system call.
    fn disk(&self) -> Option<Disk>;

    /// How large the data is. May wait for a disk.
    fn sizes(&self) -> DataSizes {
        DataSizes::default()
    }

    /// Does an operator's operation. May take minutes; reads and writes go on.
    ///
    /// # Errors
    /// When the engine fails, or has no such thing.
    fn keep_up(&self, asked: Upkeep) -> Result<(), StoreError> {
        let _ = asked;
        Err(StoreError {
            operation: "keep up",
            cause: "this engine looks after itself".to_owned(),
            failure: Failure::Passing,
        })
    }

    /// Whether writes are possible: not if it was opened read-only.
    fn takes_writes(&self) -> bool {
        true
    }

    /// Whether values may be stored in parts (`parts`).
    fn keeps_parts(&self) -> bool {
        false
    }

    /// Searches for dead parts, for the writer thread to delete; returns how many sets it found. May wait for a disk.
    ///
    /// # Errors
    /// When the engine fails; the next call searches again.
    fn find_dead_parts(&self, sets: &PartSets) -> Result<usize, StoreError> {
        let _ = sets;
        Ok(0)
    }

    /// Gives back room on the disk that deleted and ended entities take. May take minutes.
    fn make_room(&self) {}

    /// Notes which files have to be there and how far they reach, so that a later start finds out whether something
    /// is missing. About once a second; may wait for a disk.
    fn note_files(&self) {}

    /// How many copies of an entity there are; the limit for `replicas=ack/from`.
    fn replicas(&self) -> u16 {
        1
    }

    /// Whether a write may be conditional.
    fn judges_conditions(&self) -> bool {
        true
    }

    /// Whether a node is reachable. Called by shards: it may not wait.
    fn is_reachable(&self) -> bool {
        true
    }

    /// No version of what is stored is of a later time than this one, in microseconds since 1970; 0: nothing is known
    /// but the clock.
    fn versions_after_us(&self) -> u64 {
        0
    }

    /// From which number on the shards give out versions (`record::Versions`): where several servers
    /// write to one store, each from another one.
    fn versions_from(&self) -> usize {
        0
    }
}

/// A map of bytes to bytes that outlives the process.
///
/// Reads may run on any thread while one thread commits. A read sees a batch either whole or not
/// at all, and sees it before `commit` returns.
pub trait Store: Engine {
    /// See [`Store::hold`].
    type Held: Held;

    /// Keeps the engine open, for snapshots of it. An engine that is to be reopened waits until it is not held: release
    /// it as soon as [`Store::wants_release`].
    ///
    /// # Errors
    /// [`Failure::Passing`] while the engine is opened again.
    fn hold(&self) -> Result<Self::Held, StoreError>;

    /// Whether the holder of the engine must release it.
    fn wants_release(&self) -> bool {
        false
    }

    /// Reads, waiting for the disk if need be. `None`: no such entity.
    ///
    /// # Errors
    /// When the engine fails; never for an absent entity.
    fn get<R>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, StoreError>;

    /// Applies all `writes` in their order, or none of them. `batch_bytes` is the sum of keys and
    /// values, so that an engine can reserve its memory once.
    ///
    /// # Errors
    /// When the batch is not as durable as requested. It may then still be there after a restart, but only whole; it
    /// must not be acknowledged.
    fn commit<'a>(
        &self,
        writes: impl Iterator<Item = Write<'a>>,
        batch_bytes: usize,
        durability: Durability,
    ) -> Result<(), StoreError>;

    /// Makes all that was committed as [`Durability::Written`] survive the loss of power.
    ///
    /// # Errors
    /// When it does not.
    fn sync(&self) -> Result<(), StoreError>;

    /// After a commit or sync that failed with [`Failure::Passing`]: tries to get the engine to write again.
    /// The thread that commits calls it, `tries` times before this one. True: it writes, and all that was
    /// acknowledged is there; the batch that failed is there whole or not at all. False: not yet.
    ///
    /// # Errors
    /// When only a restart can help.
    fn recover(&self, tries: u32) -> Result<bool, StoreError> {
        let _ = tries;
        Ok(true)
    }
}

/// An engine that stays open.
pub trait Held {
    /// See [`Held::snapshot`].
    type Snapshot<'a>: Snapshot
    where
        Self: 'a;

    /// The map as it is now: every commit that has returned is in it, no later one ever will be.
    /// Keeping one keeps what it shows on the disk, however often it is overwritten.
    fn snapshot(&self) -> Self::Snapshot<'_>;
}
