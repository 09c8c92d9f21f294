//! Two samples that are not paired: how far the one lies from the other, and how sure one can be.
//!
//! Wilcoxon's rank-sum test as the exact permutation test of the midranks (Lehmann, "Nonparametrics", 1975, chapter 1),
//! the estimate of Hodges & Lehmann (Ann. Math. Stat. 34, 1963: the median of all differences), and the interval that
//! inverts the test (Moses; Hollander & Wolfe, "Nonparametric Statistical Methods", section 4.3). The assumptions: runs
//! are independent, and the two distributions have one shape. Beyond [`EXACT_MAX`] runs the normal approximation with
//! the correction for ties.

use super::{Interval, inverse_normal, median};

/// Runs of both sides together up to which the distribution is counted out.
const EXACT_MAX: usize = 60;

/// `a - b`, where two equal infinities are no difference.
fn difference(a: f64, b: f64) -> f64 {
    if a == b { 0.0 } else { a - b }
}

/// All differences `now - earlier`, ascending.
pub(super) fn differences(now: &[f64], earlier: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = now
        .iter()
        .flat_map(|&new| earlier.iter().map(move |&old| difference(new, old)))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The shift from `earlier` to `now`; `None` if one of them is empty.
#[must_use]
pub fn shift(now: &[f64], earlier: &[f64]) -> Option<f64> {
    median(&mut differences(now, earlier))
}

/// Twice the midranks of all values, those of `now` first: integers, also for ties.
fn doubled_midranks(now: &[f64], earlier: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = now.iter().chain(earlier).copied().collect();
    let rank = |value: &f64| {
        let below = all.iter().filter(|other| *other < value).count();
        let equal = all.iter().filter(|other| *other == value).count();
        2 * below + equal + 1
    };
    all.iter().map(rank).collect()
}

/// The chance of every sum of `chosen` of the ranks, all choices being as likely.
fn distribution_of_sums(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for (taken, &rank) in ranks.iter().enumerate() {
        for size in (0..chosen.min(taken + 1)).rev() {
            let (smaller, larger) = ways.split_at_mut(size + 1);
            for sum in 0..=most - rank {
                larger[0][sum + rank] += smaller[size][sum];
            }
        }
    }
    let all: f64 = ways[chosen].iter().sum();
    ways[chosen].iter().map(|count| count / all).collect()
}

/// The chance of ranks as far apart as these, if both sides came from one distribution.
#[must_use]
pub fn rank_sum_p(now: &[f64], earlier: &[f64]) -> f64 {
    if now.is_empty() || earlier.is_empty() {
        return 1.0;
    }
    let ranks = doubled_midranks(now, earlier);
    let found: usize = ranks[..now.len()].iter().sum();
    let expected = (now.len() * (ranks.len() + 1)) as f64;
    let distance = (found as f64 - expected).abs();
    if ranks.len() > EXACT_MAX {
        return approximate_p(&ranks, now.len(), distance);
    }
    let chances = distribution_of_sums(&ranks, now.len());
    let as_far = |sum: usize| (sum as f64 - expected).abs() >= distance - 1e-9;
    let p: f64 = (0..chances.len())
        .filter(|&sum| as_far(sum))
        .map(|sum| chances[sum])
        .sum();
    p.min(1.0)
}

/// The variance of doubled rank sums follows from the ranks themselves, ties included.
fn approximate_p(ranks: &[usize], chosen: usize, distance: f64) -> f64 {
    let (count, chosen) = (ranks.len() as f64, chosen as f64);
    let mean = ranks.iter().sum::<usize>() as f64 / count;
    let squares: f64 = ranks.iter().map(|&rank| (rank as f64 - mean).powi(2)).sum();
    let variance = chosen * (count - chosen) / (count * (count - 1.0)) * squares;
    if variance <= 0.0 {
        return 1.0;
    }
    // The step of a doubled sum is two: half a step is one.
    let z = (distance - 1.0).max(0.0) / variance.sqrt();
    2.0 * upper_tail(z)
}

/// The upper tail of the normal distribution, by bisection of the one function of it that there is.
fn upper_tail(z: f64) -> f64 {
    let (mut low, mut high) = (1e-16_f64, 0.5_f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if inverse_normal(1.0 - middle) > z {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The interval of the shift with at least `confidence`; less where so few runs cannot give it, and the
/// interval says how much. `None` if a side is empty.
#[must_use]
pub fn shift_interval(now: &[f64], earlier: &[f64], confidence: f64) -> Option<Interval> {
    if now.is_empty() || earlier.is_empty() {
        return None;
    }
    let all = differences(now, earlier);
    let (dropped, confidence) = dropped(now.len(), earlier.len(), confidence);
    let last = all.len() - 1;
    Some(Interval {
        low: all[dropped],
        high: all[last - dropped],
        confidence,
    })
}

/// How many differences of so many runs lie outside of the interval at each end, and its confidence.
pub(super) fn dropped(now: usize, earlier: usize, confidence: f64) -> (usize, f64) {
    let tail_max = (1.0 - confidence) / 2.0;
    if now + earlier <= EXACT_MAX {
        return exact_tail(now, earlier, tail_max);
    }
    let pairs = (now * earlier) as f64;
    let deviation = (pairs * (now + earlier + 1) as f64 / 12.0).sqrt();
    let place = pairs / 2.0 - inverse_normal(1.0 - tail_max) * deviation;
    let dropped = (place.floor() as usize).saturating_sub(1);
    (dropped.min(now * earlier - 1), confidence)
}

/// The smallest p that so many runs can give: all of one side above all of the other, which is one choice
/// of as many as there are, on either side.
pub(super) fn smallest_p(now: usize, earlier: usize) -> f64 {
    let choices = (1..=earlier).fold(1.0, |choices: f64, place| {
        choices * (now + place) as f64 / place as f64
    });
    (2.0 / choices).min(1.0)
}

/// How many differences may be left out at each end, and the confidence of what remains.
fn exact_tail(now: usize, earlier: usize, tail_max: f64) -> (usize, f64) {
    let ranks: Vec<usize> = (1..=now + earlier).collect();
    let chances = distribution_of_sums(&ranks, now);
    // The smallest sum of so many ranks: there Mann and Whitney's count is zero.
    let first = now * (now + 1) / 2;
    let (mut dropped, mut tail) = (0, chances[first]);
    while let Some(next) = chances.get(first + dropped + 1) {
        if tail + next > tail_max {
            break;
        }
        tail += next;
        dropped += 1;
    }
    (dropped, (1.0 - 2.0 * tail).max(0.0))
}

#[cfg(test)]
#[path = "tests/rank_sum.rs"]
mod tests;
