//! The figures of target and machine at the edge of a phase, and what lies between two edges.
//!
//! On the path: `run` takes one before and one after each phase, while the target is idle.

use millpond_measure::counters::CounterValues;
use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::process::ProcessSample;
use millpond_measure::record::{Measure, NoiseFlag, Operation, Quantity, RoundMeasures};
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::{Cgroup, CgroupSample};
use crate::error::RunError;
use crate::session::Session;

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
    pub(crate) fn cgroup_peak_bytes(&self) -> Option<u64> {
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
        let process = self.process.since(&earlier.process);
        let counted = self.counters.since(&earlier.counters);
        let faults = process.minor_faults + process.major_faults;
        let switches = process.voluntary_switches + process.involuntary_switches;
        let values = [
            (Quantity::CpuTime, Some(self.cpu_ns_since(earlier))),
            (Quantity::PageFaults, Some(faults)),
            (Quantity::ContextSwitches, Some(switches)),
            (Quantity::Instructions, counted.user_instructions),
            (Quantity::KernelInstructions, counted.kernel_instructions),
            (Quantity::Cycles, counted.user_cycles),
            (Quantity::KernelCycles, counted.kernel_cycles),
        ];
        for (quantity, value) in values {
            if let Some(value) = value {
                measures.set(Measure::of(operation, quantity), per_request(value));
            }
        }
    }
}
