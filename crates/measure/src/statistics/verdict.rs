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
    /// Certainly different, by more than the margin, in the good direction.
    Better,
    /// Certainly different, by more than the margin, in the bad direction.
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
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// The smallest relative difference these rounds would have found with 80 % probability.
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
        match self.estimate() {
            None => "-".to_owned(),
            Some(Estimate { ratio, .. }) if self.rounds < 2 => format!("{}x", ratio_digits(ratio)),
            Some(Estimate { ratio, low, high }) => {
                format!(
                    "{}x [{}, {}]",
                    ratio_digits(ratio),
                    ratio_digits(low),
                    ratio_digits(high)
                )
            }
        }
    }

    /// Writes the sentence anew; `label` names the measure (`throughput`, `peak RSS`).
    pub fn describe(&mut self, label: &str) {
        let (candidate, baseline) = (&self.candidate, &self.baseline);
        let figures = self.ratio_text();
        self.sentence = match (&self.verdict, self.ratio) {
            (Verdict::Better | Verdict::Worse, ratio) => {
                let change = ratio.map_or_else(|| "beyond measure".to_owned(), change_text);
                format!("{candidate}: {label} {change} than {baseline}: {figures}")
            }
            (Verdict::Equivalent, _) => {
                let margin = format_percent(self.margin);
                format!("{candidate}: {label} equivalent to {baseline} within {margin}: {figures}")
            }
            (Verdict::Undecided { rounds_needed }, _) => {
                let rounds = if *rounds_needed == 1 {
                    "round"
                } else {
                    "rounds"
                };
                format!(
                    "{candidate}: {label} undecided against {baseline}: {figures}; needs about \
                     {rounds_needed} more {rounds}"
                )
            }
            (Verdict::NotTrusted { reason }, _) => {
                format!("{candidate}: {label} not to be trusted: {reason}")
            }
        };
    }
}

/// `12 % higher`, `34 % lower`, `2.10 times higher`.
fn change_text(ratio: f64) -> String {
    let (change, word) = if ratio >= 1.0 {
        (ratio - 1.0, "higher")
    } else {
        (1.0 - ratio, "lower")
    };
    if change >= 1.0 {
        format!("{} times higher", ratio_digits(ratio))
    } else {
        format!("{} {word}", format_percent(change))
    }
}

/// Two decimals; more where a ratio is so close to 1 that two would hide the difference.
fn ratio_digits(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "inf".to_owned();
    }
    if ratio >= 9.995 {
        format!("{ratio:.1}")
    } else if (ratio - 1.0).abs() < 0.01 && ratio != 1.0 {
        format!("{ratio:.3}")
    } else {
        format!("{ratio:.2}")
    }
}
