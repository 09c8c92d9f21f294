//! Instructions per request where the processor hides its counters, as in most virtual machines: the
//! target runs under valgrind, which executes every instruction itself and counts it.
//!
//! On the path: `compare` asks for it between the heap passes and the plan, and gives each count to the
//! round of the same number. One count takes a run with a few requests of each operation, and for each
//! operation one run with more of it: the difference of the totals over that of the requests has neither
//! start nor stop nor warm-up in it. No clock is read, so neighbours change nothing.
//!
//! Absent on purpose: the kernel's instructions, which no emulator in user mode sees, and load programs
//! of the user's own, which would take fifty times as long.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_measure::record::{Measure, Operation, Quantity};

use crate::drive::Load;
use crate::embedded::PrivateDirectory;
use crate::error::RunError;
use crate::matrix::Candidate;
use crate::session::{Session, Workshop};

/// So many counts decide among a dozen candidates; more would only take time.
pub(crate) const COUNTS_MAX: u32 = 10;
/// Requests that are counted beyond the first: what the slowest candidate answers at full speed in this
/// time, which takes an emulator a second or two.
const COUNTED_SECONDS: f64 = 0.25;
const COUNTED_REQUESTS_MIN: u64 = 100;
const COUNTED_REQUESTS_MAX: u64 = 20_000;
/// The first requests, by which everything is made that is made once, as a part of those.
const FIRST_SHARE: u64 = 4;
/// What a run takes under an emulator before and after its requests, and with them: a guess for the plan.
const RUN_OVERHEAD: Duration = Duration::from_millis(1_500);
const RUN_REQUESTS: Duration = Duration::from_millis(1_500);
/// How much longer than by itself a program takes to start there.
const START_SLOWDOWN: u32 = 10;

/// What is counted of one operation.
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

/// What one count of every candidate takes.
pub(crate) fn once(overhead: Duration, operations: usize, candidates: usize) -> Duration {
    let run = RUN_OVERHEAD + overhead * START_SLOWDOWN + RUN_REQUESTS;
    let runs = (operations + 1) * candidates;
    run * u32::try_from(runs).unwrap_or(u32::MAX)
}

impl Emulator {
    /// Asks `valgrind` who it is and makes room for what it will write.
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

    /// For the record: who counts.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Counts one candidate once. `slowest_per_s`: what the slowest one can do, per operation.
    pub(crate) fn count(
        &self,
        workshop: &mut Workshop,
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
                    "{} more requests took fewer instructions: {more} in place of {few}",
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
        workshop: &mut Workshop,
        candidate: &Candidate,
        works: &[Work],
        counted: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<u64, RunError> {
        let words = &self.words;
        let mut session = Session::start_emulated(workshop, candidate, "emulated", words, stop)?;
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

    /// What all processes of the run wrote when they ended; it is removed.
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
mod tests {
    use super::*;

    #[test]
    fn the_last_totals_count() {
        let text = "events: Ir\nfn=(1) main\n0 7\n\ntotals: 4215\n";
        assert_eq!(total_of(text), Some(4215));
        assert_eq!(total_of(&format!("{text}\ntotals: 12\n")), Some(12));
        assert_eq!(total_of("events: Ir\n"), None);
    }

    /// Goal: a slow server is asked for what it can do, a fast one for enough, and one of which nothing is
    /// known for the least.
    #[test]
    fn work_follows_the_slowest() {
        let both = [Operation::Put, Operation::Get];
        let found = works(&both, &[1_000.0, 1e9]);
        let sizes: Vec<_> = found
            .iter()
            .map(|work| (work.first, work.counted))
            .collect();
        assert_eq!(sizes, [(62, 250), (5_000, 20_000)]);
        let unknown = works(&both[..1], &[]);
        assert_eq!(unknown[0].counted, COUNTED_REQUESTS_MIN);
    }

    /// Goal: time decides how often, up to the most that is of use.
    #[test]
    fn counts_are_what_time_pays() {
        let overhead = Duration::from_millis(50);
        // Two runs of 3.5 s for each of three candidates.
        assert_eq!(once(overhead, 1, 3), Duration::from_secs(21));
        assert_eq!(affordable(Duration::from_secs(20), overhead, 1, 3), 0);
        assert_eq!(affordable(Duration::from_secs(150), overhead, 1, 3), 7);
        assert_eq!(
            affordable(Duration::from_secs(9_000), overhead, 1, 3),
            COUNTS_MAX
        );
    }
}
