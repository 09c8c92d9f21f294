//! An operator's operations on a data directory: inspect, check, compact, copy. None is on a request's path.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{BottommostLevelCompaction, CompactOptions, DB, LiveFile, WriteBatch, WriteOptions};

use crate::data_dir::{DataDirError, Found};
use crate::record::{HEAD_BYTES_MAX, Head, Value, Version, Versions};
use crate::{data_dir, parts};

use super::rocksdb::{RocksDbOptions, RocksDbStore, failed};
use super::{Held as _, Snapshot as _, Store as _, StoreError, backup_files, inventory, lock};

/// A table is merged for its deletes where one in so many of its entries is one.
const DELETES_SHARE: u64 = 8;

/// The engine's own figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Statistics {
    /// Entities, as the engine estimates: overwritten or deleted ones may be counted.
    pub entities_estimated: u64,
    /// Bytes that are still needed, as the engine estimates.
    pub live_bytes_estimated: u64,
    /// Table files.
    pub tables: u64,
    /// Their bytes on the disk.
    pub tables_bytes: u64,
}

/// Result of a full pass over a directory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checked {
    /// Entities that are there.
    pub entities: u64,
    /// Entities that have ended and are not compacted away yet.
    pub expired: u64,
    /// Bytes of ids and values of those that are there.
    pub bytes: u64,
    /// Records that this build cannot read, or whose parts are missing.
    pub unreadable: u64,
}

impl RocksDbStore {
    /// Writes memtables out as tables.
    ///
    /// # Errors
    /// When they cannot be.
    pub fn flush(&self) -> Result<(), StoreError> {
        let held = self.hold()?;
        held.0.flush().map_err(|error| failed("flush", error))
    }

    /// Writes memtables out and merges all tables, which takes away what was deleted, overwritten or
    /// has ended. Reads and writes go on meanwhile.
    ///
    /// # Errors
    /// When the memtables cannot be written.
    pub fn compact(&self) -> Result<(), StoreError> {
        let held = self.hold()?;
        let db = &held.0;
        db.flush().map_err(|error| failed("flush", error))?;
        let mut options = CompactOptions::default();
        // Tables that nothing lies over are rewritten too: they may hold what has ended since.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    /// Removes deleted, overwritten and expired records, as far as tables report them: deletes in memory are flushed,
    /// then tables with many of them are merged with the tables below. If no table has any, all are merged: expired
    /// records are found only by reading.
    ///
    /// # Errors
    /// When the memtables cannot be written, or the engine does not name its tables.
    pub(super) fn merge_deleted(&self) -> Result<(), StoreError> {
        drop(self.writable("flush")?);
        // For longer than one call: an engine that is to be opened again waits for it.
        let held = self.hold()?;
        let db = &held.0;
        db.flush().map_err(|error| failed("flush", error))?;
        let tables = db.live_files().map_err(|error| failed("count", error))?;
        let has_many = |table: &&LiveFile| table.num_deletions * DELETES_SHARE >= table.num_entries;
        let ranges = tables.iter().filter(|table| table.num_deletions > 0);
        let ranges: Vec<_> = ranges
            .filter(has_many)
            .map(|table| (table.start_key.clone(), table.end_key.clone()))
            .collect();
        if ranges.is_empty() {
            return self.compact();
        }
        for (start, end) in ranges {
            if self.wants_release() {
                break;
            }
            db.compact_range(start, end);
        }
        Ok(())
    }

    /// The engine's own figures.
    ///
    /// # Errors
    /// When it does not.
    pub fn statistics(&self) -> Result<Statistics, StoreError> {
        let db = self.db("count")?;
        let property = |name: &str| {
            let value = db.property_int_value(name);
            let value = value.map_err(|error| failed("count", error))?;
            Ok(value.unwrap_or(0))
        };
        let tables = db.live_files();
        let tables = tables.map_err(|error| failed("count", error))?;
        Ok(Statistics {
            entities_estimated: property("rocksdb.estimate-num-keys")?,
            live_bytes_estimated: property("rocksdb.estimate-live-data-size")?,
            tables: tables.len() as u64,
            tables_bytes: tables.iter().map(|table| table.size as u64).sum(),
        })
    }

    /// Reads everything: the engine compares each block with its checksum, and each record is taken
    /// apart.
    ///
    /// # Errors
    /// At the first block that is damaged.
    pub fn check(&self) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        // The missing parts of each value in parts.
        let mut parted: HashMap<Version, i64> = HashMap::new();
        self.hold()?
            .snapshot()
            .visit(b"\0", None, &mut |key, record| {
                if parts::is_part(key) {
                    // They lie behind all records.
                    if let Some(set) = parts::set_of_part(key)
                        && let Some(left_bytes) = parted.get_mut(&set)
                    {
                        *left_bytes -= record.len() as i64;
                    }
                    return ControlFlow::Continue(());
                }
                match Head::split(record) {
                    Ok((head, _)) if head.is_expired() => checked.expired += 1,
                    Ok((head, value)) => {
                        checked.entities += 1;
                        checked.bytes += key.len() as u64 + value.value_bytes();
                        if let Value::Parted(extent) = value {
                            parted.insert(head.version, extent.value_bytes as i64);
                        }
                    }
                    Err(_) => checked.unreadable += 1,
                }
                ControlFlow::Continue(())
            })?;
        let whole = parted
            .values()
            .filter(|&&left_bytes| left_bytes == 0)
            .count();
        checked.unreadable += (parted.len() - whole) as u64;
        Ok(checked)
    }

    /// Makes the new directory `path` a copy as of now. On one file system tables are linked, not
    /// copied: they never change. The mark of a backup comes last, so that half a copy is none.
    ///
    /// # Errors
    /// [`DataDirError`]; incomplete files can then be removed.
    pub(super) fn copy_to(&self, path: &Path) -> Result<(), DataDirError> {
        data_dir::check_new(path)?;
        // There the engine makes it, and begins by removing what it finds.
        data_dir::check_left_over(&unfinished(path))?;
        let failed = |cause: String| DataDirError::Io {
            path: path.to_owned(),
            operation: "copy into",
            source: std::io::Error::other(cause),
        };
        // For longer than one call: an engine that is to be opened again waits for it.
        let held = self.hold().map_err(|error| failed(error.to_string()))?;
        Checkpoint::new(&held.0)
            .and_then(|checkpoint| checkpoint.create_checkpoint(path))
            .map_err(|error| failed(error.into_string()))?;
        // Behind the copy: no version in it is newer.
        seal_backup(path, self.clock_us())
    }

    /// The same for a directory that no server runs on, which is left as it is.
    ///
    /// # Errors
    /// [`DataDirError`], of either directory. Incomplete files can then be removed.
    pub(crate) fn copy_stopped(
        data: &Path,
        backup: &Path,
        asked: RocksDbOptions,
    ) -> Result<(), DataDirError> {
        data_dir::check_new(backup)?;
        // Loss and damage of what the engine reads at opening are found now, those of tables by `check`.
        let (_store, _lock) = Self::open_to_look(data, asked)?;
        let clock_us =
            noted_clock_us(data).map_err(|error| data_dir::failed(data, "read", error))?;
        data_dir::make_empty(backup)?;
        let is_left_out = |name: &OsStr| {
            name == data_dir::MARKER || name == inventory::FILE || name == lock::FILE
        };
        link_files(data, backup, is_left_out).map_err(|source| DataDirError::Io {
            path: backup.to_owned(),
            operation: "copy into",
            source,
        })?;
        seal_backup(backup, clock_us)
    }
}

/// The time that no version in the directory is behind, of one that no server runs on; 0: nothing is known.
fn noted_clock_us(data: &Path) -> io::Result<u64> {
    let noted_us = match inventory::read(data)? {
        inventory::Found::Valid(inventory) => inventory.clock_us,
        inventory::Found::Missing | inventory::Found::Damaged => 0,
    };
    Ok(noted_us.max(backup_files::read_clock(data)?))
}

/// Notes the clock of versions, lists what a backup consists of, then marks it as one.
fn seal_backup(path: &Path, clock_us: u64) -> Result<(), DataDirError> {
    let listed = backup_files::write_clock(path, clock_us).and_then(|()| backup_files::write(path));
    listed.map_err(|source| DataDirError::Io {
        path: path.to_owned(),
        operation: "list the files of",
        source,
    })?;
    data_dir::mark_backup(path)
}

/// Gives `to` the files of `from`: tables, which never change, by a second name where that is possible, others copied
/// and synced.
pub(super) fn link_files(
    from: &Path,
    to: &Path,
    is_left_out: impl Fn(&OsStr) -> bool,
) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_left_out(&name) || !entry.file_type()?.is_file() {
            continue;
        }
        let copy = to.join(&name);
        let is_table = copy.extension().is_some_and(|kind| kind == "sst");
        if !is_table || fs::hard_link(entry.path(), &copy).is_err() {
            fs::copy(entry.path(), &copy)?;
            File::open(&copy)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

/// Where the engine makes a copy until it is whole.
fn unfinished(path: &Path) -> PathBuf {
    // Without a slash at the end.
    let mut name = path.components().as_path().as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

// Rewrites a data directory of format 1, whose values were bare, into records.
//
// ```text
// MILLPOND says "format 3, upgrading"   from here on older builds refuse the directory
// batch: records of the next keys, and under the empty key the last of them      again and again
// MILLPOND says "format 3"
// the empty key goes
// ```
// No id is empty, so that key is free. It is written in one batch with the records it covers: all keys up to it are
// records, all after it are bare, wherever the power fails. It is deleted last, because "upgrading" without it means
// that no record is rewritten yet.
//
// Place: `rocksdb` calls this before it opens a directory for good. In place, a megabyte at a time:
// a copy would need the room twice.

const CURSOR: &[u8] = b"";

/// A batch takes records until it has these many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Rewrites what is not yet rewritten.
///
/// # Errors
/// [`DataDirError`]; opening the directory again goes on with it.
pub(super) fn run(db: &DB, path: &Path, found: Found) -> Result<(), DataDirError> {
    if found == Found::Format1 {
        data_dir::mark_upgrading(path)?;
    }
    rewrite(db, BATCH_BYTES, usize::MAX).map_err(|error| refused(path, &error))?;
    data_dir::mark_current(path)
}

/// Removes what an upgrade left that was cut off at its very end.
///
/// # Errors
/// [`DataDirError`].
pub(super) fn clean_up(db: &DB, path: &Path) -> Result<(), DataDirError> {
    let clean_up = || match db.get_pinned(CURSOR)? {
        Some(_) => db.delete_opt(CURSOR, &synced()),
        None => Ok(()),
    };
    clean_up().map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &rocksdb::Error) -> DataDirError {
    DataDirError::Engine {
        path: path.to_owned(),
        cause: format!("upgrading it from format 1: {error}"),
    }
}

fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

/// Writes `batches_max` batches at most.
fn rewrite(db: &DB, batch_bytes: usize, batches_max: usize) -> Result<(), rocksdb::Error> {
    // The iterator shows what was there when it was made, so it never meets what is written here.
    let mut bare = db.raw_iterator();
    let done = db.get(CURSOR)?;
    bare.seek(done.as_deref().unwrap_or(CURSOR));
    // One for all: a version has to be new to its id.
    let version = Versions::new(0).unused();
    let mut batches = 0;
    while batches < batches_max {
        let mut batch = WriteBatch::default();
        let mut last = None;
        while batch.size_in_bytes() < batch_bytes
            && let Some((key, value)) = bare.item()
        {
            // Where it stopped the last time is a record already.
            if key != CURSOR && Some(key) != done.as_deref() {
                batch.put(key, record(version, value));
                last = Some(key.to_vec());
            }
            bare.next();
        }
        bare.status()?;
        let Some(last) = last else { break };
        batch.put(CURSOR, last);
        db.write_opt(batch, &synced())?;
        batches += 1;
    }
    Ok(())
}

fn record(version: Version, value: &[u8]) -> Vec<u8> {
    let head = Head {
        version,
        expires_ms: 0,
        content_type: b"",
        content_encoding: b"",
    };
    let mut room = [0; HEAD_BYTES_MAX];
    let len = head.write(&mut room);
    [&room[..len], value].concat()
}

#[cfg(test)]
#[path = "tests/upgrade.rs"]
mod upgrade_tests;
