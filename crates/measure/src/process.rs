//! A process seen from outside: its memory, faults, CPU time and mapped files.
//!
//! On the path: `lab` reads a [`ProcessTree`] at the edges of each phase and looks into [`maps`]
//! for proof that the allocator is in place. A process may vanish at any moment, also between two
//! files of the same sample; that is [`ProcessError::Gone`], never a wrong number.
//!
//! Nothing is cached: each call reads `/proc` anew (about 1 ms for 100 MB with exact memory).

mod layout;
mod memory;
mod parse;
mod tree;

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use layout::{Mapping, PagesInUse, layout, pages_in_use};
pub use memory::{DataDirectory, MemorySample};
pub use tree::{ProcessTree, TreeSample};

/// Why a process could not be read.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// It has ended (or never was).
    #[error("process {pid} is gone")]
    Gone {
        /// Its id.
        pid: u32,
    },
    /// The kernel refused.
    #[error("cannot read {path}: {error}; measuring another user's process needs root")]
    Refused {
        /// The file.
        path: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The kernel's text is not what we know.
    #[error("{path} does not look as expected: no {wanted}")]
    Malformed {
        /// The file.
        path: String,
        /// What was looked for.
        wanted: &'static str,
    },
}

/// One look at one process. Sums since its start, except for memory and threads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// What it holds.
    pub memory: MemorySample,
    /// Resident pages of mapped files; of several processes, of the one that has most. Files that only one program maps
    /// count in full here, where PSS divides them by all processes of the machine that map them.
    #[serde(default)]
    pub largest_file_rss_bytes: u64,
    /// Its mappings, of which the kernel allows a process so many (`vm.max_map_count`); of several processes, of the one
    /// that has most. `None` without permission.
    #[serde(default)]
    pub mappings: Option<u64>,
    /// Most resident memory ever.
    pub peak_rss_bytes: u64,
    /// Page faults answered without a disk.
    pub minor_faults: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
    /// CPU time in user mode, to 10 ms.
    pub user_cpu_ns: u64,
    /// CPU time in the kernel, to 10 ms.
    pub system_cpu_ns: u64,
    /// Times its living threads gave up the CPU.
    pub voluntary_switches: u64,
    /// Times its living threads were put off the CPU.
    pub involuntary_switches: u64,
    /// Times its living threads went to another CPU; `None` where the kernel does not tell.
    #[serde(default)]
    pub migrations: Option<u64>,
    /// Threads now.
    pub threads: u64,
}

impl ProcessSample {
    /// Reads everything.
    ///
    /// # Errors
    /// [`ProcessError`]; a zombie counts as gone.
    pub fn read(pid: u32) -> Result<Self, ProcessError> {
        Self::read_with(pid, &read_stat(pid)?, None)
    }

    /// The same with the faults and the CPU time of its children that have ended and were waited for, and
    /// of theirs: in a sum over a tree they would be lost, and the sum would shrink.
    fn read_with_ended(pid: u32, data: Option<&DataDirectory>) -> Result<Self, ProcessError> {
        let stat = read_stat(pid)?;
        let own = Self::read_with(pid, &stat, data)?;
        let ended = stat.ended;
        Ok(Self {
            minor_faults: own.minor_faults + ended.minor_faults,
            major_faults: own.major_faults + ended.major_faults,
            user_cpu_ns: own.user_cpu_ns + ticks_to_ns(ended.user_ticks),
            system_cpu_ns: own.system_cpu_ns + ticks_to_ns(ended.system_ticks),
            ..own
        })
    }

    fn read_with(
        pid: u32,
        stat: &parse::Stat,
        data: Option<&DataDirectory>,
    ) -> Result<Self, ProcessError> {
        if matches!(stat.state, 'Z' | 'X') {
            return Err(ProcessError::Gone { pid });
        }
        let status = read_file(pid, &format!("/proc/{pid}/status"))?;
        let memory = MemorySample::read(pid, data)?;
        let (voluntary_switches, involuntary_switches) = switches(pid, &status);
        Ok(Self {
            memory,
            largest_file_rss_bytes: parse::kilobytes(&status, "RssFile").unwrap_or(0),
            mappings: mappings(pid),
            migrations: migrations(pid),
            // A kernel without VmHWM still had the present pages at its peak.
            peak_rss_bytes: parse::kilobytes(&status, "VmHWM")
                .unwrap_or(0)
                .max(memory.rss_bytes),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            user_cpu_ns: ticks_to_ns(stat.user_ticks),
            system_cpu_ns: ticks_to_ns(stat.system_ticks),
            voluntary_switches,
            involuntary_switches,
            threads: stat.threads,
        })
    }

    /// Pages of mapped files, at least: the shares of all processes together, or what the process that has most
    /// maps of them, whichever is more. `None` where the kernel does not tell.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        let shares = self.memory.file_bytes?;
        Some(shares.max(self.largest_file_rss_bytes))
    }

    /// CPU time in user mode and kernel together.
    #[must_use]
    pub const fn cpu_ns(&self) -> u64 {
        self.user_cpu_ns + self.system_cpu_ns
    }

    /// Both processes together. Peaks add up too, though they need not have been at the same
    /// moment: an upper bound. What is known of one only is known of neither.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, two: Option<u64>| one.zip(two).map(|(a, b)| a + b);
        Self {
            memory: self.memory.plus(&other.memory),
            largest_file_rss_bytes: self
                .largest_file_rss_bytes
                .max(other.largest_file_rss_bytes),
            mappings: self.mappings.zip(other.mappings).map(|(a, b)| a.max(b)),
            migrations: both(self.migrations, other.migrations),
            peak_rss_bytes: self.peak_rss_bytes + other.peak_rss_bytes,
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            user_cpu_ns: self.user_cpu_ns + other.user_cpu_ns,
            system_cpu_ns: self.system_cpu_ns + other.system_cpu_ns,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
            threads: self.threads + other.threads,
        }
    }

    /// What happened since `earlier`: sums become differences, memory and threads stay as now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            migrations: self
                .migrations
                .zip(earlier.migrations)
                .map(|(now, before)| now.saturating_sub(before)),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            user_cpu_ns: self.user_cpu_ns.saturating_sub(earlier.user_cpu_ns),
            system_cpu_ns: self.system_cpu_ns.saturating_sub(earlier.system_cpu_ns),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
            ..*self
        }
    }
}

/// Resident memory alone, cheaply (0.1 ms), of any process, also one that may not be looked into. May lag by
/// the kernel's per-CPU batches.
///
/// # Errors
/// [`ProcessError`].
pub fn resident_bytes(pid: u32) -> Result<u64, ProcessError> {
    let path = format!("/proc/{pid}/statm");
    let text = read_file(pid, &path)?;
    let pages: Option<u64> = text
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok());
    let pages = pages.ok_or(ProcessError::Malformed {
        path,
        wanted: "resident pages",
    })?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Faults and CPU time of these processes, with those of their children that have ended and were waited
/// for: what [`ProcessSample`] has of them, cheaply (20 us each). All else is zero; who is gone is left out.
#[must_use]
pub fn activity(pids: &[u32]) -> ProcessSample {
    let mut sum = ProcessSample::default();
    for stat in pids.iter().filter_map(|&pid| read_stat(pid).ok()) {
        sum.minor_faults += stat.minor_faults + stat.ended.minor_faults;
        sum.major_faults += stat.major_faults + stat.ended.major_faults;
        sum.user_cpu_ns += ticks_to_ns(stat.user_ticks + stat.ended.user_ticks);
        sum.system_cpu_ns += ticks_to_ns(stat.system_ticks + stat.ended.system_ticks);
    }
    sum
}

/// CPU time of a process and of its children that have ended and were waited for, to 10 ms.
///
/// # Errors
/// [`ProcessError`].
pub fn cpu_ns_with_children(pid: u32) -> Result<u64, ProcessError> {
    let stat = read_stat(pid)?;
    Ok(ticks_to_ns(
        stat.user_ticks + stat.system_ticks + stat.ended.user_ticks + stat.ended.system_ticks,
    ))
}

/// The files mapped into a process, each once, in order of address.
///
/// # Errors
/// [`ProcessError`].
pub fn maps(pid: u32) -> Result<Vec<String>, ProcessError> {
    let text = read_file(pid, &format!("/proc/{pid}/maps"))?;
    Ok(parse::mapped_files(&text))
}

fn read_stat(pid: u32) -> Result<parse::Stat, ProcessError> {
    let path = format!("/proc/{pid}/stat");
    parse::Stat::parse(&read_file(pid, &path)?).ok_or(ProcessError::Malformed {
        path,
        wanted: "52 fields",
    })
}

fn read_file(pid: u32, path: &str) -> Result<String, ProcessError> {
    // Names and paths of other programs need not be UTF-8.
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| {
            let gone = error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
            if gone {
                ProcessError::Gone { pid }
            } else {
                ProcessError::Refused {
                    path: path.to_owned(),
                    error,
                }
            }
        })
}

/// How many lines `maps` has, counted without looking at them; 0.5 us each.
fn mappings(pid: u32) -> Option<u64> {
    let bytes = fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(bytes.iter().filter(|&&byte| byte == b'\n').count() as u64)
}

/// Moves between CPUs of all living threads; `None` if the kernel was built without that file.
fn migrations(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let counts = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("sched")).ok())
        .map(|text| parse::statistic(&text, "se.nr_migrations"));
    // A thread that ended in between is left out; one without the figure means that none has it.
    counts.reduce(|sum, one| Some(sum? + one?))?
}

/// Context switches of all living threads; `status` of the process itself counts one thread only.
fn switches(pid: u32, status: &str) -> (u64, u64) {
    let of = |text: &str| {
        let field = |name| parse::number(text, name).unwrap_or(0);
        (
            field("voluntary_ctxt_switches"),
            field("nonvoluntary_ctxt_switches"),
        )
    };
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return of(status);
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
        .map(|text| of(&text))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Kernel clock ticks in nanoseconds.
pub(crate) fn ticks_to_ns(ticks: u64) -> u64 {
    let per_s = rustix::param::clock_ticks_per_second().max(1);
    (u128::from(ticks) * 1_000_000_000 / u128::from(per_s)) as u64
}
