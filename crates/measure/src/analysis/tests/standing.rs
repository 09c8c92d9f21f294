use super::*;

/// Goal: intervals that do not touch distinguish two candidates, by the direction; those within the
/// margin of each other are the same; whatever else is open, and so is what is not sure.
#[test]
fn intervals_tell_two_candidates_apart() {
    let of = |one: &Comparison, other: &Comparison| {
        let more = standing(Some(one), Some(other), Direction::HigherIsBetter);
        let less = standing(Some(one), Some(other), Direction::LowerIsBetter);
        assert_eq!(more, less.reversed());
        more
    };
    let fast = Comparison::planted(1.18, 1.22, Verdict::Better);
    let near = Comparison::planted(1.17, 1.21, Verdict::Better);
    let slow = Comparison::planted(0.99, 1.01, Verdict::Equivalent);
    let wide = Comparison::planted(0.9, 1.3, Verdict::Undecided { rounds_needed: 5 });
    assert_eq!(of(&fast, &slow), Standing::Better);
    assert_eq!(of(&slow, &fast), Standing::Worse);
    assert_eq!(of(&fast, &near), Standing::Equivalent);
    assert_eq!(of(&fast, &wide), Standing::Open);
    let mut few = Comparison::planted(0.5, 0.6, Verdict::Undecided { rounds_needed: 5 });
    assert_eq!(of(&fast, &few), Standing::Better);
    few.confidence = 0.75;
    assert_eq!(of(&fast, &few), Standing::Open);
}

/// Goal: against the baseline the verdict of the table holds, whatever the interval.
#[test]
fn against_the_baseline_the_verdict_holds() {
    let worse = Comparison::planted(0.9, 1.2, Verdict::Worse);
    for direction in [Direction::HigherIsBetter, Direction::LowerIsBetter] {
        assert_eq!(standing(Some(&worse), None, direction), Standing::Worse);
        assert_eq!(standing(None, Some(&worse), direction), Standing::Better);
        assert_eq!(standing(None, None, direction), Standing::Equivalent);
    }
}
