//! Hardware and software counters of a process and all it starts.
//!
//! On the path: `lab` attaches to the launcher before it becomes the server, so that counting
//! starts with the server's first instruction, and reads at the edges of each phase. Instructions
//! per request are the number a busy neighbour cannot change.
//!
//! Each counter stands alone: older kernels (6.1 of Debian 12) refuse a group that children inherit.
//! Seven events need the processor. The four on which verdicts rest are pinned: they keep their
//! counters, which every PMU since 2008 has. Branch, cache and TLB misses explain; they share what
//! counters are left, so that a PMU of six serves all but one of them at any time. Then
//! `time_running < time_enabled` shows it, and the value is scaled and marked.
//! Absent on purpose: more events. An eighth would make every explanation a rougher guess.

mod kind;
mod missing;

use std::io;

use perf_event::Counter;
use serde::{Deserialize, Serialize};

use kind::CounterClass;
pub use kind::CounterKind;
use missing::Missing;

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
    /// Branches in user mode that went the other way than foretold.
    pub branch_misses: Option<u64>,
    /// Loads in user mode that the first level data cache did not answer.
    pub l1d_misses: Option<u64>,
    /// Accesses in user mode that no cache answered.
    pub cache_misses: Option<u64>,
    /// Loads in user mode whose page the first level data TLB did not know.
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
        missing::lines(&self.missing)
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

/// What a counter says: its count, and for how long it was to count and did, since it was attached.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    count: u64,
    enabled: u64,
    running: u64,
}

/// What a counter has counted, scaled up stretch by stretch between two readings. Scaled as a whole, a
/// phase would get a part of what start and warm-up were scaled by: the less it did itself, the more.
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

    /// Goal: a phase is scaled by its own share of the counter. A start that was counted in full and had
    /// ten times the misses of a second of the phase once made four times as many of the phase's.
    #[test]
    fn a_phase_is_scaled_by_itself() {
        let at = |count, enabled, running| Reading {
            count,
            enabled,
            running,
        };
        let mut sum = Sum::default();
        assert_eq!(sum.add(at(0, 0, 0)).count, Some(0));
        let start = sum.add(at(1_000, 10_000, 10_000));
        assert_eq!((start.count, start.multiplexed), (Some(1_000), false));
        // Half of the time, 50 of 100.
        let phase = sum.add(at(1_050, 20_000, 15_000));
        assert_eq!((phase.count, phase.multiplexed), (Some(1_100), true));
        // Nothing happened at all: that is known.
        assert_eq!(sum.add(at(1_050, 20_000, 15_000)).count, Some(1_100));
        // Something did, and the counter had no turn: that is not zero, and comes with the next stretch.
        assert_eq!(sum.add(at(1_050, 30_000, 15_000)).count, None);
        assert_eq!(sum.add(at(1_075, 40_000, 20_000)).count, Some(1_200));
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
            scaled: 1 << CounterKind::DtlbMisses as u32,
            ..Default::default()
        };
        let delta = end.since(&start);
        assert_eq!((delta.user_cycles, delta.page_faults), (Some(20), None));
        let is_scaled = CounterKind::ALL.map(|kind| delta.is_scaled(kind));
        let expected = CounterKind::ALL.map(|kind| kind == CounterKind::DtlbMisses);
        assert_eq!(is_scaled, expected);
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
        for (kind, ..) in &counters.counters {
            // So short a program may well stay on its CPU, and keep its memory.
            let may_be_zero = [CounterKind::Migrations, CounterKind::Madvise].contains(kind);
            assert!(
                may_be_zero || counted.get(*kind).is_none_or(|count| count > 0),
                "{kind:?}: {counted:?}"
            );
        }
        assert!(
            before.task_clock_ns.is_none_or(|time| time == 0),
            "{before:?}"
        );
        assert!(!counters.describe().is_empty());
    }

    /// Goal: calls of `madvise` are counted one by one, where the kernel shows its tracepoints.
    #[test]
    fn madvise_is_counted() {
        let program = "import mmap\ninput()\nm = mmap.mmap(-1, 4096)\n\
            for _ in range(1000): m.madvise(mmap.MADV_DONTNEED)\ninput()\n";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut counters = CounterSet::attach(child.id(), CountFrom::Now);
        let mut orders = child.stdin.take().unwrap();
        orders.write_all(b"go\nend\n").unwrap();
        drop(orders);
        assert!(child.wait().unwrap().success());
        match counters.read().madvise_calls {
            Some(calls) => assert!((1_000..1_100).contains(&calls), "{calls}"),
            None => assert!(!counters.counts(CounterKind::Madvise)),
        }
    }

    /// Goal: where the kernel refuses, whatever it refuses, attaching works, nothing has a value that
    /// was not counted, and the lines name each loss.
    #[test]
    fn refusals_leave_no_values() {
        let refusal = |number: i32| {
            let refused = move |_| Err(io::Error::from_raw_os_error(number));
            let mut set = CounterSet::attach_by(&refused);
            assert_eq!(set.read(), CounterValues::default());
            assert!(!set.has_instructions());
            set.lines()
        };
        let (no_event, no_permission, no_call) = (2, 13, 38);
        assert!(refusal(no_event)[0].contains("virtual machines"));
        assert!(refusal(no_permission)[0].contains("perf_event_paranoid"));
        assert_eq!(refusal(no_call).len(), 2);
    }

    /// Goal: a virtual machine without a PMU keeps the kernel's own counts; a PMU that lacks one event
    /// loses that one only.
    #[test]
    fn what_is_refused_costs_the_others_nothing() {
        let pid = std::process::id();
        let with = |lost: &'static [CounterKind]| {
            CounterSet::attach_by(&move |kind| {
                if lost.contains(&kind) {
                    return Err(io::Error::from_raw_os_error(2));
                }
                // A software event in the place of a hardware one: there need not be a PMU here.
                let stand_in = if kind.is_hardware() {
                    CounterKind::TaskClock
                } else {
                    kind
                };
                open(pid, stand_in, CountFrom::Now)
            })
        };
        let complete = with(&[]);
        if !complete.counts(CounterKind::TaskClock) {
            eprintln!("skipped: {}", complete.describe());
            return;
        }
        assert!(!complete.counts(CounterKind::CacheMisses), "L1d is enough");
        assert_eq!(complete.lines().len(), 1, "{:?}", complete.lines());
        let without_l1d = with(&[CounterKind::L1dMisses]);
        assert!(without_l1d.counts(CounterKind::CacheMisses));
        let mut without_tlb = with(&[CounterKind::DtlbMisses]);
        assert!(without_tlb.lines()[1].contains("dTLB"));
        let values = without_tlb.read();
        assert!(values.dtlb_misses.is_none() && values.branch_misses.is_some());
        let hardware = [
            CounterKind::UserInstructions,
            CounterKind::UserCycles,
            CounterKind::KernelInstructions,
            CounterKind::KernelCycles,
            CounterKind::BranchMisses,
            CounterKind::L1dMisses,
            CounterKind::CacheMisses,
            CounterKind::DtlbMisses,
        ];
        let leaked: &'static [CounterKind] = Box::leak(Box::new(hardware));
        let mut no_pmu = with(leaked);
        assert!(no_pmu.read().task_clock_ns.is_some());
        assert!(no_pmu.describe().contains("virtual machines"));
    }
}
