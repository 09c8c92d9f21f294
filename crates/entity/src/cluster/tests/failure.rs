use super::*;
use scylla::errors::WriteType;
use scylla::statement::Consistency;

fn of(error: DbError) -> QueryFailure {
    QueryFailure::of(&ExecutionError::LastAttemptError(
        RequestAttemptError::DbError(error, "said so".to_owned()),
    ))
}

/// Goal: no failure that may have left a write behind is reported as anything but unknown.
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
    assert_eq!(QueryFailure::of(&late).of_write(), Outcome::Unknown);
    assert_eq!(
        QueryFailure::of(&ExecutionError::EmptyPlan).of_write(),
        Outcome::Unknown
    );
    let lost = ExecutionError::LastAttemptError(RequestAttemptError::UnableToAllocStreamId);
    assert_eq!(QueryFailure::of(&lost).of_write(), Outcome::Unknown);
}

/// Goal: a write that can never be done is not reported as possibly done.
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
