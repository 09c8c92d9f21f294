//! The heap use of a candidate, in a pass of its own: counting costs time, so it never runs in a scored run. Calls and
//! bytes per request, sizes, lifetimes, what lives and what that takes.
//!
//! Warm-up first, then the difference over a fixed number of requests: what the server does per
//! request in its steady state, not what it took to start.

use std::ops::Deref;
use std::sync::atomic::AtomicBool;

use millpond_measure::record::{HeapProfile, HeapUse, Measure, Operation, Quantity, Reach};

use crate::drive::Load;
use crate::embedded::PrivateDirectory;
use crate::error::RunError;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::memory_owners;
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::trace::{HeapCalls, HeapReading, Trace};

/// More requests make the figure no better: it is a count, not a time.
const COUNTED_REQUESTS_MAX: u64 = 4_000;
/// Fewer would show what happens once, not per request.
const COUNTED_REQUESTS_MIN: u64 = 40;
/// A slow server gets as many requests as it can respond to in this time.
const COUNTED_SECONDS: f64 = 0.5;

/// The results, ready for a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeapCosts {
    measures: Vec<(Measure, f64)>,
    /// Sizes, lifetimes and what lives.
    pub(crate) profile: Option<HeapProfile>,
    /// The role of malloc in the candidate.
    pub(crate) reach: Reach,
}

impl Deref for HeapCosts {
    type Target = [(Measure, f64)];

    fn deref(&self) -> &Self::Target {
        &self.measures
    }
}

impl HeapCosts {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn add_calls(&mut self, operation: Operation, counted: HeapCalls, requests: u64) {
        let per_request = |value: u64| value as f64 / requests as f64;
        for (quantity, value) in [
            (Quantity::HeapCalls, counted.calls()),
            (Quantity::HeapBytes, counted.requested_bytes),
        ] {
            let measure = Measure::of(operation, quantity);
            self.measures.push((measure, per_request(value)));
        }
        let heap = HeapUse {
            calls: per_request(counted.calls()),
            bytes: per_request(counted.requested_bytes),
        };
        self.reach
            .per_request
            .insert(operation.key().to_owned(), heap);
    }

    /// Adds the whole: what happened from `first` to now, and what lives now.
    fn add_profile(
        &mut self,
        trace: &Trace,
        session: &StartedCandidate,
        first: &HeapReading,
        requests: u64,
    ) -> Result<(), RunError> {
        let last = read(trace, session)?;
        let anonymous_bytes = session
            .tree
            .sample()
            .ok()
            .and_then(|sample| sample.total.memory.anonymous_bytes);
        memory_owners::add_holders(&mut self.reach, &session.tree.members(), &last, trace);
        let profile = last.profile_since(first, requests, anonymous_bytes);
        let is_known = profile.fragmentation.is_some();
        self.reach.live_bytes = is_known.then_some(profile.live_bytes);
        // Values from few samples are left out of the measures; the profile has them with their error.
        let roughly = |bytes: u64| (profile.fragmentation.is_some()).then_some(bytes as f64);
        for (quantity, value) in [
            (Quantity::LiveBytes, roughly(profile.live_bytes)),
            (Quantity::PeakLiveBytes, roughly(profile.peak_live_bytes)),
            (Quantity::Fragmentation, profile.fragmentation),
        ] {
            let measure = Measure::whole(quantity);
            self.measures.extend(value.map(|value| (measure, value)));
        }
        self.profile = Some(profile);
        Ok(())
    }
}

/// Counts for one candidate; `slowest_per_s` is what the slowest candidate can do, per operation.
pub(crate) fn run(
    workshop: &mut RunContext,
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
    let mut session = StartedCandidate::start(workshop, candidate, "heap", Some(&trace), stop)?;
    let mut costs = HeapCosts::new();
    let mut first: Option<HeapReading> = None;
    let mut counted_requests = 0;
    let keys = requests_at(slowest_per_s.first().copied());
    for (index, &operation) in workshop.driver.target.operations().iter().enumerate() {
        let requests = requests_at(slowest_per_s.get(index).copied());
        let drive = |session: &mut StartedCandidate| {
            let load = Load::Work { requests };
            let phase = workshop
                .driver
                .run(&session.endpoint, operation, keys, load, stop);
            session.account(phase)
        };
        // The first time fills the keys and everything that is made once; only the second counts.
        drive(&mut session)?;
        let before = read(&trace, &session)?;
        drive(&mut session)?;
        let counted = read(&trace, &session)?.calls - before.calls;
        costs.add_calls(operation, counted, requests);
        // The profile goes on through the first time of a second operation.
        counted_requests += requests * if first.is_some() { 2 } else { 1 };
        first.get_or_insert(before);
    }
    if let Some(first) = first {
        costs.add_profile(&trace, &session, &first, counted_requests)?;
    }
    session.stop()?;
    Ok(costs)
}

/// The same with the user's own load program, where it says how many requests it does.
fn count_command(
    workshop: &mut RunContext,
    command: &LoadCommand,
    candidate: &Candidate,
    trace: &Trace,
    stop: &AtomicBool,
) -> Result<HeapCosts, RunError> {
    if !command.counts_requests() {
        return Ok(HeapCosts::new());
    }
    let mut session = StartedCandidate::start(workshop, candidate, "heap", Some(trace), stop)?;
    command.run(workshop, &mut session, "first", stop)?;
    let before = read(trace, &session)?;
    let load = command.run(workshop, &mut session, "load", stop)?;
    let counted = read(trace, &session)?.calls - before.calls;
    let mut costs = HeapCosts::new();
    if let Some(requests) = load.requests {
        costs.add_calls(Operation::Request, counted, requests);
        costs.add_profile(trace, &session, &before, requests)?;
    }
    session.stop()?;
    Ok(costs)
}

fn requests_at(per_s: Option<f64>) -> u64 {
    let affordable = per_s.unwrap_or(0.0) * COUNTED_SECONDS;
    (affordable as u64).clamp(COUNTED_REQUESTS_MIN, COUNTED_REQUESTS_MAX)
}

/// The current heap of the running processes.
pub(crate) fn read(trace: &Trace, session: &StartedCandidate) -> Result<HeapReading, RunError> {
    let living = session.tree.members();
    let lives = |pid: u64| living.iter().any(|&member| u64::from(member) == pid);
    let reading = trace
        .read_heap(&lives)
        .map_err(|error| RunError::Figures(error.to_string()))?;
    if reading.calls.processes == 0 {
        return Err(RunError::Figures(
            "the heap call counter was not loaded into the target".to_owned(),
        ));
    }
    Ok(reading)
}
