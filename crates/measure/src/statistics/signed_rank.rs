//! The size of a difference, and the range of plausible ones.
//!
//! The size is the median of all pairwise averages (Hodges & Lehmann, "Estimates of location based on rank tests",
//! Ann. Math. Stat. 34, 1963): nearly as efficient as the mean on quiet data (95.5 %) and unmoved by a few wild rounds.
//!
//! The range is Wilcoxon's signed-rank test turned inside out, exactly.
//!
//! The interval between the k-th smallest and k-th largest Walsh average holds the true centre with
//! probability `1 - 2 P(W <= k - 1)`, `W` being the signed-rank sum when signs are coin tosses
//! (Hollander, Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd ed., section 3.3). Exact
//! for symmetric differences without ties; with ties or zeros it only becomes more cautious.

use super::{median, midpoint};

/// All averages `(d_i + d_j) / 2` with `i <= j`, ascending: `n (n + 1) / 2` of them.
#[must_use]
pub fn walsh_averages(differences: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (index, &first) in differences.iter().enumerate() {
        averages.extend(
            differences[index..]
                .iter()
                .map(|&second| midpoint(first, second)),
        );
    }
    averages.sort_by(f64::total_cmp);
    averages
}

/// The Hodges-Lehmann estimate of the centre of the differences. `None` if there are none.
#[must_use]
pub fn hodges_lehmann(differences: &[f64]) -> Option<f64> {
    median(&mut walsh_averages(differences))
}

/// A closed range and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The exact probability with which such a range contains the true value: at least the
    /// requested one if there are enough values, otherwise the most that so few can give.
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
/// `confidence` is below the one asked for: the caller has to check. `None` without values.
#[must_use]
pub fn signed_rank_interval(differences: &[f64], confidence: f64) -> Option<Interval> {
    debug_assert!((0.0..1.0).contains(&confidence));
    if differences.is_empty() {
        return None;
    }
    let averages = walsh_averages(differences);
    let (dropped, confidence) = signed_rank_dropped(differences.len(), confidence);
    Some(Interval {
        low: averages[dropped],
        high: averages[averages.len() - 1 - dropped],
        confidence,
    })
}

/// How many Walsh averages of `n` values lie outside of the interval at each end, and its confidence.
pub(super) fn signed_rank_dropped(n: usize, confidence: f64) -> (usize, f64) {
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
#[path = "tests/signed_rank.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/hodges_lehmann.rs"]
mod hodges_lehmann_tests;
