use super::*;
use proptest::prelude::*;

/// Goal: an empty histogram returns zero for every question instead of failing.
#[test]
fn empty_answers_zero() {
    let empty = LatencyHistogram::new();
    assert_eq!(empty.summary(), LatencySummary::default());
    assert_eq!(empty.share_within_stdevs(1.0), 0.0);
    assert!(!empty.can_estimate(50.0));
    assert!(empty.bins().next().is_none());
}

/// Goal: a time beyond an hour is counted, not lost, and zero is a value of its own.
#[test]
fn extremes_are_counted() {
    let mut histogram = LatencyHistogram::new();
    histogram.record(0);
    histogram.record(u64::MAX);
    assert_eq!(histogram.count(), 2);
    assert_eq!(histogram.min(), 0);
    let max = histogram.max() as f64;
    assert!((max / HIGHEST_NS as f64 - 1.0).abs() < 0.001, "{max}");
}

/// Goal: p99 needs 10,000 samples, p99.9 needs 100,000.
#[test]
fn a_percentile_needs_a_hundred_samples_beyond_it() {
    let mut histogram = LatencyHistogram::new();
    histogram.record_many(5, 9_999);
    assert!(!histogram.can_estimate(99.0));
    histogram.record(5);
    assert!(histogram.can_estimate(99.0));
    assert!(!histogram.can_estimate(99.9));
}

/// Goal: each figure of the summary is the one of its name.
#[test]
fn the_summary_has_the_percentiles_it_names() {
    let mut histogram = LatencyHistogram::new();
    (1..=10_000_u64).for_each(|rank| histogram.record(rank * 1_000));
    let summary = histogram.summary();
    for (name, found, rank) in [
        ("min", summary.min, 1),
        ("p50", summary.p50, 5_000),
        ("p90", summary.p90, 9_000),
        ("p99", summary.p99, 9_900),
        ("p999", summary.p999, 9_990),
        ("max", summary.max, 10_000),
    ] {
        let expected = rank * 1_000;
        // The precision of SIGNIFICANT_DIGITS, and less than from one of these ranks to the next.
        assert!(
            found.abs_diff(expected) <= expected / 1_000,
            "{name}: {found}"
        );
    }
}

/// Goal: the spectrum rises, ends at 100 %, and accounts for every sample.
#[test]
fn spectrum_is_monotone_and_complete() {
    let mut histogram = LatencyHistogram::new();
    for value in 1..=50_000_u64 {
        histogram.record(value * 17);
    }
    let points = histogram.spectrum(5);
    assert!(
        points
            .windows(2)
            .all(|pair| pair[0].value_ns <= pair[1].value_ns)
    );
    assert!(
        points
            .windows(2)
            .all(|pair| pair[0].percent <= pair[1].percent)
    );
    assert_eq!(points.last().unwrap().percent, 100.0);
    assert_eq!(points.iter().map(|point| point.count).sum::<u64>(), 50_000);
    assert!(points.len() < 200, "{}", points.len());
}

proptest! {
    /// Goal: every percentile is within 0.1 % of the exact order statistic.
    #[test]
    fn percentiles_match_sorted_samples(
        mut values in prop::collection::vec(0_u64..10_000_000_000, 1..400),
        percent in 0.0_f64..=100.0,
    ) {
        let mut histogram = LatencyHistogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        values.sort_unstable();
        let rank = ((percent / 100.0 * values.len() as f64).ceil() as usize).max(1);
        let exact = values[rank - 1] as f64;
        let got = histogram.percentile(percent) as f64;
        // A percentile that falls between two ranks may round to the neighbour below.
        let below = values[rank.saturating_sub(2)] as f64;
        prop_assert!(got >= below * 0.999 - 1.0 && got <= exact * 1.001 + 1.0,
            "{} for [{}, {}]", got, below, exact);
    }

    /// Goal: merging parts equals recording the whole.
    #[test]
    fn merge_equals_whole(
        left in prop::collection::vec(0_u64..1_000_000, 0..200),
        right in prop::collection::vec(0_u64..1_000_000, 0..200),
    ) {
        let (mut a, mut b, mut whole) =
            (LatencyHistogram::new(), LatencyHistogram::new(), LatencyHistogram::new());
        left.iter().for_each(|&value| { a.record(value); whole.record(value); });
        right.iter().for_each(|&value| { b.record(value); whole.record(value); });
        a.merge(&b);
        prop_assert_eq!(a.summary(), whole.summary());
        // Each figure by itself is what the summary says.
        let rounded = (whole.mean().round() as u64, whole.stdev().round() as u64);
        prop_assert_eq!((whole.summary().mean, whole.summary().stdev), rounded);
    }

    /// Goal: mean and standard deviation are those that HdrHistogram computes in two walks, however far from zero and
    /// close together the times lie.
    #[test]
    fn moments_are_those_of_two_walks(
        offset in 0_u64..4_000_000_000,
        values in prop::collection::vec((0_u64..2_000_000_000, 1_u64..1_000), 1..50),
        shift in 0_u32..31,
    ) {
        let mut histogram = LatencyHistogram::new();
        values.iter().for_each(|(value, count)| histogram.record_many(offset + (value >> shift), *count));
        let (mean, stdev) = (histogram.inner.mean(), histogram.inner.stdev());
        let (close, near) = (histogram.mean() / mean.max(1.0), histogram.stdev() / stdev.max(1.0));
        prop_assert!((close - mean / mean.max(1.0)).abs() < 1e-9, "{} for {}", histogram.mean(), mean);
        prop_assert!((near - stdev / stdev.max(1.0)).abs() < 1e-6, "{} for {}", histogram.stdev(), stdev);
    }
}
