//! Heap calls of a target, counted by a small object preloaded in front of its allocator, and the
//! sizes and lifetimes of its blocks.
//!
//! On the path: a separate pass, never a scored run, puts `Trace::object` first in the target's
//! `LD_PRELOAD` and names the counters' file in its environment; what was read before a number of
//! requests is taken from what is read after it.
//! The object (`preload/trace`) is part of this binary (see `embedded`) and written to a private
//! directory at run time. Layout of the file: `millpond_preload_shared::heap_file`.

mod reading;

use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::ops::Sub;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use millpond_preload_shared::heap_file::{Header, HeapFile, MAGIC};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::embedded::{self, PrivateDirectory};

pub use reading::HeapReading;

/// The variable that names the counters' file to the object.
pub const PATH_VARIABLE: &str = "MILLPOND_TRACE_FILE";

/// Mean distance of samples where nobody says otherwise: fine enough that a megabyte that lives is
/// known to 9 %, coarse enough that taking samples costs less than counting does.
pub const SAMPLE_MEAN_BYTES: u64 = 8192;

const COUNTERS: &str = "heap-calls";
const FILE_BYTES: u64 = size_of::<HeapFile>() as u64;

/// What was counted, by all processes of a target together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HeapCalls {
    /// malloc, calloc, the aligned ones, realloc of nothing, operator new.
    pub allocations: u64,
    /// realloc of an existing block.
    pub reallocations: u64,
    /// free and delete.
    pub frees: u64,
    /// Bytes asked for by allocations and reallocations.
    pub requested_bytes: u64,
    /// Processes (not counting forks) that the object was loaded into.
    pub processes: u64,
}

impl HeapCalls {
    /// Calls that ask the allocator for memory.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.allocations + self.reallocations
    }
}

impl Sub for HeapCalls {
    type Output = Self;

    /// A thread in the middle of a call has counted in one place and not yet in the other, so that what
    /// is derived from both may be less than before by one.
    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations.saturating_sub(earlier.allocations),
            reallocations: self.reallocations.saturating_sub(earlier.reallocations),
            frees: self.frees.saturating_sub(earlier.frees),
            requested_bytes: self.requested_bytes.saturating_sub(earlier.requested_bytes),
            processes: self.processes.saturating_sub(earlier.processes),
        }
    }
}

/// The object and one set of counters, as files.
#[derive(Debug)]
pub struct Trace {
    object: PathBuf,
    counters: PathBuf,
    /// Where the counters are; they go with it.
    _memory: PrivateDirectory,
}

impl Trace {
    /// Writes the object into `directory`, which must be private to this run and exist, and makes the
    /// counters' file, in memory if there is room.
    pub fn create(directory: &Path) -> io::Result<Self> {
        Self::create_sampling(directory, SAMPLE_MEAN_BYTES)
    }

    /// The same with a mean distance of samples of one's own; 0 takes none.
    pub fn create_sampling(directory: &Path, mean_bytes: u64) -> io::Result<Self> {
        let (memory, file) = match in_directory(PrivateDirectory::create_in_memory()?) {
            Ok(made) => made,
            // There is such a place, but no room in it.
            Err(_) => in_directory(PrivateDirectory::create()?)?,
        };
        let trace = Self {
            object: embedded::TRACE.write_into(directory)?,
            counters: memory.path.join(COUNTERS),
            _memory: memory,
        };
        let header = offset_of!(HeapFile, header);
        for (field, value) in [
            (offset_of!(Header, magic), MAGIC),
            (offset_of!(Header, file_bytes), FILE_BYTES),
            (offset_of!(Header, mean_bytes), mean_bytes),
        ] {
            file.write_all_at(&value.to_ne_bytes(), (header + field) as u64)?;
        }
        // A target may run as another user; who does not know the directory's name does not get here.
        fs::set_permissions(&trace.counters, fs::Permissions::from_mode(0o666))?;
        Ok(trace)
    }

    /// The shared object, to be preloaded before any other.
    #[must_use]
    pub fn object(&self) -> &Path {
        &self.object
    }

    /// The counters' file, for `PATH_VARIABLE` in the target's environment.
    #[must_use]
    pub fn counters(&self) -> &Path {
        &self.counters
    }

    /// The totals now. Valid while the target runs and after it was killed.
    pub fn read(&self) -> io::Result<HeapCalls> {
        Ok(self.read_heap(&|_| true)?.calls)
    }

    /// The totals with sizes, lifetimes and what lives now, in those processes that `lives` says are
    /// there: one that was killed could not say so itself.
    pub fn read_heap(&self, lives: &dyn Fn(u64) -> bool) -> io::Result<HeapReading> {
        let bytes = fs::read(&self.counters)?;
        HeapReading::parse(&bytes, lives).ok_or_else(|| {
            let why = format!("{} was cut short", self.counters.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }
}

/// The counters' file in `directory`, all of it: a page that cannot be had later would kill the target
/// that writes to it.
fn in_directory(directory: PrivateDirectory) -> io::Result<(PrivateDirectory, File)> {
    let file = File::create(directory.path.join(COUNTERS))?;
    match fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES) {
        Ok(()) => {}
        // A file system without the call has no promise to give.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(FILE_BYTES)?,
        Err(error) => return Err(error.into()),
    }
    Ok((directory, file))
}
