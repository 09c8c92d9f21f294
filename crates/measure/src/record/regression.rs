//! What `--baseline` adds to a record: this comparison against an earlier one of the same question.

use serde::{Deserialize, Serialize};

use super::Measure;
use crate::statistics::{Comparison, Verdict};

/// What of two sessions is put side by side.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegressionBy {
    /// Each session's candidate over its own baseline in the same round: what the machine does to both
    /// cancels, and so does what changed for both.
    #[default]
    Ratio,
    /// The values as they are.
    Value,
}

/// One question, asked of every candidate that both records have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegressionQuestion {
    /// `throughput`, `latency`, `memory` or `work`.
    pub name: String,
    /// What it rests on; of several, the geometric mean.
    pub measures: Vec<Measure>,
    /// What is put side by side.
    pub by: RegressionBy,
    /// Of ratios: the baseline's own value over its earlier one (medians). Ratios cannot see it, and
    /// nothing is claimed of it.
    pub baseline_drift: Option<f64>,
    /// Every candidate against itself in the earlier record.
    pub comparisons: Vec<Comparison>,
}

/// This comparison against an earlier record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Regression {
    /// When the earlier one began, in seconds since 1970.
    pub earlier_started_unix_s: u64,
    /// Version of millpond that wrote it.
    pub earlier_version: String,
    /// Commit that was built from, if known.
    pub earlier_commit: Option<String>,
    /// Its rounds.
    pub earlier_rounds: u32,
    /// The answer as one sentence.
    pub sentence: String,
    /// Whether a candidate is worse than before, beyond the margin.
    pub regressed: bool,
    /// The questions; one error rate holds over all their comparisons together.
    pub questions: Vec<RegressionQuestion>,
    /// What differs between both, and what could not be compared.
    pub warnings: Vec<String>,
}

impl Regression {
    /// One that says why there is none.
    #[must_use]
    pub fn not_made(reason: &dyn std::error::Error) -> Self {
        Self {
            sentence: format!("Regression check: not made: {reason}."),
            ..Self::default()
        }
    }

    /// Whether anything could be judged at all. What is undecided because no number of that many rounds
    /// could have convicted anybody was not: a check of three rounds passes nothing.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        let mut comparisons = self.questions.iter().flat_map(|one| &one.comparisons);
        comparisons.any(|one| !matches!(one.verdict, Verdict::NotTrusted { .. }) && !one.is_blind())
    }
}
