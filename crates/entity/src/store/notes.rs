//! Keeps the note of `inventory` while an engine is open.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::record::now_ms;

use super::inventory::{Inventory, Noted, Reach, State, Writer};

/// See the module. Any thread may use it.
#[derive(Debug)]
pub(super) struct Notes {
    path: PathBuf,
    writer: Writer,
    /// The last change that is promised to survive a loss of power.
    promised: AtomicU64,
    syncs_always: AtomicBool,
    accepted_loss: AtomicU64,
    clock: Mutex<VersionClock>,
    kept: Mutex<Kept>,
    /// The MANIFEST as it is known to be on the disk.
    synced_manifest: Mutex<Noted>,
}

/// Longer than from one note to the next: what was given out after the last one of a killed server.
const UNNOTED_US: u64 = 10_000_000;

/// A clock that is never set back: what versions are counted by, one for each write and not more than one in a
/// microsecond.
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
struct Kept {
    written: Inventory,
    /// Files as they were at the last look, and what was promised right after it.
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

    /// Opens the note in `path`, which `known` was read from, and says on the disk that files change from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn begin(path: &Path, known: Inventory) -> io::Result<Self> {
        let writer = Writer::open(path)?;
        let known = Inventory {
            state: State::Running,
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
            kept: Mutex::new(Kept {
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
        let found = self.found(State::Running)?;
        self.writer.write(&found, Reach::Disk)?;
        *kept = Kept {
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
        // Whatever is promised by now was in the files before their sizes were read at the last look, or is behind it.
        let promised = self.promised.load(Ordering::Acquire);
        let found = self.found(State::Running)?;
        let mut next = Inventory {
            sequence: promised,
            ..found.clone()
        };
        // A size may include a write that is not synced yet. What was seen before a sync that has ended since is.
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
        *kept = Kept {
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
    /// If the system refuses; the note says then that the engine is open.
    pub(super) fn stopped(&self, sequence: u64) -> io::Result<()> {
        self.promise(sequence);
        let mut kept = self.kept();
        kept.written = self.found(State::Stopped)?;
        self.writer.write(&kept.written, Reach::Disk)
    }

    /// What is there now. The MANIFEST's size is on the disk then; that of a log need not be.
    fn found(&self, state: State) -> io::Result<Inventory> {
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

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
