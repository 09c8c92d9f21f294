//! A process seen from outside: its memory, faults, CPU time and mapped files.
//!
//! `lab` reads a [`ProcessTree`] at the edges of each phase and [`maps`] to prove that the
//! allocator is in use. A process may vanish at any moment, also between two files of the same
//! sample; that is [`ProcessError::Gone`], never a wrong number.
//!
//! Nothing is cached: each call reads `/proc` anew (about 1 ms for 100 MB with exact memory).

mod layout;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use layout::{Mapping, PagesInUse, layout, pages_in_use};
pub use layout::{ProcessTree, TreeSample};

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
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel's text has an unknown form.
    #[error("{path} does not look as expected: no {wanted}")]
    Malformed {
        /// The file.
        path: String,
        /// The missing item.
        wanted: &'static str,
    },
}

/// One reading of one process. Sums since its start, except for memory and threads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Its memory.
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
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
    /// CPU time in user mode, to 10 ms.
    pub user_cpu_ns: u64,
    /// CPU time in the kernel, to 10 ms.
    pub system_cpu_ns: u64,
    /// Times its living threads yielded the CPU.
    pub voluntary_switches: u64,
    /// Times its living threads were put off the CPU.
    pub involuntary_switches: u64,
    /// Times its living threads went to another CPU; `None` where the kernel does not report it.
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
        stat: &Stat,
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
            largest_file_rss_bytes: kilobytes(&status, "RssFile").unwrap_or(0),
            mappings: mappings(pid),
            migrations: migrations(pid),
            // A kernel without VmHWM still had the present pages at its peak.
            peak_rss_bytes: kilobytes(&status, "VmHWM")
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

    /// Pages of mapped files, at least: the shares of all processes together, or the pages of the process with most of
    /// them, whichever is more. `None` where the kernel does not report it.
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
    /// moment: an upper bound. Values that are known of one only are known of neither.
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

    /// The change since `earlier`: sums become differences, memory and threads stay as now.
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

/// Resident memory alone, cheaply (0.1 ms), of any process, also one that may not be examined. May lag by the kernel's
/// per-CPU batches.
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
/// for: what [`ProcessSample`] has of them, cheaply (20 us each). All else is zero; a process that is gone is left out.
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
    Ok(mapped_files(&text))
}

fn read_stat(pid: u32) -> Result<Stat, ProcessError> {
    let path = format!("/proc/{pid}/stat");
    Stat::parse(&read_file(pid, &path)?).ok_or(ProcessError::Malformed {
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

/// How many lines `maps` has, counted without parsing them; 0.5 us each.
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
        .map(|text| statistic(&text, "se.nr_migrations"));
    // A thread that ended in between is left out; one without the figure means that none has it.
    counts.reduce(|sum, one| Some(sum? + one?))?
}

/// Context switches of all living threads; `status` of the process itself counts one thread only.
fn switches(pid: u32, status: &str) -> (u64, u64) {
    let of = |text: &str| {
        let field = |name| number(text, name).unwrap_or(0);
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

// What a process holds, by kind, from the kernel's `smaps_rollup`.
//
// RSS is not the cost of a program: it counts a page that eight workers share eight times, and counts pages of mapped
// files, which the kernel takes back when it needs them, like a heap. The cost of a program is what only the program
// keeps in memory: its anonymous pages, those of them that were swapped out, memory that it shares with related
// processes, and huge pages it took from the kernel's pool. [`MemorySample::private_bytes`] is their sum; shared pages
// are divided by their users, so that a sum over a tree counts each once.
//
// Files on tmpfs are shared memory to the kernel. Those of a [`DataDirectory`] are found by their mappings.
// Page tables, kernel memory, and the page cache of files that are read and not mapped are in no figure.

/// `TMPFS_MAGIC` of statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A directory of data on a tmpfs: what processes map of its files is file-backed memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataDirectory {
    path: Arc<Path>,
}

impl DataDirectory {
    /// `None` for one that is on a disk, whose pages the kernel counts as those of files anyway.
    #[must_use]
    pub fn in_memory(path: &Path) -> Option<Self> {
        // As it stands in the maps of processes, where links are resolved.
        let path: PathBuf = fs::canonicalize(path).ok()?;
        let system = rustix::fs::statfs(&path).ok()?;
        (system.f_type as u64 == TMPFS_MAGIC).then(|| Self { path: path.into() })
    }

    fn holds(&self, mapped: &str) -> bool {
        Path::new(mapped).starts_with(&self.path)
    }
}

/// Memory of a process, or of several.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySample {
    /// Resident memory, exact where the kernel lets us read `smaps_rollup`.
    pub rss_bytes: u64,
    /// Resident memory with shared pages divided by their users; `None` without permission.
    pub pss_bytes: Option<u64>,
    /// Pages that belong to this process alone, those of files included; `None` without permission.
    pub uss_bytes: Option<u64>,
    /// Memory without a file behind it, such as heaps and stacks, shared pages divided by their
    /// users; `None` without permission.
    pub anonymous_bytes: Option<u64>,
    /// Of such memory: what was swapped out.
    pub swapped_bytes: Option<u64>,
    /// Memory shared on purpose (shared anonymous mappings, POSIX and System V shared memory), divided by its users,
    /// without the files of a data directory; `None` also where the kernel does not distinguish it (before Linux 5.3).
    pub shared_bytes: Option<u64>,
    /// Pages of mapped files, divided by their users: programs, libraries, data.
    pub file_bytes: Option<u64>,
    /// The memory from the kernel's pool of huge pages (hugetlbfs) of this process alone; in no other figure here.
    pub hugetlb_bytes: Option<u64>,
    /// Of the memory without a file: what lies in transparent huge pages.
    pub huge_page_bytes: Option<u64>,
    /// Of the memory without a file: what was given back with `MADV_FREE` and not yet taken by the kernel.
    pub lazy_free_bytes: Option<u64>,
}

impl MemorySample {
    /// Reads that of one process; files of `data` do not count as shared memory.
    ///
    /// # Errors
    /// [`ProcessError::Gone`], or what makes even `statm` unreadable.
    pub fn read(pid: u32, data: Option<&DataDirectory>) -> Result<Self, ProcessError> {
        let text = match read_file(pid, &format!("/proc/{pid}/smaps_rollup")) {
            Ok(text) => text,
            Err(ProcessError::Refused { .. }) => return Self::resident_only(pid),
            // Kernels before 4.14 have no such file for any process.
            Err(_) if !fs::exists("/proc/self/smaps_rollup").unwrap_or(false) => {
                return Self::resident_only(pid);
            }
            Err(error) => return Err(error),
        };
        let sample = Self::parse(&text).ok_or(ProcessError::Gone { pid })?;
        // Reading every mapping costs as much again: only where shared memory may be data.
        let Some(data) = data.filter(|_| sample.shared_bytes.is_some_and(|bytes| bytes > 0)) else {
            return Ok(sample);
        };
        let mappings = layout(pid)?;
        let of_data = mappings.iter().filter(|one| data.holds(&one.name));
        Ok(sample.without_data(of_data.map(Mapping::file_bytes).sum()))
    }

    fn resident_only(pid: u32) -> Result<Self, ProcessError> {
        match resident_bytes(pid)? {
            // A process without memory is one that is ending right now; 0 would be a wrong number.
            0 => Err(ProcessError::Gone { pid }),
            rss_bytes => Ok(Self {
                rss_bytes,
                ..Self::default()
            }),
        }
    }

    /// From the text of `smaps_rollup`; `None` if that is empty, as that of a process that ends.
    fn parse(text: &str) -> Option<Self> {
        let field = |name| kilobytes(text, name);
        let alone = field("Private_Clean").zip(field("Private_Dirty"));
        Some(Self {
            rss_bytes: field("Rss")?,
            pss_bytes: field("Pss"),
            uss_bytes: alone.map(|(clean, dirty)| clean + dirty),
            // Kernels before 5.3 do not divide it.
            anonymous_bytes: field("Pss_Anon").or_else(|| field("Anonymous")),
            swapped_bytes: field("SwapPss"),
            shared_bytes: field("Pss_Shmem"),
            file_bytes: field("Pss_File"),
            hugetlb_bytes: field("Private_Hugetlb"),
            huge_page_bytes: field("AnonHugePages"),
            lazy_free_bytes: field("LazyFree"),
        })
    }

    /// Pages of data are those of files, wherever the files lie.
    fn without_data(self, data_bytes: u64) -> Self {
        let data_bytes = self.shared_bytes.map_or(0, |shared| shared.min(data_bytes));
        Self {
            shared_bytes: self.shared_bytes.map(|bytes| bytes - data_bytes),
            file_bytes: self.file_bytes.map(|bytes| bytes + data_bytes),
            ..self
        }
    }

    /// What the program keeps in memory by itself: anonymous, swapped and shared memory, and huge pages of the pool.
    /// `None` where the kernel does not distinguish it from mapped files.
    #[must_use]
    pub fn private_bytes(&self) -> Option<u64> {
        let (anonymous, shared) = self.anonymous_bytes.zip(self.shared_bytes)?;
        let apart = self.swapped_bytes.unwrap_or(0) + self.hugetlb_bytes.unwrap_or(0);
        Some(anonymous + shared + apart)
    }

    /// One line for people on memory that cannot be read; `None` if all of it can.
    #[must_use]
    pub fn missing_line(&self) -> Option<String> {
        const INSTEAD: &str =
            "memory is RSS here, which counts shared pages in each process, and mapped files";
        if self.pss_bytes.is_none() {
            return Some(format!(
                "smaps_rollup of the server cannot be read: {INSTEAD}; PSS, USS, huge pages and fragmentation are \
                 not measured; run as root or as the server's user"
            ));
        }
        self.private_bytes().is_none().then(|| {
            format!(
                "this kernel does not distinguish a program's memory from its mapped files (Linux 5.3 does): {INSTEAD}"
            )
        })
    }

    /// Both together; what is known of one only is known of neither.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, two: Option<u64>| one.zip(two).map(|(a, b)| a + b);
        Self {
            rss_bytes: self.rss_bytes + other.rss_bytes,
            pss_bytes: both(self.pss_bytes, other.pss_bytes),
            uss_bytes: both(self.uss_bytes, other.uss_bytes),
            anonymous_bytes: both(self.anonymous_bytes, other.anonymous_bytes),
            swapped_bytes: both(self.swapped_bytes, other.swapped_bytes),
            shared_bytes: both(self.shared_bytes, other.shared_bytes),
            file_bytes: both(self.file_bytes, other.file_bytes),
            hugetlb_bytes: both(self.hugetlb_bytes, other.hugetlb_bytes),
            huge_page_bytes: both(self.huge_page_bytes, other.huge_page_bytes),
            lazy_free_bytes: both(self.lazy_free_bytes, other.lazy_free_bytes),
        }
    }
}

// The kernel's text formats (proc_pid_stat(5), proc_pid_status(5), proc_pid_maps(5)).

/// Of the flags in `/proc/PID/stat`: the process is ending, and its memory can no longer be read.
const PF_EXITING: u64 = 0x4;

/// The fields used of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stat {
    /// As the kernel writes it; `X` (dead) also for a process that is about to be dead.
    state: char,
    parent: u32,
    process_group: u32,
    minor_faults: u64,
    major_faults: u64,
    user_ticks: u64,
    system_ticks: u64,
    /// Of children that have ended and were waited for, and of theirs.
    ended: Ended,
    threads: u64,
}

/// The sums that a process has inherited from children that it waited for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Ended {
    minor_faults: u64,
    major_faults: u64,
    user_ticks: u64,
    system_ticks: u64,
}

impl Stat {
    /// `None` if fields are missing. The name in parentheses may itself hold blanks and
    /// parentheses, so the last closing one ends it.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text[text.rfind(')')? + 1..]
            .split_ascii_whitespace()
            .collect();
        // Field 3 of the manual page (state) is the first after the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let is_exiting = number(9)? & PF_EXITING != 0;
        let state = fields.first()?.chars().next()?;
        Some(Self {
            state: if is_exiting { 'X' } else { state },
            parent: number(4)? as u32,
            process_group: number(5)? as u32,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            ended: Ended {
                minor_faults: number(11)?,
                major_faults: number(13)?,
                user_ticks: number(16)?,
                system_ticks: number(17)?,
            },
            threads: number(20)?,
        })
    }
}

/// The value after `name:` in bytes, for lines such as `VmRSS:    1644 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = line_value(text, name)?.strip_suffix("kB")?;
    value.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The value after `name:`, unparsed.
fn number(text: &str, name: &str) -> Option<u64> {
    line_value(text, name)?.parse().ok()
}

/// The value of a line of `/proc/PID/sched`, such as `se.nr_migrations   :    12`.
fn statistic(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim().parse().ok())?
    })
}

fn line_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// The target of a line of `/proc/PID/maps`: a path, `[heap]`, or nothing.
fn mapped(line: &str) -> &str {
    // address perms offset dev inode path; the path is the rest of the line, blanks included.
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_start();
        rest = &rest[rest.find(' ').unwrap_or(rest.len())..];
    }
    rest.trim_start()
}

/// Paths in the sixth column of `/proc/PID/maps` that are files, each once.
fn mapped_files(text: &str) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for line in text.lines() {
        let path = mapped(line);
        if path.starts_with('/') && !files.iter().any(|known| known == path) {
            files.push(path.to_owned());
        }
    }
    files
}

#[cfg(test)]
#[path = "tests/memory.rs"]
mod memory_tests;

#[cfg(test)]
#[path = "tests/parse.rs"]
mod parse_tests;
