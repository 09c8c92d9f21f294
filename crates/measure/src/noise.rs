//! How much of the machine somebody else used while we measured.
//!
//! On the path: `lab` reads [`CpuTimes`] at the edges of each phase together with the CPU time of
//! server and generator, and writes the flags into the round. Instruction counts and memory survive
//! a busy neighbour; throughput and latency do not.
//!
//! Time in interrupts is left out on both sides: the kernel may or may not charge it to the process
//! that happens to run, and on loopback most of it is our own traffic.

mod frequency;
mod pressure;
mod thread_times;
mod unlike;

pub use frequency::cpu_frequency_hz;
pub use pressure::cpu_pressure_ns;
pub use thread_times::ThreadTimes;
pub use unlike::flag_unlike_runs;

use std::fs;

use crate::process::ticks_to_ns;
use crate::record::{NoiseFlag, NoiseKind};

/// Other programs may use this share of the machine before a run is flagged.
pub const FOREIGN_CPU_LIMIT: f64 = 0.05;
/// The hypervisor may take this share.
pub const STEAL_LIMIT: f64 = 0.01;
/// A run may differ from the others' median frequency by this share.
pub const FREQUENCY_CHANGE_LIMIT: f64 = 0.05;
/// Programs may wait for a processor this much longer than in the same candidate's other runs, as a
/// share of the phase.
pub const PRESSURE_LIMIT: f64 = 0.05;

/// What this machine does not let us watch, one sentence each.
#[must_use]
pub fn unwatched() -> Vec<String> {
    let absences = [
        (
            cpu_frequency_hz().is_none(),
            "the processors' frequency cannot be seen here (no cpufreq): a change of it between runs \
             would go unnoticed",
        ),
        (
            cpu_pressure_ns().is_none(),
            "this kernel does not count how long programs wait for a processor (no \
             /proc/pressure/cpu): other programs and steal are watched all the same",
        ),
        (
            CpuTimes::read().is_none(),
            "what other programs use of this machine cannot be seen (no /proc/stat): throughput and \
             latency are not guarded against a busy machine",
        ),
    ];
    let absent = absences.into_iter().filter(|(is_absent, _)| *is_absent);
    absent.map(|(_, sentence)| sentence.to_owned()).collect()
}

/// CPU time of the whole machine since boot, all processors together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CpuTimes {
    /// Spent in programs, user mode and kernel.
    pub busy_ns: u64,
    /// Taken by the hypervisor while we wanted to run.
    pub steal_ns: u64,
    /// Everything, idle included.
    pub total_ns: u64,
}

impl CpuTimes {
    /// Reads `/proc/stat`; `None` where it is hidden.
    #[must_use]
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: `cpu user nice system idle iowait irq softirq steal guest guest_nice`.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.lines().next()?.split_ascii_whitespace();
        if fields.next()? != "cpu" {
            return None;
        }
        let mut ticks = [0_u64; 8];
        for (place, slot) in ticks.iter_mut().enumerate() {
            // Steal came with Linux 2.6.11; before that the line is shorter.
            *slot = match fields.next() {
                Some(text) => text.parse().ok()?,
                None if place >= 4 => 0,
                None => return None,
            };
        }
        let [user, nice, system, _idle, _iowait, _irq, _softirq, steal] = ticks;
        Some(Self {
            busy_ns: ticks_to_ns(user + nice + system),
            steal_ns: ticks_to_ns(steal),
            total_ns: ticks_to_ns(ticks.iter().sum()),
        })
    }
}

/// What happened on the machine between two points, as shares of all its CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineNoise {
    /// Used by programs that are not ours.
    pub foreign_cpu_share: f64,
    /// Taken by the hypervisor.
    pub steal_share: f64,
    /// Used by programs, ours included.
    pub busy_share: f64,
}

impl MachineNoise {
    /// `ours_ns` is the CPU time server and generator used in between.
    #[must_use]
    pub fn between(before: &CpuTimes, after: &CpuTimes, ours_ns: u64) -> Self {
        let total = after.total_ns.saturating_sub(before.total_ns);
        if total == 0 {
            return Self::default();
        }
        let busy = after.busy_ns.saturating_sub(before.busy_ns);
        let share = |part: u64| part as f64 / total as f64;
        Self {
            foreign_cpu_share: share(busy.saturating_sub(ours_ns)),
            steal_share: share(after.steal_ns.saturating_sub(before.steal_ns)),
            busy_share: share(busy),
        }
    }

    /// The flags this deserves, for the phase named.
    #[must_use]
    pub fn flags(&self, phase: &str) -> Vec<NoiseFlag> {
        [
            (
                NoiseKind::ForeignCpu,
                self.foreign_cpu_share,
                FOREIGN_CPU_LIMIT,
            ),
            (NoiseKind::Steal, self.steal_share, STEAL_LIMIT),
        ]
        .into_iter()
        .filter(|&(_, value, limit)| value > limit)
        .map(|(kind, value, limit)| NoiseFlag {
            kind,
            value,
            limit,
            phase: Some(phase.to_owned()),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_first_line() {
        let times = CpuTimes::parse("cpu  100 20 30 400 5 6 7 8 9 10\ncpu0 1 2\n").unwrap();
        let tick = ticks_to_ns(1);
        assert_eq!(times.busy_ns, 150 * tick);
        assert_eq!(times.steal_ns, 8 * tick);
        assert_eq!(times.total_ns, 576 * tick);
        assert!(CpuTimes::parse("cpu  100 20 30 400\n").is_some());
        for bad in ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4", "cpu a b c d"] {
            assert_eq!(CpuTimes::parse(bad), None, "{bad:?}");
        }
    }

    /// Goal: our own work is never called foreign, and a hog is.
    #[test]
    fn foreign_share_is_what_is_left() {
        let before = CpuTimes {
            busy_ns: 1_000,
            steal_ns: 0,
            total_ns: 10_000,
        };
        let after = CpuTimes {
            busy_ns: 2_600,
            steal_ns: 100,
            total_ns: 12_000,
        };
        let ours = MachineNoise::between(&before, &after, 1_600);
        assert_eq!((ours.foreign_cpu_share, ours.steal_share), (0.0, 0.05));
        assert_eq!(ours.flags("put").len(), 1);
        let hog = MachineNoise::between(&before, &after, 600);
        assert_eq!(hog.foreign_cpu_share, 0.5);
        assert_eq!(hog.flags("put")[0].kind, NoiseKind::ForeignCpu);
        // Ticks of 10 ms may credit us with a little more than the machine shows.
        assert_eq!(
            MachineNoise::between(&before, &after, 9_999).foreign_cpu_share,
            0.0
        );
        assert_eq!(
            MachineNoise::between(&before, &before, 0),
            MachineNoise::default()
        );
    }

    #[test]
    fn reads_this_machine() {
        let times = CpuTimes::read().unwrap();
        assert!(times.busy_ns > 0 && times.busy_ns < times.total_ns);
    }
}
