use super::*;

#[test]
fn figures_of_repetitions() {
    assert_eq!(Summary::of(&[]), None);
    let one = Summary::of(&[5.0]).unwrap();
    assert_eq!(
        (one.mean, one.median, one.stdev, one.cv),
        (5.0, 5.0, 0.0, 0.0)
    );
    let summary = Summary::of(&[2.0, 4.0, 9.0]).unwrap();
    assert_eq!((summary.mean, summary.median), (5.0, 4.0));
    assert!((summary.stdev - 13.0_f64.sqrt()).abs() < 1e-12);
    assert!((summary.cv - summary.stdev / 5.0).abs() < 1e-12);
}

/// Goal: a repetition that was slow for both changes nothing, and the interval holds the ratio.
#[test]
fn ratios_are_those_of_pairs() {
    let pairs = [
        (20.0, 10.0),
        (200.0, 100.0),
        (40.0, 20.0),
        (30.0, 15.0),
        (2.2, 1.0),
    ];
    let ratio = Ratio::of(&pairs).unwrap();
    assert!((ratio.ratio - 2.0).abs() < 0.11, "{ratio:?}");
    assert!(ratio.low <= ratio.ratio && ratio.ratio <= ratio.high);
    assert!(ratio.confidence > 0.9 && ratio.pairs == 5);
    assert_eq!(Ratio::of(&[(1.0, 0.0)]), None);
}
