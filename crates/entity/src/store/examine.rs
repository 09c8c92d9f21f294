//! Whether a data directory still holds all acknowledged writes, checked by reading alone.
//!
//! Called before an engine opens a directory, because opening changes it: the engine deletes files that its MANIFEST
//! does not name, and logs after the point at which it stopped reading them. [`examine`] compares the directory with
//! the note of `inventory`, and with the files' own contents.
//!
//! A crash may cut off the end of the newest log in the middle of a write, which was not acknowledged. Everything else
//! is a loss: a file that is missing, one that is shorter than it was, a log with whole writes after a damaged place.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
use std::path::Path;

use super::inventory::{self, Found, Inventory, NoteState, Noted};
use super::manifest;
use super::manifest::FileScan;
use super::manifest::Manifest;
use super::opening::LogEnd;

/// A log is read in pieces of this size.
const READ_BYTES: usize = 256 << 10;

/// In front of the changes of a log's record: the number of the first and their count (RocksDB, `write_batch.cc`).
const BATCH_HEADER_BYTES: usize = 12;

/// A missing or damaged file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Missing {
    /// A file that has to be there.
    File {
        /// Its name.
        name: String,
    },
    /// A file that is shorter than it was.
    Cut {
        /// Its name.
        name: String,
        /// The size it had at least.
        expected_bytes: u64,
        /// The size it has.
        found_bytes: u64,
    },
    /// A file that does not match its checksums at this place.
    Damaged {
        /// Its name.
        name: String,
        /// Where.
        offset_bytes: u64,
    },
    /// CURRENT names no file or an older one than the engine wrote last.
    WrongCurrent {
        /// The name in it.
        found: String,
        /// The name written last.
        expected: String,
    },
    /// The logs end before the last change that was promised.
    Changes {
        /// The last one that is there.
        found: u64,
        /// The last one that was promised.
        promised: u64,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name } => write!(formatter, "{name} is missing"),
            Self::Cut {
                name,
                expected_bytes,
                found_bytes,
            } => write!(
                formatter,
                "{name} has {found_bytes} of at least {expected_bytes} bytes"
            ),
            Self::Damaged { name, offset_bytes } => {
                write!(formatter, "{name} is damaged at byte {offset_bytes}")
            }
            Self::WrongCurrent { found, expected } => {
                write!(formatter, "CURRENT names {found:?} instead of {expected}")
            }
            Self::Changes { found, promised } => write!(
                formatter,
                "the logs end at change {found}, and {promised} were promised"
            ),
        }
    }
}

/// Losses of a directory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Loss {
    /// Each thing that is missing or damaged.
    pub missing: Vec<Missing>,
    /// Maximum number of lost writes; `None`: not known.
    pub writes_max: Option<u64>,
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.missing.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(formatter, "{comma}{one}")?;
        }
        match self.writes_max {
            Some(1) => formatter.write_str("; up to 1 acknowledged write is gone"),
            Some(count) => write!(formatter, "; up to {count} acknowledged writes are gone"),
            None => formatter.write_str("; nothing says how many acknowledged writes are gone"),
        }
    }
}

/// Contents of a directory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Examined {
    /// Missing parts of the acknowledged writes.
    pub loss: Option<Loss>,
    /// The end of the newest log cannot be read, as after a crash in the middle of a write.
    pub has_torn_tail: bool,
    /// The note of ours, if it could be read.
    pub inventory: Option<Inventory>,
    /// There is a note, and it is not what was written.
    pub is_note_damaged: bool,
    /// The engine's list of files can be used as it is.
    pub has_manifest: bool,
}

impl Examined {
    /// How the engine has to read the newest log.
    pub(super) fn log_end(&self) -> LogEnd {
        match (&self.loss, self.has_torn_tail) {
            (Some(_), _) => LogEnd::Damaged,
            (None, true) => LogEnd::Torn,
            (None, false) => LogEnd::Whole,
        }
    }
}

/// Compares the files of `path` with what they have to be. Changes nothing.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn examine(path: &Path) -> io::Result<Examined> {
    let mut examined = Examined::default();
    match inventory::read(path)? {
        Found::Missing => {}
        Found::Damaged => examined.is_note_damaged = true,
        Found::Valid(found) => examined.inventory = Some(found),
    }
    let known = examined.inventory.clone().unwrap_or_default();
    let mut loss = Loss::default();
    let manifest = examine_manifest(path, &known, &mut loss)?;
    examined.has_manifest = loss.missing.is_empty();
    if let Some(manifest) = &manifest {
        let logs = Logs::read(path, manifest.log_number)?;
        logs.compare(&known, manifest, &mut loss);
        examined.has_torn_tail = logs.0.iter().any(|log| log.scan.damaged_at.is_some());
    }
    examined.loss = (!loss.missing.is_empty()).then_some(loss);
    Ok(examined)
}

/// The MANIFEST that CURRENT names; faults of either are added to `loss`.
fn examine_manifest(
    path: &Path,
    known: &Inventory,
    loss: &mut Loss,
) -> io::Result<Option<Manifest>> {
    let expected = &known.manifest;
    let Some(name) = manifest::current(path)? else {
        loss.missing
            .push(match fs::symlink_metadata(path.join("CURRENT")) {
                Ok(_) => Missing::Damaged {
                    name: "CURRENT".to_owned(),
                    offset_bytes: 0,
                },
                Err(_) => Missing::File {
                    name: "CURRENT".to_owned(),
                },
            });
        return Ok(None);
    };
    let numbers = manifest::number(&name).zip(manifest::number(&expected.name));
    if numbers.is_some_and(|(found, expected)| found < expected) {
        loss.missing.push(Missing::WrongCurrent {
            found: name,
            expected: expected.name.clone(),
        });
        return Ok(None);
    }
    let Some(found) = manifest::read(path, &name)? else {
        loss.missing.push(Missing::File { name });
        return Ok(None);
    };
    if found.name == expected.name && found.size_bytes < expected.size_bytes {
        loss.missing.push(Missing::Cut {
            name,
            expected_bytes: expected.size_bytes,
            found_bytes: found.size_bytes,
        });
    } else if let Some(offset_bytes) = found.scan.damaged_at
        && (known.state == NoteState::Stopped
            || found.scan.records_behind > 0
            || (found.name == expected.name && offset_bytes < expected.size_bytes)
            || offset_bytes == 0)
    {
        // Its end may be a write that a crash cut off: the engine syncs each before it acts on it.
        loss.missing.push(Missing::Damaged { name, offset_bytes });
    }
    Ok(Some(found))
}

/// One write-ahead log.
#[derive(Clone, Debug)]
struct Log {
    name: String,
    size_bytes: u64,
    scan: FileScan,
    /// The first change of all.
    first: Option<u64>,
    /// The last change in front of any damage, and the last one anywhere.
    sequence: Option<u64>,
    sequence_anywhere: Option<u64>,
    /// A record with a change in it is whole, wherever it lies.
    has_changes: bool,
}

/// Those that hold what no table holds, the oldest first.
#[derive(Clone, Debug, Default)]
struct Logs(Vec<Log>);

impl Logs {
    fn read(path: &Path, first_number: u64) -> io::Result<Self> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(inventory::log_number);
            if let Some(number) = number.filter(|number| *number >= first_number) {
                names.push((number, name.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        let logs = names.into_iter().map(|(_, name)| Log::read(path, name));
        Ok(Self(logs.collect::<io::Result<_>>()?))
    }

    /// The first log in which reading stops, and the offset.
    ///
    /// A start that met a torn log goes on in a new one, which begins with the change behind the last that was read. When
    /// that start fails before the old log is done with, both are there: reading goes on in the second.
    fn damage(&self) -> Option<(usize, &Log, u64)> {
        let mut reached = 0;
        for (index, log) in self.0.iter().enumerate() {
            reached = log.sequence.map_or(reached, |last| last.max(reached));
            let next = self.0[index + 1..].iter().find_map(|log| log.first);
            let goes_on = next.is_some_and(|first| first <= reached + 1);
            if let Some(offset_bytes) = log.scan.damaged_at
                && !goes_on
            {
                return Some((index, log, offset_bytes));
            }
        }
        None
    }

    /// The last change that reading in order reaches, and the last one that is there at all.
    fn sequences(&self) -> (Option<u64>, Option<u64>) {
        let readable = self.damage().map_or(self.0.len(), |(index, ..)| index + 1);
        let reached = self.0.iter().take(readable).filter_map(|log| log.sequence);
        let anywhere = self.0.iter().filter_map(|log| log.sequence_anywhere);
        (reached.max(), anywhere.max())
    }

    /// Adds to `loss` the files of `known` that are missing.
    fn compare(&self, known: &Inventory, manifest: &Manifest, loss: &mut Loss) {
        let before = loss.missing.len();
        for noted in &known.logs {
            self.compare_file(noted, manifest.log_number, loss);
        }
        let (reached, anywhere) = self.sequences();
        let reached = reached.unwrap_or(manifest.last_sequence);
        let promised = known.sequence;
        if let Some((index, log, offset_bytes)) = self.damage() {
            let later = &self.0[index + 1..];
            // Only a start that read all logs, and wrote their content out, puts changes into a new log. A start that
            // failed before leaves a mark in it of how far it read, and a power loss may leave the beginning of that
            // mark or other bytes; the content it had read need not have been synced.
            let has_more = log.scan.records_behind > 0 || later.iter().any(|log| log.has_changes);
            // Without a sync before each response, a loss of power may take pieces out of the middle of what was not
            // synced: no promise but the last sync's holds for them.
            let may_be_torn = known.state == NoteState::Running
                && !(has_more && known.syncs_always)
                && reached >= promised;
            // Of a build that wrote no note nothing is known but the shape.
            let is_unknown = *known == Inventory::default() && !has_more;
            let is_noted = loss.missing[before..]
                .iter()
                .any(|one| matches!(one, Missing::Cut { name, .. } if *name == log.name));
            if !may_be_torn && !is_unknown && !is_noted {
                let name = log.name.clone();
                loss.missing.push(Missing::Damaged { name, offset_bytes });
            }
        }
        if loss.missing.len() == before && reached < promised {
            loss.missing.push(Missing::Changes {
                found: reached,
                promised,
            });
        }
        if loss.missing.len() > before {
            let last = anywhere.unwrap_or(0).max(promised);
            // Without a note a missing log may have held any number of writes.
            loss.writes_max = (last > reached).then_some(last - reached);
        }
    }

    fn compare_file(&self, noted: &Noted, first_number: u64, loss: &mut Loss) {
        let is_needed =
            inventory::log_number(&noted.name).is_some_and(|number| number >= first_number);
        // An empty one holds nothing.
        if !is_needed || noted.size_bytes == 0 {
            return;
        }
        match self.0.iter().find(|log| log.name == noted.name) {
            None => loss.missing.push(Missing::File {
                name: noted.name.clone(),
            }),
            Some(log) if log.size_bytes < noted.size_bytes => loss.missing.push(Missing::Cut {
                name: noted.name.clone(),
                expected_bytes: noted.size_bytes,
                found_bytes: log.size_bytes,
            }),
            Some(_) => {}
        }
    }
}

impl Log {
    fn read(path: &Path, name: String) -> io::Result<Self> {
        let file = match File::open(path.join(&name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(io::Error::other(format!(
                    "{name} went while it was read: another process uses the directory"
                )));
            }
            Err(error) => return Err(error),
        };
        let size_bytes = file.metadata()?.len();
        let (mut first, mut sequence, mut sequence_anywhere) = (None, None, None);
        let mut has_changes = false;
        let reader = BufReader::with_capacity(READ_BYTES, file);
        let scan = manifest::scan(reader, &mut |batch, is_behind_damage| {
            let (of_batch, last) = sequences_of(batch).unzip();
            first = first.or(of_batch);
            let count = batch.get(8..BATCH_HEADER_BYTES);
            has_changes |= count.is_some_and(|count| count != [0; 4]);
            sequence_anywhere = sequence_anywhere.max(last);
            if !is_behind_damage {
                sequence = sequence.max(last);
            }
        })?;
        Ok(Self {
            name,
            size_bytes,
            scan,
            first,
            sequence,
            sequence_anywhere,
            has_changes,
        })
    }
}

/// The numbers of the first and the last change in a record of a write-ahead log; the last is in front of the first in
/// one without changes.
fn sequences_of(batch: &[u8]) -> Option<(u64, u64)> {
    let header = batch.get(..BATCH_HEADER_BYTES)?;
    let first = u64::from_le_bytes(header[..8].try_into().ok()?);
    let count = u32::from_le_bytes(header[8..].try_into().ok()?);
    let last = first.saturating_add(u64::from(count)).saturating_sub(1);
    Some((first, last))
}
