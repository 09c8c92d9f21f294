use super::*;

#[test]
fn figures() {
    let mut series = Series::default();
    assert_eq!(series.summary(), SampleSummary::default());
    for (at_ns, value) in [(0, 1.0), (1, 2.0), (2, 3.0), (3, f64::NAN), (4, 10.0)] {
        series.push(at_ns, value);
    }
    let summary = series.summary();
    assert_eq!(
        (summary.count, summary.mean, summary.min, summary.max),
        (4, 4.0, 1.0, 10.0)
    );
    assert!((summary.stdev - 4.082_482_9).abs() < 1e-6);
    assert_eq!(summary.within_stdev_share, 0.75);
}

/// Goal: a mean is over time, not over samples, and of the requested stretch.
#[test]
fn means_are_over_time() {
    let mut series = Series::default();
    for (at_ns, value) in [(0, 900.0), (10, 1.0), (20, 1.0), (100, 3.0), (200, 900.0)] {
        series.push(at_ns, value);
    }
    // 10 of 1, and 80 of 2 on average.
    assert_eq!(series.mean_between(10, 100), Some(170.0 / 90.0));
    // On the line from 1 to 3.
    assert_eq!(series.mean_between(40, 80), Some(2.0));
    assert_eq!(series.mean_between(300, 400), Some(900.0));
    assert_eq!(series.mean_between(40, 40), None);
    assert_eq!(series.value_at(60), Some(2.0));
    assert_eq!(series.largest(), Some(900.0));
    assert_eq!(Series::default().mean_between(0, 1), None);
}
