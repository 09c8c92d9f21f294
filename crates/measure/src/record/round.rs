//! One candidate and what every round measured of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::histogram::{LatencySummary, SpectrumPoint};
use crate::statistics::{Direction, median};
use crate::units::{format_bytes, format_count, format_duration_ns, format_percent};

use super::{
    BlockCheck, Floor, FoundLimit, HeapProfile, Measure, MemoryCourse, Operation, PacedColumns,
    PhaseEnd, PhaseHeap, SliceColumns,
};

/// Whether our server's memory pools are used. Absent (`null`) for a third-party server.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolSetting {
    /// Pools on.
    On,
    /// Every pool call is one malloc or free.
    Off,
}

/// The purpose of a candidate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// All ratios are against this one. Exactly one per comparison.
    Baseline,
    /// The baseline run a second time (A/A): a difference here is a false alarm of the machine or
    /// of the method, and makes that measure untrusted.
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

/// The disturbance of a run.
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
    /// The kind of disturbance.
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
    /// The disturbances of the run.
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
    /// Slices that the hypervisor, other programs or the generator's own CPU disturbed; they were
    /// repeated, as long as there was time for it.
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
    /// Notes a number. Values that are not finite are treated as not measured.
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

/// The time until a candidate's throughput no longer changed, tried once before the rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SteadyState {
    /// False: *no steady state*; it still changed at the time limit.
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
    /// Its purpose.
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
    /// Its heap use, counted once, outside the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapProfile>,
    /// The role of malloc in it, found in the same pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// With `--phases`: whose its memory is at the end of each cycle, in a run of its own that is traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phase_heaps: Vec<PhaseHeap>,
    /// The smallest memory limit that it survives, if searched for.
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

    /// Its description beside its name: the version of its allocator, its command, its variables. Empty if nothing is
    /// known.
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

// How much of a server an allocator can change at all: calls of malloc, and what holds its memory.

/// Fewer heap calls than this per request, and an allocator has next to nothing to do with a request.
const CALLS_MIN: f64 = 0.1;
/// Memory below this share of the whole is not mentioned.
const SHARE_MIN: f64 = 0.01;
/// From this share on an allocator of the program's own, or a runtime's heap, is mentioned first.
const SHARE_MUCH: f64 = 0.25;

/// The holder of memory.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Holder {
    /// The allocator that serves malloc.
    Malloc,
    /// The heap of a language's runtime.
    Runtime {
        /// The runtime's name.
        name: String,
    },
    /// An allocator that is a part of an object.
    Embedded {
        /// The allocator's name.
        name: String,
        /// The object's file name.
        object: String,
    },
    /// Code that maps memory by itself.
    Object {
        /// The file name of its object.
        object: String,
    },
    /// Nothing that could be found: mapped by system calls of its own.
    Unknown,
    /// Stacks of threads.
    Stacks,
    /// Variables of the program and its libraries.
    Variables,
    /// Memory that several processes share.
    Shared,
}

impl Holder {
    /// In words.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Malloc => "malloc".to_owned(),
            Self::Runtime { name } => name.clone(),
            Self::Embedded { name, object } => format!("{name} inside {object}"),
            Self::Object { object } => format!("mapped by {object} itself"),
            Self::Unknown => "mapped by unknown code".to_owned(),
            Self::Stacks => "stacks".to_owned(),
            Self::Variables => "variables of program and libraries".to_owned(),
            Self::Shared => "shared memory".to_owned(),
        }
    }

    /// Whether it does what malloc does, beside it.
    #[must_use]
    pub const fn is_other_heap(&self) -> bool {
        matches!(
            self,
            Self::Runtime { .. } | Self::Embedded { .. } | Self::Object { .. }
        )
    }

    /// Whether a variable gives its memory to malloc.
    fn has_switch(&self) -> bool {
        let switched = |name: &String| name.starts_with("PHP") || name.starts_with("CPython");
        matches!(self, Self::Runtime { name } if switched(name))
    }

    /// What to do to have malloc instead; `None` where there is nothing.
    #[must_use]
    pub fn way_on(&self) -> Option<String> {
        let way = match self {
            Self::Runtime { name } if name.starts_with("PHP") => {
                "USE_ZEND_ALLOC=0 in its environment (--env) gives PHP's memory to malloc"
            }
            Self::Runtime { name } if name.starts_with("CPython") => {
                "PYTHONMALLOC=malloc in its environment (--env) gives Python's objects to malloc"
            }
            Self::Runtime { name } if name.starts_with("JVM") => {
                "the Java heap has no other allocator: its collector and -Xmx decide, malloc serves the rest"
            }
            Self::Runtime { name } if name.starts_with("V8") => {
                "JavaScript objects have no other allocator: --max-semi-space-size and --max-old-space-size decide, \
                 malloc serves buffers and the rest"
            }
            Self::Runtime { .. } => "the runtime's own settings decide on its heap, not malloc",
            Self::Embedded { name, object } => {
                return Some(format!(
                    "build {object} without its own {name}, so that it calls malloc, or compare builds of it"
                ));
            }
            Self::Object { .. }
            | Self::Malloc
            | Self::Unknown
            | Self::Stacks
            | Self::Variables
            | Self::Shared => {
                return None;
            }
        };
        Some(way.to_owned())
    }
}

/// Memory of one holder.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The holder.
    #[serde(flatten)]
    pub holder: Holder,
    /// How much, over all processes of the server, shared pages divided by their users.
    pub bytes: u64,
}

/// The heap use of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapUse {
    /// Calls that ask for memory (malloc, calloc, realloc and the aligned ones).
    pub calls: f64,
    /// Bytes asked for.
    pub bytes: f64,
}

/// The role of malloc in one candidate, at the end of the pass in which its heap calls are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    /// Per request, by operation (`put`, `get`, `request`).
    pub per_request: BTreeMap<String, HeapUse>,
    /// Private memory by what holds it, the most first; empty where it could not be read.
    pub held: Vec<Held>,
    /// The part of malloc's memory that the program requested and has not given back; `None` where the samples are too
    /// few to say.
    pub live_bytes: Option<u64>,
    /// Resident pages of files, shared pages divided by their users.
    pub file_bytes: u64,
    /// Mappings that could not be noted with what made them.
    pub unnoted: u64,
}

impl Reach {
    /// All private memory.
    #[must_use]
    pub fn private_bytes(&self) -> u64 {
        self.held.iter().map(|one| one.bytes).sum()
    }

    /// The memory that malloc holds of it.
    #[must_use]
    pub fn malloc_bytes(&self) -> u64 {
        self.sum_of(|holder| *holder == Holder::Malloc)
    }

    fn sum_of(&self, is_meant: impl Fn(&Holder) -> bool) -> u64 {
        let meant = self.held.iter().filter(|one| is_meant(&one.holder));
        meant.map(|one| one.bytes).sum()
    }

    /// Most heap calls of an operation per request.
    fn calls(&self) -> Option<f64> {
        self.per_request
            .values()
            .map(|one| one.calls)
            .reduce(f64::max)
    }

    /// Whether requests make so few heap calls that an allocator cannot show in their speed.
    #[must_use]
    pub fn has_few_calls(&self) -> bool {
        self.calls().is_some_and(|calls| calls < CALLS_MIN)
    }

    /// Whether nothing of the server's heap gets to malloc: next to no calls, and most of what heaps hold is in another.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        let elsewhere = self.sum_of(Holder::is_other_heap);
        self.has_few_calls() && elsewhere > 0 && elsewhere >= self.malloc_bytes()
    }

    /// The largest heap that is not malloc's.
    fn other_heap(&self) -> Option<&Held> {
        let others = self.held.iter().filter(|one| one.holder.is_other_heap());
        others.max_by_key(|one| one.bytes)
    }

    /// Why there is nothing to compare, and the way on.
    #[must_use]
    pub fn refusal(&self) -> String {
        let calls = format_count(self.calls().unwrap_or(0.0));
        let Some(other) = self.other_heap() else {
            return String::new();
        };
        let (bytes, label) = (format_bytes(other.bytes as f64), other.holder.label());
        let way = other.holder.way_on().unwrap_or_else(|| {
            "let the program call malloc, or compare builds of it with different allocators"
                .to_owned()
        });
        format!(
            "no allocator can change this server: a request makes {calls} calls of malloc, and {bytes} of its memory is \
             not malloc's ({label}); {way}"
        )
    }

    /// What an allocator can change in a request, where memory is another question's answer; `None` if nothing is known.
    #[must_use]
    pub fn request_sentence(&self) -> Option<String> {
        self.use_sentence()
    }

    /// The possible effect of an allocator here, in sentences; the first lines of a report.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = [
            self.use_sentence(),
            self.memory_sentence(),
            self.rest_sentence(),
        ]
        .into_iter()
        .flatten()
        .collect();
        let total = self.private_bytes().max(1) as f64;
        let large = self.held.iter().filter(|one| {
            // A small heap of a runtime may serve nearly all that a request asks for.
            let share = if one.holder.has_switch() {
                SHARE_MIN
            } else {
                SHARE_MUCH
            };
            one.bytes as f64 >= share * total
        });
        sentences.extend(large.filter_map(|one| {
            let mut way = one.holder.way_on()?;
            if let Some(first) = way.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            Some(format!("{way}."))
        }));
        sentences
    }

    fn use_sentence(&self) -> Option<String> {
        let of_each = Operation::ALL.into_iter().filter_map(|operation| {
            let heap = self.per_request.get(operation.key())?;
            let name = match operation {
                Operation::Request => "request",
                other => other.label(),
            };
            let (calls, bytes) = (format_count(heap.calls), format_bytes(heap.bytes));
            Some(format!("{calls} heap calls and {bytes} for each {name}"))
        });
        let of_each: Vec<String> = of_each.collect();
        if of_each.is_empty() {
            return None;
        }
        let mut sentence = format!("What an allocator can change here: {}", of_each.join(", "));
        if self.has_few_calls() {
            sentence += " get to malloc, so next to nothing of a request's time is an allocator's";
        }
        Some(sentence + ".")
    }

    fn memory_sentence(&self) -> Option<String> {
        let (total, malloc) = (self.private_bytes(), self.malloc_bytes());
        if total == 0 {
            return None;
        }
        let share = |bytes: u64| format!("{:.0} %", bytes as f64 / total as f64 * 100.0);
        let mut sentence = format!(
            "malloc holds {} of {} of anonymous memory ({})",
            format_bytes(malloc as f64),
            format_bytes(total as f64),
            share(malloc)
        );
        // An estimate from samples may exceed what there is.
        if let Some(live) = self.live_bytes.map(|live| live.min(malloc)) {
            let most = malloc.saturating_sub(live);
            sentence += &format!(
                "; {} of it is in use, so no allocator can save more than {} ({})",
                format_bytes(live as f64),
                format_bytes(most as f64),
                share(most)
            );
        }
        Some(sentence + ".")
    }

    fn rest_sentence(&self) -> Option<String> {
        let total = self.private_bytes() as f64;
        let rest = self
            .held
            .iter()
            .filter(|one| one.holder != Holder::Malloc && one.bytes as f64 >= SHARE_MIN * total);
        let rest: Vec<String> = rest
            .map(|one| format!("{} {}", one.holder.label(), format_bytes(one.bytes as f64)))
            .collect();
        (!rest.is_empty()).then(|| format!("The rest of it: {}.", rest.join(", ")))
    }
}

// A quantity of the user's: what the program that makes the load printed, under a name, with a unit
// and the way that is good.

/// Begins the key of every quantity of the user's.
const PREFIX: &str = "custom:";

/// One of them. Small and `Copy`, as the others: what it says lives as long as the program, once for
/// each name.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CustomQuantity(&'static Said);

#[derive(Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Said {
    name: String,
    unit: String,
    is_higher_better: bool,
    key: String,
}

impl CustomQuantity {
    /// The quantity of that name, unit and direction; `None` if a name or unit is empty or holds
    /// what separates them in a key.
    #[must_use]
    pub fn new(name: &str, unit: &str, direction: Direction) -> Option<Self> {
        static KNOWN: Mutex<Vec<CustomQuantity>> = Mutex::new(Vec::new());
        let is_word = |word: &str| {
            !word.is_empty() && !word.contains([':', '.']) && !word.contains(char::is_control)
        };
        if !is_word(name) || !is_word(unit) {
            return None;
        }
        let is_higher_better = direction == Direction::HigherIsBetter;
        let way = if is_higher_better { "higher" } else { "lower" };
        let key = format!("{PREFIX}{name}:{unit}:{way}");
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&there) = known.iter().find(|there| there.0.key == key) {
            return Some(there);
        }
        let said = Said {
            name: name.to_owned(),
            unit: unit.to_owned(),
            is_higher_better,
            key,
        };
        let new = Self(Box::leak(Box::new(said)));
        known.push(new);
        Some(new)
    }

    /// Reads a key of [`Self::key`].
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let mut words = key.strip_prefix(PREFIX)?.split(':');
        let (name, unit, way) = (words.next()?, words.next()?, words.next()?);
        let direction = match way {
            "higher" => Direction::HigherIsBetter,
            "lower" => Direction::LowerIsBetter,
            _ => return None,
        };
        match words.next() {
            Some(_) => None,
            None => Self::new(name, unit, direction),
        }
    }

    /// The name in JSON keys: `custom:NAME:UNIT:lower`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        self.0.key.as_str()
    }

    /// The name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.0.name.as_str()
    }

    /// The unit of its values.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        self.0.unit.as_str()
    }

    /// Whether more is better.
    #[must_use]
    pub const fn direction(self) -> Direction {
        if self.0.is_higher_better {
            Direction::HigherIsBetter
        } else {
            Direction::LowerIsBetter
        }
    }
}

// Why a candidate is not among those that were compared.

/// Names of the signals that end servers, by their Linux numbers on x86 and Arm.
const SIGNALS: [(i32, &str); 14] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (31, "SIGSYS"),
];

/// The name of a signal; `None` for one that ends no server.
#[must_use]
pub fn signal_name(number: i32) -> Option<&'static str> {
    let mut known = SIGNALS.iter();
    known.find(|(one, _)| *one == number).map(|(_, name)| *name)
}

/// Why a run of a candidate failed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum FailureCause {
    /// Its first process ended by a signal or with a status.
    Crashed {
        /// The number of the signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The status, if it was no signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
        /// The end of its log.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// It ran, and stopped responding.
    Hung {
        /// Responses before that, of the run that failed.
        after_requests: u64,
        /// How long no response came.
        silent_ns: u64,
    },
    /// The kernel killed a process of it for lack of memory.
    KilledForMemory {
        /// The lowest limit of its control groups; absent if they have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_bytes: Option<u64>,
        /// True if the kernel counted it; false if all that is known is a SIGKILL that the comparison did not send.
        is_counted: bool,
    },
    /// It ended, and its log says that the allocator did not accept its settings.
    RefusedSettings {
        /// The end of its log.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// It ended, and its log says that the kernel gave it no more address space.
    NoAddressSpace {
        /// The limit (`ulimit -v`); absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_bytes: Option<u64>,
        /// The end of its log.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// More requests failed than are allowed.
    FailedRequests {
        /// How many.
        failed: u64,
        /// Of how many.
        requests: u64,
        /// Responses with a status above 399, by status.
        #[serde(default)]
        statuses: BTreeMap<String, u64>,
        /// Requests without a response in time.
        #[serde(default)]
        timeouts: u64,
        /// Connections that could not be opened.
        #[serde(default)]
        connects: u64,
    },
    /// Its responses are not those of the baseline, or a check of the user's failed.
    WrongAnswers,
    /// The allocator could not be proved to be in use.
    NotInUse,
    /// It ran, and did not respond within the time that a start may take.
    NeverServed {
        /// That time.
        waited_ns: u64,
    },
    /// Something else; the sentence says what.
    #[serde(other)]
    Other,
}

impl FailureCause {
    /// In a few words, for a row of a table.
    #[must_use]
    pub fn label(&self) -> String {
        let of_limit = |what: &str, limit: &Option<u64>| match limit {
            Some(bytes) => format!("{what} (limit {})", format_bytes(*bytes as f64)),
            None => what.to_owned(),
        };
        match self {
            // The kernel's actions for lack of memory have a cause of their own.
            Self::Crashed {
                signal: Some(9), ..
            } => "killed (SIGKILL), not for memory".to_owned(),
            Self::Crashed {
                signal: Some(number),
                ..
            } => match signal_name(*number) {
                Some(name) => format!("crashed ({name})"),
                None => format!("crashed (signal {number})"),
            },
            Self::Crashed {
                exit_status: Some(status),
                ..
            } => format!("ended (exit status {status})"),
            Self::Crashed { .. } => "ended".to_owned(),
            Self::Hung { after_requests, .. } => {
                format!(
                    "hung after {} responses",
                    format_count(*after_requests as f64)
                )
            }
            Self::KilledForMemory {
                limit_bytes,
                is_counted,
            } => match is_counted {
                true => of_limit("killed for memory", limit_bytes),
                false => of_limit("killed (SIGKILL), likely for memory", limit_bytes),
            },
            Self::RefusedSettings { .. } => "refused its settings".to_owned(),
            Self::NoAddressSpace { limit_bytes, .. } => of_limit("no address space", limit_bytes),
            Self::FailedRequests {
                failed,
                requests,
                statuses,
                timeouts,
                connects,
            } => {
                let share = *failed as f64 / (*requests).max(1) as f64;
                let mut kinds: Vec<String> = statuses
                    .keys()
                    .map(|status| format!("status {status}"))
                    .collect();
                kinds.extend((*timeouts > 0).then(|| "timeout".to_owned()));
                kinds.extend((*connects > 0).then(|| "no connection".to_owned()));
                let kinds = match kinds.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", kinds.join(", ")),
                };
                format!("{} of requests failed{kinds}", format_percent(share))
            }
            Self::WrongAnswers => "wrong responses".to_owned(),
            Self::NotInUse => "allocator not in use".to_owned(),
            Self::NeverServed { waited_ns } => {
                format!(
                    "did not serve within {}",
                    format_duration_ns(*waited_ns as f64)
                )
            }
            Self::Other => "failed".to_owned(),
        }
    }

    /// Whether it is the candidate that fails, and not the machine or the load: a second time decides, whatever went
    /// well in between.
    #[must_use]
    pub const fn is_its_own(&self) -> bool {
        !matches!(self, Self::Other)
    }
}

/// When a candidate was left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutWhen {
    /// Before the rounds, when each candidate is tried once.
    TriedOut,
    /// After it failed in this round, counted from 1.
    Round(u32),
}

impl LeftOutWhen {
    /// For a row of a table.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::TriedOut => "when tried out".to_owned(),
            Self::Round(round) => format!("in round {round}"),
        }
    }
}

/// A candidate that was not compared, because it failed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub candidate: String,
    /// Why.
    pub cause: FailureCause,
    /// The same as a sentence, with the end of its log.
    pub sentence: String,
    /// When.
    pub when: LeftOutWhen,
    /// Rounds that it ended well before; they count nowhere.
    #[serde(default)]
    pub rounds_done: u32,
}

impl LeftOut {
    /// The cause, shown instead of figures: `crashed (SIGSEGV) in round 3`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} {}", self.cause.label(), self.when.label())
    }
}

// The results of each set of connections of a load run, and how far the sets lie apart.
//
// Which connections a run happens to get shifts its figures for as long as they are open, so one set of them is one
// observation, however many requests it carries. Their spread is the error of a single run.

/// Connections of a run at the edges of what it measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadConnectionsOpen {
    /// How many were to be open when sending began: all, or with a ramp the first.
    pub due_at_start: u64,
    /// How many were.
    pub at_start: u64,
    /// How many were when the last request was accounted for.
    pub at_end: u64,
}

impl LoadConnectionsOpen {
    /// Of generators that ran at the same time.
    pub const fn add_parallel(&mut self, other: &Self) {
        self.due_at_start += other.due_at_start;
        self.at_start += other.at_start;
        self.at_end += other.at_end;
    }

    /// Of sets one after another: the fewest that were open.
    pub fn add_sequel(&mut self, other: &Self) {
        self.due_at_start = self.due_at_start.max(other.due_at_start);
        self.at_start = self.at_start.min(other.at_start);
        self.at_end = self.at_end.min(other.at_end);
    }
}

/// One of several addresses of a target.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadAddress {
    /// With its port.
    pub address: String,
    /// Connections that it took.
    pub opened: u64,
}

impl LoadAddress {
    /// Adds the connections of another record, address by address.
    pub fn add(sums: &mut Vec<Self>, others: &[Self]) {
        for other in others {
            match sums.iter_mut().find(|one| one.address == other.address) {
                Some(sum) => sum.opened += other.opened,
                None => sums.push(other.clone()),
            }
        }
    }
}

/// The results of one set of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadConnectionSet {
    /// Which repetition of the run it belongs to, from 0.
    pub repetition: u64,
    /// Right responses to requests that count.
    pub requests: u64,
    /// Right responses per second.
    pub requests_per_s: f64,
    /// Median response time.
    pub response_p50_ns: u64,
    /// 99th percentile of response time.
    pub response_p99_ns: u64,
}

/// How far the sets lie apart in one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadSpread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Standard deviation of a set, as a share of the mean.
    pub stdev_share: f64,
}

impl LoadSpread {
    /// Of at least two values; of fewer it is unknown and 0.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        let Some(median) = median(&mut sorted) else {
            return Self::default();
        };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = (squares / (count - 1.0).max(1.0)).sqrt();
        Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            stdev_share: if mean > 0.0 { stdev / mean } else { 0.0 },
        }
    }
}

/// All sets of a run that were complete, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadConnectionSets {
    /// How many there were, with those that the spread is not of: cut short, or the smaller rest at the end.
    pub opened: u64,
    /// The complete ones.
    pub sets: Vec<LoadConnectionSet>,
    /// Of the rate.
    pub requests_per_s: LoadSpread,
    /// Of the median response time.
    pub response_p50_ns: LoadSpread,
    /// Of the 99th percentile of response time.
    pub response_p99_ns: LoadSpread,
}

impl LoadConnectionSets {
    /// With the spreads of these sets.
    #[must_use]
    pub fn of(sets: Vec<LoadConnectionSet>, opened: u64) -> Self {
        let spread = |figure: &dyn Fn(&LoadConnectionSet) -> f64| {
            LoadSpread::of(&sets.iter().map(figure).collect::<Vec<f64>>())
        };
        Self {
            requests_per_s: spread(&|set| set.requests_per_s),
            response_p50_ns: spread(&|set| set.response_p50_ns as f64),
            response_p99_ns: spread(&|set| set.response_p99_ns as f64),
            opened,
            sets,
        }
    }

    /// The meaning of the spread for a single run; `None` of fewer than two sets.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        if self.sets.len() < 2 {
            return None;
        }
        let percent = |spread: &LoadSpread| format!("+-{:.1} %", spread.stdev_share * 100.0);
        Some(format!(
            "one set of connections to another differs by {} in the rate, {} in p50 and {} in p99 (standard \
             deviation of {} sets)",
            percent(&self.requests_per_s),
            percent(&self.response_p50_ns),
            percent(&self.response_p99_ns),
            self.sets.len()
        ))
    }
}

// Why requests of a load run failed: a kind, how often, and the first of each as an example.

/// The kind of failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadFailureKind {
    /// A connection was not opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A request could not be sent.
    Write,
    /// The connection ended before the response was complete.
    Read,
    /// The response is no well-formed HTTP.
    Framing,
    /// The response is larger than the generator takes.
    Limit,
    /// No response came in time.
    Timeout,
    /// The response's status is wrong.
    Status,
    /// The response's content is wrong.
    Content,
}

impl LoadFailureKind {
    /// All, in the order of [`Self::index`].
    pub const ALL: [Self; 9] = [
        Self::Connect,
        Self::Tls,
        Self::Write,
        Self::Read,
        Self::Framing,
        Self::Limit,
        Self::Timeout,
        Self::Status,
        Self::Content,
    ];

    /// Its place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As it is printed and written.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Write => "write",
            Self::Read => "read",
            Self::Framing => "framing",
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Content => "content",
        }
    }
}

/// The first failure of a kind.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadFailureExample {
    /// When, since sending began; 0: before.
    pub at_ns: u64,
    /// On which connection, from 0.
    pub connection: u64,
    /// The event.
    pub what: String,
    /// The first bytes of what arrived with it, escaped; empty if nothing did.
    pub bytes: String,
}

/// Failures of one kind.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LoadFailure {
    /// Which.
    pub kind: LoadFailureKind,
    /// How many.
    pub count: u64,
    /// The first of them, as far as it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<LoadFailureExample>,
}

impl LoadFailure {
    /// In a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut text = format!("{} {}", self.kind.label(), self.count);
        if let Some(first) = &self.first {
            let seconds = first.at_ns as f64 / 1e9;
            text += &format!(
                ", the first after {seconds:.3} s on connection {}: {}",
                first.connection, first.what
            );
            if !first.bytes.is_empty() {
                text += &format!("; it came with \"{}\"", first.bytes);
            }
        }
        text
    }
}

#[cfg(test)]
#[path = "tests/reach.rs"]
mod reach_tests;

#[cfg(test)]
#[path = "tests/custom.rs"]
mod custom_tests;

#[cfg(test)]
#[path = "tests/left_out.rs"]
mod left_out_tests;

#[cfg(test)]
#[path = "tests/connection_sets.rs"]
mod connection_sets_tests;
