//! Heap calls and bytes per request, in a pass of its own: counting costs time, so it never touches
//! a scored run.
//!
//! Warm-up first, then the difference over a fixed number of requests: what the server does per
//! request in its steady state, not what it took to start.

use std::sync::atomic::AtomicBool;

use millpond_measure::record::{Measure, Operation, Quantity};

use crate::drive::Load;
use crate::embedded::PrivateDirectory;
use crate::error::RunError;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::session::{Session, Workshop};
use crate::trace::{HeapCalls, Trace};

/// More requests make the figure no better: it is a count, not a time.
const COUNTED_REQUESTS_MAX: u64 = 4_000;
/// Fewer would show what happens once, not per request.
const COUNTED_REQUESTS_MIN: u64 = 40;
/// A slow server gets as many requests as it answers in this time.
const COUNTED_SECONDS: f64 = 0.5;

/// The costs found, ready for a record.
pub(crate) type HeapCosts = Vec<(Measure, f64)>;

/// Counts for one candidate; `slowest_per_s` is what the slowest candidate can do, per operation.
pub(crate) fn run(
    workshop: &mut Workshop,
    candidate: &Candidate,
    directory: &PrivateDirectory,
    slowest_per_s: &[f64],
    stop: &AtomicBool,
) -> Result<HeapCosts, RunError> {
    let trace = Trace::create(&directory.path).map_err(|error| RunError::Prepare {
        path: directory.path.clone(),
        error,
    })?;
    if let Some(command) = workshop.load_command.clone() {
        return count_command(workshop, &command, candidate, &trace, stop);
    }
    let mut session = Session::start(workshop, candidate, "heap", Some(&trace), stop)?;
    let mut costs = HeapCosts::new();
    let keys = requests_at(slowest_per_s.first().copied());
    for (index, &operation) in workshop.driver.target.operations().iter().enumerate() {
        let requests = requests_at(slowest_per_s.get(index).copied());
        let drive = |session: &mut Session| {
            let load = Load::Work { requests };
            let phase = workshop
                .driver
                .run(session.address, operation, keys, load, stop);
            session.explain(phase)
        };
        // The first time fills the keys and everything that is made once; only the second counts.
        drive(&mut session)?;
        let before = read(&trace)?;
        drive(&mut session)?;
        let counted = read(&trace)? - before;
        let per_request = |value: u64| value as f64 / requests as f64;
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

/// The same with the user's own load program, where it says how many requests it does.
fn count_command(
    workshop: &mut Workshop,
    command: &LoadCommand,
    candidate: &Candidate,
    trace: &Trace,
    stop: &AtomicBool,
) -> Result<HeapCosts, RunError> {
    if !command.counts_requests() {
        return Ok(HeapCosts::new());
    }
    let mut session = Session::start(workshop, candidate, "heap", Some(trace), stop)?;
    command.run(workshop, &mut session, "first", stop)?;
    let before = read(trace)?;
    let load = command.run(workshop, &mut session, "load", stop)?;
    let counted = read(trace)? - before;
    session.stop()?;
    let Some(requests) = load.requests else {
        return Ok(HeapCosts::new());
    };
    let per_request = |value: u64| value as f64 / requests as f64;
    let of = |quantity| Measure::of(Operation::Request, quantity);
    Ok(vec![
        (of(Quantity::HeapCalls), per_request(counted.calls())),
        (
            of(Quantity::HeapBytes),
            per_request(counted.requested_bytes),
        ),
    ])
}

fn requests_at(per_s: Option<f64>) -> u64 {
    let affordable = per_s.unwrap_or(0.0) * COUNTED_SECONDS;
    (affordable as u64).clamp(COUNTED_REQUESTS_MIN, COUNTED_REQUESTS_MAX)
}

fn read(trace: &Trace) -> Result<HeapCalls, RunError> {
    let calls = trace
        .read()
        .map_err(|error| RunError::Figures(error.to_string()))?;
    if calls.processes == 0 {
        return Err(RunError::Figures(
            "the heap call counter was not loaded into the target".to_owned(),
        ));
    }
    Ok(calls)
}
