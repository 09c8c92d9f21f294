//! `results.json` of `compare`: the question, the circumstances, the rounds, the answers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::analysis::Design;
use crate::environment::{Environment, MAPPINGS_SHARE};
use crate::statistics::{Comparison, InterimAnalyses, Verdict};
use crate::units::format_percent;

use super::{
    CandidateRounds, FORMAT_VERSION, FlameGraph, LeftOut, Measure, MemoryGrowth, PhasePlan,
    PhasesAnswer, Quantity, Reach, Role, SentRequests, SettingsFront,
};

/// The storage engine behind the entity server.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Engine {
    /// e.g. `rocksdb`.
    pub name: String,
    /// e.g. `7.8.3`.
    pub version: String,
    /// `system` or `bundled`.
    pub linkage: String,
}

/// The server that was measured.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// One line for people: `millpond serve entity` or the user's command.
    pub title: String,
    /// The command that was started for each run.
    pub command: Vec<String>,
    /// The URL of a third-party server.
    pub url: Option<String>,
    /// The requests for a third-party server; absent in records of earlier versions, which sent a plain GET.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<SentRequests>,
    /// The I/O driver that really ran (`epoll`, `uring`), if it is our server.
    pub driver: Option<String>,
    /// The storage engine, if there is one.
    pub engine: Option<Engine>,
    /// The allocator the program brings along by itself, if it is not the C library's.
    pub native_allocator: Option<String>,
}

/// How copies of a server live at the same time, each under another allocator.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coexistence {
    /// The command, or a variable of the user's, says at which port each listens.
    PortInCommand,
    /// The variable `PORT` does.
    PortVariable,
    /// Each listens at the same port in a network namespace of its own.
    Namespaces,
    /// They do not: one lives at a time.
    OneAtATime,
}

impl Coexistence {
    /// In a few words.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PortInCommand => "together, each at a port of its own",
            Self::PortVariable => "together, each at a port given by the variable PORT",
            Self::Namespaces => "together, each in a network namespace of its own",
            Self::OneAtATime => "one at a time",
        }
    }
}

/// How the load was set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Rounds asked for.
    pub rounds_planned: u32,
    /// Rounds in which every candidate ended.
    pub rounds_done: u32,
    /// Connections of the generator.
    pub connections: u32,
    /// Threads of the generator.
    pub threads: u32,
    /// The constant rate of the latency phase, the same for all, per operation (`put`, `get`).
    pub rate_per_s: BTreeMap<String, f64>,
    /// Requests of the memory phase: fixed work, not fixed time.
    pub memory_requests: u64,
    /// The same per operation (`put`, `get`).
    pub work_requests: BTreeMap<String, u64>,
    /// The user's own command that makes the load, instead of our generator.
    pub load_command: Option<String>,
    /// How often that runs in each run before the time that counts.
    pub load_warm_ups: u32,
    /// Length of one memory phase of the slowest candidate, or of the user's own load program.
    pub throughput_phase_ns: u64,
    /// The counted time of one slice at the constant rate.
    pub latency_phase_ns: u64,
    /// Slices of the closed loop per operation, round and candidate; 0: the load was made in whole runs.
    pub cycles: u32,
    /// Slices at the constant rate.
    pub paced: u32,
    /// The counted time of one slice of the closed loop.
    pub slice_ns: u64,
    /// The counted time of one uninterrupted block of the closed loop; 0: there are none.
    pub block_ns: u64,
    /// The counted time of a slice of writes in the closed loop, which then have no blocks; 0: as of all others.
    pub write_slice_ns: u64,
    /// The same at the constant rate.
    pub write_latency_phase_ns: u64,
    /// Length of each slice before its counted part.
    pub settle_ns: u64,
    /// Size of the values written and read.
    pub value_bytes: Option<u64>,
    /// Number of different keys.
    pub keys: Option<u64>,
    /// The share of requests that may fail before a run does; absent in records of earlier versions, where it was 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_allowed: Option<f64>,
    /// CPUs of server and generator, e.g. `server 0; generator 1`.
    pub placement: Option<String>,
    /// Allocators that size themselves by the number of CPUs did so as on a machine of so many (`--as-cpus`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_cpus: Option<u32>,
    /// How copies of the server lived at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coexistence: Option<Coexistence>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Candidate names in the order in which they ran, round by round.
    pub schedule: Vec<Vec<String>>,
    /// Up to which difference two candidates count as the same.
    pub margins: Margins,
    /// When the data were analysed, and why there were no more rounds.
    pub looks: InterimSettings,
    /// Between the end of the work and the reading of what was retained.
    pub idle_ns: u64,
    /// Requests before the first phase of each run, which count nowhere, per operation.
    pub warm_up_requests: BTreeMap<String, u64>,
    /// Most memory that all processes of a candidate might hold together (`--memory-limit`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Whether the kernel might give candidates huge pages they did not ask for (`--thp`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<bool>,
    /// The phases of each run, if it was of phases (`--phases`) and not of equal work and slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhasePlan>,
}

/// When the data of a comparison were analysed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterimSettings {
    /// The rounds after which they were to be analysed, chosen before the first round: a comparison
    /// ends at the first interim analysis that finds every verdict decided, or at the last. One entry, or none in
    /// old records: the number of rounds was fixed.
    pub planned: Vec<u32>,
    /// The rounds after which they were, the last time included.
    pub done: Vec<u32>,
    /// The chance of a false claim at each interim analysis, of 0.05 in all.
    pub significance: f64,
    /// Why no more rounds were run, as a sentence.
    pub stopped: String,
}

impl InterimSettings {
    /// The permitted claims of each analysis.
    #[must_use]
    pub fn looks(&self) -> InterimAnalyses {
        InterimAnalyses::planned(self.planned.len())
    }
}

/// The answer to one of the three questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuestionVerdict {
    /// The measures the answer rests on; for several, the geometric mean of their ratios.
    pub measures: Vec<Measure>,
    /// The best candidate first, then those not separable from it: the best estimate of those proved better
    /// than the baseline, else the baseline. Empty if nothing can be said.
    pub best: Vec<String>,
    /// The answer in a few words.
    pub headline: String,
    /// The answer as one plain sentence.
    pub sentence: String,
    /// Whether the answer may be relied on; if not, the sentence says why.
    pub trusted: bool,
    /// The power of the rounds: the smallest difference, the margin, and what is undecided with the rounds that it
    /// needs. Empty if the answer is not to be trusted.
    pub resolution: String,
    /// Every other candidate against the baseline. The A/A candidate is among them.
    pub comparisons: Vec<Comparison>,
}

/// The three answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdicts {
    /// Which gives the most requests per second?
    pub throughput: QuestionVerdict,
    /// Which gives the lowest latency at the same rate?
    pub latency: QuestionVerdict,
    /// Which needs the least memory for the same work?
    pub memory: QuestionVerdict,
}

/// One measure of all candidates against the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasureComparisons {
    /// Which.
    pub measure: Measure,
    /// Every other candidate against the baseline.
    pub comparisons: Vec<Comparison>,
}

/// The effect of the pools under one allocator: pools on against pools off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolsEffect {
    /// Which allocator.
    pub allocator: String,
    /// Requests per second.
    pub throughput: Option<Comparison>,
    /// Latency.
    pub latency: Option<Comparison>,
    /// Memory.
    pub memory: Option<Comparison>,
    /// Every other measure that both have.
    pub details: Vec<MeasureComparisons>,
    /// One plain sentence.
    pub sentence: String,
}

/// Memory of a candidate bound to some CPUs and on all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnpinnedMemory {
    /// Its name.
    pub candidate: String,
    /// After the work, bound to the server's CPUs: the median of the rounds.
    pub pinned_bytes: u64,
    /// The same on all CPUs.
    pub unpinned_bytes: u64,
    /// Both, and how it compares there, in one sentence.
    pub sentence: String,
}

/// Everything [`crate::analysis::analyse`] finds out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Analysis {
    /// The three answers.
    pub verdicts: Verdicts,
    /// The effect of pools, per allocator; empty if the server is not ours.
    pub pools_effect: Vec<PoolsEffect>,
    /// Every measure on its own.
    pub details: Vec<MeasureComparisons>,
    /// How memory changes with work, per operation and candidate; empty if the memory phases were short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<MemoryGrowth>,
    /// With `--phases`: what memory does from phase to phase, per candidate, the baseline first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhasesAnswer>,
    /// With `--settings`: what each setting changes, and the front of memory against CPU per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_front: Option<SettingsFront>,
    /// Memory of every candidate on all CPUs beside that of the bound one; empty if none is proved to differ by more than
    /// the margin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpinned: Vec<UnpinnedMemory>,
    /// The recommendation and its reasons, and when not to switch, in two sentences.
    pub recommendation: Recommendation,
    /// The result of the baseline run twice, as one sentence; empty if it was not run twice.
    pub self_check: String,
    /// Notes for the reader before relying on the answers.
    pub warnings: Vec<String>,
}

/// The whole of `results.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComparisonRecord {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Version of millpond.
    pub version: String,
    /// Commit it was built from, if known.
    pub commit: Option<String>,
    /// The command that repeats this comparison.
    pub command: Vec<String>,
    /// Seconds since 1970 at the start.
    pub started_unix_s: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// True if Ctrl-C or the time budget ended it early.
    pub interrupted: bool,
    /// The measured program.
    pub subject: Subject,
    /// How.
    pub settings: Settings,
    /// The machine.
    pub environment: Environment,
    /// One line on hardware counters: what is counted, or why not.
    pub counters: String,
    /// The candidates with their rounds.
    pub candidates: Vec<CandidateRounds>,
    /// Candidates that failed and are not compared, with the cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// With `--profile`: where the time and the memory of some candidates went, the baseline first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flame_graphs: Vec<FlameGraph>,
    /// With `--baseline`: this comparison against an earlier record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regression: Option<Regression>,
    /// The answers, details, effect of pools; `warnings` of analysis and lab together.
    #[serde(flatten)]
    pub analysis: Analysis,
}

impl ComparisonRecord {
    /// An empty record of this version.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            version: version.to_owned(),
            ..Self::default()
        }
    }

    /// The role of malloc in the baseline, if that was found.
    #[must_use]
    pub fn reach(&self) -> Option<&Reach> {
        let mut candidates = self.candidates.iter();
        let baseline = candidates.find(|one| one.role == Role::Baseline)?;
        baseline.reach.as_ref()
    }

    /// What an allocator can change here, in sentences. With phases, live and retained memory come from them, and not
    /// from the few requests of the heap pass.
    #[must_use]
    pub fn reach_sentences(&self) -> Vec<String> {
        let reach = self.reach();
        match self.settings.phases {
            None => reach.map(Reach::sentences).unwrap_or_default(),
            Some(_) => reach
                .and_then(Reach::request_sentence)
                .into_iter()
                .collect(),
        }
    }

    /// Runs the analysis over the candidates; warnings already noted stay, before the new ones.
    pub fn analyse(&mut self) {
        let mut analysis =
            crate::analysis::analyse_by(&self.candidates, Design::of(&self.settings));
        let mut warnings = std::mem::take(&mut self.analysis.warnings);
        for warning in std::mem::take(&mut analysis.warnings) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings.extend(self.mapping_warnings());
        analysis.warnings = warnings;
        if let Some(plan) = &self.settings.phases {
            analysis.phases = crate::phases::of_all(&self.candidates, plan);
        }
        self.analysis = analysis;
    }

    /// Candidates one of whose processes has half as many mappings as the kernel allows, or more.
    fn mapping_warnings(&self) -> Vec<String> {
        let Some(allowed) = self.environment.mappings_max else {
            return Vec::new();
        };
        let most = |candidate: &CandidateRounds| {
            let values = candidate.values(Measure::whole(Quantity::Mappings));
            values.into_iter().fold(0.0, f64::max)
        };
        let once = self.candidates.iter();
        let once = once.filter(|one| one.role != Role::BaselineAgain);
        once.map(|one| (one, most(one)))
            .filter(|(_, most)| *most >= allowed as f64 * MAPPINGS_SHARE)
            .map(|(one, most)| {
                format!(
                    "{}: a process of it had {most} mappings, and the kernel allows {allowed} (vm.max_map_count); at \
                     that number malloc fails although there is memory: raise the limit where it is to run, or choose \
                     settings that map less",
                    one.name
                )
            })
            .collect()
    }

    /// The JSON text of `results.json`, indented, newline at the end.
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

// Which candidate to use for what, what it costs, why, and when not: as words and as the numbers behind
// them.

/// The kind of advice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// There was nothing to compare.
    #[default]
    None,
    /// One candidate is better in something and proved worse in nothing.
    Switch,
    /// A gain in one question costs something in another, or different ones are better.
    TradeOff,
    /// Nothing is better than the baseline.
    Stay,
    /// The rounds do not decide.
    Undecided,
    /// The numbers must not be trusted.
    NotTrusted,
}

/// A use and the candidate for it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// `throughput`, `latency` or `memory`; `cpu` where CPU per request replaces throughput.
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
    /// Whether the rounds show that it changed, or that it did not.
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
    /// The kind of advice.
    pub advice: Advice,
    /// The recommended candidate, its purpose, and its costs.
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

// The part that `--baseline` adds to a record: this comparison against an earlier one of the same question.

/// The compared values of two sessions.
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
    /// Its basis; of several, the geometric mean.
    pub measures: Vec<Measure>,
    /// The compared values.
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
    /// The differences between both, and the values that could not be compared.
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

    /// Whether anything could be judged at all. A value that is undecided because so few rounds cannot prove a loss was
    /// not judged: a check of three rounds passes nothing.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        let mut comparisons = self.questions.iter().flat_map(|one| &one.comparisons);
        comparisons.any(|one| !matches!(one.verdict, Verdict::NotTrusted { .. }) && !one.is_blind())
    }
}

// The margins of a comparison: up to which relative difference two candidates count as the same.
//
// A 99th percentile varies more than a rate and matters less for each percent, and instructions vary
// hardly at all, so there are three. A comparison has its own (`compare --margin`), and they stand in the
// record's settings: a later analysis of its rounds uses those.

/// Which of the margins holds for a quantity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MarginClass {
    /// For whatever has none of its own.
    Usual,
    /// 99th percentiles.
    P99,
    /// Instructions and heap calls.
    Counts,
}

/// The smallest relative differences worth acting on (0.05 = 5 %).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Margins {
    /// Throughput, medians, memory, CPU time and all else.
    pub usual: f64,
    /// 99th percentiles.
    pub p99: f64,
    /// Instructions and heap calls per request.
    pub counts: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            usual: 0.05,
            p99: 0.15,
            counts: 0.01,
        }
    }
}

impl Margins {
    /// Which counts for `quantity`.
    #[must_use]
    pub const fn of(&self, quantity: Quantity) -> f64 {
        match quantity.margin_class() {
            MarginClass::Usual => self.usual,
            MarginClass::P99 => self.p99,
            MarginClass::Counts => self.counts,
        }
    }
}

impl fmt::Display for Margins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; p99 {}; instructions and heap calls {}",
            format_percent(self.usual),
            format_percent(self.p99),
            format_percent(self.counts)
        )
    }
}

/// A text that says no margins.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error(
    "\"{part}\" is no margin: write a percentage above 0 and up to 100, as in 5%, p99=15% or counts=1%, \
     several with commas"
)]
pub struct MarginError {
    part: String,
}

impl FromStr for Margins {
    type Err = MarginError;

    /// `5%`, `p99=15%`, `counts=1%`, or several of them with commas; what is not named keeps its default.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut margins = Self::default();
        for part in text.split(',').map(str::trim) {
            let wrong = || MarginError {
                part: part.to_owned(),
            };
            let (margin, value) = match part.split_once('=') {
                None => (&mut margins.usual, part),
                Some(("p99", value)) => (&mut margins.p99, value),
                Some(("counts", value)) => (&mut margins.counts, value),
                Some(_) => return Err(wrong()),
            };
            let number = value.strip_suffix('%').unwrap_or(value).trim();
            let percent: f64 = number.parse().map_err(|_| wrong())?;
            if !(percent > 0.0 && percent <= 100.0) {
                return Err(wrong());
            }
            *margin = percent / 100.0;
        }
        Ok(margins)
    }
}

// How the warm-up of a load run went.

/// Requests before the window; not counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadWarmUp {
    /// How long it took.
    pub duration_ns: u64,
    /// With `--warm-up auto`: what its end was decided by; `None` if its length was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_steady: Option<LoadSteadiness>,
}

/// Whether throughput and median response time stopped changing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadSteadiness {
    /// When it ends in any case.
    pub limit_ns: u64,
    /// Whether it ended because they had.
    pub became_steady: bool,
    /// How long they changed at the beginning, by MSER; `None`: there were too few samples.
    pub transient_ns: Option<u64>,
    /// Means that this was judged by.
    pub slices: u64,
}

impl LoadWarmUp {
    /// Of several generators: the longest, and steady only if each was.
    #[must_use]
    pub fn of_both(self, other: Self) -> Self {
        let until_steady = match (self.until_steady, other.until_steady) {
            (Some(one), Some(two)) => Some(LoadSteadiness {
                limit_ns: one.limit_ns.max(two.limit_ns),
                became_steady: one.became_steady && two.became_steady,
                transient_ns: one
                    .transient_ns
                    .zip(two.transient_ns)
                    .map(|(a, b)| a.max(b)),
                slices: one.slices.max(two.slices),
            }),
            (one, two) => one.or(two),
        };
        Self {
            duration_ns: self.duration_ns.max(other.duration_ns),
            until_steady,
        }
    }
}

#[cfg(test)]
#[path = "tests/comparison.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/margins.rs"]
mod margins_tests;

#[cfg(test)]
#[path = "tests/warm_up.rs"]
mod warm_up_tests;
