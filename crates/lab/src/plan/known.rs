//! What the plan follows from.

use std::time::Duration;

use millpond_measure::record::PhasePlan;

#[cfg(test)]
use crate::config::IDLE_DEFAULT;

use super::{
    BLOCK_SLICES, P99_ANSWERS, RATE_SHARE, REQUESTS_PER_CONNECTION,
    REQUESTS_PER_CONNECTION_OF_WORK, SLICE_CLOSED_MAX, SLICE_MIN, WORK_MIN, WRITES, WRITES_PACED,
    rounds_min,
};

/// How much each candidate does before its memory is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryWork {
    /// As many requests as the slowest answers in this time, per operation.
    For(Duration),
    /// So many requests, per operation.
    Requests(u64),
}

/// Lengths that the user insists on; those that are `None` follow from the time budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    /// What is counted of a slice of the closed loop.
    pub slice: Option<Duration>,
    /// What precedes the counted part.
    pub settle: Option<Duration>,
    /// What is counted of a block.
    pub block: Option<Duration>,
    /// The work before memory is read.
    pub memory: Option<MemoryWork>,
}

/// What is known after the preflight.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Candidates, the second baseline included.
    pub candidates: u32,
    /// Time left of the budget.
    pub left: Duration,
    /// From the start of a run to its first request, and from its last request to its end.
    pub overhead: Duration,
    /// What a slice takes beyond its length: connections, and the last answers of the slowest candidate.
    pub tail: Duration,
    /// Closed loop throughput of the slowest candidate, per operation in order.
    pub slowest_per_s: Vec<f64>,
    /// Connections of the generator.
    pub connections: usize,
    /// Rounds the user insists on.
    pub rounds: Option<u32>,
    /// The rate the user insists on.
    pub rate_per_s: Option<f64>,
    /// What the user's own load program takes, if that makes the load.
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

    /// What the warm-up takes the slowest candidate.
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

    /// What is counted of a slice of the closed loop, so that each connection is answered a few times.
    pub(super) fn slice(&self) -> Duration {
        if let Some(slice) = self.lengths.slice {
            return slice;
        }
        let answers = REQUESTS_PER_CONNECTION * self.connections as f64;
        let seconds = self.slowest().map_or(0.0, |per_s| answers / per_s);
        let wanted = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        wanted.clamp(SLICE_MIN, SLICE_CLOSED_MAX)
    }

    /// What is counted of a block.
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

    /// What so many requests of each operation take the slowest candidate.
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

    /// The slowest of the operations that `counts`, told whether it writes, picks.
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

    /// What a slice of writes counts in the closed loop and at the constant rate; zero if they are not to be longer than
    /// others.
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
