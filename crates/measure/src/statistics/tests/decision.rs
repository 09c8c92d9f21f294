use super::*;
use proptest::prelude::*;

fn rule(direction: Direction) -> Rule {
    Rule {
        label: "throughput".to_owned(),
        direction,
        margin: 0.02,
        looks: InterimAnalyses::ONE,
    }
}

fn rounds(pairs: &[(f64, f64)]) -> PairedRounds {
    PairedRounds {
        candidate: "a".to_owned(),
        baseline: "b".to_owned(),
        pairs: pairs
            .iter()
            .map(|&(candidate, baseline)| RoundPair {
                candidate,
                baseline,
            })
            .collect(),
        trouble: None,
    }
}

/// Goal: a difference that is certain but smaller than the margin counts as equivalent.
#[test]
fn real_but_negligible_is_equivalent() {
    let pairs: Vec<_> = (0..10)
        .map(|i| (1010.0 + f64::from(i) * 0.1, 1000.0))
        .collect();
    let comparison = compare_rounds(&rounds(&pairs), &rule(Direction::HigherIsBetter));
    assert!(
        comparison.low.is_some_and(|low| low > 1.0),
        "{comparison:?}"
    );
    assert_eq!(comparison.verdict, Verdict::Equivalent);
}

/// Goal: a difference whose interval sticks out of the margin is reported by its sign, not by its size: 4 % +- 2 % is
/// no reason for "undecided" because the margin is 5 %.
#[test]
fn certain_differences_need_no_size() {
    let pairs: Vec<_> = (0..10)
        .map(|i| (1_010.0 + f64::from(i) * 3.0, 1_000.0))
        .collect();
    let comparison = compare_rounds(&rounds(&pairs), &rule(Direction::LowerIsBetter));
    assert!(comparison.high.unwrap() > 1.02 && comparison.low.unwrap() < 1.02);
    assert_eq!(comparison.verdict, Verdict::Worse);
}

/// Goal: a value that does not vary is known after two rounds, as instructions and heap calls are; after one it is not
/// known whether it varies.
#[test]
fn constant_ratios_are_answers() {
    let verdict = |pairs: &[(f64, f64)]| {
        compare_rounds(&rounds(pairs), &rule(Direction::LowerIsBetter)).verdict
    };
    assert_eq!(verdict(&[(11.0, 10.0); 2]), Verdict::Worse);
    assert_eq!(verdict(&[(9.0, 10.0); 3]), Verdict::Better);
    assert_eq!(verdict(&[(10.0, 10.0); 2]), Verdict::Equivalent);
    assert_eq!(verdict(&[(14.0, 0.0); 2]), Verdict::Worse);
    let open = |pairs| matches!(verdict(pairs), Verdict::Undecided { .. });
    assert!(open(&[(11.0, 10.0)]) && open(&[(11.0, 10.0), (11.5, 10.0)]));
}

/// Goal: with nine candidates and eight comparisons, nine rounds can prove a loss and eight cannot.
#[test]
fn holm_needs_its_rounds() {
    for (count, decided) in [(8, false), (9, true)] {
        let pairs: Vec<_> = (0..count)
            .map(|i| (1200.0 + f64::from(i), 1000.0))
            .collect();
        let family = vec![rounds(&pairs); 8];
        let verdicts = compare_all(&family, &rule(Direction::HigherIsBetter));
        assert!(
            verdicts
                .iter()
                .all(|one| (one.verdict == Verdict::Better) == decided),
            "{count}: {verdicts:?}"
        );
    }
}

/// Goal: a comparison in trouble is never judged and does not make the others harder.
#[test]
fn trouble_costs_the_others_nothing() {
    let pairs: Vec<_> = (0..6).map(|i| (1200.0 + f64::from(i), 1000.0)).collect();
    let good = rounds(&pairs);
    let bad = PairedRounds {
        trouble: Some("it rained".to_owned()),
        ..good.clone()
    };
    let both = compare_all(&[good, bad], &rule(Direction::HigherIsBetter));
    assert_eq!(both[0].verdict, Verdict::Better);
    assert_eq!(
        both[1].verdict,
        Verdict::NotTrusted {
            reason: "it rained".to_owned()
        }
    );
    assert!(both[1].ratio.is_some());
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => 0.1_f64..1e6,
        1 => Just(0.0),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)],
    ]
}

proptest! {
    /// Goal: whatever comes in, the interval holds the estimate, p is a probability, and what
    /// cannot be measured is left out instead of spoiling the rest.
    #[test]
    fn any_numbers_are_survived(pairs in prop::collection::vec((value(), value()), 0..14)) {
        let comparison = compare_rounds(&rounds(&pairs), &rule(Direction::LowerIsBetter));
        if let Some(estimate) = comparison.estimate() {
            prop_assert!(estimate.low <= estimate.ratio && estimate.ratio <= estimate.high);
        }
        prop_assert!(comparison.p.is_none_or(|p| p > 0.0 && p <= 1.0));
        prop_assert!(comparison.rounds as usize <= pairs.len());
        prop_assert!(!comparison.sentence.contains("NaN"));
        let json = serde_json::to_string(&comparison).unwrap();
        let back: Comparison = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(back, comparison);
    }

    /// Goal: swapping the sides turns better into worse and the ratio upside down.
    #[test]
    fn swapping_sides_swaps_the_verdict(
        pairs in prop::collection::vec((90.0_f64..130.0, 95.0_f64..105.0), 6..14),
    ) {
        let forth = compare_rounds(&rounds(&pairs), &rule(Direction::HigherIsBetter));
        let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let back = compare_rounds(&rounds(&swapped), &rule(Direction::HigherIsBetter));
        let expected = match forth.verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            ref same => same.clone(),
        };
        prop_assert_eq!(&back.verdict, &expected);
        let (a, b) = (forth.ratio.unwrap(), back.ratio.unwrap());
        prop_assert!((a * b - 1.0).abs() < 1e-9);
    }
}
