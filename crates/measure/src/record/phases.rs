//! Phases: load that changes over a run, and what memory does at each change.
//!
//! A [`PhasePlan`] is what was asked for, [`PhaseEnd`], [`Floor`] and [`PhaseHeap`] are what one run showed, and
//! [`PhasesAnswer`] is what all runs of a candidate say together ([`crate::phases`]).

use serde::{Deserialize, Serialize};

use super::Held;
use crate::statistics::median;

/// What a phase is for.
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
    /// What it is for.
    pub kind: PhaseKind,
    /// How long it lasts.
    pub duration_ns: u64,
    /// Connections, if others than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Requests per second; `None`: the common rate of steady phases, as fast as answers come in bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// What is asked for, if not what the other phases ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What each run does.
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

    /// The end of the cycle, from the end of its last burst on: there memory is looked for that comes back.
    #[must_use]
    pub fn last_burst(&self) -> Option<usize> {
        let mut places = self.phases.iter();
        places.rposition(|spec| spec.kind == PhaseKind::Burst)
    }
}

/// What a run had at the end of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseEnd {
    /// From 0.
    pub cycle: u32,
    /// Its place in the cycle, from 0.
    pub place: u32,
    /// Right answers.
    pub requests: u64,
    /// What the program keeps in memory by itself; of resident memory where that cannot be read.
    pub memory_bytes: u64,
    /// What memory is made of.
    pub parts: MemoryParts,
    /// Of a churn: how many blocks it allocated and freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churned_blocks: Option<u64>,
}

/// What memory is made of at a moment, of all processes of a server together. What could not be read is absent.
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
    /// What the kernel holds for the control group: page tables, stacks, sockets, its own objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<u64>,
    /// What counts against the control group's limit, without the pages of files that were not used lately.
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

/// What became of a burst's memory.
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
    /// How long after the burst that was reached; `None`: nothing worth a word of its peak came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_ns: Option<u64>,
    /// It was reached only when the cycle ended: a longer one might show less.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_falling: bool,
}

/// Whose the memory is at the end of a cycle, in a run of its own in which the heap is traced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseHeap {
    /// From 0.
    pub cycle: u32,
    /// What the program asked malloc for and has not given back; `None` where the samples are too few to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes: Option<u64>,
    /// Private memory by who holds it.
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

/// Whose growth from cycle to cycle is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthCause {
    /// There is none that can be told from none.
    #[default]
    None,
    /// The program asked for more and did not give it back.
    Live,
    /// The program gave it back, and malloc keeps it.
    Retained,
    /// It is not malloc's.
    Elsewhere,
    /// The traced run does not tell.
    Unknown,
}

/// What the phases say of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhasesAnswer {
    /// Its name.
    pub candidate: String,
    /// Memory at the end of each phase of a cycle, in their order; medians over cycles.
    pub ends_bytes: Vec<Option<RoundsEstimate>>,
    /// What it is made of there; medians over cycles and rounds.
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
    /// Whose it is.
    pub cause: GrowthCause,
    /// CPU time per request behind the first churn, against that before it; absent without a churn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aged_cpu_ratio: Option<RoundsEstimate>,
    /// What the program had asked for and not given back at the end of the last cycle, of the traced run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes: Option<u64>,
    /// What malloc held of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub malloc_bytes: Option<u64>,
    /// All of this in sentences.
    pub sentence: String,
    /// Leak, retained or live, in one sentence; empty without a traced run.
    pub heap_sentence: String,
}
