//! The real engine: RocksDB embedded, memory capped, one column family.
//!
//! Shards read the memtable and the block cache in place; the writer thread hands over whole
//! batches and one sync each. Only this file names the engine's types. Sizes and one choice are all
//! an operator sets; the rest is derived below, each with its reason.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rocksdb::perf::{PerfStatsLevel, set_perf_stats};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, CompactionDecision, DB, DBCompressionType,
    ErrorKind, Options, ReadOptions, ReadTier, SnapshotWithThreadMode, WriteBatch, WriteOptions,
};

use super::examine::{Examined, examine};
use super::inventory::Notes;
use super::lock::{Claim, Lock};
use super::opening::Closing;
use super::opening::{
    Access, LogEnd, newer_format, newest_options_version, open_again, open_error, open_logged,
    open_read_only,
};
use super::opening::{RoomReopening, default_reserve_bytes, fitting_memtables, log_bytes};
use super::replaceable::{ReadGuard, Replaceable};
use super::{
    CachedRead, DataSizes, Disk, Durability, Engine, EngineGauges, EngineInfo, Failure, Held,
    Linkage, Room, Snapshot, Store, StoreError, Visit, Write,
};
use super::{accept_loss, backup_files, inventory, opening, upkeep};
use millpond_http::log::{self, LogLevel};

use crate::config::Compression;
use crate::data_dir::{self, DataDirError, Found};
use crate::monitor::Upkeep;
use crate::parts::{self, PartSets};
use crate::record::{Head, Version};

/// Memtables in the engine at most: one being filled, the others being written out.
const MEMTABLE_COUNT_MAX: usize = 3;

/// Of tables in the engine; its default.
const LEVELS: u32 = 7;

/// A longer record is not kept while the batch that it went into is written: the engine copies it again.
const JOINED_BYTES_KEPT: usize = 1 << 20;

/// So many flushed memtables are merged into the next level at once, which is rewritten where they overlap it, nearly
/// always as a whole: with the engine's default of four, merging and flushing took as much CPU as serving requests when
/// 100,000 values of 1 KiB are overwritten repeatedly. Their total size is at most the room left free on the disk
/// (`room`); more tables would be more to search for each read.
const FIRST_LEVEL_TABLES: i32 = 6;

/// Of a table that is written out, in one call of the system.
const WRITE_BYTES_MAX: u64 = 64 << 10;

/// Of a table's filter and index: the bytes one lookup takes into the cache.
const FILTER_PART_BYTES: usize = 4096;

/// Of so many entries of a table that follow each other, half are deletes: then it is merged soon, whatever other
/// tables its level has. A range read passes each of them, about one in a microsecond, and the scan thread serves no
/// other turn meanwhile.
const DELETES_WINDOW: usize = 8192;

/// Room that must be free for the engine's lists of files, besides that for its log.
const SPARE_ROOM_BYTES: u64 = 1 << 20;

/// Longest wait for readers to let go of an engine that is to be opened again.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often the engine may try to recover by itself, as it does when room comes back, before it is closed and
/// reopened.
const TRIES_BEFORE_REOPENING: u32 = 4;

/// One in so many tries opens the engine again where it is open for reads alone: each reads the log anew.
const TRIES_BETWEEN_REOPENINGS: u32 = 8;

/// How much memory and disk the engine may use, how it packs, and what it does about a loss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RocksDbOptions {
    /// Blocks of data, indexes and filters of tables. Values are kept by `value_cache`.
    pub block_cache_bytes: u64,
    /// All memtables together.
    pub memtable_bytes: u64,
    /// Room on the disk that writes leave to the engine; `None`: a sixteenth of the disk, but no less than twice the
    /// memtables, and no more than that and 1 GiB.
    pub disk_reserve_bytes: Option<u64>,
    /// Of the tables.
    pub compression: Compression,
    /// A directory that has lost data is opened as far as it can be read, after every file of it was put aside.
    /// Otherwise it is refused, unchanged.
    pub accepts_loss: bool,
    /// It is opened for reading alone, and no file of it is changed.
    pub reads_only: bool,
}

/// An open data directory.
pub struct RocksDbStore {
    /// Not there while it is opened again.
    db: Replaceable<Closing<DB>>,
    /// It could not be opened again for writes, and is open for reads. The thread that commits sets it.
    is_read_only: AtomicBool,
    /// The directory's, which the engine does not take for reads alone.
    read_only_lock: Mutex<Option<Lock>>,
    /// Held while the engine is closed and opened again: two threads may find that it has to be.
    reopening: Mutex<()>,
    /// When it may be opened again for lack of room.
    room_reopening: Mutex<RoomReopening>,
    path: PathBuf,
    block_cache: Cache,
    asked: RocksDbOptions,
    /// The engine's number of the last change that was acknowledged.
    acknowledged: AtomicU64,
    read_cached: ReadOptions,
    read_all: ReadOptions,
    write_synced: WriteOptions,
    write_unsynced: WriteOptions,
    engine: EngineInfo,
    /// `None`: it was opened for inspection, or there was no room for a note.
    notes: Option<Notes>,
    /// A write or a sync failed, and the engine has not recovered: its log may not be touched again (a library with
    /// assertions aborts), and it is unknown how much of it is on the disk.
    has_failed: AtomicBool,
    /// It was its log that failed: the engine's own recovery may go on with the same file, where its memtable is empty.
    has_failed_log: AtomicBool,
    found_at_start: FoundAtStart,
    /// Dropped after the engine.
    claim: Claim,
}

/// Losses found when it was opened.
#[derive(Clone, Copy, Debug, Default)]
struct FoundAtStart {
    log_was_torn: bool,
    /// Writes, which was accepted.
    lost: u64,
}

impl RocksDbStore {
    /// Opens `path`, a data directory or a backup, to serve reads from it.
    fn open_for_reads(path: &Path, asked: RocksDbOptions) -> Result<Self, DataDirError> {
        data_dir::check_readable(path)?;
        let (store, lock) = Self::open_to_look(path, asked)?;
        store.is_read_only.store(true, Ordering::Relaxed);
        let kept = store.read_only_lock.lock();
        *kept.unwrap_or_else(PoisonError::into_inner) = Some(lock);
        Ok(store)
    }

    /// Opens `path`, creating it when only its last component is missing.
    ///
    /// # Errors
    /// [`DataDirError`], one sentence that names the directory and what to do. Nothing was changed if it is
    /// [`DataDirError::Loss`].
    pub fn open(path: &Path, asked: RocksDbOptions) -> Result<Self, DataDirError> {
        if asked.reads_only {
            return Self::open_for_reads(path, asked);
        }
        let found = data_dir::prepare(path)?;
        opening::check_threads().map_err(|source| DataDirError::Threads {
            path: path.to_owned(),
            source,
        })?;
        let written_by = newest_options_version(path);
        let block_cache = new_block_cache(asked);
        let refused = |error| open_error(path, &error, written_by.as_deref());
        // Another server's files change while they are read.
        let claim = Claim::take(path)?;
        let asked = fitting_memtables(path, asked);
        let examined = match found {
            Found::New => Examined::default(),
            _ => examine(path).map_err(|error| data_dir::failed(path, "read", error))?,
        };
        let mut options = filtering_options(asked, &block_cache);
        options.create_if_missing(found == Found::New);
        let accepted = accept_loss(path, asked, &examined, &options)?;
        let notes = begin_notes(path, &examined)?;
        let end = examined.log_end();
        if matches!(found, Found::Format1 | Found::Upgrading) {
            // No filter yet: it would take values of the older format for records.
            let options = database_options(asked, &block_cache);
            let db = open_logged(options, path, end).map_err(refused)?;
            upkeep::run(&db, path, found)?;
        }
        let db = open_logged(options, path, end).map_err(refused)?;
        // Before anything is written: builds that do not support parts refuse it from now on.
        if matches!(found, Found::New | Found::Format2) {
            data_dir::mark_current(path)?;
        }
        upkeep::clean_up(&db, path)?;
        if let Some(notes) = &notes {
            notes.accept_loss(accepted.unwrap_or(0));
            let noted = notes
                .opened(db.latest_sequence_number())
                .and_then(|()| backup_files::remove_clock(path));
            noted.map_err(|error| data_dir::failed(path, "write to", error))?;
        }
        let mut store = Self::of(db, path, asked, block_cache, notes, claim);
        store.found_at_start = FoundAtStart {
            log_was_torn: end == LogEnd::Torn,
            lost: accepted.unwrap_or(0),
        };
        Ok(store)
    }

    /// Opens `path` for reading alone; no file is changed. No server may run on it: the lock is held as long as
    /// what is returned with the store.
    ///
    /// # Errors
    /// [`DataDirError`], as [`open`](Self::open); a directory that has lost data is refused.
    pub(crate) fn open_to_look(
        path: &Path,
        asked: RocksDbOptions,
    ) -> Result<(Self, Lock), DataDirError> {
        match data_dir::check_ours(path) {
            Ok(_) | Err(DataDirError::IsBackup { .. }) => {}
            Err(error) => return Err(error),
        }
        let claim = Claim::take(path)?;
        let lock = claim.lock(path)?;
        let examined = examine(path).map_err(|error| data_dir::failed(path, "read", error))?;
        let end = examined.log_end();
        if let Some(loss) = examined.loss {
            let path = path.to_owned();
            return Err(DataDirError::Loss { path, loss });
        }
        let block_cache = new_block_cache(asked);
        let written_by = newest_options_version(path);
        let db = open_read_only(database_options(asked, &block_cache), path, end)
            .map_err(|error| open_error(path, &error, written_by.as_deref()))?;
        Ok((Self::of(db, path, asked, block_cache, None, claim), lock))
    }

    /// Opens `path` read-only, whatever is missing: damage is reported when it is read.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn open_damaged(
        path: &Path,
        asked: RocksDbOptions,
        end: LogEnd,
        claim: Claim,
    ) -> Result<Self, rocksdb::Error> {
        let mut options = Self::reading_options(asked);
        // Tables that are missing or cut are an error at opening otherwise.
        options.set_paranoid_checks(false);
        let db = open_read_only(options, path, end)?;
        Ok(Self::of(
            db,
            path,
            asked,
            new_block_cache(asked),
            None,
            claim,
        ))
    }

    /// The engine's options for read-only use.
    pub(super) fn reading_options(asked: RocksDbOptions) -> Options {
        database_options(asked, &new_block_cache(asked))
    }

    /// No version that was given out by now is of a later time, in microseconds since 1970; 0: nothing is known.
    pub(super) fn clock_us(&self) -> u64 {
        self.notes.as_ref().map_or(0, Notes::clock_us)
    }

    /// A version that came from elsewhere: none like it is given out from now on.
    pub(crate) fn note_version(&self, version: Version) {
        if let Some(notes) = &self.notes {
            notes.note_version(version.given_out_us());
        }
    }

    fn of(
        db: DB,
        path: &Path,
        asked: RocksDbOptions,
        block_cache: Cache,
        notes: Option<Notes>,
        claim: Claim,
    ) -> Self {
        let engine = EngineInfo {
            name: "rocksdb",
            version: newest_options_version(path).unwrap_or_else(|| "unknown".to_owned()),
            linkage: Linkage::of_this_build(),
        };
        let mut read_cached = ReadOptions::default();
        read_cached.set_read_tier(ReadTier::BlockCache);
        let mut write_synced = WriteOptions::default();
        write_synced.set_sync(true);
        Self {
            acknowledged: AtomicU64::new(db.latest_sequence_number()),
            db: Replaceable::new(Closing::new(db)),
            is_read_only: AtomicBool::new(false),
            read_only_lock: Mutex::new(None),
            reopening: Mutex::new(()),
            room_reopening: Mutex::new(RoomReopening::new()),
            path: path.to_owned(),
            block_cache,
            asked,
            read_cached,
            read_all: ReadOptions::default(),
            write_synced,
            write_unsynced: WriteOptions::default(),
            engine,
            notes,
            has_failed: AtomicBool::new(false),
            has_failed_log: AtomicBool::new(false),
            found_at_start: FoundAtStart::default(),
            claim,
        }
    }

    /// The engine, for one call.
    ///
    /// # Errors
    /// While it is opened again.
    pub(super) fn db(
        &self,
        operation: &'static str,
    ) -> Result<ReadGuard<'_, Closing<DB>>, StoreError> {
        self.db.read().ok_or_else(|| being_opened(operation))
    }

    /// Whether the resources to open the engine are available again: it flushes its log into tables then. If opening
    /// failed, reads would fail as well.
    fn has_resources(&self) -> bool {
        let has_room = self.disk().is_none_or(|disk| {
            let needed_bytes = log_bytes(&self.path) + SPARE_ROOM_BYTES;
            disk.room() != Room::None && disk.free_bytes >= needed_bytes
        });
        has_room && opening::has_descriptors() && opening::check_threads().is_ok()
    }

    /// Whether the engine writes: a delete of a missing key takes the way of every batch, its sync included.
    fn writes_by_itself(&self) -> Result<bool, StoreError> {
        let Some(db) = self.db.read() else {
            return Ok(false);
        };
        // No entity has this key, which only an upgrade uses for a while.
        let mut batch = WriteBatch::default();
        batch.delete(b"");
        match db.write_opt(batch, &self.write_synced) {
            Ok(()) => Ok(true),
            Err(error) => match failed("commit", error) {
                error if error.failure == Failure::Passing => Ok(false),
                error => Err(error),
            },
        }
    }

    /// The engine, for what writes.
    ///
    /// # Errors
    /// While it is opened again, or open for reads alone.
    pub(super) fn writable(
        &self,
        operation: &'static str,
    ) -> Result<ReadGuard<'_, Closing<DB>>, StoreError> {
        match self.is_read_only() {
            true => Err(being_opened(operation)),
            false => self.db(operation),
        }
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    /// Closes the engine, if it is open for writes, and opens it again from what is on the disk: its log has all
    /// that was acknowledged. False: it could not be closed or opened now, but for reads perhaps.
    fn open_again(&self) -> Result<bool, StoreError> {
        let _alone = self
            .reopening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.is_read_only() {
            // That one writes nothing: reads go on until the other is there.
            return self.open_closed();
        }
        let is_closed = match self.db.take(RELEASE_WAIT_MAX) {
            Err(_) => return Ok(false),
            Ok(db) => db.is_none_or(Closing::close),
        };
        match is_closed {
            true => self.open_closed(),
            false => Err(StoreError {
                operation: "open again",
                cause: "it could not be closed".to_owned(),
                failure: Failure::Lasting,
            }),
        }
    }

    /// The same, where it is closed or open for reads alone.
    fn open_closed(&self) -> Result<bool, StoreError> {
        let open = |access| {
            let options = filtering_options(self.asked, &self.block_cache);
            open_again(&options, &self.path, access).map_err(|error| failed("open again", error))
        };
        let mut lock = self
            .read_only_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // For writes the engine takes it itself; and closing one descriptor of the file lets go of both.
        *lock = None;
        match open(Access::Full) {
            Ok(db) => return self.replace(db, Access::Full).map(|()| true),
            Err(error) if error.failure == Failure::Lasting => return Err(error),
            Err(_) => {}
        }
        // The resource it would be reopened for is still missing: room, a quota, descriptors. Reads may need less.
        if !self.is_read_only() {
            let Ok(db) = open(Access::ReadOnly) else {
                return Ok(false);
            };
            self.replace(db, Access::ReadOnly)?;
        }
        match self.claim.lock(&self.path) {
            Ok(held) => *lock = Some(held),
            Err(error @ DataDirError::Locked { .. }) => {
                return Err(StoreError {
                    operation: "open again",
                    cause: error.to_string(),
                    failure: Failure::Lasting,
                });
            }
            // Without a descriptor for it either: the next try asks again.
            Err(_) => {}
        }
        Ok(false)
    }

    /// Gives what was opened to all readers; an error if something that was acknowledged is not in it.
    fn replace(&self, db: DB, access: Access) -> Result<(), StoreError> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let found = db.latest_sequence_number();
        // Holders of the one that is open for reads are asked to release it; one that does not reads on from it.
        let _ = self.db.take(RELEASE_WAIT_MAX);
        self.is_read_only
            .store(access == Access::ReadOnly, Ordering::Relaxed);
        self.db.put(Closing::new(db));
        if found < acknowledged {
            return Err(StoreError {
                operation: "open again",
                cause: format!(
                    "its log ends at change {found}, and {acknowledged} were acknowledged"
                ),
                failure: Failure::Lasting,
            });
        }
        Ok(())
    }
}

impl RocksDbStore {
    /// Opens the engine again if it keeps room from coming back. Once a merge has met the disk's end, the engine refuses
    /// every merge that reads more than the disk has free, however little it would write, until it is opened again.
    fn reopens_for_room(&self) -> Result<bool, StoreError> {
        let has_room = || self.disk().is_none_or(|disk| disk.room() == Room::Enough);
        let errors = self
            .db("count")?
            .property_int_value("rocksdb.background-errors");
        let has_failed_merges = errors.is_ok_and(|count| count.unwrap_or(0) > 0);
        let mut reopening = self
            .room_reopening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if has_room() {
            *reopening = RoomReopening::new();
            return Ok(false);
        }
        let is_asked = has_failed_merges && reopening.is_due();
        if !is_asked || self.is_read_only() || !self.has_resources() {
            return Ok(false);
        }
        reopening.begin();
        log::write(
            LogLevel::Info,
            format_args!(
                "the disk of {} is full for the engine's merges: it is opened again, to merge what was deleted",
                self.path.display()
            ),
        );
        self.open_again()
    }

    /// A write's or a sync's error, which is remembered until the engine writes again.
    fn failed_write(&self, operation: &'static str, error: rocksdb::Error) -> StoreError {
        self.has_failed.store(true, Ordering::Relaxed);
        let error = failed(operation, error);
        if error.cause.contains(".log") {
            self.has_failed_log.store(true, Ordering::Relaxed);
        }
        error
    }

    /// Closes the engine after its log was synced, and notes what it left.
    fn stop(&self, notes: &Notes) -> Result<(), String> {
        debug_assert!(
            !self.is_read_only(),
            "only after a failure, which is remembered"
        );
        let db = match self.db.take(RELEASE_WAIT_MAX) {
            Ok(Some(db)) => db,
            // Closed already, to be opened again.
            Ok(None) => return Ok(()),
            Err(_) => return Err("it is still in use".to_owned()),
        };
        db.flush_wal(true).map_err(rocksdb::Error::into_string)?;
        let sequence = db.latest_sequence_number();
        match db.close() {
            true => notes.stopped(sequence).map_err(|error| error.to_string()),
            false => Ok(()),
        }
    }
}

impl Drop for RocksDbStore {
    fn drop(&mut self) {
        let Some(notes) = self.notes.take() else {
            return;
        };
        if self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(cause) = self.stop(&notes) {
            log::write(
                LogLevel::Warn,
                format_args!(
                    "the store counts as not closed: {cause}; the next start reads its log"
                ),
            );
        }
    }
}

/// Makes a directory that has lost data one that can be opened, if that is asked for. Returns how many writes that
/// may be.
fn accept_loss(
    path: &Path,
    asked: RocksDbOptions,
    examined: &Examined,
    options: &Options,
) -> Result<Option<u64>, DataDirError> {
    let Some(loss) = &examined.loss else {
        return Ok(None);
    };
    let written_by = newest_options_version(path);
    if let Some(newer) = written_by.and_then(|found| newer_format(path, &found)) {
        return Err(newer);
    }
    if !asked.accepts_loss {
        return Err(DataDirError::Loss {
            path: path.to_owned(),
            loss: loss.clone(),
        });
    }
    let aside = accept_loss::prepare(path, examined, loss, options)?;
    log::write(
        LogLevel::Warn,
        format_args!(
            "{} has lost data, which was accepted: {loss}; every file as it was lies in {}",
            path.display(),
            aside.display()
        ),
    );
    Ok(Some(loss.writes_max.unwrap_or(0)))
}

/// Begins to note what is in the directory. Without room for a first note there is none, and a line about it.
fn begin_notes(path: &Path, examined: &Examined) -> Result<Option<Notes>, DataDirError> {
    if examined.is_note_damaged {
        log::write(
            LogLevel::Warn,
            format_args!(
                "{} of {} is not what was written: a missing log is not noticed at this start",
                inventory::FILE,
                path.display()
            ),
        );
    }
    let restored_us = backup_files::read_clock(path);
    let restored_us = restored_us.map_err(|error| data_dir::failed(path, "read", error))?;
    let is_first = examined.inventory.is_none();
    let mut known = examined.inventory.clone().unwrap_or_default();
    known.clock_us = known.clock_us.max(restored_us);
    match Notes::begin(path, known) {
        Ok(notes) => Ok(Some(notes)),
        Err(error) if is_first && error.kind() == std::io::ErrorKind::StorageFull => {
            log::write(
                LogLevel::Warn,
                format_args!(
                    "no room for {} in {}: a log that goes missing is not noticed at the next start",
                    inventory::FILE,
                    path.display()
                ),
            );
            Ok(None)
        }
        Err(error) => Err(data_dir::failed(path, "write to", error)),
    }
}

/// Where a call finds no engine.
fn being_opened(operation: &'static str) -> StoreError {
    StoreError {
        operation,
        cause: "it is being opened again".to_owned(),
        failure: Failure::Passing,
    }
}

fn filtering_options(asked: RocksDbOptions, block_cache: &Cache) -> Options {
    let mut options = database_options(asked, block_cache);
    options.set_compaction_filter("expired records", |_level, key: &[u8], record: &[u8]| {
        match is_expired(key, record) {
            true => CompactionDecision::Remove,
            false => CompactionDecision::Keep,
        }
    });
    options
}

/// An engine that stays open.
pub struct RocksDbHeld(pub(super) Arc<Closing<DB>>);

impl Held for RocksDbHeld {
    type Snapshot<'a> = RocksDbSnapshot<'a>;

    fn snapshot(&self) -> RocksDbSnapshot<'_> {
        RocksDbSnapshot(self.0.snapshot())
    }
}

/// Whether compaction may take a record away. Unknown records are kept. It removes records that snapshots can see too:
/// an expired entity is absent to them anyway.
fn is_expired(key: &[u8], record: &[u8]) -> bool {
    let is_record = !key.is_empty() && !parts::is_part(key);
    is_record && Head::of(record).is_ok_and(|head| head.is_expired())
}

/// A sequence number that compaction heeds. It pins no memory: each visit makes an iterator of its
/// own, which would pin memtables and tables for as long as the slowest reader takes.
pub struct RocksDbSnapshot<'a>(SnapshotWithThreadMode<'a, DB>);

impl Snapshot for RocksDbSnapshot<'_> {
    fn visit(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut options = ReadOptions::default();
        // A scan reads each block once: it must not drive out those that single reads come back to.
        options.fill_cache(false);
        if let Some(end) = end {
            options.set_iterate_upper_bound(end);
        }
        let mut iterator = self.0.raw_iterator_opt(options);
        iterator.seek(from);
        while let Some((key, value)) = iterator.item() {
            if visit(key, value).is_break() {
                return Ok(());
            }
            iterator.next();
        }
        iterator.status().map_err(|error| failed("scan", error))
    }
}

impl Engine for RocksDbStore {
    fn get_cached<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<CachedRead<R>, StoreError> {
        // Being reopened: reported by a read thread.
        let Some(db) = self.db.read() else {
            return Ok(CachedRead::NotCached);
        };
        match db.get_pinned_opt(key, &self.read_cached) {
            // Success without a value also means a table that would have to be opened first. Empty values take the slow
            // path.
            Ok(Some(value)) if value.is_empty() => Ok(CachedRead::NotCached),
            Ok(Some(value)) => Ok(CachedRead::Found(found(&value))),
            Ok(None) => Ok(CachedRead::Absent),
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(CachedRead::NotCached),
            Err(error) => Err(failed("read", error)),
        }
    }

    fn engine(&self) -> EngineInfo {
        self.engine.clone()
    }

    /// The engine's per-thread counters are not used, and it looks them up for each comparison of two keys: of a small
    /// put they took an eighth of all instructions.
    fn thread_started(&self) {
        set_perf_stats(PerfStatsLevel::Disable);
    }

    fn gauges(&self) -> EngineGauges {
        // A number that the engine does not report is not critical.
        let number = |name: &str| {
            let value = self.db.read().map(|db| db.property_int_value(name));
            value.and_then(Result::ok).flatten().unwrap_or(0)
        };
        EngineGauges {
            memtable_bytes: number("rocksdb.cur-size-all-mem-tables"),
            block_cache_bytes: self.block_cache.get_usage() as u64,
            table_reader_bytes: number("rocksdb.estimate-table-readers-mem"),
            level0_tables: number("rocksdb.num-files-at-level0"),
            compaction_pending_bytes: number("rocksdb.estimate-pending-compaction-bytes"),
            compactions: number("rocksdb.num-running-compactions"),
            flushes: number("rocksdb.num-running-flushes"),
            write_bytes_per_s_max: number("rocksdb.actual-delayed-write-rate"),
            writes_are_stopped: number("rocksdb.is-write-stopped") != 0,
            accepted_loss: self.notes.as_ref().map_or(0, Notes::accepted_loss),
        }
    }

    fn checkpoint(&self, path: &Path) -> Result<(), DataDirError> {
        self.copy_to(path)
    }

    fn keeps_parts(&self) -> bool {
        true
    }

    fn sizes(&self) -> DataSizes {
        let Some(db) = self.db.read() else {
            return DataSizes::default();
        };
        let number = |name: &str| db.property_int_value(name).ok().flatten().unwrap_or(0);
        let tables = (0..LEVELS).map(|level| number(&format!("rocksdb.num-files-at-level{level}")));
        DataSizes {
            live_bytes: number("rocksdb.estimate-live-data-size"),
            tables: tables.sum(),
            table_bytes: number("rocksdb.live-sst-files-size"),
            log_bytes: log_bytes(&self.path),
            log_was_torn: self.found_at_start.log_was_torn,
            lost_at_start: self.found_at_start.lost,
        }
    }

    fn keep_up(&self, asked: Upkeep) -> Result<(), StoreError> {
        drop(self.writable("keep up")?);
        match asked {
            Upkeep::Flush => self.flush(),
            Upkeep::Compact => self.compact(),
        }
    }

    fn takes_writes(&self) -> bool {
        !self.asked.reads_only
    }

    fn find_dead_parts(&self, sets: &PartSets) -> Result<usize, StoreError> {
        // Nothing would delete them.
        if self.asked.reads_only {
            return Ok(0);
        }
        parts::find_dead(self, sets)
    }

    fn versions_after_us(&self) -> u64 {
        self.notes.as_ref().map_or(0, Notes::versions_after_us)
    }

    /// Failures are the engine's to recover from, and the next call tries again.
    fn make_room(&self) {
        let made = self.merge_deleted().and_then(|()| {
            if self.reopens_for_room()? {
                self.merge_deleted()?;
            }
            Ok(())
        });
        if let Err(error) = made {
            log::write(
                LogLevel::Warn,
                format_args!(
                    "no room was made on the disk of {}: {error}",
                    self.path.display()
                ),
            );
        }
    }

    fn note_files(&self) {
        let Some(notes) = &self.notes else {
            return;
        };
        // The old note is behind, but still correct: the next check may succeed.
        if let Err(error) = notes.look() {
            log::write(
                LogLevel::Warn,
                format_args!("{} cannot be written: {error}", inventory::FILE),
            );
        }
    }

    fn disk(&self) -> Option<Disk> {
        // How much room there is matters to writes alone.
        if self.asked.reads_only {
            return None;
        }
        let found = rustix::fs::statvfs(&self.path).ok()?;
        let whole_bytes = found.f_blocks.saturating_mul(found.f_frsize);
        Some(Disk {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            reserve_bytes: (self.asked.disk_reserve_bytes)
                .unwrap_or_else(|| default_reserve_bytes(self.asked.memtable_bytes, whole_bytes)),
        })
    }
}

impl Store for RocksDbStore {
    type Held = RocksDbHeld;

    fn hold(&self) -> Result<RocksDbHeld, StoreError> {
        let held = self.db.hold().ok_or_else(|| being_opened("scan"))?;
        Ok(RocksDbHeld(held))
    }

    fn wants_release(&self) -> bool {
        self.db.wants_release()
    }

    fn get<R>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, StoreError> {
        match self.db("read")?.get_pinned_opt(key, &self.read_all) {
            Ok(value) => Ok(value.map(|value| found(&value))),
            Err(error) => Err(failed("read", error)),
        }
    }

    fn commit<'a>(
        &self,
        writes: impl Iterator<Item = Write<'a>>,
        batch_bytes: usize,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let (_, count_max) = writes.size_hint();
        let mut batch = new_batch(batch_bytes, count_max.unwrap_or(0));
        // The binding takes a value in one piece: a large one is joined to its head here, on the
        // writer thread, because a shard must not copy megabytes.
        let mut joined = Vec::new();
        for write in writes {
            match write {
                Write::Put {
                    key,
                    head: [],
                    value,
                } => batch.put(key, value),
                Write::Put { key, head, value } => {
                    joined.clear();
                    joined.reserve_exact(head.len() + value.len());
                    joined.extend_from_slice(head);
                    joined.extend_from_slice(value);
                    batch.put(key, &joined);
                    if joined.capacity() > JOINED_BYTES_KEPT {
                        joined = Vec::new();
                    }
                }
                Write::Delete { key } => batch.delete(key),
            }
        }
        let options = match durability {
            Durability::Synced => &self.write_synced,
            Durability::Written | Durability::Unacknowledged => &self.write_unsynced,
        };
        let db = self.writable("commit")?;
        db.write_opt(batch, options)
            .map_err(|error| self.failed_write("commit", error))?;
        // This thread alone commits.
        let sequence = db.latest_sequence_number();
        self.acknowledged.store(sequence, Ordering::Relaxed);
        if let Some(notes) = &self.notes {
            match durability {
                Durability::Synced => notes.promise(sequence),
                Durability::Written => notes
                    .acknowledge_unsynced()
                    .map_err(|error| not_noted(&error))?,
                Durability::Unacknowledged => {}
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        let db = self.writable("sync")?;
        let sequence = db.latest_sequence_number();
        db.flush_wal(true)
            .map_err(|error| self.failed_write("sync", error))?;
        if let Some(notes) = &self.notes {
            notes.promise(sequence);
        }
        Ok(())
    }

    /// By the engine's own recovery, which is on for lack of room, or by closing and opening it again, as always where
    /// it was the log that failed. Reads go
    /// on until then, so it is not closed before the machine has again what it was short of, as far as that can
    /// be seen: a quota cannot. Where it then cannot be opened for writes, it is opened for reads.
    fn recover(&self, tries: u32) -> Result<bool, StoreError> {
        if !self.has_resources() {
            return Ok(false);
        }
        let writes = if self.is_read_only() {
            tries.is_multiple_of(TRIES_BETWEEN_REOPENINGS) && self.open_again()?
        } else {
            let has_log = !self.has_failed_log.load(Ordering::Relaxed);
            let waits = has_log && self.db.read().is_some() && tries < TRIES_BEFORE_REOPENING;
            (has_log && self.writes_by_itself()?) || (!waits && self.open_again()?)
        };
        if writes {
            self.has_failed.store(false, Ordering::Relaxed);
            self.has_failed_log.store(false, Ordering::Relaxed);
        }
        Ok(writes)
    }
}

fn not_noted(error: &std::io::Error) -> StoreError {
    StoreError {
        operation: "note its files",
        cause: error.to_string(),
        failure: Failure::Lasting,
    }
}

pub(super) fn failed(operation: &'static str, error: rocksdb::Error) -> StoreError {
    let cause = error.into_string();
    StoreError {
        operation,
        failure: opening::of(operation, &cause),
        cause,
    }
}

/// An empty batch. The binding takes batches by value, so one cannot be reused; reserving makes it
/// one allocation: 12 bytes head a batch, and at most 11 each record (type and two lengths).
#[cfg(not(system_rocksdb))]
fn new_batch(batch_bytes: usize, count: usize) -> WriteBatch {
    WriteBatch::with_capacity_bytes(batch_bytes + 12 + 11 * count)
}

/// An empty batch; the distribution's library cannot reserve, so it grows by doubling.
#[cfg(system_rocksdb)]
fn new_batch(_batch_bytes: usize, _count: usize) -> WriteBatch {
    WriteBatch::new()
}

fn database_options(asked: RocksDbOptions, block_cache: &Cache) -> Options {
    let mut options = Options::default();
    options.set_block_based_table_factory(&table_options(block_cache));
    let packed = match asked.compression {
        Compression::None => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
        Compression::Zstd => DBCompressionType::Zstd,
    };
    // Flushed tables are merged soon: packing and unpacking it was a third of the cost of a flush.
    options.set_compression_per_level(&[DBCompressionType::None, packed]);
    options.set_level_zero_file_num_compaction_trigger(FIRST_LEVEL_TABLES);

    // Memtables: the cap over all of them, and the size at which one is written out.
    let memtable_bytes = usize::try_from(asked.memtable_bytes).unwrap_or(usize::MAX);
    options.set_db_write_buffer_size(memtable_bytes);
    options.set_write_buffer_size(memtable_bytes / MEMTABLE_COUNT_MAX);
    options.set_max_write_buffer_number(MEMTABLE_COUNT_MAX as i32);
    // A filter over the memtable: most reads are for keys that it lacks, and a search of it is a
    // dozen cache misses. A twentieth of its size is about 10 bits a key at 200 bytes an entry.
    options.set_memtable_prefix_bloom_ratio(0.05);
    options.set_memtable_whole_key_filtering(true);
    // A deleted table's log is kept until every memtable it feeds is out; bounds replay at start.
    options.set_max_total_wal_size(asked.memtable_bytes.saturating_mul(2));

    // Each open table pins a reader outside the cache.
    options.set_max_open_files(256);
    // Those that are opened at the start are opened in turn: threads for it could be refused.
    options.set_max_file_opening_threads(1);
    // One flush and one compaction at a time: the background shares the cores with the shards.
    options.set_max_background_jobs(2);
    options.add_compact_on_deletion_collector_factory(DELETES_WINDOW, DELETES_WINDOW / 2, 0.0);
    // Spread write-back of tables, so that a log sync does not queue behind a whole table.
    options.set_bytes_per_sync(1 << 20);
    // In pieces that a shard on the same CPU can wait for: a kernel that is not preempted in its own work copies a
    // whole write into the page cache before another thread runs, 1 MiB by default.
    options.set_writable_file_max_buffer_size(WRITE_BYTES_MAX);

    // The engine's text log, but for its header, is off: it is on the disk that may be full, and a library built with
    // assertions (Debian's is) aborts when it logs a second time after that. Failures are returned as errors of the
    // call anyway.
    options.set_log_level(rocksdb::LogLevel::Fatal);
    options.set_keep_log_file_num(2);
    options.set_stats_dump_period_sec(0);
    options
}

/// Both linkages use the same cache, so that a run differs in the engine's version only; the newer clock cache does not
/// exist in the distribution's library.
fn new_block_cache(asked: RocksDbOptions) -> Cache {
    Cache::new_lru_cache(usize::try_from(asked.block_cache_bytes).unwrap_or(usize::MAX))
}

fn table_options(block_cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(block_cache);
    // Index and filter blocks count against the cap too, and are evicted last.
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // 10 bits a key: 1 % of the tables without a key are searched.
    table.set_bloom_filter(10.0, false);
    // In parts, each a block: a whole filter of a table of small entities is 2.5 MiB, a third of the
    // cache of a small server, and while it is made the hashes of all its keys are kept, 16 MiB.
    table.set_partition_filters(true);
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_metadata_block_size(FILTER_PART_BYTES);
    // The newest format that both linkages read.
    table.set_format_version(5);
    table
}

#[cfg(test)]
#[path = "tests/rocksdb.rs"]
mod tests;
