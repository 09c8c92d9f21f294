use super::*;

fn of(counts: &[u64]) -> ConnectionUse {
    let mut all = ConnectionUse::default();
    counts.iter().for_each(|&count| all.note(count));
    all
}

/// Goal: the figures are those of the textbook, however the connections are split among threads.
#[test]
fn sums_are_enough() {
    let counts = [4_990, 5_000, 5_010, 0];
    let all = of(&counts);
    assert_eq!((all.connections, all.requests), (4, 15_000));
    assert_eq!((all.requests_min, all.requests_max), (0, 5_010));
    assert!((all.mean() - 3_750.0).abs() < 1e-9);
    let variance: f64 = counts
        .iter()
        .map(|&count| (count as f64 - 3_750.0).powi(2) / 4.0)
        .sum();
    assert!((all.variance() - variance).abs() < 1e-6, "{all:?}");
    for split in 0..=counts.len() {
        let (left, right) = counts.split_at(split);
        let mut merged = of(left);
        merged.merge(&of(right));
        assert_eq!(merged, all);
    }
}

#[test]
fn fairness_is_between_one_of_n_and_one() {
    assert!((of(&[7, 7, 7]).fairness() - 1.0).abs() < 1e-12);
    assert!((of(&[9, 0, 0]).fairness() - 1.0 / 3.0).abs() < 1e-12);
    let none = ConnectionUse::default();
    assert_eq!(
        (none.fairness(), none.mean(), none.variance()),
        (1.0, 0.0, 0.0)
    );
    assert!(
        (of(&[0, 0]).fairness() - 1.0).abs() < 1e-12,
        "nobody got more"
    );
}
