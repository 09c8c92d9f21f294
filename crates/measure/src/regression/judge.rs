//! One candidate in two sessions: from two samples to a verdict and its sentence.

use super::EARLIER;
use super::rank_sum::{rank_sum_p, shift, shift_interval};
use crate::statistics::{
    Comparison, Direction, EQUIVALENCE_CONFIDENCE, Looks, SIGNIFICANCE, Verdict, holm, median,
    minimum_detectable_effect, robust_sigma, rounds_needed,
};

/// More than anybody runs.
const ROUNDS_MAX: usize = 9_999;

/// Both sessions of one candidate in one question, as logarithms.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    pub(super) name: String,
    pub(super) label: String,
    /// The baseline that both were divided by.
    pub(super) relative_to: Option<String>,
    pub(super) now: Vec<f64>,
    pub(super) earlier: Vec<f64>,
    pub(super) direction: Direction,
    pub(super) margin: f64,
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
        let interval = shift_interval(&self.now, &self.earlier, 1.0 - SIGNIFICANCE);
        let finite = |value: f64| Some(value.exp()).filter(|value| value.is_finite());
        let measured = interval.is_some();
        let mut comparison = Comparison {
            candidate: self.name.clone(),
            baseline: EARLIER.to_owned(),
            ratio: shift(&self.now, &self.earlier).and_then(finite),
            low: interval.and_then(|interval| finite(interval.low)),
            high: interval.and_then(|interval| finite(interval.high)),
            confidence: interval.map_or(0.0, |interval| interval.confidence),
            p: measured.then_some(self.p),
            p_adjusted: measured.then_some(self.p_adjusted),
            rounds: u32::try_from(self.now.len()).unwrap_or(u32::MAX),
            margin: self.margin,
            detectable: self.detectable(),
            candidate_value: self.values[0],
            baseline_value: self.values[1],
            verdict: self.verdict(),
            sentence: String::new(),
        };
        comparison.describe(&self.label);
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

    /// The spread of one run, as both sessions show it.
    fn sigma(&self) -> Option<f64> {
        let centred = |values: &[f64]| -> Option<Vec<f64>> {
            let middle = median(&mut values.to_vec())?;
            let near = values.iter().map(|value| value - middle);
            Some(near.filter(|value| value.is_finite()).collect())
        };
        let both = [centred(&self.now)?, centred(&self.earlier)?].concat();
        robust_sigma(&both)
    }

    fn detectable(&self) -> Option<f64> {
        if !self.can_convict() {
            return None;
        }
        let share = |count: usize| 1.0 / count as f64;
        let spread = self.sigma()? * (share(self.now.len()) + share(self.earlier.len())).sqrt();
        Some(minimum_detectable_effect(spread, 1, self.family).exp() - 1.0)
    }

    /// Whether the exact test could claim anything, however far apart they were.
    fn can_convict(&self) -> bool {
        if self.now.is_empty() || self.earlier.is_empty() {
            return false;
        }
        let apart = |count: usize, value: f64| vec![value; count];
        let (high, low) = (apart(self.now.len(), 1.0), apart(self.earlier.len(), 0.0));
        rank_sum_p(&high, &low) * self.family as f64 <= SIGNIFICANCE
    }

    fn verdict(&self) -> Verdict {
        let not_trusted = |reason: &str| Verdict::NotTrusted {
            reason: reason.to_owned(),
        };
        if let Some(reason) = &self.trouble {
            return not_trusted(reason);
        }
        let (Some(effect), Some(interval), Some(equivalence)) = (
            shift(&self.now, &self.earlier),
            shift_interval(&self.now, &self.earlier, 1.0 - SIGNIFICANCE),
            shift_interval(&self.now, &self.earlier, EQUIVALENCE_CONFIDENCE),
        ) else {
            return not_trusted("it was not measured in both records");
        };
        let margin = self.margin.ln_1p();
        let certain = self.p_adjusted <= SIGNIFICANCE
            && interval.confidence >= 1.0 - SIGNIFICANCE - 1e-12
            && !interval.contains(0.0);
        if certain && effect.abs() > margin {
            let good = (effect > 0.0) == (self.direction == Direction::HigherIsBetter);
            return if good {
                Verdict::Better
            } else {
                Verdict::Worse
            };
        }
        let within = equivalence.low >= -margin && equivalence.high <= margin;
        if equivalence.confidence >= EQUIVALENCE_CONFIDENCE - 1e-12 && within {
            return Verdict::Equivalent;
        }
        Verdict::Undecided {
            rounds_needed: self.more_rounds(effect, margin),
        }
    }

    /// More rounds now, with the earlier ones as they are; where those alone are too few, what both
    /// sessions would need.
    fn more_rounds(&self, effect: f64, margin: f64) -> u32 {
        let (now, earlier) = (self.now.len(), self.earlier.len());
        let sigma = self.sigma().filter(|_| effect.is_finite());
        let single = sigma.map_or(6, |sigma| {
            rounds_needed(effect, sigma, margin, self.family, Looks::ONE)
        });
        // 1/now + 1/earlier has to get down to 1/single.
        let wanted = if earlier > single {
            (single * earlier).div_ceil(earlier - single)
        } else {
            2 * single
        };
        let more = wanted.min(ROUNDS_MAX).saturating_sub(now).max(1);
        u32::try_from(more).unwrap_or(u32::MAX)
    }
}
