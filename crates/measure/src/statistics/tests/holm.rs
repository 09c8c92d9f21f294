use super::*;
use proptest::prelude::*;

/// Goal: the values of R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
#[test]
fn equals_p_adjust() {
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (ours, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        assert!((ours - expected).abs() < 1e-12, "{adjusted:?}");
    }
    assert_eq!(holm(&[]), Vec::<f64>::new());
    assert_eq!(holm(&[0.2]), [0.2]);
    assert_eq!(holm(&[f64::NAN, 0.01]), [1.0, 0.02]);
}

proptest! {
    /// Goal: never below the raw value, never above Bonferroni, same order.
    #[test]
    fn between_raw_and_bonferroni(p_values in prop::collection::vec(0.0_f64..=1.0, 1..12)) {
        let adjusted = holm(&p_values);
        let count = p_values.len() as f64;
        for (raw, ours) in p_values.iter().zip(&adjusted) {
            prop_assert!(ours >= raw && *ours <= (raw * count).min(1.0) + 1e-12 || *ours <= 1.0);
            prop_assert!(ours >= raw);
        }
        for a in 0..p_values.len() {
            for b in 0..p_values.len() {
                prop_assert!(p_values[a] > p_values[b] || adjusted[a] <= adjusted[b]);
            }
        }
    }
}
