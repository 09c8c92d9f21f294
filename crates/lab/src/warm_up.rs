//! How many requests it takes until a target's throughput no longer changes.
//!
//! `preflight` drives each candidate in slices and asks after each; the largest number of requests
//! found becomes the warm-up of every run of every candidate, so that memory is still compared at
//! equal work. Servers that compile while they run (node, Java) are the reason.
//!
//! The quick rule takes the best of three successive slices, because a neighbour can only make a slice slower than the
//! target is: the target is steady after four such values in a row within a tenth of each other. On a machine with
//! neighbours that may never happen. So at the time limit the test is whether the slices *drift* ([`Drift`]): only then
//! is there no steady state. Slices that are noisy without drift are as steady as that machine permits.

use millpond_measure::statistics::median;

/// Slices whose best counts as one value.
const WINDOW: usize = 3;
/// Values that have to agree.
const VALUES_MIN: usize = 4;
/// How far apart they may be, and how much a drift has to amount to.
const TOLERANCE: f64 = 0.10;
/// Blocks whose best slices are tested for drift: what a neighbour does in a burst is within one.
const BLOCKS_MAX: usize = 12;
/// Fewer can go up by chance alone.
const BLOCKS_MIN: usize = 6;
/// Of the rank test, in standard deviations: one series in a hundred without drift. Of six blocks all have
/// to be in order.
const DRIFT_Z: f64 = 2.576;
/// The part of the slices that may be a transient before what is steady.
const TRANSIENT_PARTS: usize = 3;

/// Of eight blocks one may be a neighbour's.
const FEW_PARTS: usize = 8;

/// Where the throughput of some slices goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Drift {
    /// Nowhere detectable.
    None,
    /// They get faster.
    Up,
    /// They get slower.
    Down,
}

/// The slices that were driven so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    per_s: Vec<f64>,
    requests: Vec<u64>,
}

impl Slices {
    /// Adds one: its responses, and the rate.
    pub(crate) fn push(&mut self, requests: u64, per_s: f64) {
        self.requests.push(requests);
        self.per_s.push(per_s);
    }

    /// True if the last values agree, and not by chance on the way up or down.
    pub(crate) fn is_steady(&self) -> bool {
        let values = self.values();
        let agree = values.len() >= VALUES_MIN && self.steady_from() + VALUES_MIN <= values.len();
        agree && self.drift() == Drift::None
    }

    /// Requests before the first slice of what is steady now.
    pub(crate) fn requests_before(&self) -> u64 {
        self.requests.iter().take(self.steady_from()).sum()
    }

    /// Where the slices still go when a transient at their beginning is left out.
    pub(crate) fn drift(&self) -> Drift {
        drift(self.per_s.get(self.transient()..).unwrap_or_default())
    }

    /// Requests before the steady part of slices that do not drift: those of a transient, if the early
    /// blocks differ by more than the tolerance from what nearly all later ones reach; else none.
    pub(crate) fn requests_before_drift_ended(&self) -> u64 {
        let size = block_size(self.per_s.len());
        let (early, late) = self.per_s.split_at(self.transient());
        let (mut early, mut late) = (blocks(early, size), blocks(late, size));
        let (Some(typical), Some(later)) = (median(&mut early), median(&mut late)) else {
            return 0;
        };
        let few = late.len() / FEW_PARTS;
        let (slower, faster): (Vec<f64>, Vec<f64>) = late.iter().partition(|&&one| one < typical);
        let was_slower = typical < later * (1.0 - TOLERANCE) && slower.len() <= few;
        let was_faster = typical > later * (1.0 + TOLERANCE) && faster.len() <= few;
        let count = if was_slower || was_faster {
            self.transient()
        } else {
            0
        };
        self.requests.iter().take(count).sum()
    }

    /// Slices that may be one.
    fn transient(&self) -> usize {
        let count = self.per_s.len();
        (count / TRANSIENT_PARTS).min(count.saturating_sub(BLOCKS_MIN))
    }

    /// The last slice alone: nothing is said about what came before.
    pub(crate) fn without_warm_up(mut self) -> Self {
        let last = self.per_s.len().saturating_sub(1);
        self.per_s.drain(..last);
        self.requests.drain(..last);
        self
    }

    /// Requests in all.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Requests per second of the target as it is now.
    pub(crate) fn capacity_per_s(&self) -> f64 {
        let last = self.per_s.iter().rev().take(WINDOW);
        last.copied().fold(0.0, f64::max)
    }

    fn values(&self) -> Vec<f64> {
        let best = |window: &[f64]| window.iter().copied().fold(0.0, f64::max);
        self.per_s.windows(WINDOW).map(best).collect()
    }

    /// The first value from which on all are like the last one.
    fn steady_from(&self) -> usize {
        let values = self.values();
        let Some(&last) = values.last() else {
            return 0;
        };
        let is_like = |value: &f64| (value - last).abs() <= TOLERANCE * last;
        values.len()
            - values
                .iter()
                .rev()
                .take_while(|value| is_like(value))
                .count()
    }
}

/// Slices of a block, of so many in all.
fn block_size(slices: usize) -> usize {
    slices.div_ceil(BLOCKS_MAX).max(1)
}

/// The best of each block, the latest first. The oldest slices that make no whole block are left out: the
/// best of fewer is less.
fn blocks(per_s: &[f64], size: usize) -> Vec<f64> {
    let best = |block: &[f64]| block.iter().copied().fold(0.0, f64::max);
    per_s.rchunks_exact(size).map(best).collect()
}

/// By Mann's rank test of the blocks' best, and by the median of all their slopes (Theil and Sen): a drift
/// is certain and amounts to more than the tolerance.
fn drift(per_s: &[f64]) -> Drift {
    let blocks = blocks(per_s, block_size(per_s.len()));
    let count = blocks.len();
    if count < BLOCKS_MIN {
        return Drift::None;
    }
    let (mut score, mut slopes) = (0.0, Vec::new());
    // The latest block comes first.
    for (after, late) in blocks.iter().enumerate() {
        for (distance, early) in (1_u32..).zip(blocks.iter().skip(after + 1)) {
            let change = late - early;
            score += if change == 0.0 { 0.0 } else { change.signum() };
            slopes.push(change / f64::from(distance));
        }
    }
    let n = count as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    // A step of the score is two.
    let z = (score.abs() - 1.0) / deviation;
    let middle = median(&mut blocks.clone()).unwrap_or(0.0);
    let change = median(&mut slopes).unwrap_or(0.0) * (n - 1.0);
    if z < DRIFT_Z || change.abs() <= TOLERANCE * middle {
        Drift::None
    } else if change > 0.0 {
        Drift::Up
    } else {
        Drift::Down
    }
}

#[cfg(test)]
#[path = "tests/warm_up.rs"]
mod tests;
