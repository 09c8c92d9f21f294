//! Which CPUs the server gets and which the generator, and their priority.
//!
//! Apart if there are two or more: a generator on the server's CPU would be measured as server. Before other programs,
//! if that is permitted: one that wakes once a second for 5 ms is half a percent of the time, and decides a p99.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millpond_io::{allowed_cpus, may_raise_priority};
use millpond_measure::record::CORE_DISTANCE_CHANGE_MIN;
use rustix::process::getppid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs and priority for both sides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placement {
    /// Empty: anywhere.
    pub server: Vec<usize>,
    /// Empty: anywhere.
    pub generator: Vec<usize>,
    /// CPUs that both may use as the kernel likes, if neither is pinned; 0 if they are, or if there is only one.
    pub unpinned: usize,
    /// Whether both have the highest priority of ordinary tasks.
    pub is_raised: bool,
}

impl Placement {
    /// Divides the CPUs this process may use.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let allowed = allowed_cpus().unwrap_or_default();
        Self {
            is_raised: may_raise_priority(),
            ..Self::divide(&allowed)
        }
    }

    /// The last quarter, at least one CPU, for the generator; the rest for the server. A single CPU
    /// is shared by both.
    fn divide(allowed: &[usize]) -> Self {
        if allowed.len() < 2 {
            return Self {
                server: Vec::new(),
                generator: Vec::new(),
                unpinned: 0,
                is_raised: false,
            };
        }
        let (server, generator) = allowed.split_at(allowed.len() - (allowed.len() / 4).max(1));
        Self {
            server: server.to_vec(),
            generator: generator.to_vec(),
            unpinned: 0,
            is_raised: false,
        }
    }

    /// The same with both on all of their CPUs.
    #[must_use]
    pub fn without_pins(self) -> Self {
        Self {
            unpinned: self.server.len() + self.generator.len(),
            server: Vec::new(),
            generator: Vec::new(),
            is_raised: self.is_raised,
        }
    }

    /// Whether no CPU is both the server's and the generator's.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        let is_common = |cpu| self.server.contains(cpu);
        !self.server.is_empty()
            && !self.generator.is_empty()
            && !self.generator.iter().any(is_common)
    }

    /// Threads that make sense for the server.
    #[must_use]
    pub fn server_threads(&self) -> usize {
        self.server.len().max(self.unpinned).max(1)
    }

    /// Threads that make sense for the generator.
    #[must_use]
    pub fn generator_threads(&self) -> usize {
        self.generator.len().max(self.unpinned / 4).max(1)
    }

    /// For the record: `server 0; generator 1; both before other programs`.
    #[must_use]
    pub fn describe(&self) -> String {
        let priority = match self.is_raised {
            true => "; both before other programs (nice -20)",
            false => "",
        };
        if self.unpinned > 0 {
            return format!(
                "not pinned: {} CPUs for server and generator{priority}",
                self.unpinned
            );
        }
        if self.server.is_empty() {
            return format!("server and generator share one CPU{priority}");
        }
        let list = |cpus: &[usize]| {
            cpus.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        format!(
            "server {}; generator {}{priority}",
            list(&self.server),
            list(&self.generator)
        )
    }
}

// How fast a CPU is right now, as far as other users of the machine decide it.
//
// On a machine that is shared, the other half of a core is busy for seconds and idle for seconds. Arithmetic
// hardly notices; entering the kernel takes 40 % longer, and a server that does little else is a third slower.
// A short run of system calls before and after each slice tells in which of the states it ran.

/// Calls in one run, and runs: the fastest counts, since an interrupt falls into a few of them.
const CALLS: u32 = 100;
const RUNS: u32 = 4;
/// More CPUs would take longer than the result is worth.
const CPUS_MAX: usize = 4;

/// Nanoseconds of a system call on these CPUs, their geometric mean; `None` if this thread may not go there.
pub(crate) fn system_call_ns(cpus: &[usize]) -> Option<f64> {
    let cpus = cpus
        .get(..cpus.len().min(CPUS_MAX))
        .filter(|cpus| !cpus.is_empty())?;
    let home = sched_getaffinity(None).ok()?;
    let mut sum_of_logs = 0.0;
    let mut has_failed = false;
    for &cpu in cpus {
        let mut only = CpuSet::new();
        only.set(cpu);
        has_failed |= sched_setaffinity(None, &only).is_err();
        sum_of_logs += fastest_call_ns().ln();
    }
    // It was allowed there before.
    let _ = sched_setaffinity(None, &home);
    (!has_failed).then(|| (sum_of_logs / cpus.len() as f64).exp())
}

fn fastest_call_ns() -> f64 {
    let run = |_| {
        let began = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(getppid());
        }
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

// How far apart the CPUs of server and generator are right now.
//
// A request and its response are cache lines that one CPU writes and the other reads. Virtual CPUs do not say where
// they are: a hypervisor moves them between cores and core complexes for seconds at a time, and then a line takes 300
// ns to cross and back instead of 50 ns, and a server that does little else serves 155,000 requests a second instead of
// 235,000. Neither the speed of each CPU alone nor the server's CPU share shows it. So the time of a round trip is
// measured before and after each slice: two threads pass a number to and fro.

/// The time of a cache line from the server's CPU to the generator's and back; none where that cannot be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CoreDistance {
    ns: Option<f64>,
}

impl CoreDistance {
    pub(crate) fn now(placement: &Placement) -> Self {
        let ends = placement.server.first().zip(placement.generator.first());
        let ns = ends.and_then(|(&one, &other)| round_trip_ns(one, other));
        Self { ns }
    }

    /// For a record: 0 stands for none.
    pub(crate) fn ns(self) -> f64 {
        self.ns.unwrap_or(0.0)
    }

    pub(crate) fn mean(self, other: Self) -> Self {
        let ns = self.ns.zip(other.ns).map(|(one, two)| (one * two).sqrt());
        Self { ns }
    }

    /// This one, or `other` where there is none.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            ns: self.ns.or(other.ns),
        }
    }

    /// Whether the CPUs were moved from one to the other.
    pub(crate) fn differs(self, other: Self) -> bool {
        self.change_to(other)
            .is_some_and(|change| change.abs() > CORE_DISTANCE_CHANGE_MIN)
    }

    /// Whether the CPUs are farther apart than at `other`.
    pub(crate) fn is_beyond(self, other: Self) -> bool {
        other
            .change_to(self)
            .is_some_and(|change| change > CORE_DISTANCE_CHANGE_MIN)
    }

    /// Makes this the nearer one of both, and returns it.
    pub(crate) fn lower_to(&mut self, other: Self) -> Self {
        self.ns = self.ns.into_iter().chain(other.ns).reduce(f64::min);
        *self
    }

    fn change_to(self, other: Self) -> Option<f64> {
        self.ns.zip(other.ns).map(|(one, two)| (two / one).ln())
    }
}

/// Round trips in one run, and runs: the fastest counts, since an interrupt falls into a few of them.
const TRIPS: u32 = 200;
const CORE_DISTANCE_RUNS: u32 = 10;
/// A thread that never gets its CPU must not hold up a comparison.
const PATIENCE: Duration = Duration::from_millis(50);
/// The clock is read after so many polls.
const LOOKS: u32 = 1_000;

/// Nanoseconds of a round trip between two CPUs; `None` if they are one, or a thread cannot run there in time.
fn round_trip_ns(one: usize, other: usize) -> Option<f64> {
    if one == other {
        return None;
    }
    let line = Line::default();
    std::thread::scope(|scope| {
        let thread = |cpu, place| {
            let line = &line;
            std::thread::Builder::new()
                .name("core-distance".to_owned())
                .spawn_scoped(scope, move || line.pass(cpu, place))
        };
        let first = thread(one, 0).ok()?;
        let second = thread(other, 1);
        if second.is_err() {
            line.is_given_up.store(true, Ordering::Relaxed);
        }
        first.join().ok()?
    })
    .filter(|ns| ns.is_finite())
}

/// The value that both threads poll, alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    /// Whose turn it is.
    turn: AtomicU32,
    is_given_up: AtomicBool,
}

impl Line {
    /// The fastest run of one side.
    fn pass(&self, cpu: usize, place: u32) -> Option<f64> {
        let mut only = CpuSet::new();
        only.set(cpu);
        if sched_setaffinity(None, &only).is_err() {
            self.is_given_up.store(true, Ordering::Relaxed);
            return None;
        }
        let end = Instant::now() + PATIENCE;
        let mut fastest = f64::INFINITY;
        for _ in 0..CORE_DISTANCE_RUNS {
            let began = Instant::now();
            for _ in 0..TRIPS {
                self.await_turn(place, end)?;
                self.turn.store(1 - place, Ordering::Release);
            }
            let ns = began.elapsed().as_nanos() as f64 / f64::from(TRIPS);
            fastest = fastest.min(ns);
        }
        Some(fastest)
    }

    fn await_turn(&self, place: u32, end: Instant) -> Option<()> {
        let mut looks = 0;
        while self.turn.load(Ordering::Acquire) != place {
            looks += 1;
            if looks % LOOKS == 0 {
                if self.is_given_up.load(Ordering::Relaxed) || Instant::now() > end {
                    self.is_given_up.store(true, Ordering::Relaxed);
                    return None;
                }
                // Beside a busy thread the other one needs this CPU, if it is the only one.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Some(())
    }
}

#[cfg(test)]
#[path = "tests/placement.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/cpu_speed.rs"]
mod cpu_speed_tests;

#[cfg(test)]
#[path = "tests/core_distance.rs"]
mod core_distance_tests;
