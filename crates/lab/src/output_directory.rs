//! The directory that a report or a profile is written into: ours, or untouched.
//!
//! A run replaces what an earlier run left there, whole folders included. So a directory is used only if it has our
//! marker, a file that the first run leaves in it, or if it does not exist or is empty. With foreign files in it, the
//! run is refused before it starts anything.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use millpond_measure::record::{Measure, RoundMeasures};
use millpond_measure::series::Series;
use serde::Serialize;

use crate::embedded::PrivateDirectory;
use crate::error::LabError;
use crate::process_tree::is_alive;
use crate::target::Target;

/// The file that says whose directory it is.
const MARK: &str = ".millpond-output";

/// Its first line. A reader compares the first line alone, so that the rest may change.
const MARK_LINE: &str = "Written by millpond.";

/// Where a report or profile goes; it carries our mark.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutputDirectory {
    path: PathBuf,
}

impl OutputDirectory {
    /// Takes `path`, creating it where it is missing, and marks it.
    ///
    /// # Errors
    ///
    /// [`LabError::ForeignOutput`] if it holds anything and no mark of ours, [`LabError::Output`] if it cannot be
    /// created, read or marked.
    pub fn claim(path: &Path) -> Result<Self, LabError> {
        let failed = |error| LabError::Output {
            path: path.to_owned(),
            error,
        };
        fs::create_dir_all(path).map_err(failed)?;
        let directory = Self {
            path: fs::canonicalize(path).map_err(failed)?,
        };
        if directory.is_marked().map_err(failed)? {
            return Ok(directory);
        }
        if let Some(entry) = fs::read_dir(&directory.path).map_err(failed)?.next() {
            return Err(LabError::ForeignOutput {
                path: path.to_owned(),
                found: entry.map_err(failed)?.file_name(),
            });
        }
        directory.mark().map_err(failed)?;
        Ok(directory)
    }

    /// Its absolute path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties the folder `name` in it, or creates it, and returns its path.
    pub(crate) fn fresh_folder(&self, name: &str) -> Result<PathBuf, LabError> {
        self.remove_folder(name)?;
        let path = self.path.join(name);
        match fs::create_dir(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(LabError::Output { path, error }),
        }
    }

    /// Removes the folder `name` in it with all that an earlier run left there; a missing one is no error.
    pub(crate) fn remove_folder(&self, name: &str) -> Result<(), LabError> {
        let path = self.path.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::Output { path, error })
            }
            _ => Ok(()),
        }
    }

    /// Whether `path` carries our mark.
    pub(crate) fn is_ours(path: &Path) -> bool {
        let directory = Self {
            path: path.to_owned(),
        };
        directory.is_marked().unwrap_or(false)
    }

    fn is_marked(&self) -> io::Result<bool> {
        match fs::read(self.path.join(MARK)) {
            Ok(text) => Ok(text.split(|&byte| byte == b'\n').next() == Some(MARK_LINE.as_bytes())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn mark(&self) -> io::Result<()> {
        let mut file = fs::File::create_new(self.path.join(MARK))?;
        writeln!(
            file,
            "{MARK_LINE}\nThe next `millpond compare` or `millpond profile` with this --out replaces what is in this \
             directory. Without this file it refuses to."
        )
    }
}

// The file written while a comparison runs: one JSON line per run, so that even a killed lab leaves
// its measurements.

/// One line. Fields are only ever added: a reader ignores unknown ones.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A scored run.
    Run {
        candidate: &'a str,
        #[serde(flatten)]
        measures: &'a RoundMeasures,
        start_ns: u64,
        stop_ns: Option<u64>,
        rss_bytes: &'a Series,
        #[serde(skip_serializing_if = "Option::is_none")]
        memory_bytes: Option<&'a Series>,
    },
    /// Heap calls per request, from their own pass.
    Heap {
        candidate: &'a str,
        costs: Vec<(String, f64)>,
    },
    /// Instructions per request, counted under an emulator, for the round of this number.
    Emulated {
        candidate: &'a str,
        round: u32,
        costs: Vec<(String, f64)>,
    },
}

fn by_key(costs: &[(Measure, f64)]) -> Vec<(String, f64)> {
    let costs = costs.iter();
    costs
        .map(|(measure, value)| (measure.to_string(), *value))
        .collect()
}

/// The file of lines.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Creates `runs.ndjson` in `directory`.
    pub(crate) fn create(directory: &Path) -> Result<Self, LabError> {
        let path = directory.join("runs.ndjson");
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(LabError::Output { path, error }),
        }
    }

    /// Adds one line.
    pub(crate) fn write(&mut self, line: &Line<'_>) -> Result<(), LabError> {
        self.try_write(line).map_err(|error| LabError::Output {
            path: self.path.clone(),
            error,
        })
    }

    /// Adds the costs found by a heap pass.
    pub(crate) fn write_heap(
        &mut self,
        candidate: &str,
        costs: &[(Measure, f64)],
    ) -> Result<(), LabError> {
        let costs = by_key(costs);
        self.write(&Line::Heap { candidate, costs })
    }

    /// Adds what was counted under an emulator.
    pub(crate) fn write_emulated(
        &mut self,
        candidate: &str,
        round: u32,
        costs: &[(Measure, f64)],
    ) -> Result<(), LabError> {
        let costs = by_key(costs);
        self.write(&Line::Emulated {
            candidate,
            round,
            costs,
        })
    }

    fn try_write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }
}

// Where the data of a comparison's servers lie while they live.
//
// A disk that is shared adds 20 to 30 % of noise to every slice of writes, and no allocator changes it. So the
// data lie in memory if there is room for all candidates, and the report says that the disk has no part in its
// figures; `--data DIR` is for including it.

/// Where memory can be used like a disk. Containers often have 64 MiB of it.
const MEMORY: &str = "/dev/shm";
/// The bytes that a candidate may write in one round.
const ROOM_BYTES: u64 = 512 << 20;
/// The folder of the data in a directory that the user named, or in the output directory.
const FOLDER: &str = "data";
/// How the names of directories in memory begin; the id of the process follows.
const NAME: &str = "millpond-";

/// A directory for data directories; what is in it goes with it.
#[derive(Debug)]
pub(crate) struct DataPlace {
    directory: OutputDirectory,
    /// Keeps the place in memory until it is dropped.
    memory: Option<PrivateDirectory>,
    /// Notes for the reader of the report.
    pub(crate) note: Option<String>,
}

impl DataPlace {
    /// For `candidates` of `target`: where the user said, in memory, or in the output directory.
    ///
    /// # Errors
    /// If what the user named is not ours to use, or cannot be written.
    pub(crate) fn choose(
        wanted: Option<&Path>,
        out: &OutputDirectory,
        target: &Target,
        candidates: usize,
    ) -> Result<Self, LabError> {
        match (wanted, target) {
            (Some(path), _) => Self::on_disk(OutputDirectory::claim(path)?, None),
            // Where a third-party server keeps its data is not our concern.
            (None, Target::Command { .. }) => Self::on_disk(out.clone(), None),
            (None, Target::Entity { .. }) => {
                remove_abandoned(Path::new(MEMORY));
                let needed = ROOM_BYTES.saturating_mul(candidates as u64);
                match Self::in_memory(needed)? {
                    Some(place) => Ok(place),
                    None => Self::on_disk(out.clone(), Some(disk_note(needed))),
                }
            }
        }
    }

    /// In `directory`, on whatever disk that is.
    pub(crate) fn on_disk(
        directory: OutputDirectory,
        note: Option<String>,
    ) -> Result<Self, LabError> {
        directory.fresh_folder(FOLDER)?;
        Ok(Self {
            directory,
            memory: None,
            note,
        })
    }

    /// Whether no disk was requested, and there was no room in memory.
    pub(crate) fn is_disk_for_want_of_memory(&self) -> bool {
        self.memory.is_none() && self.note.is_some()
    }

    fn in_memory(needed: u64) -> Result<Option<Self>, LabError> {
        if free_bytes(Path::new(MEMORY)) < needed {
            return Ok(None);
        }
        let Ok(memory) = PrivateDirectory::create_in_memory() else {
            return Ok(None);
        };
        let note = format!(
            "the server's data lay in memory ({MEMORY}): the disk has no part in these figures; \
             --data DIR puts the data on one"
        );
        let place = Self::on_disk(OutputDirectory::claim(&memory.path)?, Some(note))?;
        Ok(Some(Self {
            memory: Some(memory),
            ..place
        }))
    }

    /// Where data directories are made.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(FOLDER)
    }

    /// Removes what is left, once nothing runs any more.
    pub(crate) fn tidy(&mut self) {
        // It holds nothing of value; a failure would only leave empty directories behind.
        let _ = self.directory.remove_folder(FOLDER);
        self.memory = None;
    }
}

fn disk_note(needed: u64) -> String {
    format!(
        "the server's data lay on the disk of the output directory, without syncs (--sync off), since {MEMORY} \
         has no room for {} MiB: writes wait less for the disk than they will; --data DIR measures them with it",
        needed >> 20
    )
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize))
}

/// Removes what a comparison left behind that was killed: a directory of that name with our mark in it, whose
/// process is gone. It would take memory until the next start of the machine.
fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let (pid, _) = name.strip_prefix(NAME)?.split_once('-')?;
            pid.parse().ok()
        });
        let is_abandoned = owner.is_some_and(|pid| !is_alive(pid));
        if is_abandoned && OutputDirectory::is_ours(&entry.path()) {
            // Files of other users cannot be removed, and are kept.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
#[path = "tests/output_directory.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/data_place.rs"]
mod data_place_tests;
