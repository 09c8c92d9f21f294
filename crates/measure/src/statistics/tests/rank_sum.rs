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
        let mut draw = |count: usize| -> Vec<f64> { (0..count).map(|_| random.f64()).collect() };
        let (now, earlier) = (draw(20), draw(20));
        let ranks = doubled_midranks(&now, &earlier);
        let found: usize = ranks[..20].iter().sum();
        let near = approximate_p(&ranks, 20, (found as f64 - 820.0).abs());
        let exact = rank_sum_p(&now, &earlier);
        assert!((near - exact).abs() < 0.01, "{near} {exact}");
    }
    let (now, earlier): (Vec<f64>, Vec<f64>) = ((0..40).map(f64::from).collect(), vec![100.0; 40]);
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
