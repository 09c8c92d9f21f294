//! Shared objects of ours that are part of this binary, and the private directories they are written
//! to when a target is to preload them.
//!
//! `trace` writes the heap call counter for its pass, `profile` the sampler of heap calls;
//! `allocator` writes mempool when it is a candidate. `build.rs` compiles them. An object lives as
//! long as what holds its directory, so two versions of this program never meet in one file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An object, as bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedded {
    file_name: &'static str,
    bytes: &'static [u8],
}

/// The heap call counter, `preload/trace`.
pub(crate) const TRACE: Embedded = Embedded {
    file_name: "libmillpond-trace.so",
    bytes: include_bytes!(env!("MILLPOND_TRACE_OBJECT")),
};

/// The sampler of heap calls, `preload/sample`.
pub(crate) const SAMPLE: Embedded = Embedded {
    file_name: "libmillpond-sample.so",
    bytes: include_bytes!(env!("MILLPOND_SAMPLE_OBJECT")),
};

/// The object that ages a heap, `preload/churn`.
pub(crate) const CHURN: Embedded = Embedded {
    file_name: "libmillpond-churn.so",
    bytes: include_bytes!(env!("MILLPOND_CHURN_OBJECT")),
};

/// The thread that calls `malloc_trim`, `preload/trim`.
pub(crate) const TRIM: Embedded = Embedded {
    file_name: "libmillpond-trim.so",
    bytes: include_bytes!(env!("MILLPOND_TRIM_OBJECT")),
};

/// Our pools as malloc, `preload/mempool`.
pub(crate) const MEMPOOL: Embedded = Embedded {
    file_name: "libmillpond-mempool.so",
    bytes: include_bytes!(env!("MILLPOND_MEMPOOL_OBJECT")),
};

impl Embedded {
    /// Where `write_into` puts it.
    pub(crate) fn path_in(&self, directory: &Path) -> PathBuf {
        directory.join(self.file_name)
    }

    /// Writes the object into `directory` to stay there. A file of its name is an error, unless it has the same contents.
    pub(crate) fn extract_into(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = self.path_in(directory);
        match File::create_new(&path) {
            Ok(mut file) => file.write_all(self.bytes)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read(&path)? != self.bytes {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(path)
    }

    /// Writes the object into `directory`, which exists, and returns its path. Not while a target
    /// has it mapped: the old contents are overwritten.
    pub(crate) fn write_into(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = self.path_in(directory);
        fs::write(&path, self.bytes)?;
        Ok(path)
    }
}

/// An object in a directory of its own, for as long as it has an owner: one file for all owners at the same time.
#[derive(Debug)]
pub(crate) struct SharedObject {
    object: Embedded,
    directory: Mutex<Weak<PrivateDirectory>>,
}

impl SharedObject {
    pub(crate) const fn new(object: Embedded) -> Self {
        Self {
            object,
            directory: Mutex::new(Weak::new()),
        }
    }

    /// Where it is, and what it lives as long as.
    pub(crate) fn write(&self) -> io::Result<(PathBuf, Arc<PrivateDirectory>)> {
        let mut known = self
            .directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let directory = match known.upgrade() {
            Some(directory) => directory,
            None => {
                let directory = Arc::new(PrivateDirectory::create()?);
                self.object.write_into(&directory.path)?;
                *known = Arc::downgrade(&directory);
                directory
            }
        };
        Ok((self.object.path_in(&directory.path), directory))
    }
}

/// A directory that only this user can list, and that a target of another user reaches by its
/// unpredictable name; removed when dropped.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct PrivateDirectory {
    pub(crate) path: PathBuf,
}

impl PrivateDirectory {
    /// Below the system's temporary directory, under an unpredictable name. It is created, never
    /// reused: an existing one may be a trap.
    pub(crate) fn create() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir())
    }

    /// The same in memory, for files that many processes write into: on a disk each first touch of a
    /// page costs a target more than what it writes there. Elsewhere if this system has no such place.
    pub(crate) fn create_in_memory() -> io::Result<Self> {
        Self::create_in(Path::new("/dev/shm")).or_else(|_| Self::create())
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        // As it will stand in a target's memory map, where links are resolved.
        let parent = fs::canonicalize(parent)?;
        // LD_PRELOAD splits at colons and blanks.
        if parent.to_str().is_none_or(|path| path.contains([':', ' '])) {
            let why = format!(
                "{} has a colon or blank in it, which LD_PRELOAD cannot express: set TMPDIR to \
                 another directory",
                parent.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, why));
        }
        // Not from the comparison's seed: two comparisons with the same seed must not meet.
        let name = format!("millpond-{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = parent.join(name);
        fs::DirBuilder::new().mode(0o711).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // A leftover in the temporary directory is harmless.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
#[path = "tests/embedded.rs"]
mod tests;
