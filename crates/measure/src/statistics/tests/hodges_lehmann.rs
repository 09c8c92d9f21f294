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
