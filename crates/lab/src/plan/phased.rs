//! The plan of a comparison of phases (`--phases`): what a round takes, and how many there is time for.

use std::time::Duration;

use millpond_measure::record::{PhaseKind, PhasePlan, PhaseSpec};
use millpond_measure::statistics::{Claims, InterimAnalyses, Sizes, can_claim};
use millpond_measure::units::{format_duration_ns, format_rate};

use super::{
    BLOCK_SLICES, P99_ANSWERS, PHASE_MIN, Plan, RATE_SHARE, REPORT_RESERVE,
    REQUESTS_PER_CONNECTION, REQUESTS_PER_CONNECTION_OF_WORK, SLICE_CLOSED_MAX, SLICE_MIN,
    WORK_MIN, WRITES, WRITES_PACED, rounds_min,
};

#[cfg(test)]
use crate::config::IDLE_DEFAULT;

/// Connecting, of each phase under load.
const PHASE_OVERHEAD: Duration = Duration::from_millis(100);
/// The most that the last responses of a phase may take.
const TAIL_MAX: Duration = Duration::from_secs(30);

/// The phases of each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phased {
    /// The phases.
    pub plan: PhasePlan,
    /// Connections of phases that name none.
    pub connections: usize,
    /// Whether a program of the user's makes the load.
    pub is_load_command: bool,
}

impl Plan {
    /// The number of cycles is given: only the number of rounds follows from the time budget, which has room for the round
    /// that traces heaps too.
    pub(super) fn of_phases(known: &Known, phases: &PhasePlan) -> Self {
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let (warm_up_requests, warm_up) = Self::warm_up(known, left);
        let run = run(known, phases, warm_up);
        let fits = |rounds: u32| run * known.candidates.max(1) * (rounds + 1) <= left;
        Self {
            keys: known.keys(PHASE_MIN),
            rate_per_s: known
                .slowest_per_s
                .iter()
                .map(|&per_s| known.rate_per_s(per_s))
                .collect(),
            cycles: phases.cycles,
            throughput_phase: length(phases, |_| true),
            warm_up_is_cut: warm_up_requests != known.warm_up_requests,
            warm_up_requests,
            phased: Some(Phased {
                plan: phases.clone(),
                connections: known.connections,
                is_load_command: known.load_command.is_some(),
            }),
            ..Self::of_runs(known, run, fits)
        }
    }
}

/// Time of the phases of a cycle that are of such a kind.
fn length(phases: &PhasePlan, is_meant: impl Fn(PhaseKind) -> bool) -> Duration {
    let meant = phases.phases.iter().filter(|spec| is_meant(spec.kind));
    meant
        .map(|spec| Duration::from_nanos(spec.duration_ns))
        .sum()
}

/// Until every connection has its last response.
fn tail(known: &Known, spec: &PhaseSpec) -> Duration {
    let slowest = known.slowest_per_s.iter().copied().reduce(f64::min);
    let connections = match spec.kind {
        PhaseKind::Idle => return Duration::ZERO,
        _ => spec.connections.map_or(known.connections as f64, f64::from),
    };
    let seconds = connections / slowest.unwrap_or(f64::INFINITY).max(1e-3);
    Duration::try_from_secs_f64(seconds).map_or(TAIL_MAX, |tail| tail.min(TAIL_MAX))
}

/// The time of a round for each candidate: the last idle phase of a cycle passes while others are under load.
fn run(known: &Known, phases: &PhasePlan, warm_up: Duration) -> Duration {
    let count = known.candidates.max(1);
    let loaded = length(phases, |kind| kind != PhaseKind::Idle);
    let idle = length(phases, |kind| kind == PhaseKind::Idle);
    let phases_count = u32::try_from(phases.phases.len()).unwrap_or(u32::MAX);
    let tails: Duration = phases.phases.iter().map(|spec| tail(known, spec)).sum();
    // A program of the user's takes what it takes.
    let loaded = match known.load_command {
        Some(length) => {
            let all = phases.phases.iter();
            let count = all.filter(|spec| spec.kind != PhaseKind::Idle).count();
            length * u32::try_from(count).unwrap_or(u32::MAX)
        }
        None => loaded + tails,
    };
    let loaded = loaded + PHASE_OVERHEAD * phases_count;
    let cycle = match known.is_one_at_a_time {
        true => loaded + idle,
        false => (loaded * count).max(loaded + idle) / count,
    };
    // After the last cycle no other candidate is under load.
    let last = match known.is_one_at_a_time {
        true => Duration::ZERO,
        false => idle / count,
    };
    known.overhead + warm_up + cycle * phases.cycles + last
}

impl Phased {
    /// The steps of each round, as sentences.
    pub(super) fn describe(&self, rate_per_s: Option<f64>) -> Vec<String> {
        let parts: Vec<String> = (0..self.plan.phases.len())
            .map(|place| self.describe_phase(place, rate_per_s))
            .collect();
        let cycles = match self.plan.cycles {
            1 => "1 cycle".to_owned(),
            cycles => format!("{cycles} cycles"),
        };
        vec![
            format!("{cycles} in each round: {}", parts.join(", ")),
            match self.is_load_command {
                true => "one candidate lives at a time; a first round, which does not count, traces their heaps",
                false => {
                    "one candidate is under load at a time, the others are idle meanwhile; a first round, which does \
                     not count, traces their heaps"
                }
            }
            .to_owned(),
        ]
    }

    fn describe_phase(&self, place: usize, rate_per_s: Option<f64>) -> String {
        let Some(spec) = self.plan.phases.get(place) else {
            return String::new();
        };
        let length = format_duration_ns(spec.duration_ns as f64);
        let label = self.plan.label(place);
        if spec.kind == PhaseKind::Idle {
            return format!("{label} {length}");
        }
        let connections = spec
            .connections
            .map_or(self.connections, |count| count as usize);
        if self.is_load_command {
            return format!("{label} as long as the load command takes");
        }
        let rate = match spec.kind {
            PhaseKind::Steady => spec.rate_per_s.or(rate_per_s),
            _ => spec.rate_per_s,
        };
        let pace = match rate {
            Some(per_s) => format!("at {}", format_rate(per_s)),
            None => "as fast as responses come".to_owned(),
        };
        let path = spec.path.as_ref();
        let path = path.map_or_else(String::new, |path| format!(" for {path}"));
        let path = match spec.kind {
            PhaseKind::Churn => path + ", while its heap is aged by blocks of 16 B to 16 KiB",
            _ => path,
        };
        format!("{label} {length} with {connections} connections {pace}{path}")
    }
}

// In how many rounds memory on all CPUs is measured besides, and whether that is worth what it takes.
//
// Processes on all CPUs and bound ones are two samples, so a claim takes few of the former beside all rounds of the
// latter: where there is no time for every round, there may be for so many.

/// Memory on all CPUs is worth this share of the rounds, and none of what a round decides.
const ROUNDS_KEPT: f64 = 0.75;
/// And this share of the slices of a round, of both kinds, for memory in every round and in the fewest: intervals get
/// wider by the root of that at most.
const SLICES_KEPT: [(UnpinnedShare, f64, f64); 2] = [
    (UnpinnedShare::Every, 0.75, 1.0),
    (UnpinnedShare::Fewest, 0.6, 0.5),
];

/// The part of the rounds in which each candidate is started once more and does the work of the memory phase on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum UnpinnedShare {
    None,
    /// As many as a claim takes.
    Fewest,
    Every,
}

impl UnpinnedShare {
    /// Of `rounds`, after which the last of `looks` analyses is made.
    pub(super) fn rounds(self, rounds: u32, looks: usize, comparisons: usize) -> u32 {
        match self {
            Self::None => 0,
            Self::Every => rounds,
            Self::Fewest => fewest_rounds(rounds, looks, comparisons),
        }
    }
}

/// The fewest of `rounds` with which a difference between bound and unbound memory can be claimed at all.
fn fewest_rounds(rounds: u32, looks: usize, comparisons: usize) -> u32 {
    let claims = Claims {
        comparisons,
        looks: InterimAnalyses::planned(looks.max(1)),
        margin: 0.0,
    };
    let can = |count: &u32| can_claim(Sizes::Apart(*count as usize, rounds as usize), claims);
    (1..rounds).find(can).unwrap_or(rounds)
}

impl Plan {
    /// The plan with memory on all CPUs in as many rounds as leave enough to everything else.
    pub(super) fn with_unpinned(known: &Known) -> Self {
        let plan = Self::of_slices(known, UnpinnedShare::None);
        if !known.is_pinned {
            return plan;
        }
        SLICES_KEPT
            .into_iter()
            .map(|(share, cycles, paced)| (Self::of_slices(known, share), cycles, paced))
            .find(|(with, cycles, paced)| with.keeps_enough_of(&plan, *cycles, *paced))
            .map_or(plan, |(with, _, _)| with)
    }

    /// Whether it has enough of the rounds of `plan`, and these shares of its cycles and paced slices. Writes stay as long.
    fn keeps_enough_of(&self, plan: &Self, cycles: f64, paced: f64) -> bool {
        let is_kept = |mine: u32, of: u32, least: f64| f64::from(mine) >= least * f64::from(of);
        let is_whole = self.missed_floor == plan.missed_floor && !self.over_budget;
        is_whole
            && self.write_slice == plan.write_slice
            && is_kept(self.rounds, plan.rounds, ROUNDS_KEPT)
            && is_kept(self.cycles, plan.cycles, cycles)
            && is_kept(self.paced, plan.paced, paced)
    }

    /// Whether memory on all CPUs is measured in this round, counted from 0: spread over those that are never dropped.
    pub(crate) fn is_unpinned_round(&self, round: u32) -> bool {
        let certain = self.rounds_min.clamp(1, self.rounds.max(1));
        let count = u64::from(self.unpinned_rounds);
        if count >= u64::from(certain) {
            return u64::from(round) < count;
        }
        let begun = |rounds: u32| u64::from(rounds) * count / u64::from(certain);
        round < certain && begun(round) != begun(round + 1)
    }

    /// The time that the budget lacks for the fewest rounds with memory on all CPUs beside all of this plan.
    fn missing_for_unpinned(&self, known: &Known) -> Duration {
        let rounds = self.rounds.max(self.rounds_min);
        let count = fewest_rounds(rounds, self.looks.len(), known.comparisons());
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let (_, warm_up) = Self::warm_up(known, left);
        let candidates = known.candidates.max(1);
        let on_all_cpus = (known.overhead + warm_up + self.work) * count * candidates;
        (self.run * candidates * rounds + on_all_cpus).saturating_sub(left)
    }

    /// Notes for the reader.
    pub(super) fn describe_unpinned(&self, known: &Known) -> Option<String> {
        // Phases measure it bound, whatever the budget.
        let has_no_such_work = known.load_command.is_some() || self.phased.is_some();
        if !known.is_pinned || has_no_such_work || self.unpinned_rounds >= self.rounds {
            return None;
        }
        Some(match self.unpinned_rounds {
            0 => format!(
                "memory is measured bound to the server's CPUs alone: there is no time to measure it on all CPUs too \
                 (a --time-budget that is {} s longer has)",
                self.missing_for_unpinned(known).as_secs() + 1
            ),
            count => format!(
                "memory is measured on all CPUs too in {count} of the {} rounds: there is no time for more",
                self.rounds
            ),
        })
    }
}

// The basis of the plan.

/// How much each candidate does before its memory is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryWork {
    /// As many requests as the slowest serves in this time, per operation.
    For(Duration),
    /// So many requests, per operation.
    Requests(u64),
}

/// Lengths that the user insists on; those that are `None` follow from the time budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    /// The counted time of a slice of the closed loop.
    pub slice: Option<Duration>,
    /// The time before the counted part.
    pub settle: Option<Duration>,
    /// The counted time of a block.
    pub block: Option<Duration>,
    /// The work before memory is read.
    pub memory: Option<MemoryWork>,
}

/// The known facts after the preflight.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Candidates, the second baseline included.
    pub candidates: u32,
    /// Time left of the budget.
    pub left: Duration,
    /// From the start of a run to its first request, and from its last request to its end.
    pub overhead: Duration,
    /// The time of a slice beyond its length: connections, and the last responses of the slowest candidate.
    pub tail: Duration,
    /// Closed loop throughput of the slowest candidate, per operation in order.
    pub slowest_per_s: Vec<f64>,
    /// Connections of the generator.
    pub connections: usize,
    /// Rounds the user insists on.
    pub rounds: Option<u32>,
    /// The rate the user insists on.
    pub rate_per_s: Option<f64>,
    /// The time of the user's own load program, if that makes the load.
    pub load_command: Option<Duration>,
    /// Requests until every candidate's throughput was steady, per operation.
    pub warm_up_requests: Vec<u64>,
    /// Between the end of the work and the reading of what was retained.
    pub idle: Duration,
    /// Lengths the user insists on.
    pub lengths: Lengths,
    /// The operations that write to our store, by their place; a place that is missing is none.
    pub writes: Vec<bool>,
    /// Whether the server is bound to fewer CPUs than this process may use.
    pub is_pinned: bool,
    /// Phases instead of equal work and slices.
    pub phases: Option<PhasePlan>,
    /// Whether candidates live one after the other.
    pub is_one_at_a_time: bool,
}

impl Known {
    /// Fewer rounds can give no verdict.
    #[must_use]
    pub fn rounds_min(&self) -> u32 {
        rounds_min(self.candidates)
    }

    /// Candidates that are compared with the baseline at once.
    pub(super) fn comparisons(&self) -> usize {
        self.candidates.saturating_sub(1) as usize
    }

    /// The time of the warm-up for the slowest candidate.
    pub(super) fn warm_up(&self) -> Duration {
        self.time_of(&self.warm_up_requests)
    }

    pub(super) fn rate_per_s(&self, slowest_per_s: f64) -> f64 {
        self.rate_per_s
            .unwrap_or((slowest_per_s * RATE_SHARE).max(1.0))
    }

    fn slowest(&self) -> Option<f64> {
        self.slowest_of(|_| true)
    }

    /// The counted part of a slice of the closed loop, long enough for a few responses on each connection.
    pub(super) fn slice(&self) -> Duration {
        if let Some(slice) = self.lengths.slice {
            return slice;
        }
        let answers = REQUESTS_PER_CONNECTION * self.connections as f64;
        let seconds = self.slowest().map_or(0.0, |per_s| answers / per_s);
        let wanted = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        wanted.clamp(SLICE_MIN, SLICE_CLOSED_MAX)
    }

    /// The counted time of a block.
    pub(super) fn block(&self) -> Duration {
        let usual = self.slice() * BLOCK_SLICES;
        self.lengths.block.unwrap_or(usual)
    }

    /// Fewer requests of an operation say nothing about memory: connections and threads that had no work yet
    /// hold nothing.
    pub(super) fn work_floor(&self) -> u64 {
        (REQUESTS_PER_CONNECTION_OF_WORK * self.connections as u64).max(WORK_MIN)
    }

    /// Requests of the memory phase, per operation, if it lasts `phase` for the slowest candidate and has at
    /// least `floor` requests.
    pub(super) fn memory_work(&self, phase: Duration, floor: u64) -> Vec<u64> {
        let seconds = phase.as_secs_f64();
        let count = |&per_s: &f64| match self.lengths.memory {
            Some(MemoryWork::Requests(requests)) => requests,
            Some(MemoryWork::For(time)) => (per_s * time.as_secs_f64()).ceil() as u64,
            None => ((per_s * seconds).ceil() as u64).max(floor),
        };
        let requests = self.slowest_per_s.iter().map(count);
        requests.map(|requests| requests.max(1)).collect()
    }

    /// Keys of the store: as many as the first operation writes in `phase`.
    pub(super) fn keys(&self, phase: Duration) -> u64 {
        let usual = Self {
            lengths: Lengths::default(),
            ..self.clone()
        };
        let written = usual.memory_work(phase, self.work_floor());
        let most = self.memory_work(phase, self.work_floor());
        let first = |list: Vec<u64>| list.first().copied().unwrap_or(1);
        first(written).min(first(most)).max(1)
    }

    /// The time of so many requests of each operation for the slowest candidate.
    pub(super) fn time_of(&self, requests: &[u64]) -> Duration {
        let pairs = requests.iter().zip(&self.slowest_per_s);
        let seconds: f64 = pairs
            .filter(|&(_, &per_s)| per_s > 0.0)
            .map(|(&requests, per_s)| requests as f64 / per_s)
            .sum();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Whether there are writes whose slices may be longer than others: not where the user says how long all are.
    pub(super) fn may_have_long_writes(&self) -> bool {
        let is_free = self.lengths.slice.is_none() && self.lengths.block.is_none();
        is_free && self.writes.contains(&true)
    }

    /// The slowest of the operations that `counts` picks, given whether the operation writes.
    fn slowest_of(&self, counts: impl Fn(bool) -> bool) -> Option<f64> {
        let places = self.slowest_per_s.iter().enumerate();
        let counted = places.filter(|&(place, _)| counts(is_write(&self.writes, place)));
        let rates = counted.map(|(_, &per_s)| per_s);
        rates.filter(|&per_s| per_s > 0.0).reduce(f64::min)
    }

    /// How long the constant rate of these operations takes to let a run have a p99.
    pub(super) fn p99_phase(&self, counts: impl Fn(bool) -> bool) -> Duration {
        let slowest = self.slowest_of(counts);
        let seconds = slowest.map_or(0.0, |slowest| P99_ANSWERS / self.rate_per_s(slowest));
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The counted time of a slice of writes in the closed loop and at the constant rate; zero if they are not to be
    /// longer than others.
    pub(super) fn write_slices(&self, are_long: bool) -> (Duration, Duration) {
        let slowest = self.slowest_of(|is_write| is_write).filter(|_| are_long);
        let Some(slowest) = slowest else {
            return (Duration::ZERO, Duration::ZERO);
        };
        let time = |answers: f64, per_s: f64| {
            Duration::try_from_secs_f64(answers / per_s).unwrap_or(Duration::MAX)
        };
        (
            time(WRITES, slowest).max(self.slice()),
            time(WRITES_PACED, self.rate_per_s(slowest)).max(self.slice()),
        )
    }
}

/// Whether the operation at `place` writes.
pub(super) fn is_write(writes: &[bool], place: usize) -> bool {
    writes.get(place).copied().unwrap_or(false)
}

#[cfg(test)]
impl Known {
    /// The usual comparison: seven candidates, a slow operation and a faster one, four minutes.
    pub(crate) fn example() -> Self {
        Self {
            candidates: 7,
            left: Duration::from_secs(250),
            overhead: Duration::from_millis(250),
            tail: Duration::from_millis(5),
            slowest_per_s: vec![10_000.0, 40_000.0],
            connections: 64,
            rounds: None,
            rate_per_s: None,
            load_command: None,
            warm_up_requests: vec![0, 0],
            idle: IDLE_DEFAULT,
            lengths: Lengths::default(),
            writes: Vec::new(),
            is_pinned: false,
            phases: None,
            is_one_at_a_time: false,
        }
    }
}

#[cfg(test)]
#[path = "tests/phased.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/unpinned.rs"]
mod unpinned_tests;
