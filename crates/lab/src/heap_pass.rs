//! Heap calls and bytes per request, in a pass of its own: counting costs time, so it never touches
//! a scored run.
//!
//! Warm-up first, then the difference over a fixed number of requests: what the server does per
//! request in its steady state, not what it took to start.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use millpond_measure::record::{Measure, Operation, Quantity};

use crate::drive::Load;
use crate::error::RunError;
use crate::matrix::Candidate;
use crate::session::{Session, Workshop};
use crate::trace::{HeapCalls, Trace};

const WARM_UP_REQUESTS: u64 = 2_000;
const COUNTED_REQUESTS: u64 = 4_000;

/// The costs found, ready for a record.
pub(crate) type HeapCosts = Vec<(Measure, f64)>;

/// Counts for one candidate.
pub(crate) fn run(
    workshop: &mut Workshop,
    candidate: &Candidate,
    directory: &PrivateDirectory,
    stop: &AtomicBool,
) -> Result<HeapCosts, RunError> {
    let trace = Trace::create(&directory.path).map_err(|error| RunError::Prepare {
        path: directory.path.clone(),
        error,
    })?;
    let mut session = Session::start(workshop, candidate, "heap", Some(&trace), stop)?;
    let mut costs = HeapCosts::new();
    for &operation in workshop.driver.target.operations() {
        let counted = count(workshop, &mut session, &trace, operation, stop)?;
        let per_request = |value: u64| value as f64 / COUNTED_REQUESTS as f64;
        costs.push((
            Measure::of(operation, Quantity::HeapCalls),
            per_request(counted.calls()),
        ));
        let bytes = per_request(counted.requested_bytes);
        costs.push((Measure::of(operation, Quantity::HeapBytes), bytes));
    }
    session.stop()?;
    Ok(costs)
}

fn count(
    workshop: &Workshop,
    session: &mut Session,
    trace: &Trace,
    operation: Operation,
    stop: &AtomicBool,
) -> Result<HeapCalls, RunError> {
    let read = || {
        trace
            .read()
            .map_err(|error| RunError::Figures(error.to_string()))
    };
    let drive = |session: &mut Session, requests| {
        let load = Load::Work { requests };
        let phase = workshop
            .driver
            .run(session.address, operation, WARM_UP_REQUESTS, load, stop);
        session.explain(phase)
    };
    drive(session, WARM_UP_REQUESTS)?;
    let before = read()?;
    drive(session, COUNTED_REQUESTS)?;
    let after = read()?;
    if after.processes == 0 {
        return Err(RunError::Figures(
            "the heap call counter was not loaded into the target".to_owned(),
        ));
    }
    Ok(after - before)
}

/// A directory only this user can look into, for the counter's object; removed when dropped.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    pub(crate) path: PathBuf,
}

impl PrivateDirectory {
    /// Below the system's temporary directory, under a name that cannot be foreseen. It is created,
    /// never reused: an existing one may be somebody's trap.
    pub(crate) fn create() -> std::io::Result<Self> {
        // Not from the comparison's seed: two comparisons with the same seed must not meet.
        let name = format!("millpond-{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // A leftover in the temporary directory harms nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}
