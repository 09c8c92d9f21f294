//! Hardware and software counters of a process and all it starts.
//!
//! On the path: `lab` attaches to the launcher before it becomes the server, so that counting
//! starts with the server's first instruction, and reads at the edges of each phase. Instructions
//! per request are the number a busy neighbour cannot change.
//!
//! Each counter stands alone: older kernels (6.1 of Debian 12) refuse a group that children inherit. At most
//! four use the processor's counters, which every PMU since 2008 has, so they are never
//! multiplexed; should that happen all the same, `time_running < time_enabled` shows it and the
//! values are scaled and marked. Absent on purpose: cache and TLB events. They differ between
//! machines and would push the four out.

use std::io;

use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

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
    /// Page faults of both sorts.
    PageFaults,
    /// Context switches.
    ContextSwitches,
    /// Time on a CPU.
    TaskClock,
}

impl CounterKind {
    /// All, the most telling first.
    pub const ALL: [Self; 7] = [
        Self::UserInstructions,
        Self::UserCycles,
        Self::KernelInstructions,
        Self::KernelCycles,
        Self::PageFaults,
        Self::ContextSwitches,
        Self::TaskClock,
    ];

    /// True if it needs one of the processor's counters.
    #[must_use]
    pub const fn is_hardware(self) -> bool {
        matches!(
            self,
            Self::UserInstructions
                | Self::UserCycles
                | Self::KernelInstructions
                | Self::KernelCycles
        )
    }

    fn event(self) -> Event {
        match self {
            Self::UserInstructions | Self::KernelInstructions => Hardware::INSTRUCTIONS.into(),
            Self::UserCycles | Self::KernelCycles => Hardware::CPU_CYCLES.into(),
            Self::PageFaults => Software::PAGE_FAULTS.into(),
            Self::ContextSwitches => Software::CONTEXT_SWITCHES.into(),
            Self::TaskClock => Software::TASK_CLOCK.into(),
        }
    }

    /// (user mode excluded, kernel excluded). A context switch happens in the kernel, so the
    /// software events need both sides.
    const fn exclusions(self) -> (bool, bool) {
        match self {
            Self::UserInstructions | Self::UserCycles => (false, true),
            Self::KernelInstructions | Self::KernelCycles => (true, false),
            Self::PageFaults | Self::ContextSwitches | Self::TaskClock => (false, false),
        }
    }
}

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
    /// Page faults.
    pub page_faults: Option<u64>,
    /// Context switches.
    pub context_switches: Option<u64>,
    /// Time on a CPU.
    pub task_clock_ns: Option<u64>,
    /// True if a value was scaled up because its counter was shared with somebody else's.
    pub multiplexed: bool,
}

impl CounterValues {
    fn slot(&mut self, kind: CounterKind) -> &mut Option<u64> {
        match kind {
            CounterKind::UserInstructions => &mut self.user_instructions,
            CounterKind::UserCycles => &mut self.user_cycles,
            CounterKind::KernelInstructions => &mut self.kernel_instructions,
            CounterKind::KernelCycles => &mut self.kernel_cycles,
            CounterKind::PageFaults => &mut self.page_faults,
            CounterKind::ContextSwitches => &mut self.context_switches,
            CounterKind::TaskClock => &mut self.task_clock_ns,
        }
    }

    /// What was counted since `earlier`.
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
        now.multiplexed |= earlier.multiplexed;
        now
    }
}

/// Why a counter is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Missing {
    /// The kernel shows no such counter: a virtual machine without a PMU, or an odd processor.
    NoPmu,
    /// `perf_event_paranoid`, or a container's filter.
    NoPermission,
    /// Anything else, by its number.
    Other(i32),
}

impl Missing {
    fn of(error: &io::Error) -> Self {
        use rustix::io::Errno;
        let number = error.raw_os_error().unwrap_or(0);
        match Errno::from_raw_os_error(number) {
            Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL => Self::NoPmu,
            Errno::ACCESS | Errno::PERM | Errno::NOSYS => Self::NoPermission,
            _ => Self::Other(number),
        }
    }
}

/// The counters of one process and of everything it starts after they were attached.
#[derive(Debug)]
pub struct CounterSet {
    counters: Vec<(CounterKind, Counter)>,
    missing: Vec<(CounterKind, Missing)>,
}

impl CounterSet {
    /// Attaches all counters that can be had; never fails. For [`CountFrom::Exec`] the process has
    /// to be waiting before its `exec`, with one thread.
    #[must_use]
    pub fn attach(pid: u32, from: CountFrom) -> Self {
        let mut set = Self {
            counters: Vec::new(),
            missing: Vec::new(),
        };
        for kind in CounterKind::ALL {
            match open(pid, kind, from) {
                Ok(counter) => set.counters.push((kind, counter)),
                Err(error) => set.missing.push((kind, Missing::of(&error))),
            }
        }
        set
    }

    /// True if instructions in user mode are counted.
    #[must_use]
    pub fn has_instructions(&self) -> bool {
        self.counters
            .iter()
            .any(|(kind, _)| *kind == CounterKind::UserInstructions)
    }

    /// Reads all counters. A counter that cannot be read, or that never got its turn on the
    /// processor, has no value.
    pub fn read(&mut self) -> CounterValues {
        let mut values = CounterValues::default();
        for (kind, counter) in &mut self.counters {
            let Ok(reading) = counter.read_count_and_time() else {
                continue;
            };
            let scaled = Scaled::of(reading.count, reading.time_enabled, reading.time_running);
            values.multiplexed |= scaled.multiplexed;
            *values.slot(*kind) = scaled.count;
        }
        values
    }

    /// One line for people: what is counted, or why not and what to do.
    #[must_use]
    pub fn describe(&self) -> String {
        let hardware_missing: Vec<Missing> = self
            .missing
            .iter()
            .filter(|(kind, _)| kind.is_hardware())
            .map(|(_, why)| *why)
            .collect();
        let stand_in = "CPU time per request stands in for instructions";
        if hardware_missing.is_empty() {
            return "instructions and cycles are counted, in user mode and in the kernel".into();
        }
        if self.has_instructions() {
            return "instructions and cycles are counted in user mode only; for the kernel's share \
                    run as root or lower kernel.perf_event_paranoid to 1"
                .into();
        }
        match hardware_missing[0] {
            Missing::NoPmu => format!(
                "this machine shows no hardware counters (common in virtual machines): {stand_in}"
            ),
            Missing::NoPermission => format!(
                "hardware counters are forbidden here: {stand_in}; run as root or set \
                 kernel.perf_event_paranoid to 1"
            ),
            Missing::Other(number) => format!(
                "hardware counters failed ({}): {stand_in}",
                io::Error::from_raw_os_error(number)
            ),
        }
    }
}

fn open(pid: u32, kind: CounterKind, from: CountFrom) -> io::Result<Counter> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (exclude_user, exclude_kernel) = kind.exclusions();
    let mut builder = Builder::new().kind(kind.event()).observe_pid(pid);
    builder
        .inherit(true)
        .exclude_user(exclude_user)
        .exclude_kernel(exclude_kernel)
        .enable_on_exec(from == CountFrom::Exec)
        .enabled(from == CountFrom::Now);
    match builder.build() {
        // Without the kernel's side a software event still counts what the user side causes:
        // better than nothing for page faults, useless for context switches.
        Err(_) if kind == CounterKind::PageFaults => {
            let mut builder = Builder::new().kind(kind.event()).observe_pid(pid);
            builder
                .inherit(true)
                .enable_on_exec(from == CountFrom::Exec)
                .enabled(from == CountFrom::Now);
            builder.build()
        }
        result => result,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn scaling() {
        let plain = |count| Scaled {
            count: Some(count),
            multiplexed: false,
        };
        assert_eq!(Scaled::of(0, 0, 0), plain(0));
        assert_eq!(Scaled::of(7, 1_000_000, 1_000_000), plain(7));
        assert_eq!(Scaled::of(7, 1_000_000, 999_500), plain(7));
        assert_eq!(
            Scaled::of(100, 1_000, 500),
            Scaled {
                count: Some(200),
                multiplexed: true
            }
        );
        assert_eq!(
            Scaled::of(0, 1_000, 0),
            Scaled {
                count: None,
                multiplexed: true
            }
        );
        assert_eq!(Scaled::of(u64::MAX, 1_000, 1).count, Some(u64::MAX));
    }

    #[test]
    fn differences() {
        let start = CounterValues {
            user_cycles: Some(5),
            page_faults: Some(9),
            ..Default::default()
        };
        let end = CounterValues {
            user_cycles: Some(25),
            page_faults: None,
            multiplexed: true,
            ..Default::default()
        };
        let delta = end.since(&start);
        assert_eq!(
            (delta.user_cycles, delta.page_faults, delta.multiplexed),
            (Some(20), None, true)
        );
    }

    /// Goal: counting begins at exec, includes what the program starts, and where the kernel gives
    /// nothing one line says so instead of a failure.
    #[test]
    fn counts_a_child_and_its_children_from_exec_on() {
        let mut child = Command::new("sh")
            .args(["-c", "read go; exec sh -c '(:; :) & wait; true | true'"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut counters = CounterSet::attach(child.id(), CountFrom::Exec);
        let before = counters.read();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(child.wait().unwrap().success());
        let counted = counters.read().since(&before);
        for (kind, missing) in &counters.missing {
            eprintln!("{kind:?} missing: {missing:?}");
        }
        for (kind, _) in &counters.counters {
            let mut values = counted;
            assert!(
                values.slot(*kind).is_none_or(|count| count > 0),
                "{kind:?}: {counted:?}"
            );
        }
        assert!(
            before.task_clock_ns.is_none_or(|time| time == 0),
            "{before:?}"
        );
        assert!(!counters.describe().is_empty());
    }

    /// Goal: every cause of missing counters is told apart, and the sentence says what to do.
    #[test]
    fn every_cause_has_its_sentence() {
        let without = |missing: Missing| CounterSet {
            counters: Vec::new(),
            missing: CounterKind::ALL.map(|kind| (kind, missing)).to_vec(),
        };
        assert!(
            without(Missing::NoPmu)
                .describe()
                .contains("virtual machines")
        );
        assert!(
            without(Missing::NoPermission)
                .describe()
                .contains("perf_event_paranoid")
        );
        assert!(
            without(Missing::Other(24))
                .describe()
                .contains("Too many open files")
        );
        for (errno, missing) in [
            (2, Missing::NoPmu),
            (95, Missing::NoPmu),
            (13, Missing::NoPermission),
        ] {
            assert_eq!(Missing::of(&io::Error::from_raw_os_error(errno)), missing);
        }
    }
}
