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
#[path = "tests/sign_flip.rs"]
mod tests;
