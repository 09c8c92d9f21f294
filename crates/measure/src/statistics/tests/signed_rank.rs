use super::*;

/// All 2^n sign patterns, one by one.
fn brute_force_distribution(n: usize) -> Vec<f64> {
    let mut counts = vec![0_u64; n * (n + 1) / 2 + 1];
    for signs in 0_u32..1 << n {
        let sum: usize = (0..n)
            .filter(|bit| signs >> bit & 1 == 1)
            .map(|bit| bit + 1)
            .sum();
        counts[sum] += 1;
    }
    counts
        .iter()
        .map(|&count| count as f64 / (1_u64 << n) as f64)
        .collect()
}

#[test]
fn distribution_equals_enumeration() {
    for n in 0..=16 {
        let exact = brute_force_distribution(n);
        let ours = signed_rank_distribution(n);
        assert_eq!(ours.len(), exact.len());
        for (sum, (a, b)) in ours.iter().zip(&exact).enumerate() {
            assert!((a - b).abs() < 1e-15, "n {n} sum {sum}: {a} against {b}");
        }
    }
}

/// Goal: the probabilities still add up to one where enumeration cannot follow.
#[test]
fn distribution_adds_up_for_many_rounds() {
    for n in [30, 60, 200] {
        let total: f64 = signed_rank_distribution(n).iter().sum();
        assert!((total - 1.0).abs() < 1e-9, "n {n}: {total}");
    }
}

/// Goal: the published critical values. For n = 10 and 95 % k is 9 (97.3 % would be 6), see
/// Hollander & Wolfe table A.4: P(W <= 8) = 0.0244.
#[test]
fn published_critical_values() {
    for (n, k, confidence) in [
        (6, 1, 0.96875),
        (8, 4, 0.9609),
        (10, 9, 0.9512),
        (15, 26, 0.9521),
        (20, 53, 0.9516),
    ] {
        let distribution = signed_rank_distribution(n);
        let differences: Vec<f64> = (0..n).map(|i| f64::from(1 << (i % 20)) + 0.1).collect();
        let averages = walsh_averages(&differences);
        let interval = signed_rank_interval(&differences, 0.95).unwrap();
        assert_eq!(interval.low, averages[k - 1], "n {n}");
        assert_eq!(interval.high, averages[averages.len() - k], "n {n}");
        assert!(
            (interval.confidence - confidence).abs() < 1e-4,
            "n {n}: {interval:?}"
        );
        let tail: f64 = distribution[..k].iter().sum();
        assert!(tail <= 0.025 && tail + distribution[k] > 0.025, "n {n}");
    }
}

/// Goal: too few rounds never pretend to 95 %.
#[test]
fn few_values_say_how_little_they_know() {
    assert_eq!(signed_rank_interval(&[], 0.95), None);
    let one = signed_rank_interval(&[0.3], 0.95).unwrap();
    assert_eq!(
        one,
        Interval {
            low: 0.3,
            high: 0.3,
            confidence: 0.0
        }
    );
    let five = signed_rank_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
    assert_eq!(
        five,
        Interval {
            low: 1.0,
            high: 5.0,
            confidence: 0.9375
        }
    );
    assert!(
        signed_rank_interval(&[1.0, 2.0, 3.0, 4.0], 0.9)
            .unwrap()
            .confidence
            < 0.9
    );
}

#[test]
fn ties_and_zeros() {
    let interval = signed_rank_interval(&[0.0; 10], 0.95).unwrap();
    assert_eq!((interval.low, interval.high), (0.0, 0.0));
    let mixed = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, -1.0, 2.0, 2.0, 0.0];
    let interval = signed_rank_interval(&mixed, 0.95).unwrap();
    assert!(interval.low <= 0.5 && interval.high >= 1.0 && interval.low > -1.0);
}
