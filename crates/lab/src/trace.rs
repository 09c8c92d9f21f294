//! Heap calls of a target, counted by a small object preloaded in front of its allocator, and the
//! sizes and lifetimes of its blocks.
//!
//! A separate pass, never a scored run, puts `Trace::object` first in the target's `LD_PRELOAD` and
//! names the counters' file in its environment; what was read before a number of requests is taken
//! from what is read after it. The object (`preload/trace`) is part of this binary (see `embedded`)
//! and written to a private directory at run time. Layout of the file:
//! `millpond_preload_shared::heap_file`.

use std::fs::File;
use std::mem::offset_of;
use std::ops::Sub;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use millpond_measure::record::{HeapProfile, LifetimeClass, SizeClass};
use millpond_preload_shared::heap_file::{
    BUCKET_ENTRIES, BUCKETS, BUSY, Block, Bucket, Header, HeapFile, LIFETIME_CLASSES, Lifetimes,
    MAGIC, PROCESSES, Process, SIZE_CLASSES, THREADS, Thread, WEIGHT_PARTS, address_of,
    class_bounds, process_of,
};
use millpond_preload_shared::sampling::weight;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::embedded;
use crate::embedded::PrivateDirectory;

/// The variable that names the counters' file to the object.
pub const PATH_VARIABLE: &str = "MILLPOND_TRACE_FILE";

/// Mean distance of samples by default: fine enough that a megabyte that lives is known to 9 %,
/// coarse enough that taking samples costs less than counting does.
pub const SAMPLE_MEAN_BYTES: u64 = 8192;

const COUNTERS: &str = "heap-calls";
const FILE_BYTES: u64 = size_of::<HeapFile>() as u64;

/// The counts of all processes of a target together.
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
        // A target may run as another user; a user that does not know the directory's name does not get here.
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

    /// The totals with sizes, lifetimes and what lives now, in those processes that `lives` reports: a killed one could
    /// not report its end itself.
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

// The heap trace's file, read.

const WORD_BYTES: usize = size_of::<u64>();
/// Live bytes known more roughly than this say nothing about fragmentation.
const LIVE_ERROR_MAX: f64 = 0.10;

/// The contents of the file at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapReading {
    /// The totals.
    pub calls: HeapCalls,
    /// Calls that asked for memory, by class of size.
    sizes: Vec<u64>,
    /// Weights of blocks that were given back, by class of lifetime: blocks and bytes.
    lifetimes: Vec<(u64, u64)>,
    /// Of those blocks, given back by another thread.
    crossed: u64,
    live: Live,
    /// Addresses of sampled blocks that live, of all processes.
    blocks: Vec<u64>,
    peak_live_bytes: u64,
    mean_bytes: u64,
    samples: u64,
    dropped: u64,
}

/// The live blocks, by the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Live {
    blocks: f64,
    bytes: f64,
    /// Of the bytes.
    variance: f64,
}

/// The file as words; what lies beyond its end is 0, after `parse` has checked its length.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn at(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..offset + WORD_BYTES);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    }
}

impl HeapReading {
    /// `None` if the file is too short. `lives` says which processes are there.
    fn parse(bytes: &[u8], lives: &dyn Fn(u64) -> bool) -> Option<Self> {
        if bytes.len() < size_of::<HeapFile>() {
            return None;
        }
        let words = Words(bytes);
        let header = |field: usize| words.at(offset_of!(HeapFile, header) + field);
        let mut reading = Self {
            mean_bytes: header(offset_of!(Header, mean_bytes)),
            samples: header(offset_of!(Header, samples)),
            dropped: header(offset_of!(Header, dropped)),
            peak_live_bytes: header(offset_of!(Header, peak_live_bytes)),
            sizes: vec![0; SIZE_CLASSES],
            ..Self::default()
        };
        reading.calls.processes = header(offset_of!(Header, attached));
        reading.add_threads(&words);
        let lifetimes = offset_of!(HeapFile, lifetimes);
        let of_class =
            |field: usize, class: usize| words.at(lifetimes + field + class * WORD_BYTES);
        reading.lifetimes = (0..LIFETIME_CLASSES)
            .map(|class| {
                let blocks = of_class(offset_of!(Lifetimes, blocks), class);
                (blocks, of_class(offset_of!(Lifetimes, bytes), class))
            })
            .collect();
        reading.crossed = words.at(lifetimes + offset_of!(Lifetimes, crossed));
        reading.add_live(&words, lives);
        Some(reading)
    }

    fn add_threads(&mut self, words: &Words<'_>) {
        let calls = &mut self.calls;
        for index in 0..THREADS {
            let thread = offset_of!(HeapFile, threads) + index * size_of::<Thread>();
            let field = |field: usize| words.at(thread + field);
            calls.frees += field(offset_of!(Thread, frees));
            calls.reallocations += field(offset_of!(Thread, reallocations));
            calls.requested_bytes += field(offset_of!(Thread, bytes));
            for (class, count) in self.sizes.iter_mut().enumerate() {
                *count += field(offset_of!(Thread, sizes) + class * WORD_BYTES);
            }
        }
        // A call in the middle may have been counted in one place and not yet in the other.
        calls.allocations = self
            .sizes
            .iter()
            .sum::<u64>()
            .saturating_sub(calls.reallocations);
    }

    fn add_live(&mut self, words: &Words<'_>, lives: &dyn Fn(u64) -> bool) {
        let living: Vec<bool> = (0..PROCESSES)
            .map(|number| {
                let process = offset_of!(HeapFile, processes) + number * size_of::<Process>();
                let pid = words.at(process + offset_of!(Process, pid));
                pid != 0 && lives(pid)
            })
            .collect();
        for index in 0..BUCKETS {
            let bucket = offset_of!(HeapFile, buckets) + index * size_of::<Bucket>();
            for entry in 0..BUCKET_ENTRIES {
                let key = words.at(bucket + offset_of!(Bucket, keys) + entry * WORD_BYTES);
                if key <= BUSY || !living.get(process_of(key)).copied().unwrap_or(false) {
                    continue;
                }
                self.blocks.push(address_of(key));
                let block = bucket + offset_of!(Bucket, blocks) + entry * size_of::<Block>();
                let size_bytes = words.at(block + offset_of!(Block, size_bytes));
                let one = weight(size_bytes, self.mean_bytes);
                let size = size_bytes as f64;
                self.live.blocks += one;
                self.live.bytes += one * size;
                self.live.variance += size * size * one * (one - 1.0);
            }
        }
    }

    /// The changes since `earlier`, over `requests`; what lives is as now.
    #[must_use]
    pub fn profile_since(
        &self,
        earlier: &Self,
        requests: u64,
        anonymous_bytes: Option<u64>,
    ) -> HeapProfile {
        let calls = self.calls - earlier.calls;
        let crossed = self.crossed.saturating_sub(earlier.crossed) as f64 / WEIGHT_PARTS as f64;
        let lifetimes = self.lifetimes_since(earlier);
        let ended: f64 = lifetimes.iter().map(|class| class.blocks).sum();
        let live = &self.live;
        let live_error = if live.bytes > 0.0 {
            live.variance.sqrt() / live.bytes
        } else {
            1.0
        };
        let known = live_error <= LIVE_ERROR_MAX && self.dropped == 0;
        HeapProfile {
            requests,
            allocations: calls.allocations,
            reallocations: calls.reallocations,
            frees: calls.frees,
            requested_bytes: calls.requested_bytes,
            sizes: self.sizes_since(earlier),
            cross_thread_share: (ended > 0.0).then(|| crossed / ended),
            lifetimes,
            live_bytes: live.bytes.round() as u64,
            live_blocks: live.blocks.round() as u64,
            peak_live_bytes: self.peak_live_bytes,
            live_error,
            anonymous_bytes,
            fragmentation: anonymous_bytes
                .filter(|_| known)
                .map(|bytes| bytes as f64 / live.bytes),
            sample_mean_bytes: self.mean_bytes,
            samples: self.samples,
            dropped_samples: self.dropped,
        }
    }

    /// Addresses of the sampled blocks that live, in order. A forked process has its parent's at the same addresses, and
    /// only the parent's are noted.
    pub(crate) fn block_addresses(&self) -> Vec<u64> {
        let mut addresses = self.blocks.clone();
        addresses.sort_unstable();
        addresses
    }

    fn sizes_since(&self, earlier: &Self) -> Vec<SizeClass> {
        let before = earlier.sizes.iter().copied().chain(std::iter::repeat(0));
        let counts = self.sizes.iter().zip(before).enumerate();
        counts
            .map(|(class, (now, before))| {
                let (from_bytes, to_bytes) = class_bounds(class);
                SizeClass {
                    from_bytes,
                    to_bytes,
                    calls: now.saturating_sub(before),
                }
            })
            .filter(|class| class.calls > 0)
            .collect()
    }

    fn lifetimes_since(&self, earlier: &Self) -> Vec<LifetimeClass> {
        let before = earlier
            .lifetimes
            .iter()
            .copied()
            .chain(std::iter::repeat((0, 0)));
        let weights = self.lifetimes.iter().zip(before).enumerate();
        weights
            .map(|(bits, (now, before))| LifetimeClass {
                from_ns: if bits == 0 { 0 } else { 1 << (bits - 1) },
                to_ns: if bits + 1 < LIFETIME_CLASSES {
                    (1 << bits) - 1
                } else {
                    u64::MAX
                },
                blocks: now.0.saturating_sub(before.0) as f64 / WEIGHT_PARTS as f64,
                bytes: now.1.saturating_sub(before.1) as f64,
            })
            .filter(|class| class.blocks > 0.0)
            .collect()
    }
}

#[cfg(test)]
#[path = "tests/reading.rs"]
mod reading_tests;
