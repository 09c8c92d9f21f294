//! Hardware counters of one thread, all in one group.
//!
//! The stopwatch starts and stops them around the timed loop. A group is on the processor as a
//! whole or not at all, and four events fit every PMU since 2008; if it had to share them anyway,
//! the counts are thrown away: scaled counts are a guess.

use std::io;
use std::ops::Add;
use std::time::Instant;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter, Group};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The counts in user mode.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Instructions retired.
    pub instructions: u64,
    /// Cycles of the core.
    pub cycles: u64,
    /// Mispredicted branches.
    pub branch_misses: u64,
    /// Loads and stores that missed every cache.
    pub cache_misses: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            cycles: self.cycles + other.cycles,
            branch_misses: self.branch_misses + other.branch_misses,
            cache_misses: self.cache_misses + other.cache_misses,
        }
    }
}

const EVENTS: [Hardware; 4] = [
    Hardware::INSTRUCTIONS,
    Hardware::CPU_CYCLES,
    Hardware::BRANCH_MISSES,
    Hardware::CACHE_MISSES,
];

/// The four counters of the calling thread, if there are any.
pub(crate) struct Counters(Option<EventGroup<4>>);

impl Counters {
    /// Never fails: without counters there are no counts.
    pub(crate) fn of_this_thread() -> Self {
        Self(EventGroup::open(EVENTS).ok())
    }

    pub(crate) fn start(&mut self) {
        if let Some(group) = &mut self.0
            && group.group.reset().and(group.group.enable()).is_err()
        {
            self.0 = None;
        }
    }

    pub(crate) fn stop(&mut self) -> Option<Counts> {
        let [instructions, cycles, branch_misses, cache_misses] = self.0.as_mut()?.stop()?;
        Some(Counts {
            instructions,
            cycles,
            branch_misses,
            cache_misses,
        })
    }
}

/// Whether this machine counts; the sentence says why not and what to do.
pub fn available() -> Result<(), String> {
    let stand_in = "instructions are counted by `cargo bench-suite bench pools`, under valgrind, in their place";
    let Err(error) = EventGroup::open(EVENTS) else {
        return Ok(());
    };
    Err(match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "hardware counters are forbidden here: run as root or set kernel.perf_event_paranoid \
             to 2 or less; {stand_in}"
        ),
        _ => format!(
            "this machine shows no hardware counters (common in virtual machines): {stand_in}"
        ),
    })
}

/// Counters that start and stop together.
struct EventGroup<const COUNT: usize> {
    group: Group,
    counters: [Counter; COUNT],
}

impl<const COUNT: usize> EventGroup<COUNT> {
    fn open<E: Event>(events: [E; COUNT]) -> io::Result<Self> {
        let mut group = Group::new()?;
        let mut counters = Vec::with_capacity(COUNT);
        for event in events {
            counters.push(group.add(&Builder::new(event))?);
        }
        let counters = counters
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self { group, counters })
    }

    /// `None` when the group was not on the processor all the time.
    fn stop(&mut self) -> Option<[u64; COUNT]> {
        self.group.disable().ok()?;
        let counts = self.group.read().ok()?;
        let (enabled, running) = (counts.time_enabled()?, counts.time_running()?);
        // A thousandth is lost when a group is switched in and out; that is not sharing.
        if running.is_zero() || running + enabled / 1000 < enabled {
            return None;
        }
        Some(std::array::from_fn(|index| counts[&self.counters[index]]))
    }
}

// The cost of a piece of work: wall time, CPU time, and hardware counts.

/// The cost of one thread's work, or that of several together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    /// On the clock; of several threads, of the slowest.
    pub(crate) wall_ns: u64,
    /// On the CPU, user mode and kernel; of several threads, of all.
    pub(crate) cpu_ns: u64,
    /// `None` without counters, or when one thread had none.
    pub(crate) counts: Option<Counts>,
}

impl Timed {
    /// Does the work and times it.
    pub(crate) fn of(work: impl FnOnce()) -> Self {
        let mut counters = Counters::of_this_thread();
        let (wall, cpu_ns) = (Instant::now(), thread_cpu_ns());
        counters.start();
        work();
        let counts = counters.stop();
        Self {
            wall_ns: wall.elapsed().as_nanos() as u64,
            cpu_ns: thread_cpu_ns() - cpu_ns,
            counts,
        }
    }

    /// Two threads that worked at the same time.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            wall_ns: self.wall_ns.max(other.wall_ns),
            cpu_ns: self.cpu_ns + other.cpu_ns,
            counts: self.counts.zip(other.counts).map(|(one, two)| one + two),
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
#[path = "tests/counters.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/stopwatch.rs"]
mod stopwatch_tests;
