//! The possible verdicts about two candidates, and their sentences.

use serde::{Deserialize, Serialize};

use crate::units::format_percent;

use super::{
    EQUIVALENCE_CONFIDENCE, Evidence, Found, Interval, Rule, SIGNIFICANCE, Sizes, detectable,
    is_constant, rank_sum_p, shift, shift_interval, smallest_rounds,
};

/// Which way is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// Throughput.
    HigherIsBetter,
    /// Latency, memory, work per request.
    LowerIsBetter,
}

/// The five things that can be said. "No difference" is not one of them: only "equivalent within".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Certainly different in the good direction, and not certainly within the margin.
    Better,
    /// The same in the bad direction.
    Worse,
    /// Certainly within the margin (a difference may be real, but too small to matter).
    Equivalent,
    /// The rounds do not decide.
    Undecided {
        /// About how many more would; at least 1.
        rounds_needed: u32,
    },
    /// The numbers exist or not, but nothing should be concluded from them.
    NotTrusted {
        /// Why, as the rest of a sentence after "not to be trusted:".
        reason: String,
    },
}

impl Verdict {
    /// One or two words for a table.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equivalent => "equivalent",
            Self::Undecided { .. } => "undecided",
            Self::NotTrusted { .. } => "not trusted",
        }
    }

    /// True for better and worse.
    #[must_use]
    pub const fn is_difference(&self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// candidate / baseline.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// One candidate against one baseline in one measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the candidate.
    pub candidate: String,
    /// Name of the baseline.
    pub baseline: String,
    /// Hodges-Lehmann estimate of candidate / baseline; `None` if not measured or if the baseline
    /// is zero.
    pub ratio: Option<f64>,
    /// Lower end of the interval of the ratio.
    pub low: Option<f64>,
    /// Upper end of the interval of the ratio.
    pub high: Option<f64>,
    /// Exact confidence of the interval: at least 0.95 from 6 rounds on.
    pub confidence: f64,
    /// Exact sign-flip p value of this comparison alone.
    pub p: Option<f64>,
    /// p after Holm's correction for all comparisons of this measure.
    pub p_adjusted: Option<f64>,
    /// Rounds in which both were measured.
    pub rounds: u32,
    /// The smallest relative difference worth acting on.
    pub margin: f64,
    /// The smallest relative difference these rounds would have found with 80 % probability;
    /// `None` if they are too few to find any.
    pub detectable: Option<f64>,
    /// Median of the candidate over the paired rounds, in the measure's unit.
    pub candidate_value: Option<f64>,
    /// Median of the baseline over the paired rounds, in the measure's unit.
    pub baseline_value: Option<f64>,
    /// The possible verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The same in words.
    pub sentence: String,
}

impl Comparison {
    /// Whether it is undecided because no difference of so few rounds could have been one, however large.
    #[must_use]
    pub fn is_blind(&self) -> bool {
        matches!(self.verdict, Verdict::Undecided { .. }) && self.detectable.is_none()
    }

    /// Against an earlier record: whether it is certainly worse, and by more than the margin according to the estimate.
    /// A certain but small change is reported, and fails no check.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        let margin = self.margin.ln_1p();
        self.verdict == Verdict::Worse && self.ratio.is_none_or(|ratio| ratio.ln().abs() > margin)
    }

    /// The baseline against the candidate: the same interval from the other side.
    pub(crate) fn reversed(&self, label: &str) -> Self {
        // Measured values without a ratio are something against nothing.
        let of_one = |value: Option<f64>| match value {
            Some(value) => Some(1.0 / value).filter(|ratio| ratio.is_finite()),
            None => self.p.map(|_| 0.0),
        };
        let mut reversed = Self {
            candidate: self.baseline.clone(),
            baseline: self.candidate.clone(),
            ratio: of_one(self.ratio),
            low: of_one(self.high),
            high: of_one(self.low),
            candidate_value: self.baseline_value,
            baseline_value: self.candidate_value,
            verdict: match &self.verdict {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                other => other.clone(),
            },
            ..self.clone()
        };
        reversed.describe(label);
        reversed
    }

    /// The ratio with its interval, if it was measured.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        Some(Estimate {
            ratio: self.ratio?,
            low: self.low?,
            high: self.high?,
        })
    }

    /// `1.12x [1.08, 1.15]`, or a dash.
    #[must_use]
    pub fn ratio_text(&self) -> String {
        let Some(Estimate { ratio, low, high }) = self.estimate() else {
            return match (self.candidate_value, self.baseline_value) {
                (Some(candidate), Some(0.0)) => {
                    format!("{} against 0", crate::units::format_three_digits(candidate))
                }
                _ => "-".to_owned(),
            };
        };
        if self.rounds < 2 {
            return format!("{ratio:.2}x");
        }
        // Two decimals, three where an end would otherwise look like no difference.
        let close = [ratio, low, high]
            .iter()
            .any(|value| *value != 1.0 && format!("{value:.2}") == "1.00");
        let digits = if close { 3 } else { 2 };
        format!("{ratio:.digits$}x [{low:.digits$}, {high:.digits$}]")
    }

    /// Writes the sentence anew; `label` names the measure (`throughput`, `peak RSS`).
    pub fn describe(&mut self, label: &str) {
        let (candidate, baseline) = (&self.candidate, &self.baseline);
        let figures = self.ratio_text();
        self.sentence = match (&self.verdict, self.ratio) {
            (Verdict::Better | Verdict::Worse, ratio) => {
                let change = ratio.map_or_else(|| "higher than".to_owned(), change_text);
                format!("{candidate}: {label} {change} {baseline}: {figures}")
            }
            (Verdict::Equivalent, _) => {
                let margin = format_percent(self.margin);
                format!("{candidate}: {label} equivalent to {baseline} within {margin}: {figures}")
            }
            (Verdict::Undecided { rounds_needed }, _) => {
                let needs = needs_text(*rounds_needed);
                format!("{candidate}: {label} undecided against {baseline}: {figures}; {needs}")
            }
            (Verdict::NotTrusted { reason }, _) => {
                format!("{candidate}: {label} not to be trusted: {reason}")
            }
        };
    }
}

/// Beyond this many more rounds, an afternoon's work, advice to run them is no help.
const ROUNDS_WORTH_ADVISING: u32 = 500;

/// The needs of an undecided comparison: `needs about 7 more rounds`.
#[must_use]
pub fn needs_text(rounds: u32) -> String {
    match rounds {
        1 => "needs about 1 more round".to_owned(),
        more if more > ROUNDS_WORTH_ADVISING => {
            "needs more rounds than is sensible, or a quieter machine".to_owned()
        }
        more => format!("needs about {more} more rounds"),
    }
}

/// `12 % higher than`, `34 % lower than`, `2.10 times`.
fn change_text(ratio: f64) -> String {
    if ratio >= 2.0 {
        format!("{ratio:.2} times")
    } else if ratio >= 1.0 {
        format!("{} higher than", format_percent(ratio - 1.0))
    } else {
        format!("{} lower than", format_percent(1.0 - ratio))
    }
}

// Several candidates against one baseline: Holm's step-down correction.
//
// Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Stat. 6 (1979). Keeps
// the chance of any false claim among all comparisons of one measure at the level of one test.

/// The adjusted p values, in the order given. `NaN` counts as 1 (nothing known).
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let plain = |p: f64| if p.is_nan() { 1.0 } else { p };
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| plain(p_values[a]).total_cmp(&plain(p_values[b])));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest_so_far: f64 = 0.0;
    for (step, &index) in order.iter().enumerate() {
        let factor = (p_values.len() - step) as f64;
        largest_so_far = largest_so_far.max((plain(p_values[index]) * factor).min(1.0));
        adjusted[index] = largest_so_far;
    }
    adjusted
}

// Two samples that are not paired, such as one candidate in two sessions: from both to a verdict and its sentence.

/// Both samples of one candidate in one question, as logarithms.
#[derive(Clone, Debug)]
pub(crate) struct TwoSamples {
    pub(crate) name: String,
    /// The name of the other sample.
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
    /// The text where one of them is empty.
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

// Analysing the data more than once without more false claims.
//
// The sum of the parts bounds the chance of a false claim at any analysis (Bonferroni), whatever the distribution, the
// dependence of analyses and candidates on each other, and the distances between the analyses, because the test at each
// is exact. The intervals are repeated confidence intervals in the sense of Jennison & Turnbull (J. R. Stat. Soc. B 51,
// 1989): with 95 % the intervals of all analyses contain the true value together, so the one at which the comparison
// stopped does, whatever the reason for the stop.

/// More analyses than this cost more rounds than stopping early saves.
const LOOKS_MAX: u32 = 4;

/// How many interim analyses a comparison has, and so what each may claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterimAnalyses(u32);

impl InterimAnalyses {
    /// The number of rounds is fixed: one analysis, which has all of the 5 %.
    pub const ONE: Self = Self(1);

    /// So many were planned before the first round; none counts as one.
    #[must_use]
    pub fn planned(count: usize) -> Self {
        Self(u32::try_from(count).unwrap_or(u32::MAX).max(1))
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0 as usize
    }

    /// The chance of a false claim of a difference at one analysis.
    #[must_use]
    pub fn significance(self) -> f64 {
        SIGNIFICANCE / f64::from(self.0)
    }

    /// The confidence of one analysis' intervals, with which those of all hold with 95 %.
    #[must_use]
    pub fn confidence(self) -> f64 {
        1.0 - self.significance()
    }

    /// The confidence of the interval that has to lie within the margin for "equivalent".
    #[must_use]
    pub fn equivalence_confidence(self) -> f64 {
        1.0 - (1.0 - EQUIVALENCE_CONFIDENCE) / f64::from(self.0)
    }
}

/// After which rounds to analyse the data, if there is time for `last` rounds and `comparisons` are made at once:
/// first after `first`, or as many as a claim at that analysis needs, then in equal ratios of about two. With
/// less than a third more than the first analysis there is only the last one.
#[must_use]
pub fn interim_rounds(first: u32, last: u32, comparisons: usize) -> Vec<u32> {
    let room = f64::from(last) / f64::from(first.max(1));
    let doublings = if room > 1.0 { room.log2().round() } else { 0.0 };
    let count = (doublings as u32 + 1).min(LOOKS_MAX);
    let smallest = smallest_rounds(comparisons.max(1) * count as usize);
    let first = first.max(u32::try_from(smallest).unwrap_or(u32::MAX));
    if count == 1 || f64::from(last) < f64::from(first) * FIRST_TO_LAST_MIN {
        return vec![last];
    }
    let ratio = (f64::from(last) / f64::from(first)).powf(1.0 / f64::from(count - 1));
    let mut looks: Vec<u32> = (0..count - 1)
        .map(|place| (f64::from(first) * ratio.powi(place as i32)).round() as u32)
        .collect();
    looks.push(last);
    looks
}

/// Between the first analysis and the last one; below it, stopping early saves too little.
const FIRST_TO_LAST_MIN: f64 = 4.0 / 3.0;

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/holm.rs"]
mod holm_tests;

#[cfg(test)]
#[path = "tests/sequential.rs"]
mod sequential_tests;
