//! What may be said about two candidates, and the sentence that says it.

use serde::{Deserialize, Serialize};

use crate::units::format_percent;

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
    /// The rounds do not tell.
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
    /// What may be said.
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

    /// Against an earlier record: whether it is certainly worse, and by more than the margin as far as the
    /// estimate tells. What is certain and small is told, and fails no check.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        let margin = self.margin.ln_1p();
        self.verdict == Verdict::Worse && self.ratio.is_none_or(|ratio| ratio.ln().abs() > margin)
    }

    /// The baseline against the candidate: the same interval from the other side.
    pub(crate) fn reversed(&self, label: &str) -> Self {
        // What was measured and has no ratio is something against nothing.
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

/// What an undecided comparison needs: `needs about 7 more rounds`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, low: f64, high: f64, verdict: Verdict) -> Comparison {
        let mut comparison = Comparison {
            candidate: "mimalloc".to_owned(),
            baseline: "glibc".to_owned(),
            ratio: Some(ratio),
            low: Some(low),
            high: Some(high),
            confidence: 0.951,
            p: Some(0.01),
            p_adjusted: Some(0.02),
            rounds: 10,
            margin: 0.02,
            detectable: Some(0.03),
            candidate_value: Some(2.0),
            baseline_value: Some(1.0),
            verdict,
            sentence: String::new(),
        };
        comparison.describe("throughput");
        comparison
    }

    #[test]
    fn sentences() {
        let text = |ratio, low, high, verdict| comparison(ratio, low, high, verdict).sentence;
        assert_eq!(
            text(1.12, 1.08, 1.15, Verdict::Better),
            "mimalloc: throughput 12 % higher than glibc: 1.12x [1.08, 1.15]"
        );
        assert_eq!(
            text(0.66, 0.5, 0.7, Verdict::Worse),
            "mimalloc: throughput 34 % lower than glibc: 0.66x [0.50, 0.70]"
        );
        assert_eq!(
            text(2.1, 2.0, 2.2, Verdict::Better),
            "mimalloc: throughput 2.10 times glibc: 2.10x [2.00, 2.20]"
        );
        assert_eq!(
            text(1.001, 0.99, 1.012, Verdict::Equivalent),
            "mimalloc: throughput equivalent to glibc within 2 %: 1.001x [0.990, 1.012]"
        );
        assert_eq!(
            text(1.1, 0.9, 1.2, Verdict::Undecided { rounds_needed: 1 }),
            "mimalloc: throughput undecided against glibc: 1.10x [0.90, 1.20]; needs about 1 more \
             round"
        );
        let reason = "the machine was busy".to_owned();
        assert_eq!(
            text(1.1, 0.9, 1.2, Verdict::NotTrusted { reason }),
            "mimalloc: throughput not to be trusted: the machine was busy"
        );
    }

    /// Goal: the contract of results.json: the verdict is a word beside the numbers, what belongs
    /// to it stands next to it, and all of it reads back.
    #[test]
    fn json_of_a_comparison() {
        let undecided = comparison(1.1, 0.9, 1.2, Verdict::Undecided { rounds_needed: 7 });
        let json = serde_json::to_value(&undecided).unwrap();
        for key in [
            "candidate",
            "baseline",
            "ratio",
            "low",
            "high",
            "p",
            "verdict",
            "sentence",
        ] {
            assert!(json.get(key).is_some_and(|value| !value.is_null()), "{key}");
        }
        assert_eq!(json["verdict"], "undecided");
        assert_eq!(json["rounds_needed"], 7);
        assert_eq!(
            serde_json::from_value::<Comparison>(json).unwrap(),
            undecided
        );
        let better = comparison(1.1, 1.05, 1.2, Verdict::Better);
        assert_eq!(serde_json::to_value(&better).unwrap()["verdict"], "better");
    }

    #[test]
    fn a_baseline_of_zero_has_no_ratio_but_words() {
        let mut comparison = comparison(1.0, 1.0, 1.0, Verdict::Worse);
        (comparison.ratio, comparison.high) = (None, None);
        (comparison.candidate_value, comparison.baseline_value) = (Some(14.0), Some(0.0));
        comparison.describe("heap calls/req");
        assert_eq!(
            comparison.sentence,
            "mimalloc: heap calls/req higher than glibc: 14.0 against 0"
        );
    }
}
