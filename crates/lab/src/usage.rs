//! What a target has used, read so quickly that it can be done while the target is under load, and what it
//! costs per request.
//!
//! `edge` adds what takes longer to read; `slice` reads this alone, at both ends of what it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use millpond_measure::counters::{CounterKind, CounterValues};
use millpond_measure::process::{self, ProcessSample};
use millpond_measure::record::{Measure, Operation, Quantity, RoundMeasures};

use crate::cgroup::{Cgroup, CgroupSample};
use crate::session::Session;

/// What the processor counts, and as what it is reported.
const HARDWARE: [(Quantity, CounterKind); 8] = [
    (Quantity::Instructions, CounterKind::UserInstructions),
    (
        Quantity::KernelInstructions,
        CounterKind::KernelInstructions,
    ),
    (Quantity::Cycles, CounterKind::UserCycles),
    (Quantity::KernelCycles, CounterKind::KernelCycles),
    (Quantity::BranchMisses, CounterKind::BranchMisses),
    (Quantity::L1dMisses, CounterKind::L1dMisses),
    (Quantity::CacheMisses, CounterKind::CacheMisses),
    (Quantity::DtlbMisses, CounterKind::DtlbMisses),
];

/// Sums since the target's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) at: Instant,
    pub(crate) process: ProcessSample,
    pub(crate) counters: CounterValues,
    pub(crate) cgroup: CgroupSample,
    /// False: `process` has neither switches nor migrations.
    has_threads: bool,
}

impl Usage {
    /// Reads the counters, the control group, and the given processes of `session`.
    pub(crate) fn read(session: &mut Session, pids: &[u32]) -> Self {
        Self {
            has_threads: false,
            ..Self::with_sample(session, process::activity(pids))
        }
    }

    /// The same with a sample of the processes that somebody took.
    pub(crate) fn with_sample(session: &mut Session, process: ProcessSample) -> Self {
        let group = session.cgroup.as_ref();
        let mut cgroup = group.map(Cgroup::sample).unwrap_or_default();
        if let Some(memory) = &session.memory_group {
            cgroup.memory_peak_bytes = cgroup.memory_peak_bytes.or(memory.peak_bytes());
        }
        Self {
            cgroup,
            process,
            counters: session.counters.read(),
            at: Instant::now(),
            has_threads: true,
        }
    }

    /// CPU time since `earlier`: of the kernel's task clock, which is exact; else of the control group, which
    /// does not know what a running thread has had since the last tick; otherwise in the ticks of `/proc`. The
    /// first two know processes that have ended as well.
    pub(crate) fn cpu_ns_since(&self, earlier: &Self) -> u64 {
        let pair = self.cgroup.cpu_ns.zip(earlier.cgroup.cpu_ns);
        let group = pair.map(|(now, before)| now.saturating_sub(before));
        let counted = self.counters.since(&earlier.counters).task_clock_ns;
        counted
            .or(group)
            .unwrap_or_else(|| self.process.since(&earlier.process).cpu_ns())
    }

    /// Everything since `earlier`.
    pub(crate) fn costs_since(&self, earlier: &Self) -> Costs {
        let counted = self.counters.since(&earlier.counters);
        let mut costs = Costs {
            over: self.at.saturating_duration_since(earlier.at),
            ..Costs::default()
        };
        for (quantity, value) in self.kernel_costs(earlier, &counted) {
            if let Some(value) = value {
                costs.sums.insert(quantity, value as f64);
            }
        }
        for (quantity, kind) in HARDWARE {
            let Some(value) = counted.get(kind) else {
                continue;
            };
            costs.sums.insert(quantity, value as f64);
            if counted.is_scaled(kind) {
                costs.scaled.insert(quantity);
            }
        }
        costs
    }

    /// What the kernel itself accounts for.
    fn kernel_costs(
        &self,
        earlier: &Self,
        counted: &CounterValues,
    ) -> [(Quantity, Option<u64>); 9] {
        let process = self.process.since(&earlier.process);
        let faults = process.minor_faults + process.major_faults;
        // Those of `/proc` are of living threads: a server with a thread for each connection would
        // have none.
        let switches = (self.has_threads && earlier.has_threads)
            .then_some(process.voluntary_switches + process.involuntary_switches);
        let of_group = |of: fn(&CgroupSample) -> Option<u64>| {
            let both = of(&self.cgroup).zip(of(&earlier.cgroup));
            both.map(|(now, before)| now.saturating_sub(before))
        };
        let user_ns = of_group(|group| group.user_cpu_ns).unwrap_or(process.user_cpu_ns);
        let system_ns = of_group(|group| group.system_cpu_ns).unwrap_or(process.system_cpu_ns);
        [
            (Quantity::CpuTime, Some(self.cpu_ns_since(earlier))),
            (Quantity::UserCpu, Some(user_ns)),
            (Quantity::SystemCpu, Some(system_ns)),
            (Quantity::PageFaults, Some(faults)),
            (Quantity::MinorFaults, Some(process.minor_faults)),
            (Quantity::MajorFaults, Some(process.major_faults)),
            (Quantity::MadviseCalls, counted.madvise_calls),
            (
                Quantity::ContextSwitches,
                counted.context_switches.or(switches),
            ),
            (
                Quantity::Migrations,
                counted.migrations.or(process.migrations),
            ),
        ]
    }
}

/// What some time of a target cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    sums: BTreeMap<Quantity, f64>,
    /// Those that are estimates, because their counter was shared.
    scaled: BTreeSet<Quantity>,
    /// How long that was.
    pub(crate) over: Duration,
}

impl Costs {
    /// The same for another time: readings cannot be taken in the very moment at which counting begins.
    pub(crate) fn stretched_to(mut self, over: Duration) -> Self {
        let factor = over.as_secs_f64() / self.over.as_secs_f64().max(1e-9);
        self.sums.values_mut().for_each(|sum| *sum *= factor);
        self.over = over;
        self
    }

    /// Both together. What one of them lacks, the sum lacks.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.sums
            .retain(|quantity, _| other.sums.contains_key(quantity));
        for (quantity, sum) in &mut self.sums {
            *sum += other.sums.get(quantity).copied().unwrap_or(0.0);
        }
        self.scaled.extend(&other.scaled);
        self.over += other.over;
        self
    }

    /// The sum of `quantity`; `None` if it was not counted.
    pub(crate) fn sum(&self, quantity: Quantity) -> Option<f64> {
        self.sums.get(&quantity).copied()
    }

    /// CPU time in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.sum(Quantity::CpuTime).unwrap_or(0.0)
    }

    /// Notes what one of `requests` cost.
    pub(crate) fn note(&self, operation: Operation, requests: u64, measures: &mut RoundMeasures) {
        for (&quantity, sum) in &self.sums {
            let measure = Measure::of(operation, quantity);
            measures.set(measure, sum / requests as f64);
            if self.scaled.contains(&quantity) {
                measures.scaled.insert(measure);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(voluntary_switches: u64, context_switches: Option<u64>) -> Usage {
        Usage {
            at: Instant::now(),
            process: ProcessSample {
                voluntary_switches,
                ..ProcessSample::default()
            },
            counters: CounterValues {
                context_switches,
                ..CounterValues::default()
            },
            cgroup: CgroupSample::default(),
            has_threads: true,
        }
    }

    /// Goal: switches of threads that have ended count. `/proc` has those of living threads, whose sum
    /// shrinks as threads end, which made it zero; it stands in where the kernel counts nothing else, and
    /// where it was not read either there is no number.
    #[test]
    fn switches_of_ended_threads_count() {
        let per_request = |before: &Usage, after: &Usage| {
            let mut round = RoundMeasures::default();
            let costs = after.costs_since(before);
            costs.note(Operation::Request, 100, &mut round);
            round.get(Measure::of(Operation::Request, Quantity::ContextSwitches))
        };
        let counted = (usage(900, Some(1_000)), usage(50, Some(1_700)));
        assert_eq!(per_request(&counted.0, &counted.1), Some(7.0));
        let (before, after) = (usage(900, None), usage(1_200, None));
        assert_eq!(per_request(&before, &after), Some(3.0));
        let quick = Usage {
            has_threads: false,
            ..after
        };
        assert_eq!(per_request(&before, &quick), None);
    }

    /// Goal: costs add up, and what was not counted in every part is in no sum.
    #[test]
    fn costs_add_up() {
        let costs = |pairs: &[(Quantity, f64)], millis| Costs {
            sums: pairs.iter().copied().collect(),
            scaled: BTreeSet::new(),
            over: Duration::from_millis(millis),
        };
        let one = costs(&[(Quantity::CpuTime, 8e6), (Quantity::Cycles, 3.0)], 16);
        let one = one.stretched_to(Duration::from_millis(10));
        let both = one.plus(&costs(&[(Quantity::CpuTime, 7e6)], 10));
        assert_eq!((both.cpu_ns(), both.sums.len()), (12e6, 1));
        assert_eq!(both.over, Duration::from_millis(20));
    }
}
