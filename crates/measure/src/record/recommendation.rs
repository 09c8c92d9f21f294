//! Which candidate to use for what, what it costs, why, and when not: as words and as the numbers behind
//! them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Quantity;
use crate::statistics::Comparison;

/// What sort of advice it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// There was nothing to compare.
    #[default]
    None,
    /// One candidate is better in something and proved worse in nothing.
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
    /// `throughput`, `latency` or `memory`; `cpu` where CPU per request stands in for throughput.
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

/// A candidate on the front of memory against CPU and throughput: none is proved to be as good in all of
/// them and better in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrontEntry {
    /// Which; the baseline may be one.
    pub candidate: String,
    /// Its comparison with the baseline in `throughput`, `latency`, `memory` and `cpu`, as the table has
    /// it. Empty for the baseline.
    pub comparisons: BTreeMap<String, Comparison>,
}

/// The advice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recommendation {
    /// What sort of advice it is.
    pub advice: Advice,
    /// What to use, for what, and what it costs.
    pub sentence: String,
    /// Why the first candidate named is better; empty if none is.
    pub reason: String,
    /// When not to.
    pub caution: String,
    /// The baseline, and every candidate that is proved better in something, as far as they are on the front.
    pub front: Vec<FrontEntry>,
    /// The candidate for each question that was answered.
    pub choices: Vec<Choice>,
    /// Where the cost of a request differs, for each candidate that is recommended and for which it
    /// was measured.
    pub differences: Vec<CostDifference>,
}
