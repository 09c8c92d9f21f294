//! Opening what is left of a damaged directory, after every file of it was put aside.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, fs, io};

use rocksdb::{DB, Options, ReadOptions};

use crate::data_dir::DataDirError;
use crate::record::{HEAD_BYTES_MAX, Head, RecordError, Value};
use crate::{data_dir, parts};

use super::examine::{Examined, Loss, examine};
use super::lock::{Claim, Lock};
use super::opening::{LogEnd, new_directory, newer_format, newest_options_version};
use super::rocksdb::{RocksDbOptions, RocksDbStore};
use super::upkeep::link_files;
use super::{Store as _, StoreError, Visit, inventory, lock, manifest};

const ASIDE_PREFIX: &str = "aside-";
const REPORT: &str = "LOSS";

/// Puts every file of `path` aside and makes the rest one that the engine opens. Returns where the files are.
///
/// # Errors
/// [`DataDirError`]; the directory is as it was unless the engine's repair had begun, and a copy of all lies aside.
pub(super) fn prepare(
    path: &Path,
    examined: &Examined,
    loss: &Loss,
    options: &Options,
) -> Result<PathBuf, DataDirError> {
    let refused = |error| data_dir::failed(path, "put aside the files of", error);
    let aside = put_aside(path).map_err(refused)?;
    write_report(&aside, loss).map_err(refused)?;
    if !examined.has_manifest && !has_mended_current(path, examined).map_err(refused)? {
        DB::repair(options, path).map_err(|error| DataDirError::Engine {
            path: path.to_owned(),
            cause: format!("what is left of it cannot be read: {error}"),
        })?;
    }
    Ok(aside)
}

/// Where only CURRENT is missing, and the newest MANIFEST is whole and as long as it was, it is the one.
fn has_mended_current(path: &Path, examined: &Examined) -> io::Result<bool> {
    let Some(newest) = manifest::newest(path)? else {
        return Ok(false);
    };
    let Some(name) = newest.file_name().and_then(|name| name.to_str()) else {
        return Ok(false);
    };
    let Some(found) = manifest::read(path, name)? else {
        return Ok(false);
    };
    let noted = examined.inventory.as_ref().map(|one| &one.manifest);
    let is_the_one = noted.is_some_and(|noted| {
        manifest::number(&noted.name) <= manifest::number(name)
            && (noted.name != name || found.size_bytes >= noted.size_bytes)
    });
    if !is_the_one || found.scan.damaged_at.is_some() {
        return Ok(false);
    }
    let temporary = path.join("CURRENT.dbtmp");
    let mut file = File::create(&temporary)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    fs::rename(&temporary, path.join("CURRENT"))?;
    File::open(path)?.sync_all()?;
    Ok(true)
}

/// A new directory in `path` with every file of it.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let mut aside = path.join(format!("{ASIDE_PREFIX}{seconds}"));
    // Two starts in one second: the files of each are kept.
    let mut count = 1;
    while let Err(error) = fs::create_dir(&aside) {
        if error.kind() != io::ErrorKind::AlreadyExists || count > 100 {
            return Err(error);
        }
        aside = path.join(format!("{ASIDE_PREFIX}{seconds}-{count}"));
        count += 1;
    }
    link_files(path, &aside, |_| false)?;
    File::open(path)?.sync_all()?;
    Ok(aside)
}

fn write_report(aside: &Path, loss: &Loss) -> io::Result<()> {
    let mut file = File::create_new(aside.join(REPORT))?;
    writeln!(file, "accepted as lost: {loss}")?;
    writeln!(
        file,
        "beside this file lies every file as it was found; {} is the note they were compared with",
        inventory::FILE
    )?;
    file.sync_all()
}

// Reading what is readable of a stopped directory, whatever is damaged in it. Nothing in it is changed.
//
// If the engine can open it, an iterator that meets a damaged block goes on after it. The next readable key is found by
// trying: the keys of an unreadable block are not known, but whether a seek ends in one is. If the engine cannot open
// it, or cannot read anything (its list of files is gone, or a table of the first level has no index), the list is
// rebuilt from the existing tables and logs, in a directory of symbolic links.

/// Places between two keys that are tried at once: the first of them that can be read is the next end.
const PLACES: u32 = 16;

/// Bytes after the common prefix of two keys that are compared to find a key between them.
const PLACE_BYTES: usize = 12;

/// The unreadable parts of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gap {
    /// The first key that may be missing.
    pub from: Vec<u8>,
    /// The first one that can be read again; none: nothing behind it.
    pub until: Option<Vec<u8>>,
    /// The engine's sentence.
    pub cause: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "entities from \"{}\"", self.from.escape_ascii())?;
        match &self.until {
            Some(until) => write!(formatter, " up to \"{}\"", until.escape_ascii())?,
            None => formatter.write_str(" on")?,
        }
        write!(formatter, ": {}", self.cause)
    }
}

/// A stopped directory that is read as far as it goes.
pub(crate) struct Salvage {
    store: RocksDbStore,
    /// Missing or damaged files that the engine reads at its start.
    pub(crate) loss: Option<Loss>,
    /// The list of files is the engine's own no more.
    pub(crate) is_list_remade: bool,
    // Behind the store, which is closed before they go.
    _lock: Lock,
    _scratch: Option<Scratch>,
}

impl Salvage {
    /// Opens `path`, a data directory or a backup.
    ///
    /// # Errors
    /// [`DataDirError`], where it is no such directory, or nothing of it can be read.
    pub(crate) fn open(path: &Path, asked: RocksDbOptions) -> Result<Self, DataDirError> {
        match data_dir::check_ours(path) {
            Ok(_) | Err(DataDirError::IsBackup { .. }) => {}
            Err(error) => return Err(error),
        }
        let claim = Claim::take(path)?;
        let examined = examine(path).map_err(|error| data_dir::failed(path, "read", error))?;
        if examined.has_manifest {
            let lock = claim.lock(path)?;
            let store = RocksDbStore::open_damaged(path, asked, examined.log_end(), claim);
            if let Some(store) = store.ok().filter(Self::reads_anything) {
                return Ok(Self {
                    store,
                    loss: examined.loss,
                    is_list_remade: false,
                    _lock: lock,
                    _scratch: None,
                });
            }
        } else {
            drop(claim);
        }
        Self::open_remade(path, asked, examined.loss)
    }

    /// The same with a list of files made anew.
    fn open_remade(
        path: &Path,
        asked: RocksDbOptions,
        loss: Option<Loss>,
    ) -> Result<Self, DataDirError> {
        let claim = Claim::take(path)?;
        let lock = claim.lock(path)?;
        let newer = newest_options_version(path).and_then(|found| newer_format(path, &found));
        if let Some(newer) = newer {
            return Err(newer);
        }
        let scratch = Scratch::of(path).map_err(|error| data_dir::failed(path, "link", error))?;
        let unreadable = |cause: String| DataDirError::Engine {
            path: path.to_owned(),
            cause,
        };
        DB::repair(&RocksDbStore::reading_options(asked), &scratch.0)
            .map_err(|error| unreadable(error.into_string()))?;
        let store = RocksDbStore::open_damaged(&scratch.0, asked, LogEnd::Damaged, claim);
        let store = store.map_err(|error| unreadable(error.into_string()))?;
        Ok(Self {
            store,
            loss,
            is_list_remade: true,
            _lock: lock,
            _scratch: Some(scratch),
        })
    }

    fn reads_anything(store: &RocksDbStore) -> bool {
        let held = store.hold();
        held.is_ok_and(|held| readable_from(&held.0, &[0]).is_some())
    }

    /// The record with its value, if that is in parts.
    ///
    /// # Errors
    /// [`RecordError`], where they are not there or cannot be read, too.
    pub(crate) fn joined<'r>(&self, record: &'r [u8]) -> Result<Cow<'r, [u8]>, RecordError> {
        let (head, Value::Parted(extent)) = Head::split(record)? else {
            return Ok(Cow::Borrowed(record));
        };
        let mut room = [0; HEAD_BYTES_MAX];
        let len = head.write(&mut room);
        let mut joined = room[..len].to_vec();
        let mut left_bytes = extent.value_bytes;
        for index in 0..extent.parts() {
            let part = self
                .store
                .get(&parts::part_key(head.version, index), |part| {
                    let left = left_bytes.checked_sub(part.len() as u64)?;
                    joined.extend_from_slice(part);
                    Some(left)
                });
            let Ok(Some(Some(left))) = part else {
                return Err(RecordError::MissingParts { left_bytes });
            };
            left_bytes = left;
        }
        match left_bytes {
            0 => Ok(Cow::Owned(joined)),
            left_bytes => Err(RecordError::MissingParts { left_bytes }),
        }
    }

    /// Shows every record that can be read, in order, and what lies between them that cannot.
    ///
    /// # Errors
    /// When the engine is closed meanwhile.
    pub(crate) fn visit(
        &self,
        visit: &mut Visit<'_>,
        gap: &mut dyn FnMut(&Gap),
    ) -> Result<(), StoreError> {
        let held = self.store.hold()?;
        let db: &DB = &held.0;
        // The empty key is no entity's.
        let mut from = vec![0];
        loop {
            let mut iterator = db.raw_iterator_opt(scan_options());
            iterator.seek(&from);
            while let Some((key, record)) = iterator.item() {
                if visit(key, record).is_break() {
                    return Ok(());
                }
                from.clear();
                from.extend_from_slice(key);
                from.push(0);
                iterator.next();
            }
            let Err(error) = iterator.status() else {
                return Ok(());
            };
            let until = readable_from(db, &from);
            if until.as_ref() == Some(&from) {
                // It can be read after all.
                continue;
            }
            gap(&Gap {
                from,
                until: until.clone(),
                cause: error.into_string(),
            });
            let Some(until) = until else {
                return Ok(());
            };
            from = until;
        }
    }
}

fn scan_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options
}

/// Whether a read from there ends outside of damaged places.
fn is_readable(db: &DB, from: &[u8]) -> bool {
    let mut iterator = db.raw_iterator_opt(scan_options());
    iterator.seek(from);
    iterator.valid() || iterator.status().is_ok()
}

/// The first place from `from` on that can be read, as far as trying finds it: between two damaged places one that can
/// be read may be passed over if it is much shorter than they are.
fn readable_from(db: &DB, from: &[u8]) -> Option<Vec<u8>> {
    if is_readable(db, from) {
        return Some(from.to_vec());
    }
    let tables = db.live_files().unwrap_or_default();
    let mut ends: Vec<Vec<u8>> = tables
        .into_iter()
        .filter_map(|table| table.end_key)
        .map(|mut end| {
            end.push(0);
            end
        })
        .filter(|end| end.as_slice() > from)
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let mut low = from.to_vec();
    let mut high = None;
    for end in ends {
        if is_readable(db, &end) {
            high = Some(end);
            break;
        }
        low = end;
    }
    let mut high = high?;
    // Each round the distance becomes a sixteenth; the rounds are as many as the places have digits.
    for _ in 0..PLACE_BYTES * 2 + 1 {
        let places = places_between(&low, &high);
        if places.is_empty() {
            break;
        }
        match places.iter().position(|place| is_readable(db, place)) {
            Some(0) => high.clone_from(&places[0]),
            Some(index) => {
                low.clone_from(&places[index - 1]);
                high.clone_from(&places[index]);
            }
            None => low.clone_from(&places[places.len() - 1]),
        }
    }
    Some(high)
}

/// Keys between these two, evenly, by the bytes behind what both begin with.
fn places_between(low: &[u8], high: &[u8]) -> Vec<Vec<u8>> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let bytes = key[common..].iter().copied().chain(std::iter::repeat(0));
        bytes
            .take(PLACE_BYTES)
            .fold(0_u128, |number, byte| number << 8 | u128::from(byte))
    };
    let (first, last) = (number(low), number(high));
    let distance = last.saturating_sub(first);
    let mut places: Vec<Vec<u8>> = (1..PLACES)
        .map(|index| first + distance * u128::from(index) / u128::from(PLACES))
        .filter(|place| *place > first && *place < last)
        .map(|place| {
            let bytes = place.to_be_bytes();
            [&high[..common], &bytes[bytes.len() - PLACE_BYTES..]].concat()
        })
        .filter(|place| place.as_slice() > low && place.as_slice() < high)
        .collect();
    places.dedup();
    places
}

/// Symbolic links to the files of a directory, in which the engine may make and remove what it likes.
struct Scratch(PathBuf);

impl Scratch {
    fn of(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let scratch = new_directory(&std::env::temp_dir(), "salvage")
            .map(Self)
            .ok_or_else(|| {
                io::Error::other(
                    "no directory for its links can be made in the temporary directory (TMPDIR)",
                )
            })?;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() && !is_left_out(&entry.file_name()) {
                std::os::unix::fs::symlink(entry.path(), scratch.0.join(entry.file_name()))?;
            }
        }
        Ok(scratch)
    }
}

/// Files that the engine would write to, or ours.
fn is_left_out(name: &OsStr) -> bool {
    let is_list = name == "CURRENT" || name.to_string_lossy().starts_with("MANIFEST-");
    is_list || name == data_dir::MARKER || name == inventory::FILE || name == lock::FILE
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: links and small files in the temporary directory stay behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
#[path = "tests/salvage.rs"]
mod salvage_tests;
