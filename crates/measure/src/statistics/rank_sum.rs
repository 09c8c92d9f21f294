//! Two samples that are not paired: how far the one lies from the other, and how sure one can be.
//!
//! Wilcoxon's rank-sum test as the exact permutation test of the midranks (Lehmann, "Nonparametrics",
//! 1975, chapter 1), the estimate of Hodges & Lehmann (Ann. Math. Stat. 34, 1963: the median of all
//! differences), and the interval that inverts the test (Moses; Hollander & Wolfe, "Nonparametric
//! Statistical Methods", section 4.3). What is assumed: runs are independent, and the two distributions
//! have one shape. Beyond [`EXACT_MAX`] runs the normal approximation with the correction for ties.

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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Goal: the textbook's example (Hollander & Wolfe, example 4.1, as in R's wilcox.test: W = 35,
    /// p = 0.2544 two-sided, difference 0.305, interval [-0.76, 0.15] turned round).
    #[test]
    fn equals_wilcox_test() {
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let p = rank_sum_p(&term, &early);
        assert!((p - 0.254_4).abs() < 5e-4, "{p}");
        let shift = shift(&term, &early).unwrap();
        assert!((shift - 0.305).abs() < 1e-9, "{shift}");
        let interval = shift_interval(&term, &early, 0.95).unwrap();
        assert!((interval.low + 0.15).abs() < 1e-9, "{interval:?}");
        assert!((interval.high - 0.76).abs() < 1e-9, "{interval:?}");
        assert!(interval.confidence >= 0.95, "{interval:?}");
    }

    /// Goal: ties and samples that are all one value give a probability, not a division by nothing.
    #[test]
    fn ties_are_survived() {
        assert_eq!(rank_sum_p(&[1.0; 5], &[1.0; 5]), 1.0);
        assert_eq!(rank_sum_p(&[1.0; 50], &[1.0; 50]), 1.0);
        // All five above all five: one choice of 252, on either side.
        let p = rank_sum_p(&[2.0; 5], &[1.0; 5]);
        assert!((p - 2.0 / 252.0).abs() < 1e-12, "{p}");
        assert!((smallest_p(5, 5) - p).abs() < 1e-12);
        assert_eq!((smallest_p(0, 5), smallest_p(5, 0)), (1.0, 1.0));
        let interval = shift_interval(&[1.0; 5], &[1.0; 5], 0.95).unwrap();
        assert_eq!((interval.low, interval.high), (0.0, 0.0));
        let nothing = [f64::NEG_INFINITY; 4];
        assert_eq!(shift(&nothing, &nothing), Some(0.0));
        assert_eq!(shift(&[], &[1.0]), None);
    }

    /// Goal: where the approximation takes over, it says what counting would.
    #[test]
    fn the_approximation_is_near() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20 {
            let mut draw =
                |count: usize| -> Vec<f64> { (0..count).map(|_| random.f64()).collect() };
            let (now, earlier) = (draw(20), draw(20));
            let ranks = doubled_midranks(&now, &earlier);
            let found: usize = ranks[..20].iter().sum();
            let near = approximate_p(&ranks, 20, (found as f64 - 820.0).abs());
            let exact = rank_sum_p(&now, &earlier);
            assert!((near - exact).abs() < 0.01, "{near} {exact}");
        }
        let (now, earlier): (Vec<f64>, Vec<f64>) =
            ((0..40).map(f64::from).collect(), vec![100.0; 40]);
        assert!(rank_sum_p(&now, &earlier) < 1e-9);
        let interval = shift_interval(&now, &earlier, 0.95).unwrap();
        assert!(
            interval.high < -60.0 && interval.low > -100.0,
            "{interval:?}"
        );
    }

    proptest! {
        /// Goal: the interval holds the estimate; exchanging the sides turns all round; p is one.
        #[test]
        fn symmetry(
            now in prop::collection::vec(-3.0_f64..3.0, 1..9),
            earlier in prop::collection::vec(-3.0_f64..3.0, 1..9),
        ) {
            let (forth, back) = (rank_sum_p(&now, &earlier), rank_sum_p(&earlier, &now));
            prop_assert!((forth - back).abs() < 1e-9 && forth > 0.0 && forth <= 1.0);
            let interval = shift_interval(&now, &earlier, 0.9).unwrap();
            let shift = shift(&now, &earlier).unwrap();
            prop_assert!(interval.low <= shift && shift <= interval.high);
            let turned = shift_interval(&earlier, &now, 0.9).unwrap();
            prop_assert!((turned.low + interval.high).abs() < 1e-9);
        }
    }
}
