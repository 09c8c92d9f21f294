//! How much to do in the time there is, once it is known how fast every candidate is.
//!
//! On the path: between `preflight` and the first round. Pure arithmetic: figures in, plan out.
//!
//! Requests are fixed in number, so that memory is compared at equal work, and chosen so that the
//! slowest candidate fills its share of the time. Rounds are given up before phases get too short
//! to mean anything; where fewer rounds could give no verdict at all, the budget gives. What is left
//! after ten rounds with useful phases becomes further looks at the data: more and shorter runs, since
//! what differs between processes is averaged by processes only.

mod known;
mod description;

use std::time::Duration;

use millpond_measure::statistics::{look_rounds, smallest_rounds};

use crate::config::ROUNDS_DEFAULT;

pub use known::Known;

/// The common rate, as a part of what the slowest candidate can do: enough that queues form now and
/// then, little enough that all keep up.
pub const RATE_SHARE: f64 = 0.6;
/// Shortest useful phase: below it, start-up and the clocks' steps are too large a part.
const PHASE_MIN: Duration = Duration::from_millis(300);
/// Longer phases buy nothing that more rounds would not buy better.
const PHASE_MAX: Duration = Duration::from_secs(3);
/// Phases are made this long before there are more than the usual rounds: fragmentation and tails take
/// a while to show.
const PHASE_WANTED: Duration = Duration::from_secs(1);
/// So many answers let a run have a p99; a few more, because arrivals are not exact.
const P99_ANSWERS: f64 = 10_500.0;
/// Nobody waits for more rounds; a plan has to end.
const ROUNDS_MAX: u32 = 1_000;
/// The part of a run that the warm-up may take.
const WARM_UP_SHARE: f64 = 1.0 / 3.0;
/// Kept back for the analysis and the report.
const REPORT_RESERVE: Duration = Duration::from_secs(3);

/// What starting and stopping a target takes, guessed for the question whether there is time at all.
const OVERHEAD_GUESS: Duration = Duration::from_millis(300);
/// What trying out a candidate and counting its heap calls takes, guessed for the same.
const TRY_GUESS: Duration = Duration::from_millis(2500);

/// The shortest comparison of `candidates`, the second baseline included, that can give a verdict,
/// guessed before any of them was started. `rounds`: what the user insists on.
#[must_use]
pub fn shortest(candidates: u32, operations: u32, rounds: Option<u32>, idle: Duration) -> Duration {
    let rounds = rounds.unwrap_or_else(|| rounds_min(candidates));
    let run = OVERHEAD_GUESS + idle + PHASE_MIN * 2 * operations;
    run * candidates * rounds + TRY_GUESS * candidates + REPORT_RESERVE
}

/// How long `candidates` are tried out, guessed before any of them was started.
#[must_use]
pub fn tried_out(candidates: u32) -> Duration {
    TRY_GUESS * candidates
}

/// Below this many rounds no exact test can claim anything, however large the difference: all
/// candidates but the baseline are compared with it at once.
fn rounds_min(candidates: u32) -> u32 {
    let comparisons = candidates.saturating_sub(1) as usize;
    u32::try_from(smallest_rounds(comparisons)).unwrap_or(u32::MAX)
}

/// What will be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rounds at most: those until the last look.
    pub rounds: u32,
    /// The rounds after which the data are looked at. More than one: the comparison ends at the first
    /// look that finds every verdict decided.
    pub looks: Vec<u32>,
    /// Fewer cannot give a verdict.
    pub rounds_min: u32,
    /// Requests of the closed loop, per operation.
    pub requests: Vec<u64>,
    /// The constant rate, per operation.
    pub rate_per_s: Vec<f64>,
    /// Length of each closed loop phase for the slowest candidate.
    pub throughput_phase: Duration,
    /// Length of each constant rate phase.
    pub latency_phase: Duration,
    /// Estimate of one run.
    pub run: Duration,
    /// True if even the smallest plan needs more than what is left.
    pub over_budget: bool,
    /// Requests that precede the closed loop and count nowhere, per operation; the same for all.
    pub warm_up_requests: Vec<u64>,
    /// True if that is less than what was found to be needed.
    pub warm_up_is_cut: bool,
    /// Between the end of the work and the reading of what was retained.
    pub idle: Duration,
}

impl Plan {
    /// The plan for what is known.
    #[must_use]
    pub fn make(known: &Known) -> Self {
        if let Some(load) = known.load_command {
            return Self::of_command(known, load);
        }
        let phases = 2 * u32::try_from(known.slowest_per_s.len()).unwrap_or(1).max(1);
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let (warm_up_requests, warm_up) = Self::warm_up(known, left);
        let fixed = known.overhead + known.idle + warm_up;
        let phase_for = |rounds: u32| {
            let runs = known.candidates.max(1) * rounds.max(1);
            (left / runs).saturating_sub(fixed) / phases
        };
        let looks = Self::looks(
            known,
            |rounds| phase_for(rounds) >= PHASE_MIN,
            |rounds| phase_for(rounds) >= known.phase_wanted(),
        );
        let rounds = looks.last().copied().unwrap_or(1);
        let phase = phase_for(rounds).clamp(PHASE_MIN, PHASE_MAX);
        let (throughput_phase, latency_phase) = Self::divide(known, phase);
        let count = |per_s: &f64| (per_s * throughput_phase.as_secs_f64()).ceil().max(1.0) as u64;
        Self {
            rounds,
            looks,
            rounds_min: known.rounds_min(),
            requests: known.slowest_per_s.iter().map(count).collect(),
            rate_per_s: known
                .slowest_per_s
                .iter()
                .map(|&per_s| known.rate_per_s(per_s))
                .collect(),
            throughput_phase,
            latency_phase,
            run: fixed + phase * phases,
            over_budget: phase_for(rounds) < PHASE_MIN,
            warm_up_is_cut: warm_up_requests != known.warm_up_requests,
            warm_up_requests,
            idle: known.idle,
        }
    }

    /// The two phases that there is time for, as long as each other; unless a longer one at the constant
    /// rate has the answers for a p99 that an equal part lacks. Throughput is known sooner.
    fn divide(known: &Known, phase: Duration) -> (Duration, Duration) {
        let both = phase * 2;
        let wanted = known.p99_phase();
        let is_worth_it = wanted > phase && wanted.saturating_add(PHASE_MIN) <= both;
        let latency = if is_worth_it { wanted } else { phase };
        (both - latency, latency)
    }

    /// One phase in each run, as long as the user's program takes: only rounds can be given up.
    fn of_command(known: &Known, load: Duration) -> Self {
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let run = known.overhead + known.idle + load;
        let fits = |rounds: u32| run * known.candidates.max(1) * rounds <= left;
        let looks = Self::looks(known, fits, fits);
        let rounds = looks.last().copied().unwrap_or(1);
        Self {
            rounds,
            looks,
            rounds_min: known.rounds_min(),
            requests: Vec::new(),
            rate_per_s: Vec::new(),
            throughput_phase: load,
            latency_phase: Duration::ZERO,
            run,
            over_budget: !fits(rounds),
            warm_up_requests: Vec::new(),
            warm_up_is_cut: false,
            idle: known.idle,
        }
    }

    /// When to look: once, if the user insists on a number or time has no room for more; else after the
    /// usual rounds first, and the last time where `is_ample` ends.
    fn looks(
        known: &Known,
        is_enough: impl Fn(u32) -> bool,
        is_ample: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        if let Some(rounds) = known.rounds {
            return vec![rounds];
        }
        let usual = ROUNDS_DEFAULT.max(known.rounds_min());
        let mut fewer = (known.rounds_min()..=usual).rev();
        let first = fewer
            .find(|&rounds| is_enough(rounds))
            .unwrap_or(known.rounds_min());
        if first < usual {
            return vec![first];
        }
        let more = (first + 1..=ROUNDS_MAX).take_while(|&rounds| is_ample(rounds));
        look_rounds(first, more.last().unwrap_or(first), known.comparisons())
    }

    /// The warm-up of each run and what it takes: all that is needed, or what is a bearable part of the
    /// time that there is.
    fn warm_up(known: &Known, left: Duration) -> (Vec<u64>, Duration) {
        let needed = known.warm_up();
        let rounds = known
            .rounds
            .unwrap_or_else(|| ROUNDS_DEFAULT.max(known.rounds_min()));
        let run = left / (known.candidates.max(1) * rounds.max(1));
        let bearable = run.mul_f64(WARM_UP_SHARE);
        if needed <= bearable {
            return (known.warm_up_requests.clone(), needed);
        }
        let part = bearable.as_secs_f64() / needed.as_secs_f64();
        let requests = known.warm_up_requests.iter();
        let cut = requests.map(|&requests| (requests as f64 * part) as u64);
        (cut.collect(), bearable)
    }

    /// Estimate of all runs.
    #[must_use]
    pub fn duration(&self, candidates: u32) -> Duration {
        self.run * candidates * self.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{IDLE_DEFAULT, TIME_BUDGET_DEFAULT};

    fn known() -> Known {
        Known {
            candidates: 9,
            left: Duration::from_secs(250),
            overhead: Duration::from_millis(250),
            slowest_per_s: vec![10_000.0, 40_000.0],
            rounds: None,
            rate_per_s: None,
            load_command: None,
            warm_up_requests: vec![0, 0],
            idle: IDLE_DEFAULT,
        }
    }

    /// Goal: a load program of the user's keeps its length; rounds are what is given up.
    #[test]
    fn a_load_program_keeps_its_length() {
        let load = Duration::from_secs(2);
        let known = Known {
            candidates: 4,
            load_command: Some(load),
            ..known()
        };
        let plan = Plan::make(&known);
        assert_eq!(plan.throughput_phase, load);
        // Two and a half seconds each: 24 rounds of four candidates fit, in two looks.
        assert_eq!((plan.rounds, plan.looks.as_slice()), (24, &[10, 24][..]));
        assert!(!plan.over_budget && plan.requests.is_empty());
        let tight = Known {
            left: Duration::from_secs(90),
            ..known
        };
        let plan = Plan::make(&tight);
        assert!((tight.rounds_min()..10).contains(&plan.rounds), "{plan:?}");
        let lines = plan.describe(&["request"], 4, &tight);
        assert!(lines[1].contains("the load command, about"), "{lines:?}");
        let plan = Plan::make(&Known {
            left: Duration::from_secs(9),
            ..tight
        });
        assert!(plan.over_budget && plan.rounds == plan.rounds_min);
    }

    /// Goal: the default comparison keeps all ten rounds and stays inside the budget.
    #[test]
    fn default_comparison_fits() {
        let plan = Plan::make(&known());
        assert_eq!(plan.rounds, 10);
        assert!(!plan.over_budget);
        assert!(plan.duration(9) <= Duration::from_secs(250));
        assert!(
            plan.duration(9) >= Duration::from_secs(240),
            "time is used: {plan:?}"
        );
        let seconds = plan.throughput_phase.as_secs_f64();
        assert_eq!(
            plan.requests,
            [10_000.0, 40_000.0].map(|r| (r * seconds).ceil() as u64)
        );
        assert_eq!(plan.rate_per_s, [6_000.0, 24_000.0]);
    }

    /// Goal: what the default budget has room for before anything is measured: glibc, three
    /// libraries of the distribution and mempool, each with pools on and off; for somebody else's
    /// server four more allocators; but not those four for ours as well.
    #[test]
    fn the_default_budget_has_room_for_eleven_candidates() {
        assert!(shortest(11, 2, None, IDLE_DEFAULT) <= TIME_BUDGET_DEFAULT);
        assert!(shortest(10, 1, None, IDLE_DEFAULT) <= TIME_BUDGET_DEFAULT);
        assert!(shortest(19, 2, None, IDLE_DEFAULT) > TIME_BUDGET_DEFAULT);
        assert!(shortest(19, 2, Some(3), IDLE_DEFAULT) <= TIME_BUDGET_DEFAULT);
        let known = Known {
            candidates: 11,
            left: Duration::from_secs(240),
            ..known()
        };
        let plan = Plan::make(&known);
        assert_eq!((plan.rounds, plan.over_budget), (10, false));
    }

    /// Goal: rounds go first, then the budget; never the rounds a verdict needs, or useful phases.
    #[test]
    fn less_time_means_fewer_rounds_then_an_honest_overrun() {
        let tight = Known {
            left: Duration::from_secs(145),
            ..known()
        };
        let plan = Plan::make(&tight);
        assert!(
            (tight.rounds_min()..ROUNDS_DEFAULT).contains(&plan.rounds),
            "{plan:?}"
        );
        assert!(!plan.over_budget);
        assert!(plan.duration(9) <= tight.left);
        let impossible = Known {
            left: Duration::from_secs(5),
            ..known()
        };
        let plan = Plan::make(&impossible);
        assert_eq!(
            (plan.rounds, plan.throughput_phase),
            (impossible.rounds_min(), PHASE_MIN)
        );
        assert!(plan.over_budget);
        let lines = plan.describe(&["PUT", "GET"], 9, &impossible);
        assert!(
            lines.iter().any(|line| line.contains("--time-budget")),
            "{lines:?}"
        );
    }

    /// Goal: a p99 that only lacks a few answers is measured, in the time of both phases; where it lacks
    /// many, or none, they stay as long as each other.
    #[test]
    fn the_constant_rate_lasts_for_a_p99() {
        let plan = |per_s, seconds| {
            Plan::make(&Known {
                candidates: 3,
                left: Duration::from_secs(seconds),
                slowest_per_s: vec![per_s],
                warm_up_requests: vec![0],
                ..known()
            })
        };
        let answers = |plan: &Plan| plan.rate_per_s[0] * plan.latency_phase.as_secs_f64();
        for (per_s, seconds) in [(40_000.0, 43), (20_000.0, 57)] {
            let plan = plan(per_s, seconds);
            assert!(answers(&plan) >= 10_000.0, "{plan:?}");
            assert!(
                plan.throughput_phase >= PHASE_MIN && plan.throughput_phase < plan.latency_phase
            );
            assert!(plan.duration(3) <= Duration::from_secs(seconds));
            let work = per_s * plan.throughput_phase.as_secs_f64();
            assert_eq!(plan.requests, [work.ceil() as u64]);
        }
        for (per_s, seconds) in [(100_000.0, 43), (3_000.0, 57), (40_000.0, 5)] {
            let plan = plan(per_s, seconds);
            assert_eq!(plan.throughput_phase, plan.latency_phase, "{plan:?}");
        }
    }

    /// Goal: what the user insists on is done, and its price said.
    #[test]
    fn the_users_wishes_win() {
        let wishes = Known {
            rounds: Some(3),
            rate_per_s: Some(500.0),
            ..known()
        };
        let plan = Plan::make(&wishes);
        assert_eq!(
            (plan.rounds, plan.rate_per_s.clone()),
            (3, vec![500.0, 500.0])
        );
        assert_eq!(plan.throughput_phase, PHASE_MAX.min(plan.throughput_phase));
        let lines = plan.describe(&["PUT", "GET"], 9, &wishes);
        assert!(
            lines.iter().any(|line| line.contains("below 9 rounds")),
            "{lines:?}"
        );
    }

    /// Goal: time that ten rounds do not need becomes looks, not longer phases; few candidates are
    /// looked at early, and what is said of it is in the plan.
    #[test]
    fn ample_time_means_more_looks() {
        let ample = Known {
            candidates: 3,
            slowest_per_s: vec![50_000.0],
            warm_up_requests: vec![0],
            ..known()
        };
        let plan = Plan::make(&ample);
        assert_eq!(plan.looks, [10, 18, 32]);
        assert!(plan.throughput_phase >= PHASE_WANTED && !plan.over_budget);
        assert!(plan.duration(3) <= ample.left);
        let lines = plan.describe(&["request"], 3, &ample);
        assert!(lines[0].starts_with("at most 32 rounds"), "{lines:?}");
        assert!(lines[1].contains("after 10, 18 or 32 rounds"), "{lines:?}");
        // A slow server's p99 needs long phases, so there are fewer rounds.
        let slow = Known {
            slowest_per_s: vec![7_000.0],
            ..ample.clone()
        };
        assert!(Plan::make(&slow).rounds < plan.rounds);
        // What the user insists on is looked at once.
        let fixed = Known {
            rounds: Some(40),
            ..ample.clone()
        };
        assert_eq!(Plan::make(&fixed).looks, [40]);
        // A whole night: the looks stay few.
        let night = Known {
            left: Duration::from_secs(36_000),
            ..ample
        };
        let plan = Plan::make(&night);
        assert!((2..=4).contains(&plan.looks.len()), "{plan:?}");
        assert_eq!(plan.looks[0], 10);
    }

    /// Goal: warm-up and idle time are planned for; a warm-up that would eat the runs is cut, and said.
    #[test]
    fn warm_up_and_idle_take_their_time() {
        let plain = Plan::make(&known());
        let idle = Known {
            idle: Duration::from_secs(12),
            left: Duration::from_secs(2_000),
            ..known()
        };
        let plan = Plan::make(&idle);
        assert!(plan.run >= Duration::from_secs(12) && plan.idle == idle.idle);
        assert!(!plan.over_budget);
        let warm = Known {
            warm_up_requests: vec![2_000, 4_000],
            ..known()
        };
        let plan = Plan::make(&warm);
        assert_eq!(plan.warm_up_requests, [2_000, 4_000]);
        assert!(!plan.warm_up_is_cut && plan.throughput_phase < plain.throughput_phase);
        assert!(plan.duration(9) <= warm.left);
        let lines = plan.describe(&["PUT", "GET"], 9, &warm);
        let said = "warm-up per run: 2000 PUT, 4000 GET (what it took until all were steady)";
        assert!(lines.iter().any(|line| line == said), "{lines:?}");
        let long = Known {
            warm_up_requests: vec![100_000, 0],
            ..known()
        };
        let plan = Plan::make(&long);
        assert!(plan.warm_up_is_cut && plan.warm_up_requests[0] < 100_000);
        assert!(
            plan.warm_up_requests[0] > 1_000 && !plan.over_budget,
            "{plan:?}"
        );
        let lines = plan.describe(&["PUT", "GET"], 9, &long);
        assert!(
            lines.iter().any(|line| line.contains("less than it took")),
            "{lines:?}"
        );
    }
}
