//! The figures of target and machine at the edge of a phase, and what lies between two edges.
//!
//! On the path: `run` takes one before and one after each phase, while the target is idle.

use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::record::{
    Measure, MemoryParts, NoiseFlag, Operation, Quantity, RoundMeasures,
};
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::{Cgroup, GroupMemory};
use crate::error::RunError;
use crate::memory_group::MemoryGroup;
use crate::session::Session;
use crate::usage::Usage;

/// The resolution of `/proc/stat`.
const TICK_NS: u64 = 10_000_000;

/// Everything that is read at an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) usage: Usage,
    /// What the control group holds, where one counts memory.
    group: GroupMemory,
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
    pub(crate) fn read_quickly(session: &mut Session, pids: &[u32]) -> Self {
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

    /// What other programs and the hypervisor took since `earlier`, beyond the limits.
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

    /// What memory is made of now.
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

/// What everybody used of the machine's CPUs, over several stretches of time.
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

    /// Whether a slice of some 200 ms had somebody else in it: all but one of the kernel's ticks that others
    /// or the hypervisor took.
    pub(crate) fn is_disturbed(&self) -> bool {
        let others_ns = self.all.busy_ns.saturating_sub(self.ours_ns);
        self.all.steal_ns + others_ns.saturating_sub(TICK_NS) > TICK_NS
    }

    /// What others and the hypervisor took, beyond the limits.
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
