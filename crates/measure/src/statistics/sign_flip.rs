//! How surprising a difference would be if there were none: exact sign-flip permutation.
//!
//! If candidate and baseline are the same, each round's difference could as well have come out with
//! the other sign, so all 2^n sign patterns are equally likely. The p value is the share of patterns
//! whose signed-rank sum is at least as far from zero as the one seen. Ranks, not raw differences,
//! are summed, because then one wild round cannot hide the verdict of the others.
//!
//! Ties share their middle rank and zeros keep theirs without contributing (Pratt, "Remarks on
//! zeros and ties in the Wilcoxon signed rank procedures", JASA 54, 1959), which stays exact here
//! because the very ranks seen are permuted. The count is done by convolution over doubled ranks
//! (whole numbers even with ties), which equals enumerating all 2^n patterns at any n, so that no
//! random draws are needed for many rounds.

/// Two-sided exact p value of "the differences centre on zero". 1 without any difference.
#[must_use]
pub fn sign_flip_p(differences: &[f64]) -> f64 {
    let doubled_ranks = doubled_midranks(differences);
    let signed_sum = |sign: fn(f64) -> bool| -> usize {
        let pairs = differences.iter().zip(&doubled_ranks);
        pairs
            .filter(|(difference, _)| sign(**difference))
            .map(|(_, rank)| rank)
            .sum()
    };
    let positive = signed_sum(|difference| difference > 0.0);
    let negative = signed_sum(|difference| difference < 0.0);
    let total = positive + negative;
    // P(sum of positive ranks = s) when the signs of all non-zero differences are coin tosses.
    let mut probability = vec![0.0; total + 1];
    probability[0] = 1.0;
    let mut sum_max = 0;
    for (_, &rank) in differences
        .iter()
        .zip(&doubled_ranks)
        .filter(|(d, _)| **d != 0.0)
    {
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
    let distance = positive.abs_diff(negative);
    let p: f64 = probability
        .iter()
        .enumerate()
        .filter(|(sum, _)| (2 * sum).abs_diff(total) >= distance)
        .map(|(_, share)| share)
        .sum();
    p.min(1.0)
}

/// Twice the rank of each absolute difference (1 is the smallest), ties sharing their mean rank.
fn doubled_midranks(differences: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..differences.len()).collect();
    order.sort_by(|&a, &b| differences[a].abs().total_cmp(&differences[b].abs()));
    let mut ranks = vec![0; differences.len()];
    let mut start = 0;
    while start < order.len() {
        let value = differences[order[start]].abs();
        let tied = order[start..]
            .iter()
            .take_while(|&&i| differences[i].abs() == value)
            .count();
        // Ranks start+1 ..= start+tied: their mean, doubled.
        for &index in &order[start..start + tied] {
            ranks[index] = 2 * start + tied + 1;
        }
        start += tied;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn brute_force(differences: &[f64]) -> f64 {
        let ranks = doubled_midranks(differences);
        let sum_of = |signs: u32| -> i64 {
            let mut sum = 0;
            for (bit, (difference, &rank)) in differences.iter().zip(&ranks).enumerate() {
                let flipped = if signs >> bit & 1 == 1 {
                    -difference
                } else {
                    *difference
                };
                sum += if flipped == 0.0 {
                    0
                } else {
                    flipped.signum() as i64 * rank as i64
                };
            }
            sum
        };
        let seen = sum_of(0).abs();
        let patterns = 1_u32 << differences.len();
        let extreme = (0..patterns)
            .filter(|&signs| sum_of(signs).abs() >= seen)
            .count();
        extreme as f64 / f64::from(patterns)
    }

    #[test]
    fn known_values() {
        assert_eq!(sign_flip_p(&[]), 1.0);
        assert_eq!(sign_flip_p(&[0.0, 0.0, 0.0]), 1.0);
        assert_eq!(sign_flip_p(&[0.7]), 1.0);
        // All of one sign: 2 of 2^n patterns.
        assert_eq!(sign_flip_p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2.0 / 64.0);
        assert_eq!(sign_flip_p(&[-1.0; 10]), 2.0 / 1024.0);
        // R: wilcox.test(c(1,2,3,4,5,6,7,-8), exact=TRUE): V = 28, p = 0.1953.
        let p = sign_flip_p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0]);
        assert!((p - 0.1953125).abs() < 1e-12, "{p}");
    }

    #[test]
    fn midranks_of_ties() {
        assert_eq!(doubled_midranks(&[3.0, -1.0, 1.0, 2.0]), [8, 3, 3, 6]);
        assert_eq!(doubled_midranks(&[0.0, 0.0, 5.0]), [3, 3, 6]);
    }

    #[test]
    fn an_infinite_difference_counts_as_the_largest() {
        let p = sign_flip_p(&[f64::NEG_INFINITY; 8]);
        assert_eq!(p, 2.0 / 256.0);
    }

    proptest! {
        /// Goal: convolution equals enumeration of all sign patterns, ties and zeros included.
        #[test]
        fn equals_enumeration(differences in prop::collection::vec(-4_i8..=4, 0..12)) {
            let differences: Vec<f64> = differences.into_iter().map(f64::from).collect();
            let (ours, exact) = (sign_flip_p(&differences), brute_force(&differences));
            prop_assert!((ours - exact).abs() < 1e-12, "{} against {}", ours, exact);
        }

        /// Goal: neither order nor a change of all signs or of scale alters p.
        #[test]
        fn symmetric(mut differences in prop::collection::vec(-4.0_f64..4.0, 1..15)) {
            let p = sign_flip_p(&differences);
            differences.reverse();
            differences.iter_mut().for_each(|d| *d *= -3.0);
            prop_assert!((sign_flip_p(&differences) - p).abs() < 1e-12);
        }
    }
}
