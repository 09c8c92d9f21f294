//! Paired rounds in, verdicts out: the one place where the rule of decision stands.
//!
//! - *equivalent*: the 90 % interval lies within the margin, whether or not it excludes 1;
//! - *better* / *worse* otherwise, if the Holm-adjusted p is at most 5 % and the 95 % interval excludes 1,
//!   whatever the size;
//! - *undecided* otherwise, with the rounds it would take;
//! - *not to be trusted* if the caller has a reason why the numbers do not count.
//!
//! Two rounds or more with the very same ratio need no test: such a number does not vary.
//!
//! Where there are several interim analyses, 5 %, 95 % and 90 % are shared out: see [`InterimAnalyses`].

use super::{
    Claims, Comparison, Direction, Found, InterimAnalyses, Interval, Sizes, Verdict, detectable,
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

/// A measure's name, which way is good, and the margin of equality.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// For the sentence: `PUT throughput`.
    pub label: String,
    /// Which way is good.
    pub direction: Direction,
    /// The smallest relative difference worth acting on (0.02 = 2 %).
    pub margin: f64,
    /// How often the data are analysed, this time included.
    pub looks: InterimAnalyses,
}

impl Rule {
    /// The permitted claims where so many comparisons are judged together.
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
    // Comparisons that may not be judged make no claim, so they do not cost the others anything.
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

/// The basis of a verdict, as logarithms.
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
#[path = "tests/decision.rs"]
mod tests;
