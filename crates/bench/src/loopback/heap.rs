//! Heap calls per transaction, of client and server together.
//!
//! On the path: a pass of its own after the timed runs, since counting takes time. Each setting of the
//! pools runs twice and only the difference counts: what a transaction does, not what it took to begin.
//! Absent on purpose: counting under every allocator. A pair calls malloc as often, whoever answers.

use super::child::{ChildSpec, Line};
use super::pair::PairSpec;
use crate::directory::PrivateDirectory;
use crate::error::{BenchError, RunError};
use crate::subject::{Launch, Preload, Subject};
use millpond_lab::trace::{PATH_VARIABLE, Trace};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Transactions of the second run beyond those of the first.
const COUNTED: u64 = 100_000;
/// Transactions on each connection of the first run: each has had its first ones by then.
const FIRST_PER_CONNECTION: u64 = 8;
const FIRST_MIN: u64 = 20_000;

/// malloc and realloc calls for each transaction. `None`: they cannot be counted here.
pub(super) fn per_transaction(
    launcher: &Path,
    pair: &PairSpec,
    stop: &AtomicBool,
) -> Result<Option<f64>, BenchError> {
    let first = (pair.connections as u64 * FIRST_PER_CONNECTION).max(FIRST_MIN);
    let mut calls = Vec::new();
    for requests in [first, first + COUNTED] {
        let directory = PrivateDirectory::create()?;
        let trace = Trace::create(&directory.path).map_err(|error| BenchError::Output {
            path: directory.path.clone(),
            error,
        })?;
        let pair = PairSpec {
            requests,
            ..pair.clone()
        };
        match count(launcher, pair, &trace, stop) {
            Ok(counted) => calls.push(counted),
            // Absent from the report; the timed runs say what is wrong.
            Err(_) => return Ok(None),
        }
    }
    let more = calls[1].saturating_sub(calls[0]);
    Ok(Some(more as f64 / COUNTED as f64))
}

fn count(
    launcher: &Path,
    pair: PairSpec,
    trace: &Trace,
    stop: &AtomicBool,
) -> Result<u64, RunError> {
    let environment = [(PATH_VARIABLE.into(), trace.counters().into())];
    let launch = Launch {
        program: launcher,
        wrapper: &[],
        preload: Preload::Before(trace.object()),
        environment: &environment,
    };
    let requests = pair.requests;
    let spec = ChildSpec {
        pair,
        library: None,
        front: Some(trace.object().to_owned()),
        tells_seconds: false,
    };
    let unreadable = |reason: String| RunError::Unreadable {
        line: trace.counters().display().to_string(),
        reason,
    };
    let words = spec.to_arguments().map_err(unreadable)?;
    let mut subject = Subject::start_with(&launch, &words, None)?;
    let sample = loop {
        if let Line::End(sample) = subject.next(stop)? {
            break sample;
        }
    };
    subject.succeeded()?;
    if sample.requests != requests {
        return Err(unreadable(format!("{} failures", sample.errors.total())));
    }
    let calls = trace
        .read()
        .map_err(|error| unreadable(error.to_string()))?;
    if calls.processes == 0 {
        return Err(unreadable(
            "the heap call counter was not loaded".to_owned(),
        ));
    }
    Ok(calls.calls())
}
