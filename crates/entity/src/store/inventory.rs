//! A note of our own beside the engine's files: which of them have to be there, and up to which change they reach.
//!
//! The engine cannot know that its newest log is missing or that the end of one is: a log that is not there looks as if
//! it had never been written. `MILLPOND-FILES` names the logs and the MANIFEST with their sizes, and the last change that
//! was promised to be durable. It is one block that is overwritten in place, so that a full disk does not stop it, with a
//! checksum: one that was written by halves counts as none.
//!
//! It is synced where the set of files changes, where the engine is opened and where it is closed; in between it is
//! written once a second for what a killed process leaves in the page cache.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::manifest;

/// The file that holds it.
pub(crate) const FILE: &str = "MILLPOND-FILES";

const BLOCK_BYTES: usize = 4096;
const FIRST_LINE: &str = "millpond entity files, version 1";
/// Logs that are named at most: the newest. The engine bounds what its logs hold, so that there are a few.
const LOGS_MAX: usize = 64;

/// Whether a server was using the directory when the note was written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum State {
    /// The engine was closed after all it holds was synced: each file is as the note says.
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

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Inventory {
    pub state: State,
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

/// What the file says.
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
            State::Stopped => "stopped",
            State::Running => "running",
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
                "state" if value == "stopped" => found.state = State::Stopped,
                "state" => found.state = State::Running,
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
    /// The disk, and with it the names of the files that it speaks of.
    Disk,
}

/// The note of one directory, open for writing.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    directory: File,
}

impl Writer {
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
    /// If the system refuses; what is read then is the old note, the new one, or a damaged one.
    pub(super) fn write(&self, inventory: &Inventory, reach: Reach) -> io::Result<()> {
        let mut block = inventory.text().into_bytes();
        // In front of the checksum's line end, so that reading has one way to find it.
        block.resize(block.len().max(BLOCK_BYTES), b'\n');
        if reach == Reach::Disk {
            // A log whose name the disk may lose must not be called missing later.
            self.directory.sync_all()?;
        }
        self.file.write_all_at(&block, 0)?;
        if reach == Reach::Disk {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_inventory() -> impl Strategy<Value = Inventory> {
        let numbers = (
            any::<bool>(),
            any::<bool>(),
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
        );
        let logs = prop::collection::vec(any::<u64>(), 0..LOGS_MAX);
        (numbers, logs).prop_map(
            |((is_stopped, syncs_always, sequence, accepted_loss, size), logs)| Inventory {
                state: if is_stopped {
                    State::Stopped
                } else {
                    State::Running
                },
                syncs_always,
                sequence,
                clock_us: size,
                accepted_loss,
                manifest: Noted {
                    name: format!("MANIFEST-{sequence:06}"),
                    size_bytes: size,
                },
                logs: logs
                    .into_iter()
                    .map(|size_bytes| Noted {
                        name: format!("{size_bytes:06}.log"),
                        size_bytes,
                    })
                    .collect(),
            },
        )
    }

    proptest! {
        /// Goal: what is written is read, whatever stood there before.
        #[test]
        fn notes_round_trip(first in any_inventory(), second in any_inventory()) {
            let data = tempfile::tempdir().unwrap();
            prop_assert_eq!(read(data.path()).unwrap(), Found::Missing);
            let writer = Writer::open(data.path()).unwrap();
            for inventory in [first, second] {
                writer.write(&inventory, Reach::Disk).unwrap();
                prop_assert_eq!(read(data.path()).unwrap(), Found::Valid(inventory));
            }
        }

        /// Goal: a note with a flipped bit, or that ends early, is never taken for another.
        #[test]
        fn damaged_notes_are_none(inventory in any_inventory(), place in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let text = inventory.text();
            prop_assert_eq!(Inventory::parse(&text), Some(inventory.clone()));
            let at = place.index(text.len());
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            if let Ok(flipped) = String::from_utf8(bytes)
                && let Some(found) = Inventory::parse(&flipped)
            {
                prop_assert_eq!(found, inventory.clone());
            }
            if let Some(found) = Inventory::parse(&text[..at]) {
                prop_assert_eq!(found, inventory);
            }
        }
    }
}
