//! Whether somebody else used the machine while we measured.

use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::process::cpu_ns_with_children;

/// The machine's CPU time and ours, at the start.
pub(crate) struct Watch {
    machine: Option<CpuTimes>,
    own_ns: u64,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self {
            machine: CpuTimes::read(),
            own_ns: own_cpu_ns(),
        }
    }

    /// What happened since; `None` where the system does not tell.
    pub(crate) fn noise(&self) -> Option<MachineNoise> {
        let now = CpuTimes::read()?;
        let own_ns = own_cpu_ns().saturating_sub(self.own_ns);
        Some(MachineNoise::between(self.machine.as_ref()?, &now, own_ns))
    }
}

/// CPU time of this process and of all children that have ended; 0 where the system does not tell.
fn own_cpu_ns() -> u64 {
    cpu_ns_with_children(std::process::id()).unwrap_or(0)
}
