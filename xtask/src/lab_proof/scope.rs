//! What is proved, and of which server.
//!
//! On the path: `lab_proof` asks what to compare, what is planted there, and where it has to show.

use super::faults::Scene;
use super::record::Comparison;
use super::{CPU, MEMORY, P99, THROUGHPUT};
use crate::bench::{Bench, nginx, perf};
use std::process::Command;

/// How often instructions are counted by valgrind where the processor hides its counters: what it takes to
/// decide between two candidates and a double.
const EMULATED_COUNTS: &str = "8";

/// Which rows the table has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// Every kind of measure.
    All,
    /// Instructions alone. Counted, not timed: whatever else runs on the machine.
    Instructions,
}

impl Scope {
    /// The word behind the command, and the record's name.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::All => ("", "lab-proof"),
            Self::Instructions => (" instructions", "lab-proof-instructions"),
        }
    }

    /// What is planted, after a look at the server without.
    /// `ns`: CPU time of a planted instruction.
    pub(super) fn scene(self, scout: &Comparison, ns: f64) -> Result<Scene, String> {
        match self {
            Self::All => Scene::sized(scout, ns),
            Self::Instructions => Scene::of_work(scout),
        }
    }

    /// Where the baseline's double must not differ.
    pub(super) fn measures(self, scene: &Scene) -> Vec<&'static str> {
        match self {
            Self::All => vec![THROUGHPUT, P99, CPU, MEMORY],
            Self::Instructions => scene.faults.iter().map(|fault| fault.measure).collect(),
        }
    }

    /// Adds the server to a comparison's words: nginx in one process, which allocates equally often for each request.
    pub(super) fn subject(self, compare: &mut Command, bench: &Bench) -> Result<(), String> {
        let (address, words) = nginx::command_alone(bench)?;
        let counts = match self {
            Self::Instructions if perf::available().is_err() => EMULATED_COUNTS,
            _ => "0",
        };
        compare.args(["--emulated-counts", counts]);
        compare.env("PATH", nginx::path_with_sbin());
        compare.args(["--url", &format!("http://{address}/"), "--"]);
        compare.args(words);
        Ok(())
    }
}
