//! What can be counted, and how the kernel is asked for it.

use perf_event::events::{Cache, CacheOp, CacheResult, Event, Hardware, Software, WhichCache};

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
}

impl CounterKind {
    /// All, the most telling first.
    pub const ALL: [Self; 12] = [
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
    ];

    /// True if it needs one of the processor's counters.
    #[must_use]
    pub const fn is_hardware(self) -> bool {
        !matches!(self.class(), CounterClass::Software)
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
        }
    }

    pub(super) fn event(self) -> Event {
        let load_misses = |which| Cache {
            which,
            operation: CacheOp::READ,
            result: CacheResult::MISS,
        };
        match self {
            Self::UserInstructions | Self::KernelInstructions => Hardware::INSTRUCTIONS.into(),
            Self::UserCycles | Self::KernelCycles => Hardware::CPU_CYCLES.into(),
            Self::BranchMisses => Hardware::BRANCH_MISSES.into(),
            Self::L1dMisses => load_misses(WhichCache::L1D).into(),
            Self::CacheMisses => Hardware::CACHE_MISSES.into(),
            Self::DtlbMisses => load_misses(WhichCache::DTLB).into(),
            Self::PageFaults => Software::PAGE_FAULTS.into(),
            Self::ContextSwitches => Software::CONTEXT_SWITCHES.into(),
            Self::Migrations => Software::CPU_MIGRATIONS.into(),
            Self::TaskClock => Software::TASK_CLOCK.into(),
        }
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
