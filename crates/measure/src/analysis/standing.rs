//! How two candidates stand to each other, read from the comparisons of both with the baseline.
//!
//! There is one set of comparisons for each measure: that of the table. Against the baseline its verdict
//! holds. Two candidates are told apart by their two intervals alone: what lies between their furthest ends
//! is where their own ratio can lie. That is more cautious than a comparison of the two would be, needs no
//! other correction, and everybody can check it on the page.

use crate::statistics::{Comparison, Direction, SIGNIFICANCE, Verdict};

/// What is proved of one candidate against another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Better,
    Worse,
    /// The same within the margin.
    Equivalent,
    Open,
}

impl Standing {
    const fn reversed(self) -> Self {
        match self {
            Self::Better => Self::Worse,
            Self::Worse => Self::Better,
            same => same,
        }
    }

    const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Better => Self::Better,
            Verdict::Worse => Self::Worse,
            Verdict::Equivalent => Self::Equivalent,
            Verdict::Undecided { .. } | Verdict::NotTrusted { .. } => Self::Open,
        }
    }
}

/// Of `one` against `other`, each by its comparison with the baseline; `None` is the baseline itself.
pub(super) fn standing(
    one: Option<&Comparison>,
    other: Option<&Comparison>,
    direction: Direction,
) -> Standing {
    match (one, other) {
        (None, None) => Standing::Equivalent,
        (Some(one), None) => Standing::of(&one.verdict),
        (None, Some(other)) => Standing::of(&other.verdict).reversed(),
        (Some(one), Some(other)) => by_intervals(one, other, direction),
    }
}

fn by_intervals(one: &Comparison, other: &Comparison, direction: Direction) -> Standing {
    let (Some(own), Some(its)) = (one.estimate(), other.estimate()) else {
        return Standing::Open;
    };
    if !is_sure(one) || !is_sure(other) {
        return Standing::Open;
    }
    let (low, high) = (own.low / its.high, own.high / its.low);
    let margin = 1.0 + one.margin;
    if low >= 1.0 / margin && high <= margin {
        return Standing::Equivalent;
    }
    let higher = match direction {
        Direction::HigherIsBetter => Standing::Better,
        Direction::LowerIsBetter => Standing::Worse,
    };
    if low > 1.0 {
        higher
    } else if high < 1.0 {
        higher.reversed()
    } else {
        Standing::Open
    }
}

/// Whether the interval is one: of fewer rounds it is the range of what was seen.
fn is_sure(one: &Comparison) -> bool {
    match one.verdict {
        Verdict::NotTrusted { .. } => false,
        Verdict::Undecided { .. } => one.confidence >= 1.0 - SIGNIFICANCE - 1e-12,
        Verdict::Better | Verdict::Worse | Verdict::Equivalent => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: intervals that do not touch tell two candidates apart, by the direction; those within the
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
}
