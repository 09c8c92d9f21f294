//! Paired rounds in, verdicts out: the one place where the rule of decision stands.
//!
//! - *equivalent*: the 90 % interval lies within the margin, whether or not it excludes 1;
//! - *better* / *worse* otherwise, if the Holm-adjusted p is at most 5 % and the 95 % interval excludes 1,
//!   whatever the size;
//! - *undecided* otherwise, with the rounds it would take;
//! - *not to be trusted* if the caller knows a reason why the numbers do not count.
//!
//! Two rounds or more with the very same ratio need no test: such a number does not vary.
//!
//! Where the data are looked at several times, 5 %, 95 % and 90 % are shared out: see [`Looks`].

use super::{
    Claims, Comparison, Direction, Found, Interval, Looks, Sizes, Verdict, detectable,
    hodges_lehmann, holm, median, rounds_needed, sign_flip_p, signed_rank_interval,
};

/// The two values of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundPair {
    /// The candidate's.
    pub candidate: f64,
    /// The baseline's.
    pub baseline: f64,
}

impl RoundPair {
    /// `ln(candidate / baseline)`. Two zeros are equal; a zero against something is infinite, which
    /// ranks handle as the largest difference there is. `None` if a value is negative or not finite.
    #[must_use]
    pub fn log_ratio(self) -> Option<f64> {
        let valid = |value: f64| value.is_finite() && value >= 0.0;
        if !valid(self.candidate) || !valid(self.baseline) {
            return None;
        }
        Some(if self.candidate == self.baseline {
            0.0
        } else {
            self.candidate.ln() - self.baseline.ln()
        })
    }
}

/// What a measure is called, which way is good, and what counts as the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// For the sentence: `PUT throughput`.
    pub label: String,
    /// Which way is good.
    pub direction: Direction,
    /// The smallest relative difference worth acting on (0.02 = 2 %).
    pub margin: f64,
    /// How often the data are looked at, this time included.
    pub looks: Looks,
}

impl Rule {
    /// What is claimed where so many comparisons are judged together.
    pub(crate) fn claims(&self, comparisons: usize) -> Claims {
        Claims {
            comparisons,
            looks: self.looks,
            margin: self.margin.ln_1p(),
        }
    }
}

/// The rounds of one candidate against the baseline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairedRounds {
    /// Name of the candidate.
    pub candidate: String,
    /// Name of the baseline.
    pub baseline: String,
    /// One per round in which both were measured.
    pub pairs: Vec<RoundPair>,
    /// A reason why nothing may be concluded, if there is one.
    pub trouble: Option<String>,
}

impl PairedRounds {
    fn differences(&self) -> Vec<f64> {
        self.pairs
            .iter()
            .filter_map(|pair| pair.log_ratio())
            .collect()
    }
}

/// One candidate alone against the baseline.
#[must_use]
pub fn compare_rounds(rounds: &PairedRounds, rule: &Rule) -> Comparison {
    let differences = rounds.differences();
    let p = sign_flip_p(&differences);
    judge(rounds, &differences, (p, p), 1, rule)
}

/// Several candidates against the same baseline: Holm's correction over those that may be judged.
#[must_use]
pub fn compare_all(candidates: &[PairedRounds], rule: &Rule) -> Vec<Comparison> {
    let differences: Vec<Vec<f64>> = candidates.iter().map(PairedRounds::differences).collect();
    // What may not be judged makes no claim, so it does not cost the others anything.
    let judged: Vec<usize> = (0..candidates.len())
        .filter(|&index| candidates[index].trouble.is_none())
        .collect();
    let raw: Vec<f64> = differences.iter().map(|d| sign_flip_p(d)).collect();
    let adjusted = holm(&judged.iter().map(|&index| raw[index]).collect::<Vec<_>>());
    let adjusted_of = |index: usize| {
        let place = judged.iter().position(|&other| other == index);
        place.map_or(1.0, |place| adjusted[place])
    };
    let family = judged.len().max(1);
    candidates
        .iter()
        .enumerate()
        .map(|(index, rounds)| {
            let p = (raw[index], adjusted_of(index));
            judge(rounds, &differences[index], p, family, rule)
        })
        .collect()
}

fn judge(
    rounds: &PairedRounds,
    differences: &[f64],
    (p, p_adjusted): (f64, f64),
    family: usize,
    rule: &Rule,
) -> Comparison {
    let interval = signed_rank_interval(differences, rule.looks.confidence());
    let equivalence = signed_rank_interval(differences, rule.looks.equivalence_confidence());
    let effect = hodges_lehmann(differences);
    let found = effect.zip(equivalence).map(|(effect, equivalence)| Found {
        effect,
        equivalence,
    });
    let (sizes, claims) = (Sizes::Paired(differences.len()), rule.claims(family));
    let measured = !differences.is_empty();
    let finite = |value: f64| value.is_finite().then_some(value);
    let verdict = match (&rounds.trouble, found.zip(interval)) {
        (Some(reason), _) => Verdict::NotTrusted {
            reason: reason.clone(),
        },
        (None, None) => Verdict::NotTrusted {
            reason: "it was not measured".to_owned(),
        },
        (None, Some((found, interval))) => {
            let evidence = Evidence {
                found,
                interval,
                p_adjusted,
                is_constant: is_constant(differences),
            };
            evidence.verdict(rule, sizes, claims)
        }
    };
    let mut comparison = Comparison {
        candidate: rounds.candidate.clone(),
        baseline: rounds.baseline.clone(),
        ratio: effect.map(f64::exp).and_then(finite),
        low: interval.map(|interval| interval.low.exp()).and_then(finite),
        high: interval
            .map(|interval| interval.high.exp())
            .and_then(finite),
        confidence: interval.map_or(0.0, |interval| interval.confidence),
        p: measured.then_some(p),
        p_adjusted: measured.then_some(p_adjusted),
        rounds: differences.len() as u32,
        margin: rule.margin,
        detectable: found
            .and_then(|found| detectable(&found, sizes, claims))
            .map(f64::exp_m1),
        candidate_value: median(&mut side(&rounds.pairs, |pair| pair.candidate)),
        baseline_value: median(&mut side(&rounds.pairs, |pair| pair.baseline)),
        verdict,
        sentence: String::new(),
    };
    comparison.describe(&rule.label);
    comparison
}

fn side(pairs: &[RoundPair], pick: impl Fn(&RoundPair) -> f64) -> Vec<f64> {
    pairs
        .iter()
        .filter(|pair| pair.log_ratio().is_some())
        .map(pick)
        .collect()
}

/// Whether values do not vary: known of two or more.
pub(crate) fn is_constant(values: &[f64]) -> bool {
    values.len() > 1 && values.iter().all(|one| one == &values[0])
}

/// What a verdict is made from, as logarithms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    pub(crate) found: Found,
    /// The interval that has to leave out 0 for a difference.
    pub(crate) interval: Interval,
    pub(crate) p_adjusted: f64,
    /// Whether the difference is the very same each time.
    pub(crate) is_constant: bool,
}

impl Evidence {
    /// The verdicts in their order.
    pub(crate) fn verdict(&self, rule: &Rule, sizes: Sizes, claims: Claims) -> Verdict {
        let Found {
            effect,
            equivalence,
        } = self.found;
        let is_sure = |interval: &Interval, wanted: f64| interval.confidence >= wanted - 1e-12;
        let is_within = is_sure(&equivalence, rule.looks.equivalence_confidence())
            && equivalence.low >= -claims.margin
            && equivalence.high <= claims.margin;
        if is_within || (self.is_constant && effect.abs() <= claims.margin) {
            return Verdict::Equivalent;
        }
        let is_different = self.p_adjusted <= rule.looks.significance()
            && is_sure(&self.interval, rule.looks.confidence())
            && !self.interval.contains(0.0);
        if is_different || self.is_constant {
            return match (effect > 0.0) == (rule.direction == Direction::HigherIsBetter) {
                true => Verdict::Better,
                false => Verdict::Worse,
            };
        }
        let more = rounds_needed(&self.found, sizes, claims).saturating_sub(sizes.rounds());
        Verdict::Undecided {
            rounds_needed: u32::try_from(more.max(1)).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
impl Comparison {
    /// One of an invented comparison, with this interval.
    pub(crate) fn planted(low: f64, high: f64, verdict: Verdict) -> Self {
        Self {
            candidate: "a".to_owned(),
            baseline: "b".to_owned(),
            ratio: Some((low * high).sqrt()),
            low: Some(low),
            high: Some(high),
            confidence: 0.951,
            p: None,
            p_adjusted: None,
            rounds: 12,
            margin: 0.05,
            detectable: Some(0.02),
            candidate_value: None,
            baseline_value: None,
            verdict,
            sentence: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(direction: Direction) -> Rule {
        Rule {
            label: "throughput".to_owned(),
            direction,
            margin: 0.02,
            looks: Looks::ONE,
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

    /// Goal: a difference whose interval sticks out of the margin is told by its sign, not by its size: 4 %
    /// +- 2 % is no reason for "undecided" because the margin is 5 %.
    #[test]
    fn certain_differences_need_no_size() {
        let pairs: Vec<_> = (0..10)
            .map(|i| (1_010.0 + f64::from(i) * 3.0, 1_000.0))
            .collect();
        let comparison = compare_rounds(&rounds(&pairs), &rule(Direction::LowerIsBetter));
        assert!(comparison.high.unwrap() > 1.02 && comparison.low.unwrap() < 1.02);
        assert_eq!(comparison.verdict, Verdict::Worse);
    }

    /// Goal: what does not vary is known after two rounds, as instructions and heap calls are; after one it
    /// is not known whether it varies.
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

    /// Goal: with nine candidates and eight comparisons, nine rounds can convict and eight cannot.
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
}
