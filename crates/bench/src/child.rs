//! The child side: one program on one kind of memory, in a process of its own.
//!
//! On the path: `subject` starts `millpond bench-child ...` with the allocator preloaded; this runs
//! the program and prints a line of JSON. Before it, a line `idle` may say that the timed part is
//! over and only idleness follows, so that the next child may start.
//! A candidate's allocator is proved to be mapped, by the kernel's list and not by the environment.
//! That is done last: looking into files takes memory, which must not be there before the program.
//! Absent on purpose: clap, which would allocate before the first measurement.

use crate::loopback;
use crate::program::{self, MemoryKind, Plan, Program};
use crate::resident;
use crate::sample::Sample;
use millpond_lab::allocator::{Allocator, GLIBC};
use millpond_lab::presence;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to run and how.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChildSpec {
    /// The program.
    pub program: Program,
    /// What its memory comes from.
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
    /// What stands in front of the allocator and passes calls on to it: the counter of heap calls.
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
    if words
        .next_if(|word| word == loopback::child::WORD)
        .is_some()
    {
        return loopback::child::main(words);
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

/// No child outlives its parent, whatever ends that. A parent that is gone already cannot be seen
/// to go.
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
    resident::forget_peak();
    let start_rss_bytes = resident::resident_bytes();
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
        peak_rss_bytes: resident::peak_bytes(),
        end_rss_bytes: resident::resident_bytes(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the parent asks for is what the child reads, with libraries and without.
    #[test]
    fn words_come_back() {
        let path = |path: &str| Some(PathBuf::from(path));
        let both = [None, path("/lib/libx.so.2")];
        for (library, front) in both.into_iter().zip([path("/lib/libtrace.so"), None]) {
            let spec = ChildSpec {
                program: Program::ProducerConsumerMixed,
                memory: MemoryKind::Pool,
                iterations: 12,
                seed: 7,
                idle_seconds: 10,
                library,
                front,
            };
            assert_eq!(ChildSpec::parse(spec.to_arguments()), Ok(spec));
        }
    }

    /// Goal: each wrong word is named.
    #[test]
    fn wrong_words_are_named() {
        let parse = |text: &str| ChildSpec::parse(text.split(' ').map(OsString::from)).unwrap_err();
        for (text, part) in [
            ("", "no program is called"),
            ("pair slab", "\"slab\""),
            ("pair pool many", "\"many\""),
            ("pair pool 1 2", "idle seconds is missing"),
        ] {
            assert!(parse(text).contains(part), "{text}");
        }
    }
}
