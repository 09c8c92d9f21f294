use super::*;

fn sets(rates: &[f64]) -> LoadConnectionSets {
    let one = |&requests_per_s: &f64| LoadConnectionSet {
        requests_per_s,
        response_p50_ns: 7,
        ..LoadConnectionSet::default()
    };
    LoadConnectionSets::of(rates.iter().map(one).collect(), rates.len() as u64)
}

/// Goal: the spread is the sample's, and what does not vary has none.
#[test]
fn spreads_are_those_of_the_sample() {
    let found = sets(&[98.0, 102.0, 100.0]);
    let rate = found.requests_per_s;
    assert_eq!((rate.median, rate.min, rate.max), (100.0, 98.0, 102.0));
    assert!((rate.stdev_share - 0.02).abs() < 1e-12);
    assert_eq!(found.response_p50_ns.stdev_share, 0.0);
    let note = found.note().unwrap();
    assert!(note.contains("differs by +-2.0 % in the rate"), "{note}");
    assert!(note.contains("of 3 sets"), "{note}");
}

#[test]
fn one_set_has_no_spread() {
    assert_eq!(sets(&[]).requests_per_s, LoadSpread::default());
    assert_eq!(sets(&[5.0]).requests_per_s.stdev_share, 0.0);
    assert_eq!(sets(&[5.0]).note(), None);
}
