//! A note of our own beside the engine's files: which of them have to be there, and up to which change they reach.
//!
//! The engine cannot detect that its newest log, or the end of one, is missing: a missing log looks as if it had never
//! been written. `MILLPOND-FILES` names the logs and the MANIFEST with their sizes, and the last change that was
//! acknowledged as durable. It is one block that is overwritten in place, so that a full disk does not stop it, with a
//! checksum: a half-written one counts as missing.
//!
//! It is synced where the set of files changes, where the engine is opened and where it is closed; in between it is
//! written once a second for what a killed process leaves in the page cache.

use std::fmt::Write as _;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{fs, io};

use crate::record::now_ms;

use super::manifest;

/// The file that holds it.
pub(crate) const FILE: &str = "MILLPOND-FILES";

const BLOCK_BYTES: usize = 4096;
const FIRST_LINE: &str = "millpond entity files, version 1";
/// Logs that are named at most: the newest. The engine bounds what its logs hold, so that there are a few.
const LOGS_MAX: usize = 64;

/// Whether a server was using the directory when the note was written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum NoteState {
    /// The engine was closed after a sync of all its data: each file is as in the note.
    Stopped,
    /// The engine was open: files grow, and logs that became tables go.
    #[default]
    Running,
}

/// A file and at least how long it is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Noted {
    pub name: String,
    pub size_bytes: u64,
}

/// The note of a directory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Inventory {
    pub state: NoteState,
    /// Each write is synced before it is acknowledged.
    pub syncs_always: bool,
    /// The last change that was promised to survive a loss of power.
    pub sequence: u64,
    /// No version that was given out before the note was written is of a later time, in microseconds since 1970.
    pub clock_us: u64,
    /// Writes that may have been lost and were accepted as lost, in the life of the directory.
    pub accepted_loss: u64,
    pub manifest: Noted,
    pub logs: Vec<Noted>,
}

/// The content of the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// There is none: new, or last used by a build that wrote none.
    Missing,
    /// It is not what was written.
    Damaged,
    Valid(Inventory),
}

/// The number in the name of a log.
pub(super) fn log_number(name: &str) -> Option<u64> {
    name.strip_suffix(".log")?.parse().ok()
}

impl Inventory {
    /// Fills in the files that are in `path` now.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn note_files(&mut self, path: &Path) -> io::Result<()> {
        let size_of = |name: &str| match fs::metadata(path.join(name)) {
            Ok(metadata) => Ok(metadata.len()),
            // Replaced or written out since it was named.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            if let Some((number, name)) = name
                .to_str()
                .and_then(|name| Some((log_number(name)?, name)))
            {
                numbers.push((number, name.to_owned()));
            }
        }
        numbers.sort();
        let newest = numbers.split_off(numbers.len().saturating_sub(LOGS_MAX));
        self.logs.clear();
        for (_, name) in newest {
            let size_bytes = size_of(&name)?;
            self.logs.push(Noted { name, size_bytes });
        }
        let name = manifest::current(path)?.unwrap_or_default();
        let size_bytes = if name.is_empty() { 0 } else { size_of(&name)? };
        self.manifest = Noted { name, size_bytes };
        Ok(())
    }

    /// Whether both name the same files, whatever their sizes.
    pub(super) fn has_files_of(&self, other: &Self) -> bool {
        let names = |one: &Self| {
            one.logs
                .iter()
                .map(|log| log.name.clone())
                .collect::<Vec<_>>()
        };
        self.manifest.name == other.manifest.name && names(self) == names(other)
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        let state = match self.state {
            NoteState::Stopped => "stopped",
            NoteState::Running => "running",
        };
        let sync = if self.syncs_always { "always" } else { "later" };
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "state {state}\nsync {sync}\nsequence {}",
            self.sequence
        );
        let _ = writeln!(text, "clock {}", self.clock_us);
        let _ = writeln!(text, "accepted-loss {}", self.accepted_loss);
        let _ = writeln!(
            text,
            "manifest {} {}",
            self.manifest.name, self.manifest.size_bytes
        );
        for log in &self.logs {
            let _ = writeln!(text, "log {} {}", log.name, log.size_bytes);
        }
        let checksum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "checksum {checksum:08x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (covered, checksum) = text.rsplit_once("checksum ")?;
        let checksum = u32::from_str_radix(checksum.trim_end(), 16).ok()?;
        if crc32c::crc32c(covered.as_bytes()) != checksum {
            return None;
        }
        let mut lines = covered.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let mut found = Self::default();
        let noted = |value: &str| {
            let (name, size) = value.split_once(' ')?;
            let size_bytes = size.parse().ok()?;
            let name = name.to_owned();
            Some(Noted { name, size_bytes })
        };
        for line in lines {
            let (name, value) = line.split_once(' ')?;
            match name {
                "state" if value == "stopped" => found.state = NoteState::Stopped,
                "state" => found.state = NoteState::Running,
                "sync" => found.syncs_always = value == "always",
                "sequence" => found.sequence = value.parse().ok()?,
                "clock" => found.clock_us = value.parse().ok()?,
                "accepted-loss" => found.accepted_loss = value.parse().ok()?,
                "manifest" => found.manifest = noted(value)?,
                "log" => found.logs.push(noted(value)?),
                // Of later builds.
                _ => {}
            }
        }
        Some(found)
    }
}

/// Reads the note in `path`.
///
/// # Errors
/// If the system refuses.
pub(super) fn read(path: &Path) -> io::Result<Found> {
    let text = match fs::read(path.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8(text).ok();
    let found = text.as_deref().and_then(Inventory::parse);
    Ok(found.map_or(Found::Damaged, Found::Valid))
}

/// How far a note has to reach before writing it returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    /// The kernel: it survives the end of this process.
    Kernel,
    /// The disk, and with it the names of the files in the note.
    Disk,
}

/// The note of one directory, open for writing.
#[derive(Debug)]
pub(super) struct NoteWriter {
    file: File,
    directory: File,
}

impl NoteWriter {
    /// Opens the note in `path`, and makes it if there is none.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(FILE))?;
        let directory = File::open(path)?;
        if file.metadata()?.len() < BLOCK_BYTES as u64 {
            // Room for all that is written later.
            file.write_all_at(&[b'\n'; BLOCK_BYTES], 0)?;
        }
        Ok(Self { file, directory })
    }

    /// Writes `inventory` over what is there.
    ///
    /// # Errors
    /// If the system refuses; the next read then finds the old note, the new one, or a damaged one.
    pub(super) fn write(&self, inventory: &Inventory, reach: Reach) -> io::Result<()> {
        let mut block = inventory.text().into_bytes();
        // In front of the checksum's line end, so that reading has one way to find it.
        block.resize(block.len().max(BLOCK_BYTES), b'\n');
        if reach == Reach::Disk {
            // A log whose name is not synced may disappear, and must not be reported as missing later.
            self.directory.sync_all()?;
        }
        self.file.write_all_at(&block, 0)?;
        if reach == Reach::Disk {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

// Keeps the note of `inventory` while an engine is open.

/// Keeps the note up to date. Any thread may use it.
#[derive(Debug)]
pub(super) struct Notes {
    path: PathBuf,
    writer: NoteWriter,
    /// The last change that is promised to survive a loss of power.
    promised: AtomicU64,
    syncs_always: AtomicBool,
    accepted_loss: AtomicU64,
    clock: Mutex<VersionClock>,
    kept: Mutex<NotedFiles>,
    /// The MANIFEST as it is known to be on the disk.
    synced_manifest: Mutex<Noted>,
}

/// Longer than from one note to the next: covers versions given out after the last note of a killed server.
const UNNOTED_US: u64 = 10_000_000;

/// A clock that is never set back: the source of versions, one for each write and not more than one in a microsecond.
#[derive(Debug)]
struct VersionClock {
    first_us: u64,
    last_us: u64,
    looked_at: Instant,
}

impl VersionClock {
    /// For a directory whose last note had this time; 0: there was none.
    fn after(noted_us: u64) -> Self {
        let first_us = match noted_us {
            0 => 0,
            noted_us => noted_us.saturating_add(UNNOTED_US),
        };
        Self {
            first_us,
            last_us: first_us,
            looked_at: Instant::now(),
        }
    }

    /// A version of that time is there.
    fn raise(&mut self, given_out_us: u64) {
        self.last_us = self.last_us.max(given_out_us);
    }

    /// No version that was given out by now is of a later time.
    fn now_us(&mut self) -> u64 {
        let now = Instant::now();
        let passed_us = now.duration_since(self.looked_at).as_micros() as u64;
        self.looked_at = now;
        // The millisecond that has begun counts whole.
        let clock_us = (now_ms() + 1) * 1000;
        self.last_us = self.last_us.saturating_add(passed_us).max(clock_us);
        self.last_us
    }
}

#[derive(Debug, Default)]
struct NotedFiles {
    written: Inventory,
    /// Files at the last check, and the last promised change right after it.
    seen: Inventory,
}

impl Notes {
    /// No version that was given out before the directory was opened is of a later time.
    pub(super) fn versions_after_us(&self) -> u64 {
        self.clock().first_us
    }

    /// No version that was given out by now is of a later time.
    pub(super) fn clock_us(&self) -> u64 {
        self.clock().now_us()
    }

    /// The next server gives out no version of that time, or of an earlier one.
    pub(super) fn note_version(&self, given_out_us: u64) {
        self.clock().raise(given_out_us);
    }

    /// Opens the note in `path`, which `known` was read from, and records on the disk that files change from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn begin(path: &Path, known: Inventory) -> io::Result<Self> {
        let writer = NoteWriter::open(path)?;
        let known = Inventory {
            state: NoteState::Running,
            ..known
        };
        writer.write(&known, Reach::Disk)?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            promised: AtomicU64::new(known.sequence),
            syncs_always: AtomicBool::new(true),
            clock: Mutex::new(VersionClock::after(known.clock_us)),
            accepted_loss: AtomicU64::new(known.accepted_loss),
            kept: Mutex::new(NotedFiles {
                written: known,
                seen: Inventory::default(),
            }),
            synced_manifest: Mutex::new(Noted::default()),
        })
    }

    /// All changes up to this one survive a loss of power.
    pub(super) fn promise(&self, sequence: u64) {
        self.promised.store(sequence, Ordering::Release);
    }

    /// A write was acknowledged that no sync covers.
    ///
    /// # Errors
    /// At the first one, if the system refuses to note it.
    pub(super) fn acknowledge_unsynced(&self) -> io::Result<()> {
        if self.syncs_always.swap(false, Ordering::Relaxed) {
            self.look()?;
        }
        Ok(())
    }

    pub(super) fn accepted_loss(&self) -> u64 {
        self.accepted_loss.load(Ordering::Relaxed)
    }

    /// So many writes more may be lost, and that was accepted.
    pub(super) fn accept_loss(&self, writes_max: u64) {
        self.accepted_loss.fetch_add(writes_max, Ordering::Relaxed);
    }

    /// Notes the files of an engine that was just opened, all of whose changes up to `sequence` are on the disk.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn opened(&self, sequence: u64) -> io::Result<()> {
        self.promise(sequence);
        let mut kept = self.kept();
        let found = self.found(NoteState::Running)?;
        self.writer.write(&found, Reach::Disk)?;
        *kept = NotedFiles {
            seen: found.clone(),
            written: found,
        };
        Ok(())
    }

    /// Notes what has changed. Cheap where nothing has; syncs where files came or went.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn look(&self) -> io::Result<()> {
        let mut kept = self.kept();
        // Writes promised by now were in the files before their sizes were read at the last check, or are after that
        // size.
        let promised = self.promised.load(Ordering::Acquire);
        let found = self.found(NoteState::Running)?;
        let mut next = Inventory {
            sequence: promised,
            ..found.clone()
        };
        // A size may include a write that is not synced yet. Sizes read before a sync that has ended since are synced.
        let is_covered = promised > kept.seen.sequence;
        let size = |noted: &Noted| {
            let of = |inventory: &Inventory| {
                let mut files = inventory.logs.iter().chain([&inventory.manifest]);
                files
                    .find(|one| one.name == noted.name)
                    .map(|one| one.size_bytes)
            };
            let covered = of(&kept.seen).filter(|_| is_covered);
            covered.or_else(|| of(&kept.written)).unwrap_or(0)
        };
        for log in &mut next.logs {
            log.size_bytes = size(log).min(log.size_bytes);
        }
        if next != kept.written {
            let reach = match next.has_files_of(&kept.written)
                && next.syncs_always == kept.written.syncs_always
            {
                true => Reach::Kernel,
                false => Reach::Disk,
            };
            self.writer.write(&next, reach)?;
        }
        *kept = NotedFiles {
            written: next,
            seen: Inventory {
                sequence: self.promised.load(Ordering::Acquire),
                ..found
            },
        };
        Ok(())
    }

    /// Notes that the engine was closed, and all changes up to `sequence` are on the disk.
    ///
    /// # Errors
    /// If the system refuses; the note then still has the engine as open.
    pub(super) fn stopped(&self, sequence: u64) -> io::Result<()> {
        self.promise(sequence);
        let mut kept = self.kept();
        kept.written = self.found(NoteState::Stopped)?;
        self.writer.write(&kept.written, Reach::Disk)
    }

    /// The current files. The MANIFEST's size is on the disk then; that of a log need not be.
    fn found(&self, state: NoteState) -> io::Result<Inventory> {
        let mut found = Inventory {
            state,
            syncs_always: self.syncs_always.load(Ordering::Relaxed),
            sequence: self.promised.load(Ordering::Acquire),
            accepted_loss: self.accepted_loss(),
            clock_us: self.clock().now_us(),
            ..Inventory::default()
        };
        found.note_files(&self.path)?;
        self.sync_manifest(&found.manifest)?;
        Ok(found)
    }

    /// The engine may be between writing an edit and syncing it.
    fn sync_manifest(&self, manifest: &Noted) -> io::Result<()> {
        if manifest.name.is_empty() || *manifest == self.synced_manifest() {
            return Ok(());
        }
        match File::open(self.path.join(&manifest.name)) {
            Ok(file) => file.sync_data()?,
            // Another one is the current one since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        *self
            .synced_manifest
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = manifest.clone();
        Ok(())
    }

    fn synced_manifest(&self) -> Noted {
        let synced = self.synced_manifest.lock();
        synced.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn clock(&self) -> MutexGuard<'_, VersionClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, NotedFiles> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "tests/inventory.rs"]
mod tests;
