//! Instructions per request of every candidate, in passes of their own under an emulator, where the
//! processor's counters are hidden or the user wants them.
//!
//! `compare` runs it after the heap passes; what it finds stands in the rounds of the same numbers,
//! so that the verdicts are those of any other measure. A count without a round beside it would be
//! lost.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{fs, io};

use millpond_measure::record::{Measure, Operation, Quantity};
use millpond_measure::units::format_duration_ns;

use crate::config;
use crate::drive::Load;
use crate::embedded::PrivateDirectory;
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::matrix::Candidate;
use crate::output_directory::Journal;
use crate::started_candidate::{RunContext, StartedCandidate};

/// The known facts at the decision.
#[derive(Clone, Debug)]
pub(crate) struct Occasion {
    /// How often the user wants each candidate counted; `None`: as it fits.
    pub(crate) wanted: Option<u32>,
    /// A fixed number of rounds.
    pub(crate) rounds: Option<u32>,
    /// The processor counts instructions by itself.
    pub(crate) has_counters: bool,
    /// The load is the user's own program.
    pub(crate) has_load_command: bool,
    /// The permitted time of the passes, unless they were requested.
    pub(crate) allowance: Duration,
    /// The time of a run without its requests.
    pub(crate) overhead: Duration,
    pub(crate) operations: usize,
    pub(crate) candidates: usize,
}

/// The decision.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Decision {
    Count {
        valgrind: PathBuf,
        counts: u32,
    },
    No,
    /// There is not enough time: what the record says of it.
    NoTime(String),
}

/// The counts: per candidate, per pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstructionCounts {
    pub(crate) of_candidates: Vec<Vec<Vec<(Measure, f64)>>>,
    /// For the record: with which tool, and how often, or why not.
    pub(crate) description: Option<String>,
    /// Lines for the report.
    pub(crate) notes: Vec<String>,
}

fn decide(occasion: &Occasion, valgrind: Option<PathBuf>) -> Decision {
    let Some(valgrind) = valgrind.filter(|_| !occasion.has_load_command) else {
        return Decision::No;
    };
    let counts = match occasion.wanted {
        Some(counts) => counts,
        None if occasion.has_counters => 0,
        None => {
            let counts = affordable(
                occasion.allowance,
                occasion.overhead,
                occasion.operations,
                occasion.candidates,
            );
            if counts == 0 {
                return Decision::NoTime(no_time(occasion));
            }
            counts
        }
    };
    match counts.min(occasion.rounds.unwrap_or(counts)) {
        0 => Decision::No,
        counts => Decision::Count { valgrind, counts },
    }
}

fn no_time(occasion: &Occasion) -> String {
    let once = once(occasion.overhead, occasion.operations, occasion.candidates);
    format!(
        "no instructions under valgrind, of which one count takes about {}: --emulated-counts",
        format_duration_ns(once.as_nanos() as f64)
    )
}

/// Counts every candidate as often as requested or as fits.
pub(crate) fn run(
    workshop: &mut RunContext,
    candidates: &[Candidate],
    occasion: &Occasion,
    slowest_per_s: &[f64],
    journal: &mut Journal,
    events: &mut dyn FnMut(&LabEvent),
    stop: &AtomicBool,
) -> Result<InstructionCounts, LabError> {
    let mut found = InstructionCounts {
        of_candidates: vec![Vec::new(); candidates.len()],
        ..InstructionCounts::default()
    };
    let (valgrind, counts) = match decide(occasion, config::valgrind()) {
        Decision::No => return Ok(found),
        Decision::NoTime(description) => {
            found.description = Some(description);
            return Ok(found);
        }
        Decision::Count { valgrind, counts } => (valgrind, counts),
    };
    let emulator = Emulator::prepare(&valgrind).map_err(|error| LabError::System {
        what: "prepare a directory for valgrind",
        error,
    })?;
    let mut failed = vec![false; candidates.len()];
    for number in 0..counts {
        for (index, candidate) in candidates.iter().enumerate() {
            if failed[index] {
                continue;
            }
            events(&LabEvent::EmulatedCount {
                candidate: candidate.name.clone(),
                number: number as usize * candidates.len() + index + 1,
                of: counts as usize * candidates.len(),
            });
            match emulator.count(workshop, candidate, slowest_per_s, stop) {
                Ok(costs) => {
                    journal.write_emulated(&candidate.name, number, &costs)?;
                    found.of_candidates[index].push(costs);
                }
                Err(RunError::Interrupted) => return Err(LabError::InterruptedEarly),
                Err(error) => {
                    let note = format!("no instructions for {}: {error}", candidate.name);
                    events(&LabEvent::Note(note.clone()));
                    found.notes.push(note);
                    failed[index] = true;
                }
            }
        }
    }
    if found.of_candidates.iter().any(|counts| !counts.is_empty()) {
        found.description = Some(format!(
            "user instructions were counted all the same, under {} ({counts} counts of each)",
            emulator.version()
        ));
    }
    Ok(found)
}

// Instructions per request where the processor hides its counters, as in most virtual machines: the
// target runs under valgrind, which executes every instruction itself and counts it.

/// So many counts decide among a dozen candidates; more would only take time.
pub(crate) const COUNTS_MAX: u32 = 10;
/// Requests that are counted beyond the first: what the slowest candidate serves at full speed in this time, which
/// takes an emulator a second or two.
const COUNTED_SECONDS: f64 = 0.25;
const COUNTED_REQUESTS_MIN: u64 = 100;
const COUNTED_REQUESTS_MAX: u64 = 20_000;
/// The first requests, by which everything is made that is made once, as a part of those.
const FIRST_SHARE: u64 = 4;
/// The time of a run under an emulator before and after its requests, and with them: an estimate for the plan.
const RUN_OVERHEAD: Duration = Duration::from_millis(1_500);
const RUN_REQUESTS: Duration = Duration::from_millis(1_500);
/// How much longer than by itself a program takes to start there.
const START_SLOWDOWN: u32 = 10;

/// The counts of one operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Work {
    operation: Operation,
    /// In every run.
    first: u64,
    /// In the run that counts this operation, after those.
    counted: u64,
}

/// Valgrind, and where it writes.
#[derive(Debug)]
pub(crate) struct Emulator {
    words: Vec<OsString>,
    totals: PathBuf,
    version: String,
    _directory: PrivateDirectory,
}

/// How often every one of so many candidates can be counted in `allowance`, if a run by itself takes
/// `overhead` without its requests.
pub(crate) fn affordable(
    allowance: Duration,
    overhead: Duration,
    operations: usize,
    candidates: usize,
) -> u32 {
    let once = once(overhead, operations, candidates);
    let counts = allowance.as_nanos() / once.as_nanos().max(1);
    u32::try_from(counts).map_or(COUNTS_MAX, |counts| counts.min(COUNTS_MAX))
}

/// The time of one count of every candidate.
pub(crate) fn once(overhead: Duration, operations: usize, candidates: usize) -> Duration {
    let run = RUN_OVERHEAD + overhead * START_SLOWDOWN + RUN_REQUESTS;
    let runs = (operations + 1) * candidates;
    run * u32::try_from(runs).unwrap_or(u32::MAX)
}

impl Emulator {
    /// Asks `valgrind` for its version and makes room for what it will write.
    pub(crate) fn prepare(valgrind: &Path) -> io::Result<Self> {
        let output = Command::new(valgrind)
            .arg("--version")
            .stdin(Stdio::null())
            .output()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let directory = PrivateDirectory::create()?;
        let totals = directory.path.join("totals");
        fs::create_dir(&totals)?;
        // Workers may be another user, and write their own at their end.
        fs::set_permissions(&totals, fs::Permissions::from_mode(0o1733))?;
        let option = |name: &str, file: &str| {
            let mut word = OsString::from(name);
            word.push(totals.join(file));
            word
        };
        let words = vec![
            valgrind.into(),
            "--quiet".into(),
            "--tool=callgrind".into(),
            "--trace-children=yes".into(),
            option("--callgrind-out-file=", "callgrind.%p"),
            option("--log-file=", "log.%p"),
        ];
        Ok(Self {
            words,
            totals,
            version,
            _directory: directory,
        })
    }

    /// For the record: the tool that counts.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Counts one candidate once. `slowest_per_s`: what the slowest one can do, per operation.
    pub(crate) fn count(
        &self,
        workshop: &mut RunContext,
        candidate: &Candidate,
        slowest_per_s: &[f64],
        stop: &AtomicBool,
    ) -> Result<Vec<(Measure, f64)>, RunError> {
        let works = works(workshop.driver.target.operations(), slowest_per_s);
        let few = self.run(workshop, candidate, &works, None, stop)?;
        let mut costs = Vec::new();
        for (index, work) in works.iter().enumerate() {
            let more = self.run(workshop, candidate, &works, Some(index), stop)?;
            let difference = more.checked_sub(few).ok_or_else(|| {
                RunError::Figures(format!(
                    "{} more requests took fewer instructions: {more} instead of {few}",
                    work.counted
                ))
            })?;
            let measure = Measure::of(work.operation, Quantity::EmulatedInstructions);
            costs.push((measure, difference as f64 / work.counted as f64));
        }
        Ok(costs)
    }

    /// All instructions of a run of `works`, with more of one of them.
    fn run(
        &self,
        workshop: &mut RunContext,
        candidate: &Candidate,
        works: &[Work],
        counted: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<u64, RunError> {
        let words = &self.words;
        let mut session =
            StartedCandidate::start_emulated(workshop, candidate, "emulated", words, stop)?;
        let keys = works.first().map_or(1, |work| work.first);
        for (index, work) in works.iter().enumerate() {
            let more = if counted == Some(index) {
                work.counted
            } else {
                0
            };
            let load = Load::EmulatedWork {
                requests: work.first + more,
            };
            let driver = &workshop.driver;
            let phase = driver.run(&session.endpoint, work.operation, keys, load, stop);
            session.account(phase)?;
        }
        session.stop()?;
        self.total()
    }

    /// The output of all processes of the run at their end; it is removed.
    fn total(&self) -> Result<u64, RunError> {
        let failed = |error: io::Error| RunError::Figures(format!("valgrind's totals: {error}"));
        let mut sum = None;
        for entry in fs::read_dir(&self.totals).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default();
            if name.as_encoded_bytes().starts_with(b"callgrind.") {
                let text = fs::read_to_string(&path).map_err(failed)?;
                sum = Some(sum.unwrap_or(0) + total_of(&text).unwrap_or(0));
            }
            fs::remove_file(&path).map_err(failed)?;
        }
        sum.filter(|&sum| sum > 0).ok_or_else(|| {
            RunError::Figures(
                "valgrind wrote no totals: the target was killed, or cannot run under it"
                    .to_owned(),
            )
        })
    }
}

/// The last `totals: N` of a file of callgrind's.
fn total_of(text: &str) -> Option<u64> {
    let lines = text.lines().rev();
    lines
        .filter_map(|line| line.strip_prefix("totals: "))
        .find_map(|count| count.trim().parse().ok())
}

fn works(operations: &[Operation], slowest_per_s: &[f64]) -> Vec<Work> {
    let per_s = slowest_per_s.iter().copied().chain(std::iter::repeat(0.0));
    let works = operations.iter().zip(per_s);
    works
        .map(|(&operation, per_s)| {
            let counted = ((per_s * COUNTED_SECONDS) as u64)
                .clamp(COUNTED_REQUESTS_MIN, COUNTED_REQUESTS_MAX);
            Work {
                operation,
                first: counted / FIRST_SHARE,
                counted,
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "tests/instruction_pass.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/emulation.rs"]
mod emulation_tests;
