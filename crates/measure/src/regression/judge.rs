//! One candidate in two sessions: from two samples to a verdict and its sentence.

use super::EARLIER;
use crate::statistics::{
    Comparison, Evidence, Found, Interval, Rule, Sizes, Verdict, detectable, holm, is_constant,
    rank_sum_p, shift, shift_interval,
};

/// Both sessions of one candidate in one question, as logarithms.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    pub(super) name: String,
    /// The baseline that both were divided by.
    pub(super) relative_to: Option<String>,
    pub(super) now: Vec<f64>,
    pub(super) earlier: Vec<f64>,
    /// The number of looks is one: an earlier record is not waited for.
    pub(super) rule: Rule,
    pub(super) trouble: Option<String>,
    /// Medians of the candidate's own values, now and earlier.
    pub(super) values: [Option<f64>; 2],
    pub(super) p: f64,
    pub(super) p_adjusted: f64,
    /// Comparisons that are judged together.
    pub(super) family: usize,
}

/// One error rate over all that may be judged: a check is one decision.
pub(super) fn correct_for_all(mut all: Vec<&mut Samples>) {
    for one in &mut all {
        one.p = rank_sum_p(&one.now, &one.earlier);
    }
    let mut judged: Vec<&mut Samples> = all
        .into_iter()
        .filter(|one| one.trouble.is_none())
        .collect();
    let family = judged.len().max(1);
    let adjusted = holm(&judged.iter().map(|one| one.p).collect::<Vec<_>>());
    for (one, adjusted) in judged.iter_mut().zip(adjusted) {
        one.p_adjusted = adjusted;
        one.family = family;
    }
}

impl Samples {
    pub(super) fn judge(&self) -> Comparison {
        let looks = self.rule.looks;
        let of = |confidence: f64| shift_interval(&self.now, &self.earlier, confidence);
        let interval = of(looks.confidence());
        let found = shift(&self.now, &self.earlier).zip(of(looks.equivalence_confidence()));
        let found = found.map(|(effect, equivalence)| Found {
            effect,
            equivalence,
        });
        let finite = |value: f64| Some(value.exp()).filter(|value| value.is_finite());
        let measured = interval.is_some();
        let (sizes, claims) = (self.sizes(), self.rule.claims(self.family));
        let mut comparison = Comparison {
            candidate: self.name.clone(),
            baseline: EARLIER.to_owned(),
            ratio: found.and_then(|found| finite(found.effect)),
            low: interval.and_then(|interval| finite(interval.low)),
            high: interval.and_then(|interval| finite(interval.high)),
            confidence: interval.map_or(0.0, |interval| interval.confidence),
            p: measured.then_some(self.p),
            p_adjusted: measured.then_some(self.p_adjusted),
            rounds: u32::try_from(self.now.len()).unwrap_or(u32::MAX),
            margin: self.rule.margin,
            detectable: found
                .and_then(|found| detectable(&found, sizes, claims))
                .map(f64::exp_m1),
            candidate_value: self.values[0],
            baseline_value: self.values[1],
            verdict: self.verdict(found.zip(interval)),
            sentence: String::new(),
        };
        comparison.describe(&self.rule.label);
        if let Some(baseline) = &self.relative_to
            && self.trouble.is_none()
        {
            comparison.sentence = comparison.sentence.replacen(
                EARLIER,
                &format!("{EARLIER} relative to {baseline}"),
                1,
            );
        }
        comparison
    }

    fn sizes(&self) -> Sizes {
        Sizes::Apart(self.now.len(), self.earlier.len())
    }

    /// By the rule of every comparison.
    fn verdict(&self, found: Option<(Found, Interval)>) -> Verdict {
        let not_trusted = |reason: &str| Verdict::NotTrusted {
            reason: reason.to_owned(),
        };
        if let Some(reason) = &self.trouble {
            return not_trusted(reason);
        }
        let Some((found, interval)) = found else {
            return not_trusted("it was not measured in both records");
        };
        let evidence = Evidence {
            found,
            interval,
            p_adjusted: self.p_adjusted,
            is_constant: is_constant(&self.now) && is_constant(&self.earlier),
        };
        evidence.verdict(&self.rule, self.sizes(), self.rule.claims(self.family))
    }
}
