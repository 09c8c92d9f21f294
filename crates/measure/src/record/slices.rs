//! The slices of one candidate in one round, as columns: what verdicts on throughput and CPU time rest on.

use serde::{Deserialize, Serialize};

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

    /// True if a record that somebody wrote has columns of one length.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lengths = [
            self.requests.len(),
            self.per_s.len(),
            self.cpu_ns.len(),
            self.server_call_ns.len(),
            self.generator_call_ns.len(),
        ];
        lengths.iter().all(|&length| length == self.len())
    }
}
