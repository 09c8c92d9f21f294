//! A directory that only this user can look into, removed when dropped.

use crate::error::BenchError;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// For the heap call counter, which is a shared object, and for perf's data.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    pub(crate) path: PathBuf,
}

impl PrivateDirectory {
    /// Under a name that cannot be foreseen; created, never reused: an existing one may be
    /// somebody's trap.
    pub(crate) fn create() -> Result<Self, BenchError> {
        let name = format!(
            "millpond-bench-{}-{:016x}",
            std::process::id(),
            fastrand::u64(..)
        );
        let path = std::env::temp_dir().join(name);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(BenchError::Output { path, error }),
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // A leftover in the temporary directory harms nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}
