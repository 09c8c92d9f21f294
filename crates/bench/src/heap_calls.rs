//! Heap calls of a program, counted by the object that the lab preloads in front of an allocator.
//!
//! On the path: a pass of its own, since counting takes time. Each program runs twice, and only the
//! difference counts: what it does per iteration, not what it took to begin.
//! Absent on purpose: counting under every allocator. A program calls malloc as often, whoever
//! answers.

use crate::child::ChildSpec;
use crate::directory::PrivateDirectory;
use crate::error::{BenchError, RunError};
use crate::program::{MemoryKind, Program};
use crate::subject::{Launch, Preload, Subject};
use millpond_lab::trace::{HeapCalls, PATH_VARIABLE, Trace};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Iterations of the two runs. The first has filled all that is filled once.
const ITERATIONS: [u64; 2] = [400, 1_400];

/// malloc calls for each allocation or free of the program: 0.5 where each allocation is one malloc
/// and each free one free, 0 where none is.
pub(crate) fn per_operation(
    launcher: &Path,
    program: Program,
    memory: MemoryKind,
    stop: &AtomicBool,
) -> Result<Option<f64>, BenchError> {
    let mut found = Vec::new();
    for iterations in ITERATIONS {
        let directory = PrivateDirectory::create()?;
        let trace = Trace::create(&directory.path).map_err(|error| BenchError::Output {
            path: directory.path.clone(),
            error,
        })?;
        match count(launcher, program, memory, iterations, &trace, stop) {
            Ok(counted) => found.push(counted),
            // What cannot be counted is absent from the report; the timed runs say what is wrong.
            Err(_) => return Ok(None),
        }
    }
    let [(few, few_operations), (many, many_operations)] = found[..] else {
        return Ok(None);
    };
    let calls = many.calls().saturating_sub(few.calls()) as f64;
    Ok(Some(calls / (many_operations - few_operations) as f64))
}

fn count(
    launcher: &Path,
    program: Program,
    memory: MemoryKind,
    iterations: u64,
    trace: &Trace,
    stop: &AtomicBool,
) -> Result<(HeapCalls, u64), RunError> {
    let environment = [(PATH_VARIABLE.into(), trace.counters().into())];
    let launch = Launch {
        program: launcher,
        wrapper: &[],
        preload: Preload::Before(trace.object()),
        environment: &environment,
    };
    let spec = ChildSpec {
        program,
        memory,
        iterations,
        seed: 1,
        idle_seconds: 0,
        library: None,
        front: Some(trace.object().to_owned()),
    };
    let sample = Subject::start(&launch, &spec)?.finish(stop)?;
    let calls = trace.read().map_err(|error| RunError::Unreadable {
        line: trace.counters().display().to_string(),
        reason: error.to_string(),
    })?;
    if calls.processes == 0 {
        return Err(RunError::Unreadable {
            line: trace.counters().display().to_string(),
            reason: "the heap call counter was not loaded".to_owned(),
        });
    }
    Ok((calls, sample.operations))
}
