use super::*;
use proptest::prelude::*;

fn check(times: &[(u64, u64)]) {
    let mut tally = Tally::default();
    let mut expected = LatencyHistogram::new();
    // Earlier contents are forgotten.
    tally.record_many(77, 7);
    tally.clear();
    for &(value_ns, count) in times {
        tally.record_many(value_ns, count);
        expected.record_many(value_ns, count);
    }
    let mut pair = [LatencyHistogram::new(), LatencyHistogram::new()];
    let [one, other] = &mut pair;
    tally.add_to(one, other);
    assert_eq!(tally.count(), expected.count());
    for histogram in &pair {
        assert!(*histogram == expected, "{times:?}");
        assert_eq!(histogram.min(), expected.min(), "{times:?}");
        assert_eq!(histogram.max(), expected.max(), "{times:?}");
    }
}

/// Goal: every power of two and its neighbours, where bins begin and change their width, is
/// counted as a histogram counts it, up to the longest and beyond.
#[test]
fn bins_are_those_of_a_histogram() {
    let edges = (0..64).flat_map(|bit| {
        let edge = 1_u64 << bit;
        [edge - 1, edge, edge + 1, edge + edge / 2]
    });
    let more = [
        0,
        2_047,
        2_048,
        HIGHEST_NS - 1,
        HIGHEST_NS,
        HIGHEST_NS + 1,
        u64::MAX,
    ];
    for value_ns in edges.chain(more) {
        check(&[(value_ns, 1)]);
    }
    check(&[]);
}

proptest! {
    /// Goal: whatever is recorded, both histograms hold what recording there would have given.
    #[test]
    fn nothing_is_lost_on_the_way(
        times in prop::collection::vec((0_u64..1 << 44, 1_u64..100), 0..60),
        shift in 0_u32..40,
    ) {
        let times: Vec<(u64, u64)> = times.iter().map(|(ns, count)| (ns >> shift, *count)).collect();
        check(&times);
    }
}
