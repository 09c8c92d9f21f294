//! Whether somebody else used the machine while we measured.

use millpond_measure::noise::{CpuTimes, MachineNoise};
use std::fs;

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

/// CPU time of this process and of all children that have ended.
fn own_cpu_ns() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
    own_ticks(&stat) * 1_000_000_000 / ticks_per_s
}

/// utime, stime, cutime and cstime of proc_pid_stat(5), fields 14 to 17. The name in parentheses may
/// hold blanks, so the last closing one ends it.
fn own_ticks(stat: &str) -> u64 {
    let after_name = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
    let fields = after_name.split_ascii_whitespace().skip(11).take(4);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_children_count() {
        let stat = "42 (a) b) S 7 40 40 0 -1 4194304 101 5 9 6 12 34 100 200 20 0 3 0 162642";
        assert_eq!(own_ticks(stat), 346);
        assert_eq!(own_ticks(""), 0);
    }
}
