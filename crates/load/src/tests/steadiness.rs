use super::*;
use crate::request_plan::mix;

const MS: f64 = 1e6;

/// Noise of this half width around 1.
fn noise(seed: u64, index: usize, width: f64) -> f64 {
    let unit = (mix(seed ^ mix(index as u64)) >> 11) as f64 / (1_u64 << 53) as f64;
    1.0 + width * (2.0 * unit - 1.0)
}

/// After how many slices the series is taken for steady, and the transient's slices.
fn steady_after(slices: usize, at: impl Fn(usize) -> (f64, f64)) -> Option<(usize, u64)> {
    let mut steadiness = Steadiness::default();
    (0..slices).find_map(|index| {
        let (per_s, median_ns) = at(index);
        steadiness.open_ns = SLICE_NS;
        steadiness.add(per_s, median_ns);
        let transient_ns = steadiness.transient_ns()?;
        Some((index + 1, transient_ns / SLICE_NS))
    })
}

/// Goal: a target that is steady from the start is recognised after five seconds, or soon after.
#[test]
fn steady_series_end_the_warm_up_soon() {
    assert_eq!(steady_after(100, |_| (1_000.0, MS)), Some((19, 0)));
    for seed in 0..100 {
        let found = steady_after(120, |index| {
            let rate = 1_000.0 * noise(seed, index, 0.05);
            (rate, MS * noise(seed + 1_000, index, 0.2))
        });
        assert!(
            found.is_some_and(|(slices, _)| slices <= 100),
            "{seed}: {found:?}"
        );
    }
}

/// Goal: a transient is waited for, and reported: here four seconds of a server that gets faster.
#[test]
fn transients_are_cut_off() {
    for seed in 0..100 {
        let found = steady_after(240, |index| {
            let left = (-(index as f64) / 4.0).exp();
            let rate = 10_000.0 * (1.0 - 0.9 * left) * noise(seed, index, 0.02);
            (
                rate,
                MS * (1.0 + 9.0 * left) * noise(seed + 500, index, 0.02),
            )
        });
        let (slices, transient) = found.unwrap();
        assert!(
            slices >= 16 && transient >= 6,
            "{seed}: {slices} {transient}"
        );
        assert!(
            slices as u64 >= 2 * transient,
            "{seed}: {slices} {transient}"
        );
    }
}

/// Goal: a target that keeps changing never counts as steady, whichever of the two changes.
#[test]
fn drifts_and_steps_are_not_steady() {
    for seed in 0..50 {
        let drift = |index: usize| MS * (1.0 + index as f64 / 50.0) * noise(seed, index, 0.02);
        assert_eq!(
            steady_after(240, |index| (1_000.0, drift(index))),
            None,
            "{seed}"
        );
        let fall = |index: usize| 1e4 * 0.97_f64.powi(index as i32) * noise(seed, index, 0.01);
        assert_eq!(steady_after(240, |index| (fall(index), MS)), None, "{seed}");
    }
    // A step just before the end has not been seen through.
    let step = |index: usize| (if index < 8 { 100.0 } else { 1_000.0 }, MS);
    assert!(steady_after(240, step).unwrap().0 >= 16);
}

/// Goal: slices with few responses are put together until they say something.
#[test]
fn few_answers_make_long_slices() {
    let mut steadiness = Steadiness::default();
    let clocks = |answers: u64| {
        let mut clocks = Clocks::default();
        clocks.response.record_many(1_000_000, answers);
        clocks
    };
    for _ in 0..8 {
        steadiness.quarter(SLICE_NS, &clocks(3));
    }
    assert_eq!(steadiness.slices(), 2);
    assert_eq!(steadiness.rates, [12.0, 12.0]);
    assert_eq!(steadiness.transient_ns(), None);
    for _ in 0..20 {
        steadiness.quarter(SLICE_NS, &clocks(0));
    }
    assert_eq!(steadiness.slices(), 2, "silence is no slice");
    for _ in 0..1_000 {
        steadiness.quarter(SLICE_NS, &clocks(100));
    }
    assert_eq!(steadiness.slices(), SLICES_MAX);
}

#[test]
fn the_statistics_are_the_published_ones() {
    // Of n distinct rising values S is n(n-1)/2 and the variance n(n-1)(2n+5)/18.
    let rising: Vec<f64> = (0..10).map(f64::from).collect();
    let expected = 44.0 / 125.0_f64.sqrt();
    assert!((trend_z(&rising) - expected).abs() < 1e-9);
    let falling: Vec<f64> = rising.iter().rev().copied().collect();
    assert!((trend_z(&falling) + expected).abs() < 1e-9);
    assert_eq!(trend_z(&[7.0; 9]), 0.0);
    assert_eq!(trend_z(&[]), 0.0);
    let mut series = vec![9.0, 5.0, 3.0];
    series.extend([1.0, 2.0].repeat(10));
    assert_eq!(mser(&series), 3);
    assert_eq!(mser(&[4.0; 20]), 0);
}
