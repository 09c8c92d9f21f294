//! The directory that a report or a profile is written into: ours, or untouched.
//!
//! A run replaces what an earlier run left there, whole folders included. So a directory is used only if it carries
//! our mark, a file that the first run leaves in it, or if it does not exist or is empty. Whatever else is there
//! belongs to somebody, and the run is refused before it starts anything.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// The file that says whose directory it is.
const MARK: &str = ".millpond-output";

/// What it begins with. A reader compares the first line alone, so that the rest may change.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Goal: what is missing or empty becomes ours and stays ours; folders of an earlier run are emptied.
    #[test]
    fn an_empty_directory_becomes_ours() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("deep/report");
        for path in [home.path().join("empty"), missing] {
            if path.ends_with("empty") {
                fs::create_dir(&path).unwrap();
            }
            let first = OutputDirectory::claim(&path).unwrap();
            let raw = first.fresh_folder("raw").unwrap();
            fs::write(raw.join("runs.ndjson"), "of the first run").unwrap();
            let second = OutputDirectory::claim(&path).unwrap();
            assert_eq!(first, second);
            assert!(names_in(&second.fresh_folder("raw").unwrap()).is_empty());
        }
    }

    /// Goal: a directory with anything in it that is not marked is refused by name, and nothing in it changes, not
    /// even with a file of the mark's name that we did not write.
    #[test]
    fn what_is_somebodys_stays_untouched() {
        let home = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("data", None),
            ("notes.txt", Some("mine")),
            (MARK, Some("mine")),
        ] {
            let path = home
                .path()
                .join(name.trim_start_matches('.').replace('.', "-"));
            fs::create_dir(&path).unwrap();
            match content {
                None => fs::create_dir(path.join(name)).unwrap(),
                Some(text) => fs::write(path.join(name), text).unwrap(),
            }
            let refused = OutputDirectory::claim(&path).unwrap_err();
            let sentence = refused.to_string();
            assert!(
                matches!(refused, LabError::ForeignOutput { .. }),
                "{refused:?}"
            );
            assert!(
                sentence.contains(name) && sentence.contains("--out"),
                "{sentence}"
            );
            assert_eq!(names_in(&path), [name]);
        }
    }

    /// Goal: a folder that is a link leads nowhere: the link goes, what it points at stays.
    #[test]
    fn a_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let precious = home.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("thesis"), "mine").unwrap();
        let directory = OutputDirectory::claim(&home.path().join("report")).unwrap();
        std::os::unix::fs::symlink(&precious, directory.path().join("logs")).unwrap();
        directory.fresh_folder("logs").unwrap();
        assert_eq!(names_in(&precious), ["thesis"]);
    }
}
