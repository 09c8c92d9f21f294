//! The machine a measurement was made on, as far as it changes the numbers.
//!
//! On the path: `lab` captures it once at the start; it is part of every record. What cannot be
//! read is left out: a container that hides `/sys` must not stop a measurement.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What is known of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// Distribution.
    pub distribution: Option<String>,
    /// Machine architecture.
    pub architecture: String,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Processors this process may use.
    pub cpus: u32,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// Frequency governor of the first processor; `None` if the kernel has none (most VMs).
    pub governor: Option<String>,
    /// Whether turbo frequencies are allowed.
    pub turbo: Option<bool>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Address space randomisation: 0, 1 or 2.
    pub address_randomisation: Option<u32>,
    /// The hypervisor or container this runs in, as far as visible.
    pub virtualisation: Option<String>,
    /// Who may use performance counters.
    pub perf_event_paranoid: Option<i32>,
    /// Load average over one minute when the measurement began.
    pub load_average: Option<f64>,
}
