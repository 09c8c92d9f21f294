//! Why a comparison gives no result. Each is one sentence that says what to do.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use millpond_load::ConnectFailure;
use millpond_measure::record::{FailureCause, RoundStatus};
use millpond_measure::regression::Incomparable;
use millpond_measure::units::{format_bytes, format_duration_ns};

use crate::allocator::AllocatorError;
use crate::cgroup;
use crate::outcome::FailedRequests;
use crate::presence::PresenceError;
use crate::subject::{Exit, LastWords, SIGKILL, SubjectError};

/// jemalloc's message about an unknown setting.
const WORDS_OF_SETTINGS: [&str; 3] = ["invalid conf", "abort_conf", "malformed conf"];

/// The comparison as a whole could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A setting contradicts itself or the machine; nothing was started.
    #[error("{0}")]
    Setting(String),
    /// The earlier record is of another question; nothing was started.
    #[error(transparent)]
    Incomparable(#[from] Incomparable),
    /// A wrong or missing allocator.
    #[error(transparent)]
    Allocator(#[from] AllocatorError),
    /// The baseline does not run: there is nothing to compare with.
    #[error("{candidate}: {reason}")]
    Baseline {
        /// Its name.
        candidate: String,
        /// Why, as a sentence.
        reason: String,
    },
    /// Only the baseline is left.
    #[error("nothing to compare with {baseline}: {}", reasons.join("; "))]
    NothingToCompare {
        /// Its name.
        baseline: String,
        /// Why each other candidate was left out.
        reasons: Vec<String>,
    },
    /// Nothing of the server's heap gets to malloc.
    #[error("{0}")]
    OutOfReach(String),
    /// Even the fewest rounds take a multiple of the time budget.
    #[error(
        "{rounds} rounds of {candidates} candidates, the fewest that can give a verdict, take {} in all, and the time \
         budget is {}: {}",
        format_duration_ns(needed.as_nanos() as f64),
        format_duration_ns(budget.as_nanos() as f64),
        remedies_of_time(*needed, *connections, *backlog)
    )]
    FarTooLong {
        /// The needed amount.
        needed: Duration,
        /// The permitted amount.
        budget: Duration,
        /// The fewest rounds.
        rounds: u32,
        /// In each.
        candidates: u32,
        /// Of the load.
        connections: usize,
        /// How many connections may wait at the server, if those are fewer.
        backlog: Option<u32>,
    },
    /// Every candidate of a round failed, and nothing was measured before it.
    #[error("every run of round {round} failed; the first one: {first}")]
    RoundFailed {
        /// Counted from 1.
        round: u32,
        /// The first failure.
        first: String,
    },
    /// Another comparison runs.
    #[error(
        "another comparison is running on this machine{}: two at once would measure each other; wait \
         for it to end, or set MILLPOND_LOCK to another file than {} to insist",
        who.map(|pid| format!(" (process {pid})")).unwrap_or_default(),
        path.display()
    )]
    AnotherComparison {
        /// Its process, if known.
        who: Option<u32>,
        /// The file that it holds locked.
        path: PathBuf,
    },
    /// Ctrl-C before the first round was measured.
    #[error("interrupted before anything was measured")]
    InterruptedEarly,
    /// The report directory cannot be used.
    #[error("cannot write {}: {error}; choose another directory with --out", path.display())]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The report directory holds what is not ours, and a run replaces what it finds.
    #[error(
        "{} holds {}, which millpond did not write: name a directory that is empty or does not exist with --out",
        path.display(),
        found.display()
    )]
    ForeignOutput {
        /// The directory.
        path: PathBuf,
        /// A file or folder in it.
        found: OsString,
    },
    /// The machine refused something the lab cannot do without.
    #[error("cannot {what}: {error}")]
    System {
        /// The attempt.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// One run of one candidate failed; the comparison may continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The target did not start, did not respond, or died.
    #[error(transparent)]
    Subject(SubjectError),
    /// The allocator is not the one the run is named after.
    #[error(transparent)]
    Presence(#[from] PresenceError),
    /// Another server responds at the target's address.
    #[error(
        "something already listens on {address}, so it is not this target that would be measured; \
         stop it or change the port"
    )]
    AddressTaken {
        /// The address.
        address: millpond_io::Address,
    },
    /// The generator could not do its work.
    #[error("load on the target failed: {0}")]
    Load(String),
    /// A slice had no response at all.
    #[error(
        "no response came within {} ms of load{}", window.as_millis(),
        if *is_disturbed { ", three times in a row; other programs took the CPUs meanwhile" } else { "" }
    )]
    NoResponse {
        /// The time to count.
        window: Duration,
        /// Others ran on the CPUs meanwhile.
        is_disturbed: bool,
    },
    /// The user's own load program failed, or did not say what it was to say.
    #[error("the load command gave no result: {0}")]
    LoadCommand(String),
    /// The user's own check of the responses.
    #[error("the responses are not right: the check failed: {0}")]
    Check(String),
    /// The check gave one thing under the baseline and another here.
    #[error(
        "the responses are not right: the check wrote {found:?}, under the baseline {expected:?}"
    )]
    OtherResponses {
        /// Under the baseline.
        expected: String,
        /// Here.
        found: String,
    },
    /// More requests failed than are allowed: a fast server that is wrong has lost.
    #[error("{0}")]
    FailedRequests(Box<FailedRequests>),
    /// It runs, and does not respond any more.
    #[error(
        "{title} hangs: after {answered} responses none came within {} s; {last_words}", silence.as_secs()
    )]
    Hung {
        /// The command's short name.
        title: String,
        /// Responses of this process before.
        answered: u64,
        /// How long none came.
        silence: Duration,
        /// The end of its output.
        last_words: Box<LastWords>,
    },
    /// No connection came up.
    #[error(
        "none of {connections} connections could be opened: {cause}; is the server too slow to accept so many at once? \
         Fewer with --connections"
    )]
    Unreachable {
        /// Why the last one was not.
        cause: ConnectFailure,
        /// How many were tried.
        connections: usize,
    },
    /// The kernel killed a process of the target for lack of memory.
    #[error(
        "{title}: the kernel killed {killed} of its processes for lack of memory{}; {last_words}",
        limit_bytes.map(|bytes| format!(" (limit {})", format_bytes(bytes as f64))).unwrap_or_default()
    )]
    KilledForMemory {
        /// The command's short name.
        title: String,
        /// How many.
        killed: u64,
        /// The lowest limit of its control groups.
        limit_bytes: Option<u64>,
        /// The end of its output.
        last_words: Box<LastWords>,
    },
    /// Its memory cannot be limited as the user asked.
    #[error(
        "--memory-limit {}: the limit cannot be set: {error}", format_bytes(*bytes as f64)
    )]
    MemoryLimit {
        /// The limit.
        bytes: u64,
        /// Why not.
        error: std::io::Error,
    },
    /// It ended, and its output says that it got no more memory.
    #[error(
        "{reason}{}",
        limit_bytes.map(|bytes| format!(
            "; its address space is limited to {} (ulimit -v)", format_bytes(bytes as f64)
        )).unwrap_or_default()
    )]
    NoAddressSpace {
        /// How the target ended.
        reason: String,
        /// The limit of its address space; `None`: there is none that could be seen.
        limit_bytes: Option<u64>,
        /// The end of its output.
        last_lines: Vec<String>,
    },
    /// The C library's malloc and the preloaded one met in it.
    #[error(
        "{reason}; the C library's free got memory of the preloaded allocator: an object that the program opens with \
         RTLD_DEEPBIND, as PHP opens its extensions, calls the C library past everything that is preloaded. It would \
         do so in production too: run it without such objects (php -n) or built into it, or build the allocator in"
    )]
    TwoAllocators {
        /// How the target ended.
        reason: String,
        /// How.
        exit: Exit,
        /// The end of its output.
        last_lines: Vec<String>,
    },
    /// SIGKILL, and the kernel counts nothing killed for lack of memory.
    #[error(
        "{reason}; the kernel killed none of its processes for lack of memory, so another program did"
    )]
    KilledByAnother {
        /// How the target ended.
        reason: String,
        /// The end of its output.
        last_lines: Vec<String>,
    },
    /// A network of the target's own cannot be made or entered.
    #[error("no network namespace: {0}")]
    Network(io::Error),
    /// Another process takes a part of the target's connections.
    #[error(
        "{address} is shared: process {pid} listens there too (SO_REUSEPORT) and would answer a part of the requests; \
         stop it or change the port"
    )]
    SharedAddress {
        /// The address.
        address: std::net::SocketAddr,
        /// The other listener there.
        pid: i32,
    },
    /// The target's figures could not be read.
    #[error("cannot read the target's figures: {0}")]
    Figures(String),
    /// A directory or file of the run.
    #[error("cannot prepare {}: {error}", path.display())]
    Prepare {
        /// Which.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Its kind, for the record and for tables.
    #[must_use]
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Subject(SubjectError::Ended {
                exit, last_words, ..
            }) => cause_of_end(*exit, last_words),
            Self::Subject(SubjectError::NeverReady { waited_s, .. }) => FailureCause::NeverServed {
                waited_ns: waited_s.saturating_mul(1_000_000_000),
            },
            Self::Presence(_) => FailureCause::NotInUse,
            Self::FailedRequests(failed) => failed.cause(),
            Self::Hung {
                answered, silence, ..
            } => FailureCause::Hung {
                after_requests: *answered,
                silent_ns: u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX),
            },
            Self::KilledForMemory { limit_bytes, .. } => FailureCause::KilledForMemory {
                limit_bytes: *limit_bytes,
                is_counted: true,
            },
            Self::NoAddressSpace {
                limit_bytes,
                last_lines,
                ..
            } => FailureCause::NoAddressSpace {
                limit_bytes: *limit_bytes,
                last_lines: last_lines.clone(),
            },
            Self::TwoAllocators {
                exit, last_lines, ..
            } => crash(*exit, last_lines.clone()),
            Self::KilledByAnother { last_lines, .. } => {
                crash(Exit::Signal(SIGKILL), last_lines.clone())
            }
            Self::Check(_) | Self::OtherResponses { .. } => FailureCause::WrongAnswers,
            _ => FailureCause::Other,
        }
    }

    /// Whether the server lets fewer connections wait than come at once: every candidate may fail by that.
    pub(crate) fn is_of_backlog(&self) -> bool {
        matches!(self, Self::FailedRequests(failed) if failed.is_of_backlog())
    }

    /// Whether other programs are the likely reason, so that another try is fair.
    pub(crate) const fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::NoResponse {
                is_disturbed: true,
                ..
            }
        )
    }
}

impl From<SubjectError> for RunError {
    fn from(error: SubjectError) -> Self {
        match error {
            SubjectError::Interrupted => Self::Interrupted,
            error => Self::Subject(error),
        }
    }
}

/// How a run ended that this error ended.
impl From<RunError> for RoundStatus {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Interrupted => Self::Interrupted,
            error => Self::Failed {
                reason: error.to_string(),
                cause: Some(error.cause()),
            },
        }
    }
}

/// How to be done sooner, or to wait for it.
fn remedies_of_time(needed: Duration, connections: usize, backlog: Option<u32>) -> String {
    let minutes = needed.as_secs().div_ceil(60);
    let fewer = match backlog {
        Some(backlog) => format!(
            "fewer connections (--connections {backlog}: so many may wait at the server, and {connections} come at once)"
        ),
        None => format!(
            "fewer connections (--connections, {connections} now), if they wait for the server"
        ),
    };
    format!("{fewer}, fewer candidates (--allocators), or --time-budget {minutes}m")
}

/// What ended a target, as far as its exit and its last output show.
fn cause_of_end(exit: Exit, last_words: &LastWords) -> FailureCause {
    let last_lines = last_words.lines.clone();
    if last_words.mention(&WORDS_OF_SETTINGS) {
        return FailureCause::RefusedSettings { last_lines };
    }
    match exit {
        // Nothing here sends that one to a target that is measured, and the kernel counts nothing here.
        Exit::Signal(SIGKILL) => FailureCause::KilledForMemory {
            limit_bytes: cgroup::memory_bytes(),
            is_counted: false,
        },
        exit => crash(exit, last_lines),
    }
}

/// An end that was not requested.
fn crash(exit: Exit, last_lines: Vec<String>) -> FailureCause {
    let (signal, exit_status) = match exit {
        Exit::Signal(number) => (Some(number), None),
        Exit::Status(status) => (None, Some(status)),
        Exit::Unknown => return FailureCause::Other,
    };
    FailureCause::Crashed {
        signal,
        exit_status,
        last_lines,
    }
}

#[cfg(test)]
#[path = "tests/error.rs"]
mod tests;
