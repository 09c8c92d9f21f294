//! What the plan follows from.

use std::time::Duration;

use super::{
    P99_ANSWERS, RATE_SHARE, REQUESTS_PER_CONNECTION, SLICE_CLOSED_MAX, SLICE_MIN, rounds_min,
};

/// What is known after the preflight.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Candidates, the second baseline included.
    pub candidates: u32,
    /// Time left of the budget.
    pub left: Duration,
    /// From the start of a run to its first request, and from its last request to its end.
    pub overhead: Duration,
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
        let pairs = self.warm_up_requests.iter().zip(&self.slowest_per_s);
        let seconds: f64 = pairs
            .filter(|&(_, &per_s)| per_s > 0.0)
            .map(|(&requests, per_s)| requests as f64 / per_s)
            .sum();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    pub(super) fn rate_per_s(&self, slowest_per_s: f64) -> f64 {
        self.rate_per_s
            .unwrap_or((slowest_per_s * RATE_SHARE).max(1.0))
    }

    fn slowest(&self) -> Option<f64> {
        let rates = self.slowest_per_s.iter().copied();
        rates.filter(|&per_s| per_s > 0.0).reduce(f64::min)
    }

    /// What is counted of a slice of the closed loop, so that each connection is answered a few times.
    pub(super) fn slice(&self) -> Duration {
        let answers = REQUESTS_PER_CONNECTION * self.connections as f64;
        let seconds = self.slowest().map_or(0.0, |per_s| answers / per_s);
        let wanted = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        wanted.clamp(SLICE_MIN, SLICE_CLOSED_MAX)
    }

    /// How long the constant rate of every operation takes to let a run have a p99.
    pub(super) fn p99_phase(&self) -> Duration {
        let seconds = self
            .slowest()
            .map_or(0.0, |slowest| P99_ANSWERS / self.rate_per_s(slowest));
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}
