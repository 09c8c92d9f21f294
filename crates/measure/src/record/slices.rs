//! The slices of one candidate in one round, as columns: what verdicts on throughput and CPU time rest on, and
//! how they compare with uninterrupted blocks.

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::statistics::Estimate;

/// The cycle that a block stands for beside slices.
const BLOCK_CYCLE: u32 = u32::MAX;

/// The CPUs of server and generator were moved between two readings of their distance whose logarithms differ by more
/// than this.
pub const CORE_DISTANCE_CHANGE_MIN: f64 = 0.4;

/// The closed loop's slices of one operation, in order of cycles; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceColumns {
    /// The cycle of each, counted from 0. Slices of one cycle are paired.
    pub cycle: Vec<u32>,
    /// Right answers in its counted part.
    pub requests: Vec<u64>,
    /// The same per second.
    pub per_s: Vec<f64>,
    /// The server's CPU time per request; 0 where it was read too late.
    pub cpu_ns: Vec<f64>,
    /// What a system call took on the server's CPUs around it; 0 where that was not measured.
    pub server_call_ns: Vec<f64>,
    /// The same on the generator's.
    pub generator_call_ns: Vec<f64>,
    /// The server's minor page faults per request; 0 where they were read too late.
    pub minor_faults: Vec<f64>,
    /// Its calls of `madvise` per request; empty if they were not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub madvise_calls: Vec<f64>,
    /// What a cache line took from the server's CPU to the generator's and back around it; 0 where that was not
    /// measured.
    pub core_distance_ns: Vec<f64>,
}

impl SliceColumns {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cycle.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cycle.is_empty()
    }

    /// These and those of a block, which make a cycle of their own.
    #[must_use]
    pub fn followed_by(&self, block: &Self) -> Self {
        let mut all = self.clone();
        all.cycle.extend(block.cycle.iter().map(|_| BLOCK_CYCLE));
        all.requests.extend(&block.requests);
        all.per_s.extend(&block.per_s);
        all.cpu_ns.extend(&block.cpu_ns);
        all.server_call_ns.extend(&block.server_call_ns);
        all.generator_call_ns.extend(&block.generator_call_ns);
        all.minor_faults.extend(&block.minor_faults);
        if all.madvise_calls.is_empty() || block.madvise_calls.is_empty() {
            all.madvise_calls.clear();
        } else {
            all.madvise_calls.extend(&block.madvise_calls);
        }
        all.core_distance_ns.extend(&block.core_distance_ns);
        all
    }

    /// True if a record that somebody wrote has columns of one length.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lengths = [
            self.requests.len(),
            self.per_s.len(),
            self.cpu_ns.len(),
            self.server_call_ns.len(),
            self.generator_call_ns.len(),
            self.minor_faults.len(),
            self.core_distance_ns.len(),
        ];
        let are_calls_whole = [0, self.len()].contains(&self.madvise_calls.len());
        are_calls_whole && lengths.iter().all(|&length| length == self.len())
    }
}

/// The slices at the constant rate of one operation, in order of cycles; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacedColumns {
    /// The cycle of each, counted from 0. One in which the CPUs were moved from one candidate to the next is missing.
    pub cycle: Vec<u32>,
    /// Right answers in its counted part.
    pub requests: Vec<u64>,
    /// Their median response time.
    pub p50_ns: Vec<u64>,
    /// The 99th percentile of their response times, of however few.
    pub p99_ns: Vec<u64>,
    /// Their median service time.
    pub service_p50_ns: Vec<u64>,
    /// The 99th percentile of their service times, of however few.
    pub service_p99_ns: Vec<u64>,
    /// The server's CPU time per request; 0 where it was read too late.
    pub cpu_ns: Vec<f64>,
    /// What a cache line took from the server's CPU to the generator's and back around it; 0 where that was not
    /// measured.
    pub core_distance_ns: Vec<f64>,
    /// The part of the answers that the times leave out, because they met a stall of the generator's thread.
    pub left_out_share: Vec<f64>,
}

impl PacedColumns {
    /// True if a record that somebody wrote has columns of one length.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lengths = [
            self.requests.len(),
            self.p50_ns.len(),
            self.p99_ns.len(),
            self.service_p50_ns.len(),
            self.service_p99_ns.len(),
            self.cpu_ns.len(),
            self.core_distance_ns.len(),
        ];
        // Older records have none.
        let are_shares_whole = [0, self.cycle.len()].contains(&self.left_out_share.len());
        are_shares_whole && lengths.iter().all(|&length| length == self.cycle.len())
    }
}

/// Slices of one operation of one candidate against uninterrupted blocks of the same processes.
///
/// The others stand still while a candidate is measured, and what it or its allocator does every second of the
/// wall clock comes more often per request in slices than in blocks. Where the two disagree, blocks are right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockCheck {
    /// Of which requests.
    pub operation: Operation,
    /// Rounds that have both.
    pub rounds: u32,
    /// The candidate's throughput against the baseline's: that of blocks divided by that of slices.
    pub throughput: Option<Estimate>,
    /// The same of CPU time per request.
    pub cpu_time: Option<Estimate>,
    /// The candidate's minor page faults per request in slices.
    pub minor_faults_in_slices: Option<f64>,
    /// The same in blocks.
    pub minor_faults_in_blocks: Option<f64>,
    /// The candidate's calls of `madvise` per request in slices; `None` if they were not counted.
    #[serde(default)]
    pub madvise_calls_in_slices: Option<f64>,
    /// The same in blocks.
    #[serde(default)]
    pub madvise_calls_in_blocks: Option<f64>,
    /// True if they differ: then throughput and CPU time per request of this candidate come from blocks.
    pub is_used: bool,
}
