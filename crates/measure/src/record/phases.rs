//! Phases: load that changes over a run, and what memory does at each change.
//!
//! A [`PhasePlan`] is what was asked for, [`PhaseEnd`], [`Floor`] and [`PhaseHeap`] are what one run showed, and
//! [`PhasesAnswer`] is what all runs of a candidate say together ([`crate::phases`]).

use serde::{Deserialize, Serialize};

use crate::series::{Series, SeriesPoint};
use crate::statistics::{Comparison, Verdict, median};
use crate::units::{format_bytes, format_three_digits};

use super::{Held, Measure, Operation};

/// The purpose of a phase.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// The usual load at a constant rate: CPU per request and latency are measured here.
    #[default]
    Steady,
    /// More than usual.
    Burst,
    /// Load as fast as responses come, while in the server's own threads objects of mixed sizes are allocated and freed at
    /// random: afterwards its heap is an old one.
    Churn,
    /// No requests, and no connections.
    Idle,
}

impl PhaseKind {
    /// As it is written in `--phases`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Burst => "burst",
            Self::Churn => "churn",
            Self::Idle => "idle",
        }
    }
}

/// One phase of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseSpec {
    /// Its purpose.
    pub kind: PhaseKind,
    /// How long it lasts.
    pub duration_ns: u64,
    /// Connections, if others than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Requests per second; `None`: the common rate of steady phases, as fast as responses come in bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The requests, if they differ from those of the other phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The phases of each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhasePlan {
    /// One cycle.
    pub phases: Vec<PhaseSpec>,
    /// How often it is repeated.
    pub cycles: u32,
}

impl PhasePlan {
    /// `steady`, or `burst 2` where there are several of a kind.
    #[must_use]
    pub fn label(&self, place: usize) -> String {
        let Some(spec) = self.phases.get(place) else {
            return String::new();
        };
        let same = |specs: &[PhaseSpec]| specs.iter().filter(|one| one.kind == spec.kind).count();
        let label = spec.kind.label();
        match same(&self.phases) {
            1 => label.to_owned(),
            _ => format!("{label} {}", same(&self.phases[..=place])),
        }
    }

    /// Whether a phase ages the heap.
    #[must_use]
    pub fn has_churn(&self) -> bool {
        let mut all = self.phases.iter();
        all.any(|spec| spec.kind == PhaseKind::Churn)
    }

    /// Whether what a phase measures is of a heap that was aged before it.
    #[must_use]
    pub fn is_aged(&self, cycle: u32, place: usize) -> bool {
        let mut before = self.phases.iter().take(match cycle {
            0 => place,
            _ => self.phases.len(),
        });
        before.any(|spec| spec.kind == PhaseKind::Churn)
    }

    /// The end of the cycle, from the end of its last burst on: returned memory is searched for there.
    #[must_use]
    pub fn last_burst(&self) -> Option<usize> {
        let mut places = self.phases.iter();
        places.rposition(|spec| spec.kind == PhaseKind::Burst)
    }
}

/// The state of a run at the end of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseEnd {
    /// From 0.
    pub cycle: u32,
    /// Its place in the cycle, from 0.
    pub place: u32,
    /// Right responses.
    pub requests: u64,
    /// The program's private memory; resident memory where that cannot be read.
    pub memory_bytes: u64,
    /// The parts of memory.
    pub parts: MemoryParts,
    /// Of a churn: how many blocks it allocated and freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churned_blocks: Option<u64>,
}

/// The parts of memory at a moment, of all processes of a server together. Unreadable values are absent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryParts {
    /// Without a file behind it: heaps and stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anonymous_bytes: Option<u64>,
    /// Shared on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Swapped out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swapped_bytes: Option<u64>,
    /// Of the anonymous memory: given back with `MADV_FREE`, and not yet taken by the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazy_free_bytes: Option<u64>,
    /// Of the anonymous memory: in transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_page_bytes: Option<u64>,
    /// Taken of the kernel's pool of huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb_bytes: Option<u64>,
    /// Pages of mapped files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// The kernel's memory for the control group: page tables, stacks, sockets, its own objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<u64>,
    /// The memory that counts against the control group's limit, without the pages of files that were not used lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// Mappings of the process that has most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<u64>,
}

impl MemoryParts {
    /// The median of each part, over those that have it.
    #[must_use]
    pub fn medians(all: &[Self]) -> Self {
        let of = |part: &dyn Fn(&Self) -> Option<u64>| {
            let mut values: Vec<f64> = all
                .iter()
                .filter_map(part)
                .map(|value| value as f64)
                .collect();
            median(&mut values).map(|value| value as u64)
        };
        Self {
            anonymous_bytes: of(&|one| one.anonymous_bytes),
            shared_bytes: of(&|one| one.shared_bytes),
            swapped_bytes: of(&|one| one.swapped_bytes),
            lazy_free_bytes: of(&|one| one.lazy_free_bytes),
            huge_page_bytes: of(&|one| one.huge_page_bytes),
            hugetlb_bytes: of(&|one| one.hugetlb_bytes),
            file_bytes: of(&|one| one.file_bytes),
            kernel_bytes: of(&|one| one.kernel_bytes),
            working_set_bytes: of(&|one| one.working_set_bytes),
            mappings: of(&|one| one.mappings),
        }
    }
}

/// The course of a burst's memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Floor {
    /// From 0.
    pub cycle: u32,
    /// The most of the burst.
    pub peak_bytes: u64,
    /// At its end.
    pub burst_end_bytes: u64,
    /// The least between it and the end of the cycle.
    pub floor_bytes: u64,
    /// How long after the burst that was reached; `None`: no considerable part of its peak came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_ns: Option<u64>,
    /// It was reached only when the cycle ended: a longer one might show less.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_falling: bool,
}

/// The owners of memory at the end of a cycle, in a run of its own in which the heap is traced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseHeap {
    /// From 0.
    pub cycle: u32,
    /// The bytes that the program requested from malloc and has not given back; `None` where the samples are too few to
    /// say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes: Option<u64>,
    /// Private memory by what holds it.
    pub held: Vec<Held>,
}

/// A figure of several rounds with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundsEstimate {
    /// Hodges-Lehmann estimate.
    pub value: f64,
    /// Lower end of its exact signed-rank interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Exact confidence of the interval: at least 0.95 from 6 rounds on.
    pub confidence: f64,
    /// Rounds that have it.
    pub rounds: u32,
}

/// The owner of growth from cycle to cycle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthCause {
    /// The growth is not distinguishable from none.
    #[default]
    None,
    /// The program asked for more and did not give it back.
    Live,
    /// The program gave it back, and malloc keeps it.
    Retained,
    /// It is not malloc's.
    Elsewhere,
    /// The traced run does not show it.
    Unknown,
}

/// The phases' results of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhasesAnswer {
    /// Its name.
    pub candidate: String,
    /// Memory at the end of each phase of a cycle, in their order; medians over cycles.
    pub ends_bytes: Vec<Option<RoundsEstimate>>,
    /// Its parts there; medians over cycles and rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends_parts: Vec<MemoryParts>,
    /// The most of a burst.
    pub peak_bytes: Option<RoundsEstimate>,
    /// The floor after a burst.
    pub floor_bytes: Option<RoundsEstimate>,
    /// How long after the burst it was reached; `None`: nothing came back.
    pub reached_ns: Option<RoundsEstimate>,
    /// The share of cycles whose floor was reached only at their end.
    pub falling_share: f64,
    /// Growth of the floor from cycle to cycle.
    pub growth_bytes: Option<RoundsEstimate>,
    /// Its owner.
    pub cause: GrowthCause,
    /// CPU time per request behind the first churn, against that before it; absent without a churn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aged_cpu_ratio: Option<RoundsEstimate>,
    /// The bytes that the program had requested and not given back at the end of the last cycle, of the traced run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes: Option<u64>,
    /// The memory that malloc held of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub malloc_bytes: Option<u64>,
    /// All of this in sentences.
    pub sentence: String,
    /// Leak, retained or live, in one sentence; empty without a traced run.
    pub heap_sentence: String,
}

// Memory of one run over time: every sample while it is measured, and in the record what a drawing can show.

/// More points cannot be distinguished in a drawing, and a record holds hundreds of runs.
const POINTS_MAX: usize = 48;

/// A phase of a run, with its time.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoursePhase {
    /// `put throughput`, `idle`, `get latency`, ...
    pub name: String,
    /// When it began, since the server began to serve.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
}

impl CoursePhase {
    /// Whether it is a part of the equal work, not what comes before or after it.
    #[must_use]
    pub fn is_work(&self) -> bool {
        !matches!(self.name.as_str(), "warm-up" | "idle")
    }
}

/// The memory of a tree of processes, sampled on one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySeries {
    /// Resident memory.
    pub rss: Series,
    /// Private memory of the program at the same moments; empty if it is unknown at one of them.
    memory: Series,
    is_incomplete: bool,
}

impl MemorySeries {
    /// Adds what was seen at a moment.
    pub fn push(&mut self, at_ns: u64, rss_bytes: u64, memory_bytes: Option<u64>) {
        self.rss.push(at_ns, rss_bytes as f64);
        match memory_bytes {
            Some(bytes) => self.memory.push(at_ns, bytes as f64),
            None => self.is_incomplete = true,
        }
    }

    /// Adds what was read apart, where it belongs.
    pub fn insert(&mut self, at_ns: u64, rss_bytes: u64, memory_bytes: Option<u64>) {
        let insert = |series: &mut Series, bytes: u64| {
            let place = series.points.partition_point(|point| point.at_ns <= at_ns);
            let value = bytes as f64;
            series.points.insert(place, SeriesPoint { at_ns, value });
        };
        insert(&mut self.rss, rss_bytes);
        match memory_bytes {
            Some(bytes) => insert(&mut self.memory, bytes),
            None => self.is_incomplete = true,
        }
    }

    /// Adds `other`, whose clock begins at `from_ns` of this one.
    pub fn append(&mut self, other: &Self, from_ns: u64) {
        for (all, more) in [
            (&mut self.rss, &other.rss),
            (&mut self.memory, &other.memory),
        ] {
            for point in &more.points {
                all.push(from_ns + point.at_ns, point.value);
            }
        }
        self.is_incomplete |= other.is_incomplete;
    }

    /// The program's private memory; `None` unless every sample has it: half a curve would be taken for a whole one.
    #[must_use]
    pub fn memory(&self) -> Option<&Series> {
        (!self.is_incomplete && !self.memory.points.is_empty()).then_some(&self.memory)
    }

    /// The series that stands for memory: the program's private memory, else resident memory.
    #[must_use]
    pub fn best(&self) -> &Series {
        self.memory().unwrap_or(&self.rss)
    }

    /// The end of the clock so far.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.rss.points.last().map_or(0, |point| point.at_ns)
    }
}

/// Memory since the server began to serve, of all its processes. No verdict is made from it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCourse {
    /// When, since the server began to serve.
    pub at_ns: Vec<u64>,
    /// How much was resident at these moments.
    pub rss_bytes: Vec<u64>,
    /// The processes' private memory, in each stretch of time the most, at the end the last; empty in old records and
    /// where it could not be read: then all of this is of `rss_bytes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_bytes: Vec<u64>,
    /// The phases of the run, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<CoursePhase>,
}

/// How the memory of a candidate changes with work, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryGrowth {
    /// Its name.
    pub candidate: String,
    /// Of which requests.
    pub operation: Operation,
    /// Hodges-Lehmann estimate of the rounds' slopes, in bytes of memory per request; negative if memory shrinks.
    pub bytes_per_request: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Exact confidence of the interval: at least 0.95 from 6 rounds on.
    pub confidence: f64,
    /// Rounds that have a slope.
    pub rounds: u32,
    /// The same in words.
    pub sentence: String,
}

impl MemoryCourse {
    /// The peaks of `series`, and its end; `None` if it has fewer than two points.
    #[must_use]
    pub fn thinned(series: &MemorySeries) -> Option<Self> {
        Self::thinned_to(series, POINTS_MAX)
    }

    /// The same with so many points, two or more.
    #[must_use]
    pub fn thinned_to(series: &MemorySeries, points_max: usize) -> Option<Self> {
        let values: Vec<f64> = series
            .best()
            .points
            .iter()
            .map(|point| point.value)
            .collect();
        let last = values.len().checked_sub(1).filter(|&last| last > 0)?;
        let stride = last.div_ceil(points_max.max(2) - 1);
        let mut shown = Vec::new();
        for from in (0..last).step_by(stride) {
            let stretch = from..(from + stride).min(last);
            // The first of equal ones.
            shown.extend(
                stretch
                    .rev()
                    .max_by(|&a, &b| values[a].total_cmp(&values[b])),
            );
        }
        shown.push(last);
        let of = |series: &Series| -> Vec<u64> {
            let points = shown.iter().filter_map(|&index| series.points.get(index));
            points.map(|point| point.value.max(0.0) as u64).collect()
        };
        let clock = shown
            .iter()
            .filter_map(|&index| series.rss.points.get(index));
        Some(Self {
            at_ns: clock.map(|point| point.at_ns).collect(),
            rss_bytes: of(&series.rss),
            memory_bytes: series.memory().map(of).unwrap_or_default(),
            phases: Vec::new(),
        })
    }

    /// Whether it shows what the processes kept by themselves; else resident memory.
    #[must_use]
    pub fn is_private(&self) -> bool {
        !self.memory_bytes.is_empty() && self.memory_bytes.len() == self.at_ns.len()
    }

    /// Bytes at a moment, on the line through the points.
    #[must_use]
    pub fn bytes_at(&self, at_s: f64) -> f64 {
        let mut before: Option<(f64, f64)> = None;
        for (point_s, bytes) in self.points() {
            if point_s >= at_s {
                return match before {
                    Some((from_s, from)) if point_s > from_s => {
                        from + (bytes - from) * (at_s - from_s) / (point_s - from_s)
                    }
                    _ => bytes,
                };
            }
            before = Some((point_s, bytes));
        }
        before.map_or(0.0, |(_, bytes)| bytes)
    }

    /// Seconds and bytes.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let bytes = match self.is_private() {
            true => &self.memory_bytes,
            false => &self.rss_bytes,
        };
        let pairs = self.at_ns.iter().zip(bytes);
        pairs.map(|(&at_ns, &bytes)| (at_ns as f64 / 1e9, bytes as f64))
    }
}

// A candidate's heap use, from the pass in which every call is counted: sizes, lifetimes, what lives, and how much
// memory that takes.

/// Calls that asked for a size between two bounds, both included.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeClass {
    /// The smallest size.
    pub from_bytes: u64,
    /// The largest size.
    pub to_bytes: u64,
    /// How many calls: exact.
    pub calls: u64,
}

/// Blocks that lived for a time between two bounds, both included. Estimates from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LifetimeClass {
    /// The shortest time.
    pub from_ns: u64,
    /// The longest time.
    pub to_ns: u64,
    /// How many blocks.
    pub blocks: f64,
    /// Their bytes.
    pub bytes: f64,
}

/// The heap of one candidate, over a fixed number of requests in its steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapProfile {
    /// Requests that were counted, of all operations together.
    pub requests: u64,
    /// Calls that asked for a new block.
    pub allocations: u64,
    /// Calls of realloc for a block that existed.
    pub reallocations: u64,
    /// Blocks given back.
    pub frees: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Calls by size, those that occurred, the smallest first.
    pub sizes: Vec<SizeClass>,
    /// Blocks that were given back, by how long they lived, the shortest first. A realloc ends a life
    /// and begins another.
    pub lifetimes: Vec<LifetimeClass>,
    /// The share of blocks given back by another thread than the one that asked for them.
    pub cross_thread_share: Option<f64>,
    /// Bytes that live at the end of the work, by the samples.
    pub live_bytes: u64,
    /// Blocks that live then, by the samples.
    pub live_blocks: u64,
    /// The most bytes that lived at any moment since the start, by the samples.
    pub peak_live_bytes: u64,
    /// The relative standard error of `live_bytes`.
    pub live_error: f64,
    /// Memory of all processes without a file behind it at the end of the work, shared pages divided
    /// by their users; `None` without permission.
    pub anonymous_bytes: Option<u64>,
    /// That for each live byte; `None` where the live bytes are known too roughly.
    pub fragmentation: Option<f64>,
    /// Mean distance of samples, in bytes asked for.
    pub sample_mean_bytes: u64,
    /// Samples taken since the start.
    pub samples: u64,
    /// Samples that found no room: lifetimes and live bytes lack them.
    pub dropped_samples: u64,
}

// The smallest memory limit that a candidate survives.

/// The result of a bisection, as the memory that all processes of a server may hold together: page cache and kernel
/// memory included, as a container's limit counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundLimit {
    /// The smallest that was survived.
    pub limit_bytes: u64,
    /// The largest that was not.
    pub died_at_bytes: u64,
    /// The most that the group held without a limit.
    pub peak_bytes: u64,
    /// So often it was survived.
    pub needed: u32,
    /// Of so many trials at most.
    pub of: u32,
    /// Requests per second at that limit over those without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_ratio: Option<f64>,
}

impl FoundLimit {
    /// In one sentence, of the candidate of this name.
    #[must_use]
    pub fn sentence(&self, name: &str) -> String {
        let [limit, died, peak] = [self.limit_bytes, self.died_at_bytes, self.peak_bytes]
            .map(|bytes| format_bytes(bytes as f64));
        let cost = self.throughput_ratio.map_or_else(String::new, |ratio| {
            format!(
                "; throughput there is {}x what it is without a limit",
                format_three_digits(ratio)
            )
        });
        format!(
            "{name}: survives {limit} ({} of {} times) and not {died}; without a limit it held {peak}{cost}.",
            self.needed, self.of
        )
    }
}

// The effect of each setting of one allocator, and which of them are worth choosing between (`--settings`).

/// The rounds' result on a setting, in memory and CPU per request together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingEffect {
    /// None is set: all ratios are against this.
    Default,
    /// One of both differs for certain.
    Changes,
    /// Both are the same within the margin.
    Nothing,
    /// The rounds do not decide.
    #[default]
    Undecided,
    /// One of both must not be trusted, and the other does not differ.
    NotTrusted,
}

impl SettingEffect {
    /// One or two words for a table.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Changes => "changes",
            Self::Nothing => "changes nothing",
            Self::Undecided => "undecided",
            Self::NotTrusted => "not trusted",
        }
    }
}

/// One setting, or the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingAnswer {
    /// The candidate.
    pub candidate: String,
    /// The setting, without the allocator's name; `(default)` for nothing.
    pub setting: String,
    /// Its documented effect, in a few words.
    pub what_it_changes: String,
    /// The rounds' result.
    pub effect: SettingEffect,
    /// Of the default and those that certainly need less memory or CPU than it: whether no other of them needs as little of
    /// both and less of one, by the estimates.
    pub is_on_front: bool,
    /// Memory against the default; `None` of the default, and where it was not measured.
    pub memory: Option<Comparison>,
    /// CPU per request against the default.
    pub cpu: Option<Comparison>,
    /// Others on the front that the intervals do not distinguish from it, neither in memory nor in CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alike: Vec<String>,
    /// Its effect, with numbers.
    pub sentence: String,
}

/// Memory against CPU per request of all settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsFront {
    /// The allocator of the settings.
    pub allocator: String,
    /// The value that stands for memory: of several measures the geometric mean of their ratios.
    pub memory: Vec<Measure>,
    /// The same for CPU.
    pub cpu: Vec<Measure>,
    /// Memory of the default, in bytes, if that is one measure.
    pub default_memory_bytes: Option<f64>,
    /// CPU time per request of the default, in nanoseconds, if that is one measure.
    pub default_cpu_ns: Option<f64>,
    /// The default first, then the settings in order of candidates.
    pub settings: Vec<SettingAnswer>,
    /// Candidates on the front, the least memory first.
    pub front: Vec<String>,
    /// How many do what, and which are on the front.
    pub sentence: String,
}

impl SettingAnswer {
    /// Whether it certainly needs less than the default, of memory or of CPU.
    #[must_use]
    pub fn has_gain(&self) -> bool {
        let both = [&self.memory, &self.cpu].into_iter().flatten();
        both.into_iter().any(|one| one.verdict == Verdict::Better)
    }
}

impl SettingsFront {
    /// Those on the front, the least memory first.
    pub fn on_front(&self) -> impl Iterator<Item = &SettingAnswer> {
        let names = self.front.iter();
        names.filter_map(|name| self.settings.iter().find(|one| one.candidate == *name))
    }
}

#[cfg(test)]
#[path = "tests/memory_course.rs"]
mod memory_course_tests;
