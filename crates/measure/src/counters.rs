//! Hardware and software counters of a process and all it starts.
//!
//! `lab` attaches to the launcher before it becomes the server, so that counting starts with the
//! server's first instruction, and reads at the edges of each phase. Instructions per request are
//! the number a busy neighbour cannot change.
//!
//! Each counter stands alone: older kernels (6.1 of Debian 12) refuse a group that children
//! inherit. Seven events need the processor. The four on which verdicts rest are pinned: they keep
//! their counters, which every PMU since 2008 has. Branch, cache and TLB misses explain; they share
//! what counters are left, so that a PMU of six serves all but one of them at any time. Then
//! `time_running < time_enabled` shows it, and the value is scaled and marked. An eighth would make
//! every explanation a rougher guess.

use std::io;

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software, Tracepoint};
use perf_event::{Builder, Counter};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// From when on to count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CountFrom {
    /// From the moment the process becomes another program.
    Exec,
    /// From now on, and only the thread named by the id and what it starts from now on.
    Now,
}

/// Counts since the start; `None` where a counter could not be had.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterValues {
    /// Instructions in user mode.
    pub user_instructions: Option<u64>,
    /// Cycles in user mode.
    pub user_cycles: Option<u64>,
    /// Instructions in the kernel.
    pub kernel_instructions: Option<u64>,
    /// Cycles in the kernel.
    pub kernel_cycles: Option<u64>,
    /// Mispredicted branches in user mode.
    pub branch_misses: Option<u64>,
    /// Loads in user mode that missed the first level data cache.
    pub l1d_misses: Option<u64>,
    /// Accesses in user mode that missed every cache.
    pub cache_misses: Option<u64>,
    /// Loads in user mode whose page missed the first level data TLB.
    pub dtlb_misses: Option<u64>,
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Context switches.
    pub context_switches: Option<u64>,
    /// Moves from one CPU to another.
    pub migrations: Option<u64>,
    /// Time on a CPU.
    pub task_clock_ns: Option<u64>,
    /// Calls of `madvise`.
    pub madvise_calls: Option<u64>,
    /// One bit for each kind, in the order of [`CounterKind::ALL`]: set where the value was scaled up
    /// because its counter was shared with others.
    pub scaled: u32,
}

impl CounterValues {
    fn slot(&mut self, kind: CounterKind) -> &mut Option<u64> {
        match kind {
            CounterKind::UserInstructions => &mut self.user_instructions,
            CounterKind::UserCycles => &mut self.user_cycles,
            CounterKind::KernelInstructions => &mut self.kernel_instructions,
            CounterKind::KernelCycles => &mut self.kernel_cycles,
            CounterKind::BranchMisses => &mut self.branch_misses,
            CounterKind::L1dMisses => &mut self.l1d_misses,
            CounterKind::CacheMisses => &mut self.cache_misses,
            CounterKind::DtlbMisses => &mut self.dtlb_misses,
            CounterKind::PageFaults => &mut self.page_faults,
            CounterKind::ContextSwitches => &mut self.context_switches,
            CounterKind::Migrations => &mut self.migrations,
            CounterKind::TaskClock => &mut self.task_clock_ns,
            CounterKind::Madvise => &mut self.madvise_calls,
        }
    }

    /// The value of `kind`.
    #[must_use]
    pub fn get(mut self, kind: CounterKind) -> Option<u64> {
        *self.slot(kind)
    }

    /// True if the value of `kind` is an estimate, because its counter was shared.
    #[must_use]
    pub const fn is_scaled(&self, kind: CounterKind) -> bool {
        self.scaled & (1 << kind as u32) != 0
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (mut now, mut before) = (*self, *earlier);
        for kind in CounterKind::ALL {
            let start = *before.slot(kind);
            let slot = now.slot(kind);
            *slot = slot
                .zip(start)
                .map(|(end, start)| end.saturating_sub(start));
        }
        now.scaled |= earlier.scaled;
        now
    }
}

/// The counters of one process and of everything it starts after they were attached.
#[derive(Debug)]
pub struct CounterSet {
    counters: Vec<(CounterKind, Counter, Sum)>,
    missing: Vec<(CounterKind, Missing)>,
}

impl CounterSet {
    /// Attaches all counters that can be had; never fails. For [`CountFrom::Exec`] the process has
    /// to be waiting before its `exec`, with one thread.
    #[must_use]
    pub fn attach(pid: u32, from: CountFrom) -> Self {
        Self::attach_by(&|kind| open(pid, kind, from))
    }

    /// The same with another way to open a counter: for machines that tests do not have.
    fn attach_by(open: &dyn Fn(CounterKind) -> io::Result<Counter>) -> Self {
        let mut set = Self {
            counters: Vec::new(),
            missing: Vec::new(),
        };
        for kind in CounterKind::ALL {
            // One sort of cache misses is enough; a second would take a counter from the others.
            if kind == CounterKind::CacheMisses && set.counts(CounterKind::L1dMisses) {
                continue;
            }
            match open(kind) {
                Ok(counter) => set.counters.push((kind, counter, Sum::default())),
                Err(error) => set.missing.push((kind, Missing::of(&error))),
            }
        }
        set
    }

    /// True if `kind` is counted.
    #[must_use]
    pub fn counts(&self, kind: CounterKind) -> bool {
        self.counters.iter().any(|(counted, ..)| *counted == kind)
    }

    /// True if instructions in user mode are counted.
    #[must_use]
    pub fn has_instructions(&self) -> bool {
        self.counts(CounterKind::UserInstructions)
    }

    /// Reads all counters. A counter that cannot be read, or that never got its turn on the
    /// processor since the last reading, has no value.
    pub fn read(&mut self) -> CounterValues {
        let mut values = CounterValues::default();
        for (kind, counter, sum) in &mut self.counters {
            let Ok(reading) = counter.read_count_and_time() else {
                continue;
            };
            let scaled = sum.add(Reading {
                count: reading.count,
                enabled: reading.time_enabled,
                running: reading.time_running,
            });
            values.scaled |= u32::from(scaled.multiplexed) << *kind as u32;
            *values.slot(*kind) = scaled.count;
        }
        values
    }

    /// For people, one line each: what is counted, and what is not, why, and what to do.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        lines(&self.missing)
    }

    /// The same in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        self.lines().join("; ")
    }
}

fn open(pid: u32, kind: CounterKind, from: CountFrom) -> io::Result<Counter> {
    let (exclude_user, exclude_kernel) = kind.exclusions();
    match open_one(pid, kind, from, (exclude_user, exclude_kernel)) {
        // Without the kernel's side a software event still counts what the user side causes:
        // better than nothing for page faults, useless for context switches.
        Err(_) if kind == CounterKind::PageFaults => open_one(pid, kind, from, (false, true)),
        result => result,
    }
}

fn open_one(
    pid: u32,
    kind: CounterKind,
    from: CountFrom,
    (exclude_user, exclude_kernel): (bool, bool),
) -> io::Result<Counter> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut builder = kind.builder()?;
    builder
        .observe_pid(pid)
        .any_cpu()
        .inherit(true)
        .pinned(kind.class() == CounterClass::Core)
        .exclude_user(exclude_user)
        .exclude_kernel(exclude_kernel)
        .enable_on_exec(from == CountFrom::Exec)
        .enabled(from == CountFrom::Now);
    builder.build()
}

/// A count, scaled up if its counter was on the processor only part of the time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Scaled {
    count: Option<u64>,
    multiplexed: bool,
}

impl Scaled {
    fn of(count: u64, enabled: u64, running: u64) -> Self {
        // Not started yet, or started and never on the processor: the first is a true zero.
        if running == 0 {
            return Self {
                count: (enabled == 0).then_some(count),
                multiplexed: enabled > 0,
            };
        }
        // A thousandth is lost when a counter is switched in and out; that is not multiplexing.
        if running.saturating_add(enabled / 1_000) >= enabled {
            return Self {
                count: Some(count),
                multiplexed: false,
            };
        }
        let scaled = u128::from(count) * u128::from(enabled) / u128::from(running);
        Self {
            count: Some(u64::try_from(scaled).unwrap_or(u64::MAX)),
            multiplexed: true,
        }
    }
}

/// The reading of a counter: its count, and for how long it was to count and did, since it was attached.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    count: u64,
    enabled: u64,
    running: u64,
}

/// The count of a counter, scaled up stretch by stretch between two readings. Scaled as a whole, a phase would get a
/// part of what start and warm-up were scaled by: the less it did itself, the more.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    last: Reading,
    count: u64,
    multiplexed: bool,
}

impl Sum {
    /// The sum with what happened until `now`. A stretch in which the counter had no turn has no value,
    /// and the next one begins where it did.
    fn add(&mut self, now: Reading) -> Scaled {
        let last = self.last;
        let stretch = Scaled::of(
            now.count.saturating_sub(last.count),
            now.enabled.saturating_sub(last.enabled),
            now.running.saturating_sub(last.running),
        );
        self.multiplexed |= stretch.multiplexed;
        let count = stretch.count.map(|count| {
            self.last = now;
            self.count = self.count.saturating_add(count);
            self.count
        });
        Scaled {
            count,
            multiplexed: self.multiplexed,
        }
    }
}

// The countable events, and how the kernel is asked for them.

/// Where the kernel shows its tracepoints, and where it did before.
const TRACEPOINTS: [&str; 2] = [
    "/sys/kernel/tracing/events",
    "/sys/kernel/debug/tracing/events",
];

/// The countable events.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CounterKind {
    /// Instructions in user mode.
    UserInstructions,
    /// Cycles in user mode.
    UserCycles,
    /// Instructions in the kernel.
    KernelInstructions,
    /// Cycles in the kernel.
    KernelCycles,
    /// Mispredicted branches in user mode.
    BranchMisses,
    /// Loads in user mode that missed the first level data cache.
    L1dMisses,
    /// Accesses in user mode that missed every cache: used where loads of the first level cannot be
    /// counted.
    CacheMisses,
    /// Loads in user mode whose page missed the first level data TLB.
    DtlbMisses,
    /// Page faults of both sorts.
    PageFaults,
    /// Context switches.
    ContextSwitches,
    /// Moves from one CPU to another.
    Migrations,
    /// Time on a CPU.
    TaskClock,
    /// Calls of `madvise`, by which allocators give memory back.
    Madvise,
}

/// How many of the processor's counters a kind needs, and how much depends on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CounterClass {
    /// Verdicts rest on it: it keeps its counter all the time (pinned).
    Core,
    /// It explains: it takes what counters are left, in turns if they are too few.
    Explaining,
    /// The kernel's own count.
    Software,
    /// Passages of a point in the kernel.
    Tracepoint,
}

impl CounterKind {
    /// All, the most telling first.
    pub const ALL: [Self; 13] = [
        Self::UserInstructions,
        Self::UserCycles,
        Self::KernelInstructions,
        Self::KernelCycles,
        Self::BranchMisses,
        Self::L1dMisses,
        Self::CacheMisses,
        Self::DtlbMisses,
        Self::PageFaults,
        Self::ContextSwitches,
        Self::Migrations,
        Self::TaskClock,
        Self::Madvise,
    ];

    /// True if it needs one of the processor's counters.
    #[must_use]
    pub const fn is_hardware(self) -> bool {
        matches!(self.class(), CounterClass::Core | CounterClass::Explaining)
    }

    const fn class(self) -> CounterClass {
        match self {
            Self::UserInstructions
            | Self::UserCycles
            | Self::KernelInstructions
            | Self::KernelCycles => CounterClass::Core,
            Self::BranchMisses | Self::L1dMisses | Self::CacheMisses | Self::DtlbMisses => {
                CounterClass::Explaining
            }
            Self::PageFaults | Self::ContextSwitches | Self::Migrations | Self::TaskClock => {
                CounterClass::Software
            }
            Self::Madvise => CounterClass::Tracepoint,
        }
    }

    /// In the middle of a sentence, in the plural.
    const fn label(self) -> &'static str {
        match self {
            Self::UserInstructions => "instructions",
            Self::UserCycles => "cycles",
            Self::KernelInstructions => "kernel instructions",
            Self::KernelCycles => "kernel cycles",
            Self::BranchMisses => "branch misses",
            Self::L1dMisses => "L1d misses",
            Self::CacheMisses => "cache misses",
            Self::DtlbMisses => "dTLB misses",
            Self::PageFaults => "page faults",
            Self::ContextSwitches => "context switches",
            Self::Migrations => "CPU migrations",
            Self::TaskClock => "CPU time",
            Self::Madvise => "madvise calls",
        }
    }

    /// The kernel's code for it.
    fn builder(self) -> io::Result<Builder<'static>> {
        let load_misses = |which| {
            Builder::new(Cache {
                which,
                operation: CacheOp::READ,
                result: CacheResult::MISS,
            })
        };
        Ok(match self {
            Self::UserInstructions | Self::KernelInstructions => {
                Builder::new(Hardware::INSTRUCTIONS)
            }
            Self::UserCycles | Self::KernelCycles => Builder::new(Hardware::CPU_CYCLES),
            Self::BranchMisses => Builder::new(Hardware::BRANCH_MISSES),
            Self::L1dMisses => load_misses(CacheId::L1D),
            Self::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
            Self::DtlbMisses => load_misses(CacheId::DTLB),
            Self::PageFaults => Builder::new(Software::PAGE_FAULTS),
            Self::ContextSwitches => Builder::new(Software::CONTEXT_SWITCHES),
            Self::Migrations => Builder::new(Software::CPU_MIGRATIONS),
            Self::TaskClock => Builder::new(Software::TASK_CLOCK),
            Self::Madvise => Builder::new(tracepoint("syscalls/sys_enter_madvise")?),
        })
    }

    /// (user mode excluded, kernel excluded). A context switch happens in the kernel, so the
    /// software events need both sides.
    const fn exclusions(self) -> (bool, bool) {
        match self {
            Self::KernelInstructions | Self::KernelCycles => (true, false),
            _ if self.is_hardware() => (false, true),
            _ => (false, false),
        }
    }
}

/// The tracepoint of that name. Only root can see them, unless tracefs is mounted for others.
fn tracepoint(name: &str) -> io::Result<Tracepoint> {
    let read = |directory: &str| std::fs::read_to_string(format!("{directory}/{name}/id"));
    let [usual, earlier] = TRACEPOINTS;
    let text = read(usual).or_else(|error| read(earlier).map_err(|_| error))?;
    let id = text.trim_end().parse().map_err(io::Error::other)?;
    Ok(Tracepoint::with_id(id))
}

// Why a counter is missing, and the lines that name its replacement.

/// Why a counter is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Missing {
    /// The kernel shows no such counter: a virtual machine without a PMU, or an odd processor.
    NoPmu,
    /// `perf_event_paranoid`, or a container's filter.
    NoPermission,
    /// Anything else, by its number; `EIO` if it has none.
    Other(i32),
}

impl Missing {
    fn of(error: &io::Error) -> Self {
        // Not every error is the system's: what stands in a file may be no number.
        let Some(errno) = Errno::from_io_error(error) else {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::Unsupported => Self::NoPmu,
                io::ErrorKind::PermissionDenied => Self::NoPermission,
                _ => Self::Other(Errno::IO.raw_os_error()),
            };
        };
        match errno {
            Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL => Self::NoPmu,
            Errno::ACCESS | Errno::PERM | Errno::NOSYS => Self::NoPermission,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

/// One line for each group of counters that is missing; one line in all if none is.
fn lines(missing: &[(CounterKind, Missing)]) -> Vec<String> {
    let why = |kind: CounterKind| {
        let found = missing.iter().find(|(other, _)| *other == kind);
        found.map(|(_, why)| *why)
    };
    let mut lines = vec![core_line(&why)];
    if why(CounterKind::UserInstructions).is_none() {
        lines.extend(explaining_line(&why));
    }
    lines.extend(software_line(&why));
    lines
}

fn core_line(why: &dyn Fn(CounterKind) -> Option<Missing>) -> String {
    let stand_in = "CPU time per request stands in for instructions";
    match why(CounterKind::UserInstructions) {
        None if why(CounterKind::KernelCycles)
            .or(why(CounterKind::KernelInstructions))
            .is_some() =>
        {
            "instructions and cycles are counted in user mode only; for the kernel's share run as \
             root or lower kernel.perf_event_paranoid to 1"
                .to_owned()
        }
        None => "instructions and cycles are counted, in user mode and in the kernel".to_owned(),
        Some(Missing::NoPmu) => format!(
            "this machine shows no hardware counters (common in virtual machines): {stand_in}, and \
             what caches, TLB and branches cost is not known"
        ),
        Some(Missing::NoPermission) => format!(
            "hardware counters are forbidden here: {stand_in}; run as root or set \
             kernel.perf_event_paranoid to 1"
        ),
        Some(Missing::Other(number)) => format!(
            "hardware counters failed ({}): {stand_in}",
            io::Error::from_raw_os_error(number)
        ),
    }
}

/// Of those that explain where cycles go; `None` if all are there.
fn explaining_line(why: &dyn Fn(CounterKind) -> Option<Missing>) -> Option<String> {
    let mut lost: Vec<&str> = [CounterKind::BranchMisses, CounterKind::DtlbMisses]
        .into_iter()
        .filter(|&kind| why(kind).is_some())
        .map(CounterKind::label)
        .collect();
    let has_caches =
        why(CounterKind::L1dMisses).is_none() || why(CounterKind::CacheMisses).is_none();
    if !has_caches {
        lost.push(CounterKind::CacheMisses.label());
    }
    (!lost.is_empty()).then(|| {
        format!(
            "this processor does not count {}: their part in a difference is not known",
            lost.join(", ")
        )
    })
}

/// Of the kernel's own counts, for which `/proc` stands in; `None` if all are there.
fn software_line(why: &dyn Fn(CounterKind) -> Option<Missing>) -> Option<String> {
    let clock = why(CounterKind::TaskClock)?;
    let reason = match clock {
        Missing::NoPermission => {
            "perf_event_open is forbidden (kernel.perf_event_paranoid, or a container's filter)"
                .to_owned()
        }
        Missing::NoPmu => "this kernel has no software counters".to_owned(),
        Missing::Other(number) => format!(
            "software counters failed ({})",
            io::Error::from_raw_os_error(number)
        ),
    };
    Some(format!(
        "{reason}: CPU time, faults, switches and migrations come from /proc, CPU time to 10 ms"
    ))
}

#[cfg(test)]
#[path = "tests/counters.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/missing.rs"]
mod missing_tests;
