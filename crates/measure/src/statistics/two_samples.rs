//! Two samples that are not paired, such as one candidate in two sessions: from both to a verdict and its sentence.

use super::{
    Comparison, Evidence, Found, Interval, Rule, Sizes, Verdict, detectable, holm, is_constant,
    rank_sum_p, shift, shift_interval,
};

/// Both samples of one candidate in one question, as logarithms.
#[derive(Clone, Debug)]
pub(crate) struct TwoSamples {
    pub(crate) name: String,
    /// What the other sample is called.
    pub(crate) reference: String,
    /// The baseline that both were divided by.
    pub(crate) relative_to: Option<String>,
    pub(crate) values: Vec<f64>,
    pub(crate) reference_values: Vec<f64>,
    pub(crate) rule: Rule,
    pub(crate) trouble: Option<String>,
    /// Medians of the candidate's own values in both.
    pub(crate) medians: [Option<f64>; 2],
    pub(crate) p: f64,
    pub(crate) p_adjusted: f64,
    /// What is said where one of them is empty.
    pub(crate) missing: &'static str,
    /// Comparisons that are judged together.
    pub(crate) family: usize,
}

/// One error rate over all that may be judged: a check is one decision.
pub(crate) fn correct_for_all(mut all: Vec<&mut TwoSamples>) {
    for one in &mut all {
        one.p = rank_sum_p(&one.values, &one.reference_values);
    }
    let mut judged: Vec<&mut TwoSamples> = all
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

impl TwoSamples {
    pub(crate) fn judge(&self) -> Comparison {
        let looks = self.rule.looks;
        let of = |confidence: f64| shift_interval(&self.values, &self.reference_values, confidence);
        let interval = of(looks.confidence());
        let found =
            shift(&self.values, &self.reference_values).zip(of(looks.equivalence_confidence()));
        let found = found.map(|(effect, equivalence)| Found {
            effect,
            equivalence,
        });
        let finite = |value: f64| Some(value.exp()).filter(|value| value.is_finite());
        let measured = interval.is_some();
        let (sizes, claims) = (self.sizes(), self.rule.claims(self.family));
        let mut comparison = Comparison {
            candidate: self.name.clone(),
            baseline: self.reference.clone(),
            ratio: found.and_then(|found| finite(found.effect)),
            low: interval.and_then(|interval| finite(interval.low)),
            high: interval.and_then(|interval| finite(interval.high)),
            confidence: interval.map_or(0.0, |interval| interval.confidence),
            p: measured.then_some(self.p),
            p_adjusted: measured.then_some(self.p_adjusted),
            rounds: u32::try_from(self.values.len()).unwrap_or(u32::MAX),
            margin: self.rule.margin,
            detectable: found
                .and_then(|found| detectable(&found, sizes, claims))
                .map(f64::exp_m1),
            candidate_value: self.medians[0],
            baseline_value: self.medians[1],
            verdict: self.verdict(found.zip(interval)),
            sentence: String::new(),
        };
        comparison.describe(&self.rule.label);
        if let Some(baseline) = &self.relative_to
            && self.trouble.is_none()
        {
            comparison.sentence = comparison.sentence.replacen(
                self.reference.as_str(),
                &format!("{} relative to {baseline}", self.reference),
                1,
            );
        }
        comparison
    }

    fn sizes(&self) -> Sizes {
        Sizes::Apart(self.values.len(), self.reference_values.len())
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
            return not_trusted(self.missing);
        };
        let evidence = Evidence {
            found,
            interval,
            p_adjusted: self.p_adjusted,
            is_constant: is_constant(&self.values) && is_constant(&self.reference_values),
        };
        evidence.verdict(&self.rule, self.sizes(), self.rule.claims(self.family))
    }
}
