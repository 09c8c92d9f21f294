//! What can be counted, and how the kernel is asked for it.

use std::io;

use perf_event::Builder;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software, Tracepoint};

/// Where the kernel shows its tracepoints, and where it did before.
const TRACEPOINTS: [&str; 2] = [
    "/sys/kernel/tracing/events",
    "/sys/kernel/debug/tracing/events",
];

/// What can be counted.
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
    /// Branches in user mode that went the other way than foretold.
    BranchMisses,
    /// Loads in user mode that the first level data cache did not answer.
    L1dMisses,
    /// Accesses in user mode that no cache answered: what stands in where loads of the first level
    /// cannot be counted.
    CacheMisses,
    /// Loads in user mode whose page the first level data TLB did not know.
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
pub(super) enum CounterClass {
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

    pub(super) const fn class(self) -> CounterClass {
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
    pub(super) const fn label(self) -> &'static str {
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

    /// What asks the kernel for it.
    pub(super) fn builder(self) -> io::Result<Builder<'static>> {
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
    pub(super) const fn exclusions(self) -> (bool, bool) {
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
