//! One run.
use crate::config::LoadConfig;
use crate::error::LoadError;
use crate::record::LoadRecord;
use millpond_measure::record::LoadErrors;
use std::sync::atomic::AtomicBool;

/// How far a run is; handed out about four times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// True until the window begins.
    pub is_warm_up: bool,
    /// Right answers in the window so far.
    pub completed: u64,
    /// Failures so far.
    pub errors: LoadErrors,
    /// Right answers per second since the last progress.
    pub rate_per_s: f64,
    /// Time since the run began sending.
    pub elapsed_ns: u64,
    /// Time left, estimated from the rate when a count ends the run; `None` if not known yet.
    pub remaining_ns: Option<u64>,
}

/// Runs `config` to its end; `stop` ends it early with partial results.
pub fn run(
    _config: &LoadConfig,
    _progress: &(dyn Fn(&Progress) + Sync),
    _stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    todo!("the loop follows")
}
