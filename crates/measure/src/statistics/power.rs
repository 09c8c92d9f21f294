//! What so many rounds can show, and how many it takes to show more.
//!
//! For differences with spread `sigma`, a two-sided test at level `alpha` finds a true difference
//! `delta` with probability `power` if `delta = (z_{1-alpha/2} + z_power) sigma / sqrt(R)` (any text
//! on sample size, e.g. Cohen 1988, chapter 2): 2.80 for 80 %, 3.60 for 95 %. Solved for `R`, plus
//! 5 % for what Hodges-Lehmann loses against the mean on normal data, plus `z_{1-alpha/2}^2 / 2` for
//! not knowing sigma (Guenther, "Sample size formulas for normal theory t tests", Am. Stat. 35,
//! 1981). `sigma` is estimated by 1.4826 times the median absolute deviation, which wild rounds do
//! not inflate.

use super::{Looks, inverse_normal, median};

/// The chance of a false claim one accepts, over all comparisons of one measure together.
pub const SIGNIFICANCE: f64 = 0.05;
/// The confidence of the interval that has to lie within the margin for "equivalent": two one-sided
/// tests at 5 % each (Schuirmann 1987; Berger & Hsu 1996).
pub const EQUIVALENCE_CONFIDENCE: f64 = 0.90;
/// The chance with which the quoted detectable difference would have been found.
pub const POWER_DETECTABLE: f64 = 0.80;
/// The chance with which the advised number of rounds will decide.
pub const POWER_PLANNED: f64 = 0.95;
/// What Hodges-Lehmann needs more than the mean on normal data.
const RANK_COST: f64 = 1.05;
/// More rounds than anybody runs; the advice stops here.
const ROUNDS_MAX: f64 = 9_999.0;
/// How near to the edge of the margin, as a share of it, an effect is still planned for.
const EDGE_SHARE: f64 = 0.05;

/// Spread of the differences: 1.4826 MAD, or the standard deviation where half the values are equal
/// and the MAD therefore is zero. `None` below two finite values.
#[must_use]
pub fn robust_sigma(differences: &[f64]) -> Option<f64> {
    let finite: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|d| d.is_finite())
        .collect();
    if finite.len() < 2 {
        return None;
    }
    let centre = median(&mut finite.clone())?;
    let mut deviations: Vec<f64> = finite.iter().map(|d| (d - centre).abs()).collect();
    let mad = 1.4826 * median(&mut deviations)?;
    if mad > 0.0 {
        return Some(mad);
    }
    let mean = finite.iter().sum::<f64>() / finite.len() as f64;
    let squares: f64 = finite.iter().map(|d| (d - mean).powi(2)).sum();
    Some((squares / (finite.len() - 1) as f64).sqrt())
}

/// The smallest log difference that `rounds` rounds would find with 80 % probability, if it is one
/// of `comparisons` made at once.
#[must_use]
pub fn minimum_detectable_effect(sigma: f64, rounds: usize, comparisons: usize) -> f64 {
    let alpha = SIGNIFICANCE / comparisons.max(1) as f64;
    let factor = inverse_normal(1.0 - alpha / 2.0) + inverse_normal(POWER_DETECTABLE);
    factor * sigma / (rounds.max(1) as f64).sqrt()
}

/// The fewest rounds with which an exact test can claim anything at all: `2 / 2^R`, times the
/// number of comparisons, has to get below 5 %, and a 95 % interval must exist.
#[must_use]
pub fn smallest_rounds(comparisons: usize) -> usize {
    let comparisons = comparisons.max(1) as f64;
    (6..)
        .find(|&rounds| 2.0_f64.powi(1 - rounds) * comparisons <= SIGNIFICANCE)
        .unwrap_or(6) as usize
}

/// Rounds in all with which the question "different by more than the margin, or the same within
/// it?" will be decided with 95 % probability, if the true log difference is `effect`.
///
/// Outside the margin a difference has to be told from zero; inside it, both ends of the 90 %
/// interval have to fit into what is left of the margin.
#[must_use]
pub fn rounds_needed(
    effect: f64,
    sigma: f64,
    margin: f64,
    comparisons: usize,
    looks: Looks,
) -> usize {
    let claims = comparisons.max(1) * looks.count();
    let (z_level, z_power, distance) = if effect.abs() > margin {
        let alpha = SIGNIFICANCE / claims as f64;
        (
            inverse_normal(1.0 - alpha / 2.0),
            inverse_normal(POWER_PLANNED),
            effect.abs(),
        )
    } else {
        let alpha = (1.0 - looks.equivalence_confidence()) / 2.0;
        // In the middle of the margin both one-sided tests have to succeed.
        let miss = if effect.abs() < margin * 0.25 {
            0.5
        } else {
            1.0
        } * (1.0 - POWER_PLANNED);
        // An effect on the very edge cannot be placed with any number of rounds.
        let room = (margin - effect.abs()).max(margin * EDGE_SHARE);
        (
            inverse_normal(1.0 - alpha),
            inverse_normal(1.0 - miss),
            room,
        )
    };
    let wanted = ((z_level + z_power) * sigma / distance).powi(2) * RANK_COST;
    let wanted = (wanted + z_level.powi(2) / 2.0).ceil().min(ROUNDS_MAX);
    (wanted as usize).max(smallest_rounds(claims))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the worked examples of the method, (3.6 sigma / delta)^2: for an effect of 2 % and
    /// sigma 1 %, 3 %, 5 % that is 3.2, 29.2, 81; then 5 % for ranks and 2 for the unknown sigma.
    #[test]
    fn planned_rounds_match_the_formula() {
        for (sigma, expected) in [(0.01, 6), (0.03, 33), (0.05, 88)] {
            assert_eq!(
                rounds_needed(0.02, sigma, 0.019_9, 1, Looks::ONE),
                expected,
                "sigma {sigma}"
            );
        }
        assert!(rounds_needed(0.02, 0.03, 0.019_9, 8, Looks::ONE) > 33);
        assert!(rounds_needed(0.02, 0.03, 0.019_9, 1, Looks::planned(3)) > 33);
        assert!(
            rounds_needed(0.0, 0.03, 0.02, 1, Looks::planned(3))
                > rounds_needed(0.0, 0.03, 0.02, 1, Looks::ONE)
        );
        // Nothing can be planned on the edge of the margin: a large number, not an endless one.
        assert!(rounds_needed(0.02, 0.03, 0.02, 1, Looks::ONE) <= 9_999);
        assert_eq!(rounds_needed(0.0, 0.0, 0.02, 1, Looks::ONE), 6);
    }

    #[test]
    fn detectable_effect_uses_2_80_sigma() {
        let effect = minimum_detectable_effect(0.03, 9, 1);
        assert!((effect - 2.80 * 0.01).abs() < 1e-4, "{effect}");
        assert!(minimum_detectable_effect(0.03, 9, 8) > effect);
    }

    #[test]
    fn fewest_rounds() {
        assert_eq!(smallest_rounds(1), 6);
        assert_eq!(smallest_rounds(8), 9);
        assert_eq!(smallest_rounds(0), 6);
    }

    #[test]
    fn sigma_ignores_wild_rounds() {
        let quiet = [-0.01, 0.0, 0.01, -0.005, 0.005, 0.0, 0.012];
        let mut hit = quiet.to_vec();
        hit.push(3.0);
        let (a, b) = (robust_sigma(&quiet).unwrap(), robust_sigma(&hit).unwrap());
        assert!(b < a * 2.0, "{a} {b}");
        assert_eq!(robust_sigma(&[1.0]), None);
        assert_eq!(robust_sigma(&[1.0, 1.0, 1.0]), Some(0.0));
        assert!(robust_sigma(&[0.0, 0.0, 0.0, 1.0]).unwrap() > 0.0);
        assert!(robust_sigma(&[f64::NEG_INFINITY, 1.0, 2.0]).unwrap() > 0.0);
    }
}
