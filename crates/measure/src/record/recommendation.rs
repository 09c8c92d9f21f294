//! Which candidate to use for what, why, and when not: as words and as the numbers behind them.

use serde::{Deserialize, Serialize};

use super::Quantity;

/// What sort of advice it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// There was nothing to compare.
    #[default]
    None,
    /// One candidate is better in something and worse in nothing.
    Switch,
    /// What is better in one question costs something in another, or different ones are better.
    TradeOff,
    /// Nothing is better than the baseline.
    Stay,
    /// The rounds do not tell.
    Undecided,
    /// The numbers must not be believed.
    NotTrusted,
}

/// A use and the candidate for it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// `throughput`, `latency` or `memory`.
    pub question: String,
    /// The candidate, or the baseline where nothing is better.
    pub candidate: String,
}

/// A part of the difference in the cost of a request: all parts add up to `change` of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostPart {
    /// `instructions`, `stalls` (caches, TLB, branches), `kernel`; without hardware counters `user`
    /// and `system`.
    pub part: String,
    /// Its change, as a share of the baseline's whole cost: -0.07 is 7 % of the whole less.
    pub change: f64,
    /// Whether the rounds tell that it changed, or that it did not.
    pub decided: bool,
}

/// Where a candidate's cost of a request differs from the baseline's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostDifference {
    /// Which candidate.
    pub candidate: String,
    /// The key of what the cost is measured in: cycles, or CPU time.
    pub unit: String,
    /// Change of the whole: -0.09 is 9 % less.
    pub change: f64,
    /// Its parts.
    pub parts: Vec<CostPart>,
}

impl CostDifference {
    /// An empty one, in `quantity`.
    #[must_use]
    pub fn new(candidate: &str, quantity: Quantity) -> Self {
        Self {
            candidate: candidate.to_owned(),
            unit: quantity.key().to_owned(),
            ..Self::default()
        }
    }
}

/// The advice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recommendation {
    /// What sort of advice it is.
    pub advice: Advice,
    /// What to use, for what, and why.
    pub sentence: String,
    /// When not to.
    pub caution: String,
    /// The candidate for each question that was answered.
    pub choices: Vec<Choice>,
    /// Where the cost of a request differs, for each candidate that is recommended and for which it
    /// was measured.
    pub differences: Vec<CostDifference>,
}
