//! The messages of a running comparison. `cli` turns these into a progress line or plain lines.

/// One piece of news. Times are estimates of what remains of the whole comparison.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LabEvent {
    /// A line the user should read, such as a candidate that was left out and why.
    Note(String),
    /// A candidate is tried out before anything is planned.
    Preflight {
        /// Its name.
        candidate: String,
        /// Counted from 1.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// Heap calls of a candidate are counted, in a pass of its own.
    HeapPass {
        /// Its name.
        candidate: String,
        /// Counted from 1.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// Instructions of a candidate are counted under an emulator, in a pass of its own.
    EmulatedCount {
        /// Its name.
        candidate: String,
        /// This count, counted from 1.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// The search for the smallest memory limit that a candidate survives.
    LimitSearch {
        /// Its name.
        candidate: String,
        /// Counted from 1.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// A candidate goes through all phases once more, with its heap traced.
    PhaseTrace {
        /// Its name.
        candidate: String,
        /// Counted from 1.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// A candidate runs once more, for the flame graphs of the report.
    FlameGraph {
        /// Its name.
        candidate: String,
        /// This run, counted from 1.
        number: usize,
        /// Of how many.
        of: usize,
    },
    /// The plan, now that the speed of every candidate is known.
    Planned {
        /// Rounds.
        rounds: u32,
        /// Runs in all.
        runs: u32,
        /// One sentence per decision.
        lines: Vec<String>,
        /// Estimate of the time to the end.
        eta_ns: u64,
    },
    /// A run begins.
    RunStarted {
        /// The candidate's name.
        candidate: String,
        /// Round, counted from 1.
        round: u32,
        /// This run, counted from 1.
        run: u32,
        /// Of how many.
        runs: u32,
        /// Estimate of the time to the end.
        eta_ns: u64,
    },
    /// A run has ended.
    RunFinished {
        /// The candidate's name.
        candidate: String,
        /// Round, counted from 1.
        round: u32,
        /// This run, counted from 1.
        run: u32,
        /// Of how many.
        runs: u32,
        /// Why it failed, if it did.
        failure: Option<String>,
        /// Estimate of the time to the end.
        eta_ns: u64,
    },
    /// All runs are done; the figures are being worked out.
    Analysing,
}
