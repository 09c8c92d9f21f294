//! The figures of target and machine at the edge of a phase, and what lies between two edges.
//!
//! On the path: `run` takes one before and one after each phase, while the target is idle.

use millpond_measure::counters::{CounterKind, CounterValues};
use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::process::ProcessSample;
use millpond_measure::record::{Measure, NoiseFlag, Operation, Quantity, RoundMeasures};
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::{Cgroup, CgroupSample};
use crate::error::RunError;
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

/// Everything that is read at an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) process: ProcessSample,
    counters: CounterValues,
    cgroup: CgroupSample,
    machine: Option<CpuTimes>,
    own_cpu_ns: u64,
}

impl Edge {
    /// Reads all figures of the target and the machine.
    pub(crate) fn read(session: &mut Session) -> Result<Self, RunError> {
        let sample = session
            .tree
            .sample()
            .map_err(|error| RunError::Figures(error.to_string()))?;
        let own = clock_gettime(ClockId::ProcessCPUTime);
        Ok(Self {
            process: sample.total,
            counters: session.counters.read(),
            cgroup: session
                .cgroup
                .as_ref()
                .map(Cgroup::sample)
                .unwrap_or_default(),
            machine: CpuTimes::read(),
            own_cpu_ns: u64::try_from(own.tv_sec).unwrap_or(0) * 1_000_000_000
                + u64::try_from(own.tv_nsec).unwrap_or(0),
        })
    }

    /// Most memory of the target's control group, where that is counted. Not comparable with resident
    /// memory: the page cache is in it, and pages that others had first are not.
    fn cgroup_peak_bytes(&self) -> Option<u64> {
        self.cgroup.memory_peak_bytes
    }

    /// CPU time of the target since `earlier`: of its control group, which knows processes that have
    /// ended as well; else exact where the kernel's task clock is counted, otherwise in the ticks of
    /// `/proc`.
    pub(crate) fn cpu_ns_since(&self, earlier: &Self) -> u64 {
        let pair = self.cgroup.cpu_ns.zip(earlier.cgroup.cpu_ns);
        let group = pair.map(|(now, before)| now.saturating_sub(before));
        let counted = self.counters.since(&earlier.counters).task_clock_ns;
        group
            .or(counted)
            .unwrap_or_else(|| self.process.since(&earlier.process).cpu_ns())
    }

    /// What other programs and the hypervisor took since `earlier`, beyond the limits.
    /// `load_cpu_ns`: what a load program of the user's used, which is ours as well.
    pub(crate) fn noise_since(
        &self,
        earlier: &Self,
        phase: &str,
        load_cpu_ns: u64,
    ) -> Vec<NoiseFlag> {
        let (Some(before), Some(after)) = (&earlier.machine, &self.machine) else {
            return Vec::new();
        };
        let own_ns = self.own_cpu_ns.saturating_sub(earlier.own_cpu_ns);
        let ours_ns = load_cpu_ns + own_ns + self.cpu_ns_since(earlier);
        MachineNoise::between(before, after, ours_ns).flags(phase)
    }

    /// Notes the costs per request of what happened since `earlier`.
    pub(crate) fn note_costs(
        &self,
        earlier: &Self,
        operation: Operation,
        requests: u64,
        measures: &mut RoundMeasures,
    ) {
        let per_request = |value: u64| value as f64 / requests as f64;
        let counted = self.counters.since(&earlier.counters);
        for (quantity, value) in self.kernel_costs(earlier, &counted) {
            if let Some(value) = value {
                measures.set(Measure::of(operation, quantity), per_request(value));
            }
        }
        for (quantity, kind) in HARDWARE {
            let Some(value) = counted.get(kind) else {
                continue;
            };
            let measure = Measure::of(operation, quantity);
            measures.set(measure, per_request(value));
            if counted.is_scaled(kind) {
                measures.scaled.insert(measure);
            }
        }
    }

    /// What the kernel itself accounts for.
    fn kernel_costs(
        &self,
        earlier: &Self,
        counted: &CounterValues,
    ) -> [(Quantity, Option<u64>); 8] {
        let process = self.process.since(&earlier.process);
        let faults = process.minor_faults + process.major_faults;
        let switches = process.voluntary_switches + process.involuntary_switches;
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
            // Those of `/proc` are of living threads: a server with a thread for each connection would
            // have none.
            (
                Quantity::ContextSwitches,
                Some(counted.context_switches.unwrap_or(switches)),
            ),
            (
                Quantity::Migrations,
                counted.migrations.or(process.migrations),
            ),
        ]
    }

    /// Notes the memory that the target has after the equal work.
    pub(crate) fn note_memory(&self, measures: &mut RoundMeasures) {
        let process = &self.process;
        let values = [
            (Quantity::RssAfterWork, Some(process.rss_bytes)),
            (Quantity::PeakRss, Some(process.peak_rss_bytes)),
            (Quantity::CgroupPeak, self.cgroup_peak_bytes()),
            (Quantity::PssAfterWork, process.pss_bytes),
            (Quantity::UssAfterWork, process.private_bytes),
            (Quantity::HugePages, process.huge_page_bytes),
        ];
        note(&values, measures);
    }

    /// Notes what is left of it some idle time later.
    pub(crate) fn note_idle_memory(&self, measures: &mut RoundMeasures) {
        let process = &self.process;
        let values = [
            (Quantity::RssAfterIdle, Some(process.rss_bytes)),
            (Quantity::PssAfterIdle, process.pss_bytes),
        ];
        note(&values, measures);
    }
}

fn note(values: &[(Quantity, Option<u64>)], measures: &mut RoundMeasures) {
    for &(quantity, value) in values {
        if let Some(bytes) = value {
            measures.set(Measure::whole(quantity), bytes as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: switches of threads that have ended count. `/proc` has those of living threads, whose sum
    /// shrinks as threads end, which made it zero; it stands in where the kernel counts nothing else.
    #[test]
    fn switches_of_ended_threads_count() {
        let edge = |voluntary_switches, context_switches| Edge {
            process: ProcessSample {
                voluntary_switches,
                ..ProcessSample::default()
            },
            counters: CounterValues {
                context_switches,
                ..CounterValues::default()
            },
            cgroup: CgroupSample::default(),
            machine: None,
            own_cpu_ns: 0,
        };
        let per_request = |before: &Edge, after: &Edge| {
            let mut round = RoundMeasures::default();
            after.note_costs(before, Operation::Request, 100, &mut round);
            round.get(Measure::of(Operation::Request, Quantity::ContextSwitches))
        };
        assert_eq!(
            per_request(&edge(900, Some(1_000)), &edge(50, Some(1_700))),
            Some(7.0)
        );
        assert_eq!(per_request(&edge(900, None), &edge(1_200, None)), Some(3.0));
    }
}
