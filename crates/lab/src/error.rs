//! Why a comparison gives no answer. Each is one sentence that says what to do.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use millpond_measure::record::RoundStatus;
use millpond_measure::regression::Incomparable;

use crate::allocator::AllocatorError;
use crate::presence::PresenceError;
use crate::subject::SubjectError;

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
        /// Why.
        reason: RunError,
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
    /// Every candidate of a round failed, and nothing was measured before it.
    #[error("every run of round {round} failed; the first one: {first}")]
    RoundFailed {
        /// Counted from 1.
        round: u32,
        /// The first failure.
        first: String,
    },
    /// Somebody else compares.
    #[error(
        "another comparison is running on this machine{}: two at once would measure each other; wait \
         for it to end, or set MILLPOND_LOCK to another file than {} to insist",
        who.map(|pid| format!(" (process {pid})")).unwrap_or_default(),
        path.display()
    )]
    AnotherComparison {
        /// Its process, if it can be told.
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
        /// What the system said.
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
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

/// One run of one candidate failed; the comparison may go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The target did not start, did not answer, or died.
    #[error(transparent)]
    Subject(SubjectError),
    /// The allocator is not the one the run is named after.
    #[error(transparent)]
    Presence(#[from] PresenceError),
    /// Somebody else answers at the target's address.
    #[error(
        "something already listens on {address}, so it is not this target that would be measured; \
         stop it or change the port"
    )]
    AddressTaken {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// The generator could not do its work.
    #[error("load on the target failed: {0}")]
    Load(String),
    /// A slice had no answer at all.
    #[error(
        "no answer came within {} ms of load{}", window.as_millis(),
        if *is_disturbed { ", three times in a row; other programs took the CPUs meanwhile" } else { "" }
    )]
    NoAnswer {
        /// What was to be counted.
        window: Duration,
        /// Others ran on the CPUs meanwhile.
        is_disturbed: bool,
    },
    /// The user's own load program failed, or did not say what it was to say.
    #[error("the load command gave no result: {0}")]
    LoadCommand(String),
    /// The user's own check of the answers.
    #[error("the answers are not right: the check failed: {0}")]
    Check(String),
    /// The check gave one thing under the baseline and another here.
    #[error(
        "the answers are not right: the check wrote {found:?}, under the baseline {expected:?}"
    )]
    OtherAnswers {
        /// Under the baseline.
        expected: String,
        /// Here.
        found: String,
    },
    /// Wrong answers: a fast server that is wrong has lost.
    #[error("{failed} of {requests} {operation} requests failed ({detail})")]
    WrongAnswers {
        /// Which.
        operation: &'static str,
        /// How many.
        failed: u64,
        /// Of how many.
        requests: u64,
        /// By kind.
        detail: String,
    },
    /// A network of the target's own cannot be made or entered.
    #[error("no network namespace: {0}")]
    Network(io::Error),
    /// Somebody else takes a part of the target's connections.
    #[error(
        "{address} is shared: process {pid} listens there too (SO_REUSEPORT) and would answer a part of the requests; \
         stop it or change the port"
    )]
    SharedAddress {
        /// The address.
        address: std::net::SocketAddr,
        /// Who else listens there.
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
        /// What the system said.
        error: io::Error,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Whether other programs are the likely reason, so that another try is fair.
    pub(crate) const fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::NoAnswer {
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
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers of node had no CPU for 100 ms beside a build, and a comparison lost the round.
    ///
    /// Goal: a slice without answers is tried again where others had the CPUs, and is the server's fault where nobody
    /// else ran; the sentence says which.
    #[test]
    fn silence_is_of_the_machine_or_of_the_server() {
        let error = |is_disturbed| RunError::NoAnswer {
            window: Duration::from_millis(100),
            is_disturbed,
        };
        assert!(error(true).is_of_machine() && !error(false).is_of_machine());
        assert!(!RunError::Load("it ended".to_owned()).is_of_machine());
        assert_eq!(
            error(false).to_string(),
            "no answer came within 100 ms of load"
        );
        assert!(error(true).to_string().contains("other programs"));
    }
}
