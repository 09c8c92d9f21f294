//! One comparison at a time on a machine: two would measure each other.
//!
//! `compare` takes it before it starts anything and holds it to its end; the kernel releases it
//! whatever ends the process. Advisory: it keeps comparisons apart, not other work, which the noise
//! gate is for.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{env, io};

use millpond_measure::record::Coexistence;
use millpond_measure::units::format_bytes;
use rustix::fs::OFlags;

use crate::doctor::Machine;
use crate::error::{LabError, RunError};
use crate::matrix::Candidate;
use crate::probe::Answer;
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::target::Target;

/// Names another file, or none if it is empty: for a test, or a container with a machine of its own.
pub const LOCK_VARIABLE: &str = "MILLPOND_LOCK";
/// The same for all users of the machine.
const DEFAULT: &str = "/tmp/millpond-compare.lock";
/// A process number and a newline are shorter.
const CONTENT_BYTES_MAX: u64 = 32;

/// The file that comparisons on this machine lock; `None` if the user wants none.
#[must_use]
pub fn lock_file() -> Option<PathBuf> {
    match env::var_os(LOCK_VARIABLE) {
        None => Some(PathBuf::from(DEFAULT)),
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
    }
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Takes the lock in `path`; none if there is none to take, with a warning if the file cannot be used.
    ///
    /// # Errors
    /// If another comparison holds it.
    pub fn take_or_warn(
        path: Option<&Path>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, LabError> {
        let Some(path) = path else {
            return Ok(None);
        };
        let taken = Self::take(path)?;
        Ok(taken
            .map_err(|error| {
                warnings.push(format!(
                    "{} cannot be locked ({error}): another comparison at the same time would not be noticed but \
                     as noise",
                    path.display()
                ));
            })
            .ok())
    }

    /// Takes it. A comparison that holds it is an error; a file that cannot be opened or locked is a
    /// reason to do without, in the `Err` of the inner result.
    fn take(path: &Path) -> Result<Result<Self, io::Error>, LabError> {
        let mut file = match open(path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        match file.try_lock() {
            Ok(()) => {
                // For the sentence of the next one; a process that cannot be named is just not named.
                let _ = name_us(path, &file);
                Ok(Ok(Self { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Err(LabError::AnotherComparison {
                who: holder(&mut file),
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Ok(Err(error)),
        }
    }
}

/// Opens the file that is there, whichever user made it, or makes it. No link is followed: the directory is writable by
/// all users.
fn open(path: &Path) -> io::Result<File> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let existing = || {
        OpenOptions::new()
            .read(true)
            .custom_flags(no_link)
            .open(path)
    };
    match existing() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        outcome => return outcome,
    }
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(no_link)
        .open(path);
    match made {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(),
        outcome => outcome,
    }
}

/// Writes our process number into the locked file, if it is ours to write to.
fn name_us(path: &Path, locked: &File) -> io::Result<()> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut writable = OpenOptions::new()
        .write(true)
        .custom_flags(no_link)
        .open(path)?;
    if !locked.metadata()?.is_file() {
        return Ok(());
    }
    writable.set_len(0)?;
    writeln!(writable, "{}", std::process::id())
}

/// The process that holds the lock, as far as the file says and if it is alive.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(CONTENT_BYTES_MAX)
        .read_to_string(&mut text)
        .ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
}

// How several copies of one server live at the same time, tried with two of them before anything is measured.
//
// Candidates that run a minute apart see different machines, so all of a round live together. Then each has to listen
// somewhere else. A server that takes its port from the command does; most others take it from the variable `PORT`, or
// listen at the same port in a network namespace of their own, where root can make one. The test is a second copy
// beside the first: one that shares a directory or a socket with it fails here.

/// A copy that does not respond within so many times the first one's time, plus a second, is not at the address it was
/// given.
const PATIENCE: u32 = 3;
const PATIENCE_MORE: Duration = Duration::from_secs(1);
/// The part of the memory that is available which all candidates may take together.
const MEMORY_SHARE: f64 = 0.6;

/// The finding.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) way: Coexistence,
    /// Why ways that come before it were not taken, as sentences.
    pub(crate) reasons: Vec<String>,
}

impl Found {
    fn new(way: Coexistence) -> Self {
        Self {
            way,
            reasons: Vec::new(),
        }
    }

    /// One at a time if all `candidates`, of `bytes` each, would not fit into memory.
    pub(crate) fn within_memory(mut self, bytes: u64, candidates: usize) -> Self {
        let needed = bytes as f64 * candidates as f64;
        let Some(available) = Machine::this().available_bytes() else {
            return self;
        };
        let limit = available as f64 * MEMORY_SHARE;
        if self.way != Coexistence::OneAtATime && needed > limit {
            self.way = Coexistence::OneAtATime;
            self.reasons.push(format!(
                "{candidates} copies of {} need more than {:.0} % of the {} that are available",
                format_bytes(bytes as f64),
                100.0 * MEMORY_SHARE,
                format_bytes(available as f64)
            ));
        }
        self
    }

    /// What is reported of it; empty for the usual way.
    pub(crate) fn note(&self) -> Option<String> {
        let why = self.reasons.join("; ");
        match self.way {
            Coexistence::PortInCommand => None,
            Coexistence::PortVariable => {
                Some("candidates live at the same time, each at a port given by the variable PORT".to_owned())
            }
            Coexistence::Namespaces => Some(
                "candidates live at the same time, each at the same port in a network namespace of its own"
                    .to_owned(),
            ),
            Coexistence::OneAtATime => Some(format!(
                "only one candidate lives at a time, so they are compared less sharply: {why}; {{port}} in the \
                 command, where the port goes, lets them live together"
            )),
        }
    }
}

/// How they live as far as the command says, before anything is tried.
pub(crate) fn untried(target: &Target, environment: &[(OsString, OsString)]) -> Coexistence {
    match target.takes_its_port(environment) {
        true => Coexistence::PortInCommand,
        false => Coexistence::OneAtATime,
    }
}

/// The first way in which two copies of `baseline` run and respond as a single one does. `Err`: not even one does.
pub(crate) fn find(
    workshop: &mut RunContext,
    baseline: &Candidate,
    stop: &AtomicBool,
) -> Result<Found, RunError> {
    let target = &workshop.driver.target;
    // A load program of the user's measures whole runs, one after the other.
    if matches!(target, Target::Entity { .. }) || workshop.load_command.is_some() {
        return Ok(Found::new(workshop.coexistence));
    }
    let bound = workshop.ready_bound;
    let ways = match workshop.coexistence {
        Coexistence::PortInCommand => &[Coexistence::PortInCommand][..],
        _ => &[Coexistence::PortVariable, Coexistence::Namespaces],
    };
    // Neither a variable nor a network namespace gives a unix socket another path.
    let is_unix = matches!(target, Target::Command { requests, .. } if requests.port().is_none());
    if is_unix && workshop.coexistence == Coexistence::OneAtATime {
        return Ok(Found {
            way: Coexistence::OneAtATime,
            reasons: vec![
                "all would listen on the same unix socket: put {port} into --unix too".to_owned(),
            ],
        });
    }
    let began = Instant::now();
    let alone = Copy::start(workshop, baseline, "alone", stop)?;
    let expected = alone.answer.clone();
    workshop.ready_bound = bound.min(began.elapsed() * PATIENCE + PATIENCE_MORE);
    alone.session.stop()?;
    let mut found = Found::new(Coexistence::OneAtATime);
    for &way in ways {
        workshop.coexistence = way;
        match two_copies(workshop, baseline, &expected, stop) {
            Ok(()) => {
                found.way = way;
                break;
            }
            Err(RunError::Interrupted) => return Err(RunError::Interrupted),
            Err(error) => found.reasons.push(format!("{}: {error}", label(way))),
        }
    }
    workshop.coexistence = found.way;
    workshop.ready_bound = bound;
    Ok(found)
}

fn label(way: Coexistence) -> &'static str {
    match way {
        Coexistence::PortInCommand => "with a second copy beside it",
        Coexistence::PortVariable => "with the variable PORT",
        Coexistence::Namespaces => "in a network namespace",
        Coexistence::OneAtATime => "alone",
    }
}

/// Whether two run at the same time, and both respond as expected.
fn two_copies(
    workshop: &mut RunContext,
    baseline: &Candidate,
    expected: &Answer,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let mut first = Copy::start(workshop, baseline, "first", stop)?;
    let second = Copy::start(workshop, baseline, "second", stop)?;
    first.session.subject.ensure_alive()?;
    for copy in [&first, &second] {
        if copy.answer != *expected {
            return Err(RunError::OtherResponses {
                expected: expected.to_string(),
                found: copy.answer.to_string(),
            });
        }
    }
    second.session.stop()?;
    first.session.stop()?;
    Ok(())
}

/// A running server and its response.
struct Copy {
    session: StartedCandidate,
    answer: Answer,
}

impl Copy {
    fn start(
        workshop: &mut RunContext,
        baseline: &Candidate,
        label: &str,
        stop: &AtomicBool,
    ) -> Result<Self, RunError> {
        let mut session = StartedCandidate::start(workshop, baseline, label, None, stop)?;
        let probe = workshop.driver.target.probe(&session.endpoint);
        let answer = session.endpoint.within(|| probe.answer())?;
        let answer = answer.map_err(|error| RunError::Load(error.to_string()));
        let answer = session.explain(answer)?;
        Ok(Self { session, answer })
    }
}

#[cfg(test)]
#[path = "tests/lock.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/coexistence.rs"]
mod coexistence_tests;
