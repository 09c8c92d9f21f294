//! Keeping a slice undisturbed, and noticing when it was not: targets that are frozen between slices, CPUs that stay
//! awake, threads that wait for a CPU, and what other programs used meanwhile.
//!
//! A target is stopped between its slices, so that it takes nothing from the candidate that is measured.
//!
//! By the freezer of its control group, which processes do not notice; without a group by SIGSTOP, which
//! the parents of workers see. A frozen target can be killed at any time, and has to be thawed before it is
//! asked to end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::time::{Duration, Instant};
use std::{fs, thread};

use millpond_measure::environment::Environment;
use millpond_measure::noise::{ThreadTimes, cpu_frequency_hz, cpu_pressure_ns};
use millpond_measure::record::RoundMeasures;
use millpond_measure::statistics::at_least_p;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{LabError, RunError};
use crate::started_candidate::StartedCandidate;

/// A group is frozen once none of its tasks is in the kernel any more: at once, as a rule.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// A process may fork while its tree is being stopped.
const SIGNAL_PASSES: usize = 3;

/// Stops every process of `started_candidate`; returns when they have stopped.
pub(crate) fn freeze(session: &StartedCandidate) -> Result<(), RunError> {
    set_frozen(session, true)
}

/// Lets them run again.
pub(crate) fn thaw(session: &StartedCandidate) -> Result<(), RunError> {
    set_frozen(session, false)
}

fn set_frozen(session: &StartedCandidate, is_frozen: bool) -> Result<(), RunError> {
    let Some(group) = &session.cgroup else {
        signal(session, is_frozen);
        return Ok(());
    };
    let what = if is_frozen { "freeze" } else { "thaw" };
    let refused = |error: std::io::Error| {
        RunError::Figures(format!("its control group cannot {what} it: {error}"))
    };
    group.set_frozen(is_frozen).map_err(refused)?;
    let deadline = Instant::now() + FREEZE_TIMEOUT;
    while group.is_frozen().map_err(refused)? != is_frozen {
        if Instant::now() > deadline {
            let seconds = FREEZE_TIMEOUT.as_secs();
            return Err(RunError::Figures(format!(
                "its control group did not {what} it within {seconds} s"
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Parents first: one that sees a worker stop may start another.
fn signal(session: &StartedCandidate, is_frozen: bool) {
    let (signal, passes) = match is_frozen {
        true => (Signal::STOP, SIGNAL_PASSES),
        false => (Signal::CONT, 1),
    };
    for _ in 0..passes {
        for pid in session.tree.members() {
            // One that has ended in the meantime needs no signal.
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

// Idle processors that stay awake while something is measured.
//
// A processor with nothing to do sleeps, and a request that comes then waits for it to wake. In a virtual machine it is
// given back to the host meanwhile, which wakes it when it likes: that is most of a latency at a constant rate, changes
// from minute to minute, and is reported as stolen time. Linux lets no processor sleep while a program asks for a
// latency of 0 (admin-guide/pm/cpuidle.rst, "Power Management Quality of Service for CPUs"), until that program closes
// the file or ends.

const REQUEST_FILE: &str = "/dev/cpu_dma_latency";

/// The state of idle processors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IdleCpus {
    /// In a virtual machine they stay awake if this user may ask for it; elsewhere they sleep. A real
    /// processor is back within microseconds, and one that stays awake takes speed from its sibling.
    #[default]
    Auto,
    /// They stay awake; a machine that does not let us is an error.
    Awake,
    /// They sleep as the system has it.
    Asleep,
}

/// As long as this is kept, no processor sleeps.
#[derive(Debug)]
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// Requests it, if `wanted` on this machine.
    ///
    /// # Errors
    /// With [`IdleCpus::Awake`] alone: the file is for root, and a kernel without power management lacks
    /// it.
    pub(crate) fn hold(wanted: IdleCpus, machine: &Environment) -> Result<Option<Self>, LabError> {
        match wanted {
            IdleCpus::Asleep => Ok(None),
            IdleCpus::Awake => Self::ask().map(Some).map_err(|error| LabError::System {
                what: "keep idle CPUs awake through /dev/cpu_dma_latency, which is for root; leave out \
                       `--idle-cpus awake`",
                error,
            }),
            IdleCpus::Auto if machine.is_virtual_machine() => Ok(Self::ask().ok()),
            IdleCpus::Auto => Ok(None),
        }
    }

    /// Asks for it on any machine.
    pub(crate) fn ask() -> Result<Self, Error> {
        let mut request = OpenOptions::new().write(true).open(REQUEST_FILE)?;
        // The longest that a processor may take to be back, in microseconds.
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _request: request })
    }
}

// How long the threads of a target waited for a CPU that something outside of the target had.
//
// On a shared machine, another user's task takes the server's CPU for some milliseconds a few times a second: 3 % of a
// slice of 100 ms, and its p99. The kernel counts for each thread how long it was ready and did not run. Others are the
// cause only as long as the target does not compete with itself, so it is read only where one thread per CPU did nearly
// all of the target's work.

/// Reading more threads takes longer than it may at the edge of a slice.
const THREADS_MAX: usize = 64;
/// The permitted CPU time of all other threads of a target.
const OTHERS_SHARE_MAX: f64 = 0.01;

/// CPU time and time of waiting of each thread since its start.
#[derive(Debug, Default)]
pub(crate) struct WaitTimes {
    by_thread: BTreeMap<u32, ThreadTimes>,
}

impl WaitTimes {
    /// Of these processes; `None` if they have too many threads, or if the kernel does not count waiting.
    pub(crate) fn read(pids: &[u32]) -> Option<Self> {
        let mut all = Self::default();
        for pid in pids {
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
                continue;
            };
            for thread in threads.flatten() {
                let id = thread.file_name().to_str()?.parse().ok()?;
                // One that has ended in the meantime does not wait.
                if let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) {
                    all.by_thread.insert(id, ThreadTimes::parse(&text)?);
                }
                if all.by_thread.len() > THREADS_MAX {
                    return None;
                }
            }
        }
        (!all.by_thread.is_empty()).then_some(all)
    }

    /// How long since `earlier` the busiest threads, one for each of `cpus`, waited for others; `None` if
    /// they may have waited for threads of their own process.
    pub(crate) fn waited_since(&self, earlier: &Self, cpus: usize) -> Option<Duration> {
        let mut spent: Vec<ThreadTimes> = self
            .by_thread
            .iter()
            .map(|(id, now)| {
                let before = earlier.by_thread.get(id).copied().unwrap_or_default();
                now.since(before)
            })
            .collect();
        spent.sort_by_key(|times| std::cmp::Reverse(times.cpu_ns));
        let (busiest, others) = spent.split_at(cpus.min(spent.len()));
        let sum = |part: &[ThreadTimes]| part.iter().map(|times| times.cpu_ns).sum::<u64>();
        let others_may = sum(&spent) as f64 * OTHERS_SHARE_MAX;
        if sum(others) as f64 > others_may {
            return None;
        }
        let waited_ns = busiest.iter().map(|times| times.waited_ns).sum();
        Some(Duration::from_nanos(waited_ns))
    }
}

// Whether what disturbs slices comes from outside of the candidates, or from the one that is measured.
//
// A slice that something outside disturbed is repeated. But if one candidate's slices are disturbed more often than
// the others', the disturbance is probably its own (threads of the kernel that work for it, a generator that waits
// for it), and to repeat them would take out a part of its price. Then they count as they are.

/// The chance of taking a candidate's bad luck for its own doing.
const SIGNIFICANCE: f64 = 0.01;

/// Slices so far, by candidate.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    of: Vec<Tried>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    slices: u32,
    disturbed: u32,
}

impl Disturbances {
    pub(crate) fn note(&mut self, candidate: usize, is_disturbed: bool) {
        if self.of.len() <= candidate {
            self.of.resize(candidate + 1, Tried::default());
        }
        if let Some(tried) = self.of.get_mut(candidate) {
            tried.slices += 1;
            tried.disturbed += u32::from(is_disturbed);
        }
    }

    /// Whether its slices were disturbed more often than the others', by more than chance.
    pub(crate) fn are_its_own(&self, candidate: usize) -> bool {
        let Some(own) = self.of.get(candidate) else {
            return false;
        };
        let (mut slices, mut disturbed) = (0, 0);
        for tried in &self.of {
            slices += tried.slices;
            disturbed += tried.disturbed;
        }
        if own.slices == slices {
            return false;
        }
        let share = f64::from(own.slices) / f64::from(slices);
        at_least_p(own.disturbed, disturbed, share) < SIGNIFICANCE
    }
}

// The state of the machine during a measurement, beyond what `usage` reads: processor frequency and waiting.
//
// Read right after, while the processors are still at the frequency of the load. Whether a run was unlike
// its fellows is decided when there are fellows (`millpond_measure::noise::flag_unlike_runs`).

/// The moment before something is measured.
#[derive(Debug)]
pub(crate) struct HostNoise {
    pressure_ns: Option<u64>,
    began: Instant,
}

impl HostNoise {
    /// `has_pressure`: whether tasks that wait for a processor are a sign of disturbance. Not where the target's own
    /// waiting is read, and not where it has the highest priority: then the others wait for it.
    pub(crate) fn before(has_pressure: bool) -> Self {
        Self {
            pressure_ns: cpu_pressure_ns().filter(|_| has_pressure),
            began: Instant::now(),
        }
    }

    /// Adds what happened until now.
    pub(crate) fn add_to(&self, sum: &mut WeatherSum) {
        sum.elapsed += self.began.elapsed();
        sum.frequency_hz = cpu_frequency_hz();
        if let (Some(before), Some(after)) = (self.pressure_ns, cpu_pressure_ns()) {
            *sum.pressure_ns.get_or_insert(0) += after.saturating_sub(before);
        }
    }
}

/// The same over several stretches of time.
#[derive(Debug, Default)]
pub(crate) struct WeatherSum {
    elapsed: Duration,
    pressure_ns: Option<u64>,
    /// At the end of the last one.
    frequency_hz: Option<f64>,
}

impl WeatherSum {
    /// Notes it under the name of a phase.
    pub(crate) fn note(&self, phase: &str, measures: &mut RoundMeasures) {
        if let Some(hz) = self.frequency_hz {
            measures.cpu_frequency_hz.insert(phase.to_owned(), hz);
        }
        if let Some(pressure_ns) = self.pressure_ns {
            let elapsed_ns = self.elapsed.as_nanos() as f64;
            let share = pressure_ns as f64 / elapsed_ns.max(1.0);
            measures
                .cpu_pressure
                .insert(phase.to_owned(), share.min(1.0));
        }
    }
}

#[cfg(test)]
#[path = "tests/awake.rs"]
mod awake_tests;

#[cfg(test)]
#[path = "tests/waiting.rs"]
mod waiting_tests;

#[cfg(test)]
#[path = "tests/disturbances.rs"]
mod disturbances_tests;
