//! What a statement that did not succeed means, and how the log learns of it.
//!
//! On the path: `read`, `write` and `scan` make their outcomes of it.
//! A write that failed is unknown, whatever the failure: a copy that did not answer may have it, and
//! so may one that was asked in an earlier attempt than the last, of which alone there is a report. Only
//! what no attempt can do is known not to be done ([`Failure::Rejected`]).
//! Absent on purpose: trying again, which is the driver's (`statements`) or the client's.

use std::cell::Cell;
use std::time::{Duration, Instant};

use millpond_http::log::{self, LogLevel};
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};

use crate::commit::Outcome;

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// Not as many copies as asked for have answered in time, or no node could be asked.
    TooFew,
    /// The cluster does not do such things: they are wrong, or too large, or not allowed.
    Rejected,
}

impl Failure {
    pub(super) fn of(error: &ExecutionError) -> Self {
        let ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) = error else {
            return match error {
                ExecutionError::BadQuery(_) => Self::Rejected,
                _ => Self::TooFew,
            };
        };
        match error {
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::AuthenticationError => Self::Rejected,
            _ => Self::TooFew,
        }
    }

    /// Of a write.
    pub(super) fn of_write(self) -> Outcome {
        match self {
            Self::TooFew => Outcome::Unknown,
            Self::Rejected => Outcome::Rejected,
        }
    }

    /// Of a read.
    pub(super) fn of_read(self) -> Outcome {
        match self {
            Self::TooFew => Outcome::TooFewReplicas,
            Self::Rejected => Outcome::ReadFailed,
        }
    }
}

/// The log's share of what fails: a line a second, however much does.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    last: Cell<Option<Instant>>,
    unsaid: Cell<u64>,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Complaints {
    /// Says it, or counts it.
    pub(super) fn add(&self, what: &str, cause: &dyn std::fmt::Display) {
        let now = Instant::now();
        if self.last.get().is_some_and(|last| now < last + INTERVAL) {
            self.unsaid.set(self.unsaid.get() + 1);
            return;
        }
        self.last.set(Some(now));
        let unsaid = self.unsaid.take();
        match unsaid {
            0 => log::write(
                LogLevel::Warn,
                format_args!("the cluster did not {what}: {cause}"),
            ),
            _ => log::write(
                LogLevel::Warn,
                format_args!("the cluster did not {what}: {cause}; and {unsaid} more failures"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    fn of(error: DbError) -> Failure {
        Failure::of(&ExecutionError::LastAttemptError(
            RequestAttemptError::DbError(error, "said so".to_owned()),
        ))
    }

    /// Goal: no failure that may have left a write behind is told as anything but unknown.
    #[test]
    fn what_may_have_been_written_is_unknown() {
        let consistency = Consistency::All;
        let timeout = DbError::WriteTimeout {
            consistency,
            received: 2,
            required: 3,
            write_type: WriteType::Simple,
        };
        let unavailable = DbError::Unavailable {
            consistency,
            required: 3,
            alive: 2,
        };
        let others = [
            DbError::Overloaded,
            DbError::ServerError,
            DbError::IsBootstrapping,
        ];
        for error in others.into_iter().chain([timeout, unavailable]) {
            assert_eq!(of(error.clone()).of_write(), Outcome::Unknown, "{error}");
            assert_eq!(
                of(error.clone()).of_read(),
                Outcome::TooFewReplicas,
                "{error}"
            );
        }
        let late = ExecutionError::RequestTimeout(Duration::from_secs(1));
        assert_eq!(Failure::of(&late).of_write(), Outcome::Unknown);
        assert_eq!(
            Failure::of(&ExecutionError::EmptyPlan).of_write(),
            Outcome::Unknown
        );
        let lost = ExecutionError::LastAttemptError(RequestAttemptError::UnableToAllocStreamId);
        assert_eq!(Failure::of(&lost).of_write(), Outcome::Unknown);
    }

    /// Goal: what can never be done is not told as if it might have been.
    #[test]
    fn what_is_wrong_is_rejected() {
        for error in [
            DbError::Invalid,
            DbError::Unauthorized,
            DbError::SyntaxError,
        ] {
            assert_eq!(of(error.clone()).of_write(), Outcome::Rejected, "{error}");
            assert_eq!(of(error.clone()).of_read(), Outcome::ReadFailed, "{error}");
        }
    }
}
