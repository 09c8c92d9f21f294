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
