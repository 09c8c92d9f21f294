//! One candidate and what every round measured of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    BlockCheck, FailureCause, Floor, FoundLimit, HeapProfile, Measure, MemoryCourse, Operation,
    PacedColumns, PhaseEnd, PhaseHeap, Reach, SliceColumns,
};
use crate::histogram::{LatencySummary, SpectrumPoint};

/// Whether our server's memory pools are used. Absent (`null`) for somebody else's server.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolSetting {
    /// Pools on.
    On,
    /// Every pool call is one malloc or free.
    Off,
}

/// What a candidate is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// All ratios are against this one. Exactly one per comparison.
    Baseline,
    /// The baseline run a second time (A/A): a difference here is a false alarm of the machine or
    /// of the method, and takes away the trust in that measure.
    BaselineAgain,
    /// The others.
    #[default]
    Candidate,
}

/// The allocator library that was proved to be mapped in the server.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// The file.
    pub path: String,
    /// Its SHA-256 in hex, if computed.
    pub sha256: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// Its version as far as known.
    pub version: Option<String>,
}

/// How one run ended.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum RoundStatus {
    /// Every phase ran.
    #[default]
    Done,
    /// The run failed; what was measured before is kept but not used.
    Failed {
        /// One sentence.
        reason: String,
        /// The same for programs; absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<FailureCause>,
    },
    /// Ctrl-C in the middle of this run; what was measured before is used.
    Interrupted,
}

/// What disturbed a run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseKind {
    /// Other programs used the CPUs: their share of the whole machine.
    ForeignCpu,
    /// The hypervisor took CPU time away: share of the whole machine.
    Steal,
    /// The load generator was at its own limit: share of its CPU. Taints throughput only.
    GeneratorCpu,
    /// The generator sent late: share of requests sent late. Taints latency only.
    LateSends,
    /// The generator judged its own run INVALID (value 1).
    GeneratorInvalid,
    /// The processors ran faster or slower than in the other runs: share of the usual frequency.
    Frequency,
    /// Programs waited for a processor longer than in the candidate's other runs: share of the phase.
    Pressure,
    /// The work before memory was read was less than what says something: requests. Taints memory only.
    LittleWork,
}

impl NoiseKind {
    /// The cause, as the subject of a sentence.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::ForeignCpu => "other programs used the CPUs",
            Self::Steal => "the hypervisor took CPU time away",
            Self::GeneratorCpu => "the load generator was at its own limit",
            Self::LateSends => "the load generator sent late",
            Self::GeneratorInvalid => "the load generator called its run invalid",
            Self::Frequency => "the processors ran at another frequency",
            Self::Pressure => "programs waited longer for a processor",
            Self::LittleWork => "memory was read after too few requests",
        }
    }
}

/// A disturbance beyond its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseFlag {
    /// What.
    pub kind: NoiseKind,
    /// How much (a share, 0..1).
    pub value: f64,
    /// The limit it exceeded.
    pub limit: f64,
    /// The phase it happened in, if only one (`put throughput`).
    #[serde(default)]
    pub phase: Option<String>,
}

/// Everything measured of one candidate in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundMeasures {
    /// Counted from 0. Runs of the same round are paired.
    pub round: u32,
    /// Place in the round's random order, from 0.
    pub position: u32,
    /// How it ended.
    #[serde(flatten)]
    pub status: RoundStatus,
    /// The numbers. A measure that was not taken is absent, never zero. Reading leaves out keys that
    /// this version does not know.
    #[serde(deserialize_with = "known_measures")]
    pub measures: BTreeMap<Measure, f64>,
    /// Those of the numbers that are estimates, because their hardware counter was shared with others.
    /// Reports mark them with "~".
    #[serde(
        deserialize_with = "known_names",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub scaled: BTreeSet<Measure>,
    /// What disturbed the run.
    pub noise: Vec<NoiseFlag>,
    /// Frequency of the fastest processor at the end of each phase (`put throughput`), where the machine
    /// says.
    pub cpu_frequency_hz: BTreeMap<String, f64>,
    /// Share of each phase in which some program waited for a processor, where the kernel counts it.
    pub cpu_pressure: BTreeMap<String, f64>,
    /// Requests done in all phases together.
    pub requests: u64,
    /// Requests that failed in any way.
    pub errors: u64,
    /// Memory over time, if it was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_course: Option<MemoryCourse>,
    /// With `--phases`: memory at the end of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_ends: Vec<PhaseEnd>,
    /// With `--phases`: what became of each cycle's burst.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<Floor>,
    /// Slope of memory over the memory phase, in bytes per request, per operation (`get`); absent if the
    /// phase was too short.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub growth: BTreeMap<String, f64>,
    /// Share of its CPUs that the server used in the closed loop, per operation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub server_busy: BTreeMap<String, f64>,
    /// The closed loop's slices, per operation (`get`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slices: BTreeMap<String, SliceColumns>,
    /// The closed loop's uninterrupted blocks, one per operation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<String, SliceColumns>,
    /// The slices at the constant rate, per operation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub paced: BTreeMap<String, PacedColumns>,
    /// Slices in which the hypervisor, other programs or the generator's own CPU got in the way;
    /// they were repeated, as long as there was time for it.
    #[serde(skip_serializing_if = "is_zero")]
    pub disturbed_slices: u32,
    /// Full latency figures per clock, e.g. `put.response`.
    pub latencies: BTreeMap<String, LatencySummary>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn known_measures<'de, D>(deserializer: D) -> Result<BTreeMap<Measure, f64>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let all = BTreeMap::<String, f64>::deserialize(deserializer)?;
    Ok(all
        .into_iter()
        .filter_map(|(key, value)| Some((key.parse().ok()?, value)))
        .collect())
}

fn known_names<'de, D>(deserializer: D) -> Result<BTreeSet<Measure>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let all = Vec::<String>::deserialize(deserializer)?;
    Ok(all.iter().filter_map(|key| key.parse().ok()).collect())
}

impl RoundMeasures {
    /// Notes a number. What is not finite is treated as not measured.
    pub fn set(&mut self, measure: Measure, value: f64) {
        if value.is_finite() {
            self.measures.insert(measure, value);
        }
    }

    /// A number, unless the run failed or it was not measured.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<f64> {
        match self.status {
            RoundStatus::Failed { .. } => None,
            RoundStatus::Done | RoundStatus::Interrupted => self.measures.get(&measure).copied(),
        }
    }
}

/// A percentile curve for the plot: the histograms of all rounds merged. Never used for a verdict,
/// because the worst run dominates a merged tail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyCurve {
    /// Which requests.
    pub operation: Operation,
    /// `response` or `service`.
    pub clock: String,
    /// Samples in all.
    pub count: u64,
    /// From the median (or lower) to the maximum.
    pub points: Vec<SpectrumPoint>,
}

/// What it took until a candidate's throughput no longer changed, tried once before the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SteadyState {
    /// False: *no steady state*; it still changed when patience ended.
    pub reached: bool,
    /// Requests before the steady part, per operation (`get`); without one, all that were tried.
    pub requests: BTreeMap<String, u64>,
    /// How long it was driven.
    pub duration_ns: u64,
}

/// One candidate: what it is and what each round measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CandidateRounds {
    /// Unique in the comparison, e.g. `mimalloc with pools`.
    pub name: String,
    /// e.g. `mimalloc`.
    pub allocator: String,
    /// Our pools; `None` when the server is not ours.
    pub pools: Option<PoolSetting>,
    /// What it is for.
    pub role: Role,
    /// The preloaded library; `None` for the C library's own malloc.
    pub library: Option<Library>,
    /// The version of its allocator as far as known, the C library's for its own malloc; `None` in old
    /// records and of a command of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator_version: Option<String>,
    /// Variables that this candidate alone was started with, as `NAME=VALUE`: settings of its allocator,
    /// or what the user gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// With `--settings`: what its setting changes, in a few words; empty for the default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what_it_changes: String,
    /// The command of this candidate alone, run instead of the server's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// One entry per round begun, in order of rounds.
    pub rounds: Vec<RoundMeasures>,
    /// Merged curves for the plot.
    pub curves: Vec<LatencyCurve>,
    /// What it asks of the heap, counted once, outside the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapProfile>,
    /// What malloc is to it, found in the same pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// With `--phases`: whose its memory is at the end of each cycle, in a run of its own that is traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_heaps: Vec<PhaseHeap>,
    /// The smallest memory limit that it survives, if that was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<FoundLimit>,
    /// How it warmed up; `None` for the baseline's double and under a load program of the user's.
    pub steady_state: Option<SteadyState>,
    /// Its slices against uninterrupted blocks, per operation; absent of the baseline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_checks: Vec<BlockCheck>,
}

impl CandidateRounds {
    /// The name that reads well in sentences: `mimalloc with pools`, `glibc with pools (again)`.
    #[must_use]
    pub fn standard_name(allocator: &str, pools: Option<PoolSetting>, role: Role) -> String {
        let pools = match pools {
            Some(PoolSetting::On) => " with pools",
            Some(PoolSetting::Off) => " without pools",
            None => "",
        };
        let again = if role == Role::BaselineAgain {
            " (again)"
        } else {
            ""
        };
        format!("{allocator}{pools}{again}")
    }

    /// What it is beside its name: the version of its allocator, its command, its variables. Empty if
    /// nothing is known.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts: Vec<String> = self.allocator_version.iter().cloned().collect();
        if !self.command.is_empty() {
            parts.push(format!("runs {}", self.command.join(" ")));
        }
        if !self.environment.is_empty() {
            parts.push(format!("with {}", self.environment.join(" ")));
        }
        parts.join(", ")
    }

    /// The value of one round.
    #[must_use]
    pub fn value(&self, round: u32, measure: Measure) -> Option<f64> {
        self.rounds
            .iter()
            .find(|entry| entry.round == round)?
            .get(measure)
    }

    /// The values of all rounds that have one.
    #[must_use]
    pub fn values(&self, measure: Measure) -> Vec<f64> {
        self.rounds
            .iter()
            .filter_map(|entry| entry.get(measure))
            .collect()
    }

    /// True if the value of some round is an estimate, because its counter was shared.
    #[must_use]
    pub fn is_scaled(&self, measure: Measure) -> bool {
        self.rounds
            .iter()
            .any(|round| round.scaled.contains(&measure))
    }

    /// The median over rounds: what tables show.
    #[must_use]
    pub fn median(&self, measure: Measure) -> Option<f64> {
        crate::statistics::median(&mut self.values(measure))
    }
}
