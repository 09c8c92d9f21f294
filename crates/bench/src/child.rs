//! The child side: one program on one kind of memory, in a process of its own.
//!
//! `subject` starts `millpond bench-child ...` with the allocator preloaded; this runs the program
//! and prints a line of JSON. Before it, a line `idle` may say that the timed part is over and only
//! idleness follows: the next child may start. The kernel's list of mappings, not the environment,
//! proves that a candidate's allocator is mapped. That is done last: reading files takes memory,
//! which must not be allocated before the program runs.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::{fs, io};

use millpond_lab::allocator::{Allocator, GLIBC};
use millpond_lab::presence;
use millpond_lab::trace::{HeapCalls, PATH_VARIABLE, Trace};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::error::{BenchError, RunError};
use crate::program::{MemoryKind, Plan, Program};
use crate::sample::Sample;
use crate::subject::{Launch, Preload, Subject};
use crate::{loopback, memory, program};

/// The program to run and its settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChildSpec {
    /// The program.
    pub program: Program,
    /// The source of its memory.
    pub memory: MemoryKind,
    /// How often.
    pub iterations: u64,
    /// Random choices follow from it.
    pub seed: u64,
    /// Longest time for memory to go back.
    pub idle_seconds: u64,
    /// The allocator's library, which has to be mapped; `None`: no allocator but the C library's
    /// may be.
    pub library: Option<PathBuf>,
    /// The object in front of the allocator that passes calls on to it: the counter of heap calls.
    pub front: Option<PathBuf>,
}

impl ChildSpec {
    /// The words that [`parse`](Self::parse) turns back into this.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            self.program.name().into(),
            self.memory.name().into(),
            self.iterations.to_string().into(),
            self.seed.to_string().into(),
            self.idle_seconds.to_string().into(),
        ];
        for path in [&self.library, &self.front] {
            words.push(path.clone().map_or_else(OsString::new, OsString::from));
        }
        words
    }

    /// Reads the words; `Err` is a sentence about the first wrong one.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut text = |what: &str| {
            let word = words.next().ok_or_else(|| format!("{what} is missing"))?;
            word.into_string()
                .map_err(|word| format!("{what} is not text: {}", word.display()))
        };
        let program = text("the program")?.parse()?;
        let memory = text("the memory")?.parse()?;
        let mut number = |what: &str| {
            let word = text(what)?;
            word.parse::<u64>()
                .map_err(|error| format!("{what} \"{word}\": {error}"))
        };
        let iterations = number("the number of iterations")?.max(1);
        let seed = number("the seed")?;
        let idle_seconds = number("the number of idle seconds")?;
        let mut path = || {
            let word = words.next().filter(|word| !word.is_empty());
            word.map(PathBuf::from)
        };
        Ok(Self {
            program,
            memory,
            iterations,
            seed,
            idle_seconds,
            library: path(),
            front: path(),
        })
    }
}

/// `bench-child`, without that word.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut words = words.into_iter().peekable();
    if words.next_if(|word| word == loopback::run::WORD).is_some() {
        return loopback::run::main(words);
    }
    let line = ChildSpec::parse(words).and_then(|spec| {
        die_with_parent()?;
        let sample = run(&spec)?;
        prove(spec.library.as_deref(), spec.front.as_deref())?;
        serde_json::to_string(&sample).map_err(|error| error.to_string())
    });
    end(line.and_then(|line| say(&line).map_err(|error| error.to_string())))
}

/// A sentence where it failed, and the status.
pub(crate) fn end(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("millpond bench-child: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// No child outlives its parent, whatever ends that. The end of a parent that is already gone
/// cannot be noticed.
pub(crate) fn die_with_parent() -> Result<(), String> {
    let parent = parent_id();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| error.to_string())?;
    if parent_id() == parent {
        Ok(())
    } else {
        Err("the parent ended before the child began".to_owned())
    }
}

fn run(spec: &ChildSpec) -> Result<Sample, String> {
    let plan = Plan {
        iterations: spec.iterations,
        seed: spec.seed,
        idle_seconds: spec.idle_seconds,
        on_idle: || {
            // Only a hint; a parent that is gone ends this process anyway.
            let _ = say("idle");
        },
    };
    memory::forget_peak();
    let start_rss_bytes = memory::resident_bytes();
    let outcome = program::run(spec.program, spec.memory, &plan).ok_or_else(|| {
        let (program, memory) = (spec.program, spec.memory.name());
        format!("{program} does not run on {memory}")
    })?;
    Ok(Sample {
        program: spec.program,
        memory: spec.memory,
        iterations: spec.iterations,
        operations: outcome.operations,
        wall_ns: outcome.timed.wall_ns,
        cpu_ns: outcome.timed.cpu_ns,
        counts: outcome.timed.counts,
        start_rss_bytes,
        peak_rss_bytes: memory::peak_bytes(),
        end_rss_bytes: memory::resident_bytes(),
        retention: outcome.retention,
        per_connection: outcome.per_connection,
        checksum: outcome.checksum,
    })
}

/// This process runs under the allocator of `library`, whatever stands in `front` of it.
pub(crate) fn prove(library: Option<&Path>, front: Option<&Path>) -> Result<(), String> {
    let allocator = match library {
        Some(library) => Allocator::preloaded("the candidate", library.to_owned()),
        None => Allocator::native(GLIBC),
    };
    let own = i32::try_from(std::process::id()).map_err(|error| error.to_string())?;
    let presence =
        presence::prove_behind(&[own], &allocator, front).map_err(|error| error.to_string())?;
    match (presence.native, library) {
        (Some(native), None) => Err(format!(
            "{native} is in this process, which was to run on the C library's malloc: unset \
             LD_PRELOAD"
        )),
        _ => Ok(()),
    }
}

/// A line for the parent.
pub(crate) fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

// A directory that only this user can read, removed when dropped.

/// For the heap call counter, which is a shared object, and for perf's data.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    pub(crate) path: PathBuf,
}

impl PrivateDirectory {
    /// Its name cannot be predicted; it is created, never reused, because an existing one may be a
    /// trap.
    pub(crate) fn create() -> Result<Self, BenchError> {
        let name = format!(
            "millpond-bench-{}-{:016x}",
            std::process::id(),
            fastrand::u64(..)
        );
        let path = std::env::temp_dir().join(name);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(BenchError::Output { path, error }),
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // A leftover in the temporary directory is harmless.
        let _ = fs::remove_dir_all(&self.path);
    }
}

// Heap calls of a program, counted by the object that the lab preloads in front of an allocator.

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
            // Events that cannot be counted are absent from the report; the timed runs say what is wrong.
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

#[cfg(test)]
#[path = "tests/child.rs"]
mod tests;
