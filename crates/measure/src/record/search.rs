//! The JSON of `load --find-max`: every step of a search for the highest rate, and what they say.

use super::{LoadErrors, LoadVerdict};
use crate::histogram::LatencySummary;
use serde::{Deserialize, Serialize};

/// What a step, or the votes of one rate, came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The objectives were kept, and so was the rate.
    Met,
    /// The target missed an objective, or could not keep the rate.
    Missed,
    /// Something else than the target was at its limit: the step says nothing about the target.
    #[default]
    Rejected,
}

impl StepOutcome {
    /// As it is printed.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Rejected => "rejected",
        }
    }
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// A rate that holds and one that does not lie as close as was asked for.
    Found,
    /// No rate that was tried keeps the objectives.
    NoneHolds,
    /// The generator was at its own limit above the rate that holds: the target's lies higher.
    GeneratorLimit,
    /// The search took more steps than a search can need; the target changes while it is measured.
    Unsteady,
    /// Ended early by the user.
    #[default]
    Interrupted,
    /// The target stopped accepting connections.
    TargetGone,
    /// A later step could not be made: [`SearchReport::failure`] says why. The steps before it stand.
    Failed,
}

/// One step: a run at one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchStep {
    /// The rate that was offered.
    pub rate_per_s: f64,
    /// Right answers per second.
    pub requests_per_s: f64,
    /// Right answers.
    pub requests: u64,
    /// What it came to.
    pub outcome: StepOutcome,
    /// Why it was missed or rejected; empty if it was met.
    pub reasons: Vec<String>,
    /// From the intended start to the last byte.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
    /// From the intended start to the actual send.
    pub slip_ns: LatencySummary,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// CPU of the generator's busiest thread as a share of one CPU.
    pub generator_cpu_share: f64,
    /// The generator's judgement of this run.
    pub verdict: LoadVerdict,
}

/// All steps of one rate, and the one that stands for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CurvePoint {
    /// The rate that was offered.
    pub rate_per_s: f64,
    /// What the votes decided.
    pub outcome: StepOutcome,
    /// Steps that came to that.
    pub votes: u32,
    /// Steps at this rate.
    pub steps: u32,
    /// Among the steps that came to that, the one with the median 99th percentile.
    pub typical: SearchStep,
}

/// A whole search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchReport {
    /// [`super::FORMAT_VERSION`].
    pub format_version: u32,
    /// Version of millpond.
    pub version: String,
    /// The URL as given.
    pub url: String,
    /// What had to be kept, in words.
    pub objectives: Vec<String>,
    /// Threads of the generator.
    pub threads: u32,
    /// Connections.
    pub connections: u32,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// How arrivals lay within the rate, in words.
    pub arrivals: String,
    /// Answers per second in a closed loop before the search, which is where it began.
    pub closed_loop_per_s: Option<f64>,
    /// Counted time of each step.
    pub step_ns: u64,
    /// Uncounted time before it.
    pub warm_up_ns: u64,
    /// How far apart the two rates may lie at the end, as a share of 1.
    pub precision: f64,
    /// The highest rate that holds; `None` if none does.
    pub rate_per_s: Option<f64>,
    /// The lowest rate above it that does not; `None` if none was tried.
    pub missed_per_s: Option<f64>,
    /// Why the search ended.
    pub ended: SearchEnd,
    /// What a step failed with, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The load-latency curve, by ascending rate.
    pub curve: Vec<CurvePoint>,
    /// Every step in the order in which it was taken.
    pub steps: Vec<SearchStep>,
}

impl SearchReport {
    /// The JSON text, indented, newline at the end.
    ///
    /// # Errors
    /// Only if a value cannot be expressed in JSON, which no type here has.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|mut text| {
            text.push('\n');
            text
        })
    }
}
