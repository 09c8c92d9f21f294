//! When requests of an open loop are meant to leave: a process fixed before the run.
//!
//! On the path: `schedule` gives each arrival a number, and the thread that claims it asks its own
//! cursor for the moment. A process is a *profile* (how many arrivals a second, over time) and a
//! *spacing* (how they lie within that). Arrival number i is where the profile's area reaches the
//! i-th point of a process of rate one, so any spacing goes with any profile:
//!
//! ```text
//! number ─ spacing ─ point of the unit process ─ profile, inverted ─ ns after the start
//! ```
//! The same seed gives the same moments, whatever the target does and however many threads ask.
//!
//! Absent on purpose: a table of arrivals, which an hour at a high rate would fill the memory with;
//! a shared generator, which threads would have to lock. Each thread walks the whole process,
//! at some ten nanoseconds per arrival, and takes of it what it claimed.
mod profile;
mod rate;
mod spacing;

pub use profile::{Profile, Segment};
pub use rate::{RATE_PER_S_MAX, Rate};
pub use spacing::Spacing;

use profile::Inverse;
use spacing::UnitProcess;
use std::fmt;

/// An arrival process.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// How many arrivals a second, over time.
    pub profile: Profile,
    /// How they lie within that.
    pub spacing: Spacing,
    /// Where the random numbers of the spacing start.
    pub seed: u64,
}

impl Arrivals {
    /// Evenly spaced arrivals at one rate for ever.
    pub fn constant(rate: Rate) -> Self {
        Self {
            profile: Profile::Constant(rate),
            spacing: Spacing::Even,
            seed: 0,
        }
    }

    /// Says what is wrong with it, if anything, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        self.profile.check()?;
        self.spacing.check()?;
        if matches!(self.profile, Profile::Trace(_)) && self.spacing != Spacing::Even {
            return Err("a trace has moments of its own and takes no spacing".into());
        }
        Ok(())
    }

    /// How long the process lasts by itself; `None`: for ever.
    pub fn span_ns(&self) -> Option<u64> {
        self.profile.span_ns()
    }

    /// The rate when it is one and the same all the time.
    pub(crate) fn steady_rate(&self) -> Option<Rate> {
        match (&self.profile, self.spacing) {
            (Profile::Constant(rate), Spacing::Even) => Some(*rate),
            _ => None,
        }
    }

    /// The rate it begins with; `None` for a trace, which has none.
    pub(crate) fn first_rate(&self) -> Option<Rate> {
        Rate::from_per_s(self.profile.first_per_s())
    }

    /// Highest rate of the profile; of a trace, the mean over its span.
    pub(crate) fn peak_per_s(&self) -> f64 {
        self.profile.peak_per_s()
    }

    /// Starts walking the process.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            process: self,
            unit: UnitProcess::new(self.spacing, self.seed),
            inverse: Inverse::new(&self.profile),
            next_number: 0,
            last_point: 0.0,
        }
    }

    /// How many arrivals are meant to leave before `span_ns`, but at most `count_max`. O(1) for a
    /// steady rate, else O(arrivals).
    pub(crate) fn count_before(&self, span_ns: u64, count_max: u64) -> u64 {
        if let Some(rate) = self.steady_rate() {
            return rate.arrivals_before(span_ns).min(count_max);
        }
        let mut cursor = self.cursor();
        let is_before = |number: &u64| {
            cursor
                .offset_ns(*number)
                .is_some_and(|offset_ns| offset_ns < span_ns)
        };
        (0..count_max).take_while(is_before).count() as u64
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.profile)?;
        if self.spacing != Spacing::Even {
            write!(formatter, ", {}, seed {}", self.spacing, self.seed)?;
        }
        Ok(())
    }
}

/// A walk along a process, forwards only.
pub(crate) struct Cursor<'a> {
    process: &'a Arrivals,
    unit: UnitProcess,
    inverse: Inverse<'a>,
    next_number: u64,
    last_point: f64,
}

impl Cursor<'_> {
    /// When arrival `number` is meant to leave, after the start; `None` when the process has fewer.
    /// O(numbers since the last call), which must not have asked for a later one.
    pub(crate) fn offset_ns(&mut self, number: u64) -> Option<u64> {
        if let Some(rate) = self.process.steady_rate() {
            return Some(rate.offset_ns(number));
        }
        if let Profile::Trace(offsets) = &self.process.profile {
            let index = usize::try_from(number).ok()?;
            return offsets.get(index).copied();
        }
        debug_assert!(number + 1 >= self.next_number, "a cursor goes forwards");
        while self.next_number <= number {
            self.last_point = self.unit.point(self.next_number);
            self.next_number += 1;
        }
        self.inverse.offset_ns(self.last_point)
    }
}

#[cfg(test)]
mod tests;
