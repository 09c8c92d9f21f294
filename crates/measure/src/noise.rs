//! How much of the machine other programs used while we measured.
//!
//! `lab` reads [`CpuTimes`] at the edges of each phase together with the CPU time of server and
//! generator, and writes the flags into the round. Instruction counts and memory survive a busy
//! neighbour; throughput and latency do not.
//!
//! Time in interrupts is left out on both sides: the kernel may or may not charge it to the process
//! that happens to run, and on loopback most of it is our own traffic.

use std::fs;
use std::path::Path;

use crate::process::ticks_to_ns;
use crate::record::{CandidateRounds, NoiseFlag, NoiseKind, RoundMeasures};
use crate::statistics::median;

/// Other programs may use this share of the machine before a run is flagged.
pub const FOREIGN_CPU_LIMIT: f64 = 0.05;
/// The hypervisor may take this share.
pub const STEAL_LIMIT: f64 = 0.01;
/// A run may differ from the others' median frequency by this share.
pub const FREQUENCY_CHANGE_LIMIT: f64 = 0.05;
/// Programs may wait for a processor this much longer than in the same candidate's other runs, as a
/// share of the phase.
pub const PRESSURE_LIMIT: f64 = 0.05;

/// The values that this machine does not let us watch, one sentence each.
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
    /// Taken by the hypervisor while a thread of ours was ready to run.
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

/// The use of the machine between two points, as shares of all its CPU time.
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

// Runs under other circumstances than their fellows: another processor frequency, more waiting.

/// Fewer runs do not say what is usual.
const RUNS_MIN: usize = 3;

/// Flags the runs whose frequency differs from the median of all runs in the same phase, and those with
/// more pressure than the median of the same candidate's. Asking again gives the same flags.
pub fn flag_unlike_runs(candidates: &mut [CandidateRounds]) {
    let runs = candidates.iter_mut().flat_map(|one| &mut one.rounds);
    for run in runs {
        run.noise
            .retain(|flag| !matches!(flag.kind, NoiseKind::Frequency | NoiseKind::Pressure));
    }
    let all = candidates.iter().flat_map(|one| &one.rounds);
    let usual = Usual::of(all, |run| &run.cpu_frequency_hz);
    for run in candidates.iter_mut().flat_map(|one| &mut one.rounds) {
        let change = |here: f64, usual: f64| (here / usual - 1.0).abs();
        let flags = usual.flags(&run.cpu_frequency_hz, NoiseKind::Frequency, change);
        run.noise.extend(flags);
    }
    for candidate in candidates {
        let usual = Usual::of(candidate.rounds.iter(), |run| &run.cpu_pressure);
        for run in &mut candidate.rounds {
            let more = |here: f64, usual: f64| here - usual;
            let flags = usual.flags(&run.cpu_pressure, NoiseKind::Pressure, more);
            run.noise.extend(flags);
        }
    }
}

type Phases = std::collections::BTreeMap<String, f64>;

/// The median of each phase that enough runs have.
struct Usual(Phases);

impl Usual {
    fn of<'a>(
        runs: impl Iterator<Item = &'a RoundMeasures>,
        pick: impl Fn(&'a RoundMeasures) -> &'a Phases,
    ) -> Self {
        let mut values: std::collections::BTreeMap<&str, Vec<f64>> = Default::default();
        for (phase, value) in runs.flat_map(pick) {
            values.entry(phase).or_default().push(*value);
        }
        let medians = values.into_iter().filter_map(|(phase, mut values)| {
            let enough = values.len() >= RUNS_MIN;
            Some((phase.to_owned(), median(&mut values).filter(|_| enough)?))
        });
        Self(medians.collect())
    }

    fn flags(
        &self,
        phases: &Phases,
        kind: NoiseKind,
        distance: impl Fn(f64, f64) -> f64,
    ) -> Vec<NoiseFlag> {
        let limit = match kind {
            NoiseKind::Frequency => FREQUENCY_CHANGE_LIMIT,
            _ => PRESSURE_LIMIT,
        };
        phases
            .iter()
            .filter_map(|(phase, here)| {
                let value = distance(*here, *self.0.get(phase)?);
                (value > limit).then(|| NoiseFlag {
                    kind,
                    value,
                    limit,
                    phase: Some(phase.clone()),
                })
            })
            .collect()
    }
}

// The scheduler's counts for each thread (`/proc/PID/task/TID/schedstat`).

/// CPU time and time of waiting of one thread since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ThreadTimes {
    /// User and kernel time.
    pub cpu_ns: u64,
    /// How long it was ready and did not run.
    pub waited_ns: u64,
}

impl ThreadTimes {
    /// Reads `cpu_ns waited_ns turns`. `None` if that is not what the text is. Allocates nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        Some(Self {
            cpu_ns: fields.next()?.parse().ok()?,
            waited_ns: fields.next()?.parse().ok()?,
        })
    }

    /// The increase since `earlier`; nothing where a counter went back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

// How fast the processors run: a machine that clocks down between two runs makes the later one slow.
//
// Read right after a phase, while the load is still warm; what an idle processor says means nothing.

/// Where the kernel reports it; absent in most virtual machines.
const CPUS: &str = "/sys/devices/system/cpu";

/// The frequency of the fastest processor at this moment, which is one that works. `None` where the
/// kernel does not say.
#[must_use]
pub fn cpu_frequency_hz() -> Option<f64> {
    fastest(Path::new(CPUS))
}

fn fastest(cpus: &Path) -> Option<f64> {
    let entries = fs::read_dir(cpus).ok()?;
    let khz = entries.flatten().filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("cpufreq/scaling_cur_freq")).ok()?;
        text.trim().parse::<u64>().ok().filter(|&khz| khz > 0)
    });
    khz.max().map(|khz| khz as f64 * 1e3)
}

// How long programs waited for a processor: the kernel's pressure stall information.
//
// Generator and server make pressure themselves, so only more of it than in the same candidate's other
// runs is a disturbance.

/// Time since boot in which some program was ready and had no processor. `None` where the kernel does
/// not count it.
#[must_use]
pub fn cpu_pressure_ns() -> Option<u64> {
    parse(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// The line `some avg10=0.00 avg60=0.00 avg300=0.00 total=11220657`, its total in microseconds.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    total.parse::<u64>().ok()?.checked_mul(1_000)
}

#[cfg(test)]
#[path = "tests/noise.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/unlike.rs"]
mod unlike_tests;

#[cfg(test)]
#[path = "tests/thread_times.rs"]
mod thread_times_tests;

#[cfg(test)]
#[path = "tests/frequency.rs"]
mod frequency_tests;

#[cfg(test)]
#[path = "tests/pressure.rs"]
mod pressure_tests;
