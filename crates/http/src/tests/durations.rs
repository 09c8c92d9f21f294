use super::{BOUNDS_NS, DurationHistogram, LATE_MAX, ROUTES_MAX, RequestDurations, by_route};
use crate::status::StatusCode;
use proptest::prelude::*;

proptest! {
    /// Goal: each bucket has the samples that are no longer than its bound, as Prometheus counts them, and
    /// nothing is lost.
    #[test]
    fn buckets_are_those_of_a_plain_count(
        samples in prop::collection::vec((0_u64..20_000_000_000, 1_u64..5), 0..50),
        bound_index in 0..BOUNDS_NS.len(),
    ) {
        let mut samples = samples;
        // Lengths at a bound are the ones to get wrong.
        samples.push((BOUNDS_NS[bound_index], 1));
        samples.push((BOUNDS_NS[bound_index] + 1, 1));
        let mut histogram = DurationHistogram::default();
        for &(duration_ns, count) in &samples {
            histogram.add(duration_ns, count);
        }
        for (bound_ns, count) in histogram.cumulative() {
            let within = samples.iter().filter(|sample| sample.0 <= bound_ns);
            prop_assert_eq!(count, within.map(|sample| sample.1).sum::<u64>());
        }
        prop_assert_eq!(histogram.count(), samples.iter().map(|sample| sample.1).sum::<u64>());
        let sum_ns: u64 = samples.iter().map(|sample| sample.0 * sample.1).sum();
        prop_assert_eq!(histogram.sum_ns(), sum_ns);
    }
}

fn copy(durations: &RequestDurations) -> Vec<DurationHistogram> {
    let mut copy = Vec::new();
    durations.copy_to(&mut copy);
    copy
}

/// Goal: an immediate response takes the tick's time, a late one the time since its own tick; routes and classes stay
/// separate, and a route that was not announced is counted as the last.
#[test]
fn samples_find_their_route_and_class() {
    let mut durations = RequestDurations::new(2);
    durations.count_at_once(0, StatusCode::OK);
    durations.count_at_once(0, StatusCode::NO_CONTENT);
    durations.count_at_once(1, StatusCode::NOT_FOUND);
    durations.count_at_once(9, StatusCode::NOT_FOUND);
    durations.count_late(1, StatusCode::SERVICE_UNAVAILABLE, 1_000, 500_000);
    durations.tick_ended(500_000, || 600_000);
    // An idle tick reads no clock.
    durations.tick_ended(700_000, || unreachable!("nothing was answered"));
    let shard = copy(&durations);
    let found: Vec<_> = by_route([shard.as_slice(), shard.as_slice()].into_iter())
        .map(|(route, class, histogram)| (route, class, histogram.count(), histogram.sum_ns()))
        .collect();
    let expected = [(0, 2, 4, 400_000), (1, 4, 4, 400_000), (1, 5, 2, 1_198_000)];
    assert_eq!(found, expected);
}

/// Goal: more late responses than there is room for in one tick are still counted, up to their own moment.
#[test]
fn late_responses_beyond_the_bound_are_counted() {
    let mut durations = RequestDurations::new(0);
    let count = LATE_MAX as u64 + 10;
    for _ in 0..count {
        durations.count_late(0, StatusCode::OK, 0, 1_000);
    }
    durations.tick_ended(1_000, || 2_000);
    let shard = copy(&durations);
    let (_, _, histogram) = by_route([shard.as_slice()].into_iter()).next().unwrap();
    assert_eq!(histogram.count(), count);
    assert_eq!(histogram.sum_ns(), LATE_MAX as u64 * 2_000 + 10 * 1_000);
}

/// Goal: every cell of the most routes there may be is one of the table.
#[test]
fn all_routes_have_their_cells() {
    let mut durations = RequestDurations::new(ROUTES_MAX + 5);
    for route in 0..=u8::try_from(ROUTES_MAX).unwrap() {
        for status in [
            StatusCode::CONTINUE,
            StatusCode::OK,
            StatusCode::FOUND,
            StatusCode::BAD_REQUEST,
            StatusCode::BAD_GATEWAY,
        ] {
            durations.count_at_once(route, status);
        }
    }
    durations.tick_ended(0, || 1);
    let shard = copy(&durations);
    let found = by_route([shard.as_slice()].into_iter());
    assert_eq!(found.count(), ROUTES_MAX * 5);
}
