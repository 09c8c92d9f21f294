//! The resources that a target has used, read so quickly that it can be done while the target is under load, and their
//! cost per request.
//!
//! [`Edge`] adds what takes longer to read; `slice` reads [`Usage`] alone, at both ends of what it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use millpond_measure::counters::{CounterKind, CounterValues};
use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::process;
use millpond_measure::process::ProcessSample;
use millpond_measure::record::{
    Measure, MemoryParts, NoiseFlag, Operation, Quantity, RoundMeasures,
};
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::{Cgroup, CgroupSample, GroupMemory, MemoryGroup};
use crate::error::RunError;
use crate::started_candidate::StartedCandidate;

/// The processor's counters, and their names in reports.
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
    /// Reads the counters, the control group, and the given processes of `started_candidate`.
    pub(crate) fn read(session: &mut StartedCandidate, pids: &[u32]) -> Self {
        Self {
            has_threads: false,
            ..Self::with_sample(session, process::activity(pids))
        }
    }

    /// The same with a sample of the processes that was taken elsewhere.
    pub(crate) fn with_sample(session: &mut StartedCandidate, process: ProcessSample) -> Self {
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

    /// CPU time since `earlier`: of the kernel's task clock, which is exact; else of the control group, which lacks a
    /// running thread's time since the last tick; otherwise in the ticks of `/proc`. The first two include ended
    /// processes as well.
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

    /// The kernel's own accounting.
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

/// The cost of some time of a target.
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

    /// Both together. A value that one of them lacks is absent from the sum.
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

// The figures of target and machine at the edge of a phase, and what lies between two edges.

/// The resolution of `/proc/stat`.
const TICK_NS: u64 = 10_000_000;

/// Everything that is read at an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) usage: Usage,
    /// The memory of the control group, where one counts memory.
    group: GroupMemory,
    machine: Option<CpuTimes>,
    own_cpu_ns: u64,
}

impl Edge {
    /// Reads all figures of the target and the machine.
    pub(crate) fn read(session: &mut StartedCandidate) -> Result<Self, RunError> {
        let sample = session
            .tree
            .sample()
            .map_err(|error| RunError::Figures(error.to_string()))?;
        let newer = session.cgroup.as_ref().map(Cgroup::memory);
        let newer = newer.filter(|memory| memory.working_set_bytes.is_some());
        let older = || session.memory_group.as_ref().map(MemoryGroup::memory);
        Ok(Self {
            group: newer.or_else(older).unwrap_or_default(),
            usage: Usage::with_sample(session, sample.total),
            machine: CpuTimes::read(),
            own_cpu_ns: own_cpu_ns(),
        })
    }

    /// The same without the memory and the threads, so quickly that the target may be under load; `pids` are
    /// its processes.
    pub(crate) fn read_quickly(session: &mut StartedCandidate, pids: &[u32]) -> Self {
        Self {
            group: GroupMemory::default(),
            usage: Usage::read(session, pids),
            machine: CpuTimes::read(),
            own_cpu_ns: own_cpu_ns(),
        }
    }

    /// CPU time of the target since `earlier`.
    pub(crate) fn cpu_ns_since(&self, earlier: &Self) -> u64 {
        self.usage.cpu_ns_since(&earlier.usage)
    }

    /// The time that other programs and the hypervisor took since `earlier`, beyond the limits.
    /// `load_cpu_ns`: what a load program of the user's used, which is ours as well.
    pub(crate) fn noise_since(
        &self,
        earlier: &Self,
        phase: &str,
        load_cpu_ns: u64,
    ) -> Vec<NoiseFlag> {
        let mut machine_use = MachineUse::default();
        machine_use.add(earlier, self, load_cpu_ns);
        machine_use.flags(phase)
    }

    /// Notes the costs per request of what happened since `earlier`.
    pub(crate) fn note_costs(
        &self,
        earlier: &Self,
        operation: Operation,
        requests: u64,
        measures: &mut RoundMeasures,
    ) {
        let costs = self.usage.costs_since(&earlier.usage);
        costs.note(operation, requests, measures);
    }

    /// Notes the memory that the target has after the equal work.
    pub(crate) fn note_memory(&self, measures: &mut RoundMeasures) {
        let process = &self.usage.process;
        let memory = &process.memory;
        let values = [
            (Quantity::MemoryAfterWork, memory.private_bytes()),
            (Quantity::FileMemory, process.file_bytes()),
            (Quantity::RssAfterWork, Some(memory.rss_bytes)),
            (Quantity::PssAfterWork, memory.pss_bytes),
            (Quantity::UssAfterWork, memory.uss_bytes),
            (Quantity::HugePages, memory.huge_page_bytes),
            (Quantity::LazyFree, memory.lazy_free_bytes),
            (Quantity::WorkingSet, self.group.working_set_bytes),
            (Quantity::KernelMemory, self.group.kernel_bytes),
            (Quantity::Mappings, process.mappings),
        ];
        note(&values, measures);
    }

    /// The current parts of memory.
    pub(crate) fn memory_parts(&self) -> MemoryParts {
        let process = &self.usage.process;
        let memory = &process.memory;
        MemoryParts {
            anonymous_bytes: memory.anonymous_bytes,
            shared_bytes: memory.shared_bytes,
            swapped_bytes: memory.swapped_bytes,
            lazy_free_bytes: memory.lazy_free_bytes,
            huge_page_bytes: memory.huge_page_bytes,
            hugetlb_bytes: memory.hugetlb_bytes,
            file_bytes: process.file_bytes(),
            kernel_bytes: self.group.kernel_bytes,
            working_set_bytes: self.group.working_set_bytes,
            mappings: process.mappings,
        }
    }

    /// Notes what is left of it some idle time later.
    pub(crate) fn note_idle_memory(&self, measures: &mut RoundMeasures) {
        let memory = &self.usage.process.memory;
        let values = [
            (Quantity::MemoryAfterIdle, memory.private_bytes()),
            (Quantity::RssAfterIdle, Some(memory.rss_bytes)),
            (Quantity::PssAfterIdle, memory.pss_bytes),
        ];
        note(&values, measures);
    }
}

fn own_cpu_ns() -> u64 {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(own.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(own.tv_nsec).unwrap_or(0)
}

/// What all programs used of the machine's CPUs, over several stretches of time.
#[derive(Debug, Default)]
pub(crate) struct MachineUse {
    all: CpuTimes,
    ours_ns: u64,
}

impl MachineUse {
    /// Adds a stretch. `load_cpu_ns`: what a load program of the user's used in it.
    pub(crate) fn add(&mut self, before: &Edge, after: &Edge, load_cpu_ns: u64) {
        if let (Some(start), Some(end)) = (&before.machine, &after.machine) {
            self.all.busy_ns += end.busy_ns.saturating_sub(start.busy_ns);
            self.all.steal_ns += end.steal_ns.saturating_sub(start.steal_ns);
            self.all.total_ns += end.total_ns.saturating_sub(start.total_ns);
            let own_ns = after.own_cpu_ns.saturating_sub(before.own_cpu_ns);
            self.ours_ns += load_cpu_ns + own_ns + after.cpu_ns_since(before);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.all.busy_ns += other.all.busy_ns;
        self.all.steal_ns += other.all.steal_ns;
        self.all.total_ns += other.all.total_ns;
        self.ours_ns += other.ours_ns;
    }

    /// Whether a slice of some 200 ms was disturbed by other programs: all but one of the kernel's ticks that others or
    /// the hypervisor took.
    pub(crate) fn is_disturbed(&self) -> bool {
        let others_ns = self.all.busy_ns.saturating_sub(self.ours_ns);
        self.all.steal_ns + others_ns.saturating_sub(TICK_NS) > TICK_NS
    }

    /// The time that others and the hypervisor took, beyond the limits.
    pub(crate) fn flags(&self, phase: &str) -> Vec<NoiseFlag> {
        MachineNoise::between(&CpuTimes::default(), &self.all, self.ours_ns).flags(phase)
    }
}

fn note(values: &[(Quantity, Option<u64>)], measures: &mut RoundMeasures) {
    for &(quantity, value) in values {
        if let Some(value) = value {
            measures.set(Measure::whole(quantity), value as f64);
        }
    }
}

#[cfg(test)]
#[path = "tests/usage.rs"]
mod tests;
