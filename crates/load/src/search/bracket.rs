//! Between which two rates the limit lies, and where to look next.
//!
//! On the path: `search` asks for a rate, makes a run and reports the outcome, until this says that
//! it is over. A noisy machine makes a good rate fail now and then, and nothing makes a rate above
//! the limit hold; so a miss counts when it has happened twice, a rate that held once may be built
//! upon at once, and the one that is given out in the end has held twice. The one above it, which
//! says that there is no more, is asked again at the end: if it holds twice after all, the search goes
//! on above it.
//!
//! Absent on purpose: runs, clocks and objectives, so that a search over a simulated target takes no
//! time.
use crate::arrivals::RATE_PER_S_MAX;
use millpond_measure::record::{SearchEnd, StepOutcome};

/// Equal votes that decide about a rate.
const VOTES: u32 = 2;
/// Misses of the rate above the answer, unless it has held twice before the last of them.
const VOTES_ABOVE: u32 = 3;
/// From one step up to the next, while none has failed.
const CLIMB: f64 = std::f64::consts::SQRT_2;
/// From one step down to the next, while none has held.
const DESCENT: f64 = 2.0;
/// The lowest rate worth trying, as a share of the first.
const FLOOR_SHARE: f64 = 1.0 / 1024.0;
/// Steps after which a search is not going to end.
const STEPS_MAX: u32 = 100;

/// One rate and how its steps went.
#[derive(Clone, Copy, Debug)]
struct Tried {
    per_s: f64,
    met: u32,
    missed: u32,
    rejected: u32,
}

impl Tried {
    /// What the votes came to, if enough agree.
    fn decided(&self) -> Option<StepOutcome> {
        if self.met >= VOTES {
            Some(StepOutcome::Met)
        } else if self.missed >= VOTES {
            Some(StepOutcome::Missed)
        } else if self.rejected >= VOTES {
            Some(StepOutcome::Rejected)
        } else {
            None
        }
    }

    /// What the votes lean to.
    fn leaning(&self) -> StepOutcome {
        self.decided().unwrap_or({
            if self.met > 0 && self.missed + self.rejected == 0 {
                StepOutcome::Met
            } else if self.missed >= self.rejected {
                StepOutcome::Missed
            } else {
                StepOutcome::Rejected
            }
        })
    }

    /// Whether a vote against it is open.
    fn is_doubtful(&self) -> bool {
        self.decided().is_none() && self.missed + self.rejected > 0
    }
}

/// A search in progress.
#[derive(Debug)]
pub(super) struct Bracket {
    first_per_s: f64,
    precision: f64,
    tried: Vec<Tried>,
    steps: u32,
}

impl Bracket {
    /// Begins at `first_per_s`; ends when the two rates differ by no more than `precision`.
    pub(super) fn new(first_per_s: f64, precision: f64) -> Self {
        Self {
            first_per_s,
            precision,
            tried: Vec::new(),
            steps: 0,
        }
    }

    /// The rate of the next step, or why there is none.
    pub(super) fn next(&self) -> Result<f64, SearchEnd> {
        if self.steps >= STEPS_MAX {
            return Err(SearchEnd::Unsteady);
        }
        if let Some(doubtful) = self.tried.iter().find(|tried| tried.is_doubtful()) {
            return Ok(doubtful.per_s);
        }
        match (self.lowest_failed(), self.highest_held()) {
            (None, None) => Ok(self.first_per_s),
            (None, Some(held)) => {
                let up_per_s = held.per_s * CLIMB;
                if up_per_s <= RATE_PER_S_MAX {
                    Ok(up_per_s)
                } else {
                    Err(SearchEnd::GeneratorLimit)
                }
            }
            (Some(failed), None) => {
                let down_per_s = failed.per_s / DESCENT;
                if down_per_s >= self.first_per_s * FLOOR_SHARE {
                    Ok(down_per_s)
                } else {
                    Err(SearchEnd::NoneHolds)
                }
            }
            (Some(failed), Some(held)) => self.between(&held, &failed),
        }
    }

    fn between(&self, held: &Tried, failed: &Tried) -> Result<f64, SearchEnd> {
        if failed.per_s > held.per_s * (1.0 + self.precision) {
            return Ok((failed.per_s * held.per_s).sqrt());
        }
        match (held.decided(), failed.decided()) {
            (None, _) => Ok(held.per_s),
            _ if failed.missed + failed.rejected < VOTES_ABOVE => Ok(failed.per_s),
            (_, Some(StepOutcome::Rejected)) => Err(SearchEnd::GeneratorLimit),
            _ => Err(SearchEnd::Found),
        }
    }

    /// A step at `per_s` is over.
    pub(super) fn observe(&mut self, per_s: f64, outcome: StepOutcome) {
        self.steps += 1;
        let place = self.tried.iter().position(|tried| tried.per_s == per_s);
        let place = place.unwrap_or_else(|| {
            self.tried.push(Tried {
                per_s,
                met: 0,
                missed: 0,
                rejected: 0,
            });
            self.tried.len() - 1
        });
        let tried = &mut self.tried[place];
        match outcome {
            StepOutcome::Met => tried.met += 1,
            StepOutcome::Missed => tried.missed += 1,
            StepOutcome::Rejected => tried.rejected += 1,
        }
    }

    /// The highest rate that held, as far as known.
    pub(super) fn low(&self) -> Option<f64> {
        self.highest_held().map(|tried| tried.per_s)
    }

    /// The lowest rate that did not.
    pub(super) fn high(&self) -> Option<f64> {
        self.lowest_failed().map(|tried| tried.per_s)
    }

    /// Every rate that was tried, and what its votes came to or lean to.
    pub(super) fn rates(&self) -> impl Iterator<Item = (f64, StepOutcome)> + '_ {
        self.tried
            .iter()
            .map(|tried| (tried.per_s, tried.leaning()))
    }

    fn lowest_failed(&self) -> Option<Tried> {
        let has_failed = |tried: &&Tried| {
            matches!(
                tried.decided(),
                Some(StepOutcome::Missed | StepOutcome::Rejected)
            )
        };
        let failed = self.tried.iter().filter(has_failed);
        failed
            .min_by(|one, other| one.per_s.total_cmp(&other.per_s))
            .copied()
    }

    /// Below the lowest that failed: a rate above it that held has been lucky.
    fn highest_held(&self) -> Option<Tried> {
        let limit_per_s = self.lowest_failed().map_or(f64::INFINITY, |one| one.per_s);
        let held = self
            .tried
            .iter()
            .filter(|tried| tried.leaning() == StepOutcome::Met && tried.per_s < limit_per_s);
        held.max_by(|one, other| one.per_s.total_cmp(&other.per_s))
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(first_per_s: f64, mut step: impl FnMut(f64) -> StepOutcome) -> (Bracket, SearchEnd) {
        let mut bracket = Bracket::new(first_per_s, 0.01);
        loop {
            match bracket.next() {
                Ok(per_s) => bracket.observe(per_s, step(per_s)),
                Err(ended) => return (bracket, ended),
            }
        }
    }

    fn limit(capacity_per_s: f64) -> impl FnMut(f64) -> StepOutcome {
        move |per_s| {
            if per_s <= capacity_per_s {
                StepOutcome::Met
            } else {
                StepOutcome::Missed
            }
        }
    }

    /// A queue with one server that takes exactly `1/capacity` for each request, evenly spaced
    /// arrivals for two seconds, and stalls of up to 5 ms from `random`: what p99 < 20 ms says.
    fn queue(capacity_per_s: f64, per_s: f64, random: &mut impl FnMut() -> f64) -> StepOutcome {
        let (service_s, gap_s, span_s) = (1.0 / capacity_per_s, 1.0 / per_s, 2.0);
        let (mut free_at_s, mut stall_at_s) = (0.0_f64, random() * 0.2);
        let count = (span_s / gap_s) as usize;
        let mut late = 0;
        for number in 0..count {
            let arrival_s = number as f64 * gap_s;
            let mut start_s = free_at_s.max(arrival_s);
            if start_s >= stall_at_s {
                start_s += random() * 0.005;
                stall_at_s = start_s + 0.1 + random() * 0.2;
            }
            free_at_s = start_s + service_s;
            late += usize::from(free_at_s - arrival_s >= 0.020);
        }
        if late * 100 <= count {
            StepOutcome::Met
        } else {
            StepOutcome::Missed
        }
    }

    /// Goal: the rate that is found lies within 3 % of what a queue can do that also stalls now and
    /// then, ten times of ten; the stalls take up to 1.3 % of its time.
    #[test]
    fn a_noisy_queues_capacity_is_found() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for run in 0..10 {
            let capacity_per_s = 400.0 * 1.37_f64.powi(run);
            let first_per_s = capacity_per_s * (0.05 + random() * 0.3);
            let (bracket, ended) = search(first_per_s, |per_s| {
                queue(capacity_per_s, per_s, &mut random)
            });
            assert_eq!(ended, SearchEnd::Found, "run {run}");
            let ratio = bracket.low().unwrap() / capacity_per_s;
            assert!((0.97..=1.005).contains(&ratio), "run {run}: {ratio}");
            assert!(bracket.steps < 40, "run {run}: {} steps", bracket.steps);
        }
    }

    /// Goal: a sharp limit is bracketed to the precision, from below and from above.
    #[test]
    fn a_sharp_limit_is_bracketed() {
        for first_per_s in [10.0, 999.0, 1_000.0, 50_000.0] {
            let (bracket, ended) = search(first_per_s, limit(1_000.0));
            assert_eq!(ended, SearchEnd::Found);
            let (low, high) = (bracket.low().unwrap(), bracket.high().unwrap());
            assert!(
                low <= 1_000.0 && high > 1_000.0 && high / low <= 1.01,
                "{low} {high}"
            );
        }
    }

    /// Goal: a good rate that fails by accident, even in the climb, does not end the search there.
    #[test]
    fn one_bad_vote_is_outvoted() {
        let mut votes = 0;
        let mut target = limit(1_000.0);
        let (bracket, ended) = search(100.0, |per_s| {
            votes += 1;
            if votes % 4 == 0 {
                StepOutcome::Missed
            } else {
                target(per_s)
            }
        });
        assert_eq!(ended, SearchEnd::Found);
        assert!(bracket.low().unwrap() > 985.0, "{:?}", bracket.low());
    }

    /// Goal: a rate that held once by luck is asked again, fails, and the search goes on below it.
    #[test]
    fn luck_does_not_become_the_answer() {
        let mut was_lucky = false;
        let mut target = limit(1_000.0);
        let (bracket, ended) = search(700.0, |per_s| {
            let is_lucky = per_s > 1_000.0 && per_s < 1_300.0 && !was_lucky;
            was_lucky |= is_lucky;
            if is_lucky {
                StepOutcome::Met
            } else {
                target(per_s)
            }
        });
        assert_eq!(ended, SearchEnd::Found);
        assert!(was_lucky);
        let low = bracket.low().unwrap();
        assert!((985.0..=1_000.0).contains(&low), "{low}");
    }

    /// Goal: a rate far below the limit that failed twice by accident is not the end of the search.
    #[test]
    fn two_bad_votes_are_outvoted() {
        let mut target = limit(1_000.0);
        for first_per_s in [700.0, 800.0, 900.0] {
            let mut bad = 2;
            let (bracket, ended) = search(first_per_s, |per_s| {
                let is_bad = bad > 0 && per_s > 705.0 && per_s < 990.0;
                bad -= i32::from(is_bad);
                if is_bad {
                    StepOutcome::Missed
                } else {
                    target(per_s)
                }
            });
            assert_eq!((ended, bad), (SearchEnd::Found, 0));
            let low = bracket.low().unwrap();
            assert!((985.0..=1_000.0).contains(&low), "{first_per_s}: {low}");
        }
    }

    /// Goal: the generator's own limit is not given out as the target's.
    #[test]
    fn the_generators_limit_is_named() {
        let (bracket, ended) = search(100.0, |per_s| {
            if per_s > 500.0 {
                StepOutcome::Rejected
            } else {
                StepOutcome::Met
            }
        });
        assert_eq!(ended, SearchEnd::GeneratorLimit);
        assert!(bracket.low().unwrap() <= 500.0);
    }

    /// Goal: a target that never keeps its objectives ends the search, and one that changes does too.
    #[test]
    fn hopeless_searches_end() {
        let (bracket, ended) = search(100.0, |_| StepOutcome::Missed);
        assert_eq!((ended, bracket.low()), (SearchEnd::NoneHolds, None));
        assert!(bracket.steps <= 30);
        let mut turn = 0;
        let outcomes = [StepOutcome::Met, StepOutcome::Missed, StepOutcome::Rejected];
        let (_, ended) = search(100.0, |_| {
            turn += 1;
            outcomes[turn % 3]
        });
        assert_ne!(ended, SearchEnd::Interrupted);
        let (_, ended) = search(100.0, |_| StepOutcome::Met);
        assert_eq!(ended, SearchEnd::GeneratorLimit);
    }
}
