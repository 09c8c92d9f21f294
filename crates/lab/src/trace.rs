//! Heap calls of a target, counted by a small object preloaded in front of its allocator.
//!
//! On the path: a separate pass, never a scored run, puts `Trace::object` first in the target's
//! `LD_PRELOAD` and names the counters' file in its environment; `read` before and after a number
//! of requests gives heap calls per request.
//! The object (`preload/trace`) is part of this binary (see `embedded`) and written to a private
//! directory at run time. Layout of the file: see `preload/trace/src/count.rs`.

use std::fs;
use std::io;
use std::ops::Sub;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::embedded;

/// The variable that names the counters' file to the object.
pub const PATH_VARIABLE: &str = "MILLPOND_TRACE_FILE";

const MAGIC: &[u8; 8] = b"mpTrace1";
const SHARDS: usize = 64;
const LINE_BYTES: usize = 128;
const WORD_BYTES: usize = 8;

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
        let trace = Self {
            object: embedded::TRACE.write_into(directory)?,
            counters: directory.join("heap-calls"),
        };
        let mut table = vec![0_u8; (1 + SHARDS) * LINE_BYTES];
        table[..WORD_BYTES].copy_from_slice(MAGIC);
        table[WORD_BYTES..2 * WORD_BYTES].copy_from_slice(&(SHARDS as u64).to_ne_bytes());
        fs::write(&trace.counters, table)?;
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
        let table = fs::read(&self.counters)?;
        let total = |word: usize| {
            table
                .chunks_exact(LINE_BYTES)
                .skip(1)
                .filter_map(|line| line.get(word * WORD_BYTES..(word + 1) * WORD_BYTES))
                .filter_map(|bytes| bytes.try_into().ok())
                .map(u64::from_ne_bytes)
                .sum()
        };
        Ok(HeapCalls {
            allocations: total(0),
            reallocations: total(1),
            frees: total(2),
            requested_bytes: total(3),
            processes: total(4),
        })
    }
}
