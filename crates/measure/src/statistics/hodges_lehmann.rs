//! The size of a difference: the median of all pairwise averages.
//!
//! Hodges & Lehmann, "Estimates of location based on rank tests", Ann. Math. Stat. 34 (1963).
//! Nearly as efficient as the mean on quiet data (95.5 %) and unmoved by a few wild rounds.

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[7.0]), Some(7.0));
        // Walsh averages of 1, 2, 6: 1 1.5 2 3.5 4 6.
        assert_eq!(hodges_lehmann(&[6.0, 1.0, 2.0]), Some(2.75));
        // One wild value of five hardly moves it.
        assert_eq!(hodges_lehmann(&[1.0, 1.1, 0.9, 1.0, 1000.0]), Some(1.05));
    }

    proptest! {
        /// Goal: shifting every difference shifts the estimate; turning signs turns it.
        #[test]
        fn equivariance(differences in prop::collection::vec(-5.0_f64..5.0, 1..20), shift in -3.0_f64..3.0) {
            let plain = hodges_lehmann(&differences).unwrap();
            let shifted: Vec<f64> = differences.iter().map(|d| d + shift).collect();
            let turned: Vec<f64> = differences.iter().map(|d| -d).collect();
            prop_assert!((hodges_lehmann(&shifted).unwrap() - plain - shift).abs() < 1e-9);
            prop_assert!((hodges_lehmann(&turned).unwrap() + plain).abs() < 1e-9);
        }
    }
}
