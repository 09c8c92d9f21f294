//! Where a candidate's time or memory went, from a profiled run after the rounds: what the page draws.

use serde::{Deserialize, Serialize};

use crate::flamegraph::{Stacks, Unit, from_outline, outline};

/// More frames than this are stripes in a page, and make it large.
const FRAMES_MAX: usize = 200;
/// Functions that a table has room for.
const HEAVIEST: usize = 8;

/// The drawn profile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlameKind {
    /// Samples of CPU time.
    #[default]
    CpuTime,
    /// Bytes asked for.
    AllocatedBytes,
}

impl FlameKind {
    /// Both, in the order of the page.
    pub const ALL: [Self; 2] = [Self::CpuTime, Self::AllocatedBytes];

    /// For people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::CpuTime => "CPU time",
            Self::AllocatedBytes => "bytes asked for",
        }
    }

    /// The unit of the weights.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::CpuTime => Unit::Samples,
            Self::AllocatedBytes => Unit::Bytes,
        }
    }
}

/// A function and its share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlameFunction {
    /// Its name.
    pub name: String,
    /// The weight of the function itself, as a share of the whole.
    pub own_share: f64,
}

/// One flame graph. The whole of it is a file beside the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlameGraph {
    /// The candidate.
    pub candidate: String,
    /// The kind of profile.
    pub kind: FlameKind,
    /// Samples that were taken.
    pub samples: u64,
    /// How they were taken.
    pub note: String,
    /// The functions in which most was seen themselves.
    pub heaviest: Vec<FlameFunction>,
    /// The widest frames, `DEPTH WEIGHT NAME`, callers before callees. The weight includes callees that
    /// are left out.
    pub frames: Vec<String>,
    /// The directory of its files, from the report's.
    pub directory: String,
}

impl FlameGraph {
    /// The graph of all `stacks`; what surrounds it is the caller's.
    #[must_use]
    pub fn of(kind: FlameKind, stacks: &Stacks) -> Self {
        let total = stacks.total().max(1) as f64;
        let heaviest = stacks.heaviest(HEAVIEST).into_iter();
        Self {
            kind,
            heaviest: heaviest
                .map(|one| FlameFunction {
                    own_share: one.own as f64 / total,
                    name: one.name,
                })
                .collect(),
            frames: outline(stacks, FRAMES_MAX),
            ..Self::default()
        }
    }

    /// The drawn profile.
    #[must_use]
    pub fn stacks(&self) -> Stacks {
        from_outline(&self.frames)
    }
}
