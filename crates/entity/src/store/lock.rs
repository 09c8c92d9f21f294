//! The engine's lock, held without the engine: while a stopped directory is inspected or copied no server may start on
//! it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::data_dir::{self, DataDirError};

/// The engine's lock file.
pub(super) const FILE: &str = "LOCK";

/// Directories that this process uses. The engine's lock (fcntl(2), `F_SETLK`) belongs to the process: it does not
/// exclude the process itself, and closing any descriptor of the file releases it.
static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// This process uses the directory. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct Claim(PathBuf);

impl Claim {
    /// Claims `path`, which no other process may have locked now.
    ///
    /// # Errors
    /// [`DataDirError::Locked`] if this process or another one uses it.
    pub(crate) fn take(path: &Path) -> Result<Self, DataDirError> {
        let real = fs::canonicalize(path).map_err(|error| data_dir::failed(path, "read", error))?;
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        if !claimed.insert(real.clone()) {
            return Err(locked(path));
        }
        drop(claimed);
        // Dropped, and the claim with it, where another process has the lock.
        let claim = Self(real);
        Lock::take(path).map(drop)?;
        Ok(claim)
    }

    /// Holds the engine's lock of the directory as well, for as long as no engine is open there.
    ///
    /// # Errors
    /// [`DataDirError::Locked`] if another process has it.
    pub(crate) fn lock(&self, path: &Path) -> Result<Lock, DataDirError> {
        Lock::take(path)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.remove(&self.0);
    }
}

/// The engine's lock. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct Lock(
    #[expect(dead_code, reason = "open for as long as the lock is held")] Option<File>,
);

impl Lock {
    /// As the engine takes it: on the whole file. Nothing is created.
    fn take(path: &Path) -> Result<Self, DataDirError> {
        let file = match File::options().write(true).open(path.join(FILE)) {
            Ok(file) => file,
            // No process that could write there has opened it.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                return Ok(Self(None));
            }
            Err(error) => return Err(data_dir::failed(path, "write to", error)),
        };
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(Some(file))),
            Err(Errno::ACCESS | Errno::AGAIN) => Err(locked(path)),
            Err(error) => Err(data_dir::failed(path, "lock", error.into())),
        }
    }
}

fn locked(path: &Path) -> DataDirError {
    DataDirError::Locked {
        path: path.to_owned(),
    }
}
