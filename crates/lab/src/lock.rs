//! One comparison at a time on a machine: two would measure each other.
//!
//! On the path: `compare` takes it before it starts anything and holds it to its end; the kernel lets go
//! of it whatever ends the process. Advisory: it keeps comparisons apart, not other work, which the
//! noise gate is for.

use std::env;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::LabError;

/// Names another file, or none if it is empty: for a test, or a container with a machine of its own.
pub const LOCK_VARIABLE: &str = "MILLPOND_LOCK";
/// The same for all users of the machine.
const DEFAULT: &str = "/tmp/millpond-compare.lock";
/// A process number and a newline are shorter.
const CONTENT_BYTES_MAX: u64 = 32;

/// The file that comparisons on this machine lock; `None` if the user wants none.
#[must_use]
pub fn lock_file() -> Option<PathBuf> {
    match env::var_os(LOCK_VARIABLE) {
        None => Some(PathBuf::from(DEFAULT)),
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
    }
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Takes the lock in `path`; none if there is none to take, with a warning if the file cannot be used.
    ///
    /// # Errors
    /// If another comparison holds it.
    pub fn take_or_warn(
        path: Option<&Path>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, LabError> {
        let Some(path) = path else {
            return Ok(None);
        };
        let taken = Self::take(path)?;
        Ok(taken
            .map_err(|error| {
                warnings.push(format!(
                    "{} cannot be locked ({error}): another comparison at the same time would not be noticed but \
                     as noise",
                    path.display()
                ));
            })
            .ok())
    }

    /// Takes it. A comparison that holds it is an error; a file that cannot be opened or locked is a
    /// reason to do without, in the `Err` of the inner result.
    fn take(path: &Path) -> Result<Result<Self, io::Error>, LabError> {
        let mut file = match open(path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        match file.try_lock() {
            Ok(()) => {
                // For the sentence of the next one; who cannot be named is just not named.
                let _ = name_us(path, &file);
                Ok(Ok(Self { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Err(LabError::AnotherComparison {
                who: holder(&mut file),
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Ok(Err(error)),
        }
    }
}

/// Opens the file that is there, whoever made it, or makes it. No link is followed: the directory is
/// everybody's.
fn open(path: &Path) -> io::Result<File> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let existing = || {
        OpenOptions::new()
            .read(true)
            .custom_flags(no_link)
            .open(path)
    };
    match existing() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        outcome => return outcome,
    }
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(no_link)
        .open(path);
    match made {
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(),
        outcome => outcome,
    }
}

/// Writes our process number into the locked file, if it is ours to write to.
fn name_us(path: &Path, locked: &File) -> io::Result<()> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut writable = OpenOptions::new()
        .write(true)
        .custom_flags(no_link)
        .open(path)?;
    if !locked.metadata()?.is_file() {
        return Ok(());
    }
    writable.set_len(0)?;
    writeln!(writable, "{}", std::process::id())
}

/// The process that holds the lock, as far as the file says and if it is alive.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(CONTENT_BYTES_MAX)
        .read_to_string(&mut text)
        .ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the second is refused with the first one's number, and let in when the first has ended.
    #[test]
    fn one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = MachineLock::take(&path).unwrap().unwrap();
        let refused = MachineLock::take(&path).unwrap_err();
        let own = std::process::id();
        assert!(
            matches!(&refused, LabError::AnotherComparison { who: Some(pid), .. } if *pid == own),
            "{refused:?}"
        );
        let sentence = refused.to_string();
        assert!(sentence.contains(&format!("process {own}")), "{sentence}");
        assert!(sentence.contains(LOCK_VARIABLE), "{sentence}");
        drop(first);
        MachineLock::take(&path).unwrap().unwrap();
    }

    /// Goal: a link that somebody has put there is not followed, and a place that cannot be written
    /// keeps nobody from comparing.
    #[test]
    fn what_cannot_be_locked_is_done_without() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (
            directory.path().join("lock"),
            directory.path().join("victim"),
        );
        std::fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(MachineLock::take(&path).unwrap().is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
        assert!(
            MachineLock::take(Path::new("/nowhere/lock"))
                .unwrap()
                .is_err()
        );
    }
}
