//! Where the data of a comparison's servers lie while they live.
//!
//! A disk that is shared adds 20 to 30 % of noise to every slice of writes, and no allocator changes it. So the
//! data lie in memory if there is room for all candidates, and the report says that the disk has no part in its
//! figures; `--data DIR` is for who wants it in them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::embedded::PrivateDirectory;
use crate::error::LabError;
use crate::output_directory::OutputDirectory;
use crate::process_tree::is_alive;
use crate::target::Target;

/// Where memory can be used like a disk. Containers often have 64 MiB of it.
const MEMORY: &str = "/dev/shm";
/// What a candidate may write in one round.
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
    /// What a reader of the report has to know.
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
            // Where somebody else's server keeps its data is its own affair.
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

    /// Whether nobody wanted a disk, and there was no room in memory.
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
            // Somebody else's cannot be removed, and is not.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what carries our mark and has lost its process is removed.
    #[test]
    fn strangers_directories_stay() {
        let parent = tempfile::tempdir().unwrap();
        let gone = i32::MAX;
        let make = |name: String, is_marked: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            if is_marked {
                OutputDirectory::claim(&path).unwrap();
            }
            fs::write(path.join("file"), "kept?").unwrap();
            path
        };
        let alive = std::process::id();
        let kept = [
            make(format!("{NAME}{gone}-a"), false),
            make(format!("{NAME}{alive}-b"), true),
            make("somebodys".to_owned(), true),
            make(format!("{NAME}{gone}"), true),
        ];
        let abandoned = make(format!("{NAME}{gone}-c"), true);
        remove_abandoned(parent.path());
        assert!(kept.iter().all(|path| path.join("file").exists()));
        assert!(!abandoned.exists());
    }

    /// Goal: a directory that the user names is ours or untouched; data go with the comparison.
    #[test]
    fn a_named_directory_is_used() {
        let home = tempfile::tempdir().unwrap();
        let out = OutputDirectory::claim(&home.path().join("out")).unwrap();
        let target = Target::Entity { extra: Vec::new() };
        let named = home.path().join("named");
        let mut place = DataPlace::choose(Some(&named), &out, &target, 3).unwrap();
        assert!(place.path().starts_with(fs::canonicalize(&named).unwrap()));
        assert_eq!(place.note, None);
        fs::write(place.path().join("x"), "x").unwrap();
        place.tidy();
        assert!(!place.path().exists());
        fs::remove_dir_all(&named).unwrap();
        fs::create_dir(&named).unwrap();
        fs::write(named.join("theirs"), "kept").unwrap();
        assert!(DataPlace::choose(Some(&named), &out, &target, 3).is_err());
        assert!(named.join("theirs").exists());
        let mut place = DataPlace::choose(None, &out, &target, 1).unwrap();
        let path = place.path();
        assert!(path.exists() && place.note.is_some());
        place.tidy();
        assert!(!path.exists());
    }
}
