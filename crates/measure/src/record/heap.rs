//! What a candidate asked of the heap, from the pass in which every call is counted: sizes, lifetimes,
//! what lives, and how much memory that takes.

use serde::{Deserialize, Serialize};

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
