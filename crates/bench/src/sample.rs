//! The results of one run of one program: the line that a child prints and its parent reads.

use crate::counters::Counts;
use crate::program::{MemoryKind, PerConnection, Program, Retention};
use serde::{Deserialize, Serialize};

/// One run of one program in a process of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sample {
    /// The program.
    pub program: Program,
    /// Its memory.
    pub memory: MemoryKind,
    /// How often.
    pub iterations: u64,
    /// Allocations and frees in the timed part.
    pub operations: u64,
    /// Time of the timed part on the clock; with several threads, of the slowest.
    pub wall_ns: u64,
    /// CPU time of the timed part, of all threads.
    pub cpu_ns: u64,
    /// Hardware counts of the timed part, all threads; `None` where there are no counters.
    pub counts: Option<Counts>,
    /// Resident memory before the program, files and libraries included.
    pub start_rss_bytes: u64,
    /// The most while it ran.
    pub peak_rss_bytes: u64,
    /// When it had ended and freed everything.
    pub end_rss_bytes: u64,
    /// The results of `churn`.
    pub retention: Option<Retention>,
    /// The results of `connections`.
    pub per_connection: Option<PerConnection>,
    /// A checksum of the memory when it was freed: the same for every candidate, or one is wrong.
    pub checksum: u64,
}

impl Sample {
    /// The time that counts for this program: see [`Program::is_threaded`].
    #[must_use]
    pub const fn time_ns(&self) -> u64 {
        if self.program.is_threaded() {
            self.wall_ns
        } else {
            self.cpu_ns
        }
    }

    /// Time of one iteration.
    #[must_use]
    pub fn ns_per_iteration(&self) -> f64 {
        self.time_ns() as f64 / self.iterations as f64
    }

    /// Memory that the program had the system add, at most.
    #[must_use]
    pub const fn grown_bytes(&self) -> u64 {
        self.peak_rss_bytes.saturating_sub(self.start_rss_bytes)
    }
}
