use super::*;

/// Goal: the values that sums of exact fractions give.
#[test]
fn tails_are_exact() {
    let known = [
        (8, 10, 0.5, 0.0546875),
        (5, 20, 0.1, 0.043_174_495_3),
        (30, 200, 1.0 / 9.0, 0.055_219_240_5),
        (1, 3, 0.2, 0.488),
        (3, 3, 0.2, 0.008),
    ];
    for (count, trials, share, expected) in known {
        let found = at_least_p(count, trials, share);
        assert!(
            (found - expected).abs() < 1e-7,
            "{count} of {trials}: {found}"
        );
    }
    let edges = [
        (0, 5, 0.3, 1.0),
        (6, 5, 0.3, 0.0),
        (2, 5, 0.0, 0.0),
        (2, 5, 1.0, 1.0),
    ];
    for (count, trials, share, expected) in edges {
        assert_eq!(at_least_p(count, trials, share), expected);
    }
    assert!((at_least_p(5_000, 10_000, 0.5) - 0.503_989_3).abs() < 1e-6);
}
