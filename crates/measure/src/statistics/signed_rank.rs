//! The range of plausible differences: Wilcoxon's signed-rank test turned inside out, exactly.
//!
//! The interval between the k-th smallest and k-th largest Walsh average holds the true centre with
//! probability `1 - 2 P(W <= k - 1)`, `W` being the signed-rank sum when signs are coin tosses
//! (Hollander, Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd ed., section 3.3). Exact
//! for symmetric differences without ties; with ties or zeros it only becomes more cautious.

use super::walsh_averages;

/// A closed range and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The exact probability with which such a range holds the truth: at least what was asked for
    /// if there are enough values, otherwise the most that so few can give.
    pub confidence: f64,
}

impl Interval {
    /// True if `value` lies inside or on an end.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// `P(W = w)` for `w` from 0 to `n (n + 1) / 2`: the sum of those of the ranks 1..=n whose sign
/// came up positive, each with probability one half.
#[must_use]
pub fn signed_rank_distribution(n: usize) -> Vec<f64> {
    let mut probability = vec![0.0; n * (n + 1) / 2 + 1];
    probability[0] = 1.0;
    let mut sum_max = 0;
    for rank in 1..=n {
        sum_max += rank;
        for sum in (0..=sum_max).rev() {
            let with = if sum >= rank {
                probability[sum - rank]
            } else {
                0.0
            };
            probability[sum] = f64::midpoint(probability[sum], with);
        }
    }
    probability
}

/// The narrowest symmetric interval of Walsh averages with at least `confidence` (e.g. 0.95).
///
/// With too few values (5 or less for 0.95, 4 or less for 0.90) it is the whole range and its
/// `confidence` is below the one asked for: the caller has to look. `None` without values.
#[must_use]
pub fn signed_rank_interval(differences: &[f64], confidence: f64) -> Option<Interval> {
    debug_assert!((0.0..1.0).contains(&confidence));
    if differences.is_empty() {
        return None;
    }
    let averages = walsh_averages(differences);
    let (dropped, confidence) = dropped(differences.len(), confidence);
    Some(Interval {
        low: averages[dropped],
        high: averages[averages.len() - 1 - dropped],
        confidence,
    })
}

/// How many Walsh averages of `n` values lie outside of the interval at each end, and its confidence.
pub(super) fn dropped(n: usize, confidence: f64) -> (usize, f64) {
    let tail_allowed = (1.0 - confidence) / 2.0;
    let distribution = signed_rank_distribution(n);
    // `tail` is P(W <= dropped). None dropped is the whole range.
    let (mut dropped, mut tail) = (0, distribution[0]);
    while dropped + 1 < (n * (n + 1) / 2).div_ceil(2) {
        let next = tail + distribution[dropped + 1];
        // A hair of tolerance: 0.025 must not be missed by a rounding error.
        if next > tail_allowed + 1e-12 {
            break;
        }
        tail = next;
        dropped += 1;
    }
    (dropped, (1.0 - 2.0 * tail).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 2^n sign patterns, one by one.
    fn brute_force_distribution(n: usize) -> Vec<f64> {
        let mut counts = vec![0_u64; n * (n + 1) / 2 + 1];
        for signs in 0_u32..1 << n {
            let sum: usize = (0..n)
                .filter(|bit| signs >> bit & 1 == 1)
                .map(|bit| bit + 1)
                .sum();
            counts[sum] += 1;
        }
        counts
            .iter()
            .map(|&count| count as f64 / (1_u64 << n) as f64)
            .collect()
    }

    #[test]
    fn distribution_equals_enumeration() {
        for n in 0..=16 {
            let exact = brute_force_distribution(n);
            let ours = signed_rank_distribution(n);
            assert_eq!(ours.len(), exact.len());
            for (sum, (a, b)) in ours.iter().zip(&exact).enumerate() {
                assert!((a - b).abs() < 1e-15, "n {n} sum {sum}: {a} against {b}");
            }
        }
    }

    /// Goal: the probabilities still add up to one where enumeration cannot follow.
    #[test]
    fn distribution_adds_up_for_many_rounds() {
        for n in [30, 60, 200] {
            let total: f64 = signed_rank_distribution(n).iter().sum();
            assert!((total - 1.0).abs() < 1e-9, "n {n}: {total}");
        }
    }

    /// Goal: the published critical values. For n = 10 and 95 % k is 9 (97.3 % would be 6), see
    /// Hollander & Wolfe table A.4: P(W <= 8) = 0.0244.
    #[test]
    fn published_critical_values() {
        for (n, k, confidence) in [
            (6, 1, 0.96875),
            (8, 4, 0.9609),
            (10, 9, 0.9512),
            (15, 26, 0.9521),
            (20, 53, 0.9516),
        ] {
            let distribution = signed_rank_distribution(n);
            let differences: Vec<f64> = (0..n).map(|i| f64::from(1 << (i % 20)) + 0.1).collect();
            let averages = walsh_averages(&differences);
            let interval = signed_rank_interval(&differences, 0.95).unwrap();
            assert_eq!(interval.low, averages[k - 1], "n {n}");
            assert_eq!(interval.high, averages[averages.len() - k], "n {n}");
            assert!(
                (interval.confidence - confidence).abs() < 1e-4,
                "n {n}: {interval:?}"
            );
            let tail: f64 = distribution[..k].iter().sum();
            assert!(tail <= 0.025 && tail + distribution[k] > 0.025, "n {n}");
        }
    }

    /// Goal: too few rounds never pretend to 95 %.
    #[test]
    fn few_values_say_how_little_they_know() {
        assert_eq!(signed_rank_interval(&[], 0.95), None);
        let one = signed_rank_interval(&[0.3], 0.95).unwrap();
        assert_eq!(
            one,
            Interval {
                low: 0.3,
                high: 0.3,
                confidence: 0.0
            }
        );
        let five = signed_rank_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!(
            five,
            Interval {
                low: 1.0,
                high: 5.0,
                confidence: 0.9375
            }
        );
        assert!(
            signed_rank_interval(&[1.0, 2.0, 3.0, 4.0], 0.9)
                .unwrap()
                .confidence
                < 0.9
        );
    }

    #[test]
    fn ties_and_zeros() {
        let interval = signed_rank_interval(&[0.0; 10], 0.95).unwrap();
        assert_eq!((interval.low, interval.high), (0.0, 0.0));
        let mixed = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, -1.0, 2.0, 2.0, 0.0];
        let interval = signed_rank_interval(&mixed, 0.95).unwrap();
        assert!(interval.low <= 0.5 && interval.high >= 1.0 && interval.low > -1.0);
    }
}
