//! Hardware counters of one thread, all in one group.
//!
//! On the path: the stopwatch starts and stops them around the timed loop.
//! A group is on the processor as a whole or not at all, and four events fit every PMU since 2008;
//! if it had to share them all the same, the counts are thrown away: scaled counts are a guess.
//! Absent on purpose: the kernel's share, which needs rights that a benchmark should not ask for.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter, Group};
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Add;

/// What was counted in user mode.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Instructions retired.
    pub instructions: u64,
    /// Cycles of the core.
    pub cycles: u64,
    /// Branches that went the other way than foretold.
    pub branch_misses: u64,
    /// Loads and stores that no cache answered.
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
    let stand_in =
        "instructions are counted by `cargo xtask bench pools`, under valgrind, in their place";
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

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    /// Goal: a group counts what happens between start and stop and nothing else; with events that
    /// every kernel has, so that it is tested where there is no PMU.
    #[test]
    fn a_group_counts_between_start_and_stop() {
        let Ok(mut group) = EventGroup::open([Software::PAGE_FAULTS, Software::TASK_CLOCK]) else {
            eprintln!("perf_event_open is forbidden here: nothing to test");
            return;
        };
        group.group.reset().unwrap();
        group.group.enable().unwrap();
        let touched = vec![1_u8; 16 << 20];
        let [faults, clock_ns] = group.stop().unwrap();
        assert!(faults >= 1 && clock_ns > 0, "{faults} {clock_ns}");
        let more = vec![2_u8; 16 << 20];
        assert_eq!(group.stop().unwrap()[0], faults);
        drop((touched, more));
    }

    /// Goal: without counters there is a sentence, and with them counts that are not zero.
    #[test]
    fn absence_is_a_sentence() {
        let mut counters = Counters::of_this_thread();
        counters.start();
        let sum: u64 = std::hint::black_box((0..10_000_u64).sum());
        match (available(), counters.stop()) {
            (Ok(()), Some(counts)) => assert!(counts.instructions > 1_000, "{counts:?} {sum}"),
            (Ok(()), None) => eprintln!("the counters were shared with somebody else"),
            (Err(sentence), counts) => {
                assert!(sentence.contains("xtask"), "{sentence}");
                assert_eq!(counts, None);
            }
        }
    }
}
