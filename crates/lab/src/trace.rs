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

use crate::embedded;

pub use reading::HeapReading;

/// The variable that names the counters' file to the object.
pub const PATH_VARIABLE: &str = "MILLPOND_TRACE_FILE";

/// Mean distance of samples where nobody says otherwise: fine enough that a megabyte that lives is
/// known to 9 %, coarse enough that taking samples costs less than counting does.
pub const SAMPLE_MEAN_BYTES: u64 = 8192;

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

    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations - earlier.allocations,
            reallocations: self.reallocations - earlier.reallocations,
            frees: self.frees - earlier.frees,
            requested_bytes: self.requested_bytes - earlier.requested_bytes,
            processes: self.processes - earlier.processes,
        }
    }
}

/// The object and one set of counters, as files.
#[derive(Debug)]
pub struct Trace {
    object: PathBuf,
    counters: PathBuf,
}

impl Trace {
    /// Writes both files into `directory`, which must be private to this run and exist.
    pub fn create(directory: &Path) -> io::Result<Self> {
        Self::create_sampling(directory, SAMPLE_MEAN_BYTES)
    }

    /// The same with a mean distance of samples of one's own; 0 takes none.
    pub fn create_sampling(directory: &Path, mean_bytes: u64) -> io::Result<Self> {
        let trace = Self {
            object: embedded::TRACE.write_into(directory)?,
            counters: directory.join("heap-calls"),
        };
        let file = File::create(&trace.counters)?;
        // A hole: a page that nothing happened in takes no memory.
        file.set_len(size_of::<HeapFile>() as u64)?;
        let header = offset_of!(HeapFile, header);
        for (field, value) in [
            (offset_of!(Header, magic), MAGIC),
            (offset_of!(Header, file_bytes), size_of::<HeapFile>() as u64),
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
