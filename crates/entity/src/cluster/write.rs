//! One write: at a time of its own, or as a transaction where the keyspace has conditions.
//!
//! `worker` runs it for each write. A plain write is one message to each copy. A transaction is several rounds between
//! them (Paxos), and only one can be under way in a partition: so those of this process queue here, in order, instead
//! of conflicting there. A transaction without a result may have been done, and a retry would take it for another
//! client's write; so the client gets 504, result unknown.

use std::borrow::Cow;

use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::value::Row;

use super::statements::Transactions;
use super::statements::bucket_of;
use super::worker::Cluster;
use super::worker::QueryFailure;
use crate::commit::{Job, JobKind, Outcome};
use crate::record::{Head, Version, now_ms};

/// Nodes before 5.0 cannot store an expiry after 2038. Entities with a later one still expire for clients; only their
/// bytes stay.
const END_SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;

/// How often another client's write may come between a read and a transaction.
const ATTEMPTS_MAX: usize = 16;

/// Does the write, as of `at_us`.
pub(super) async fn write(cluster: &Cluster, job: &Job, at_us: i64) -> Outcome {
    let done = match &cluster.statements.transactions {
        None => plain(cluster, job, at_us).await,
        Some(transactions) => {
            let bucket = bucket_of(&job.key, cluster.buckets);
            let _turn = cluster.turns[bucket as usize].lock().await;
            match job.condition.is_none() {
                true => unconditional(cluster, transactions, job).await,
                false => conditional(cluster, transactions, job).await,
            }
        }
    };
    done.unwrap_or_else(|error| {
        cluster.complaints.add("acknowledge a write", &error);
        QueryFailure::of(&error).of_write()
    })
}

async fn plain(cluster: &Cluster, job: &Job, at_us: i64) -> Result<Outcome, ExecutionError> {
    let (statements, level) = (&cluster.statements, cluster.level(job.acks));
    let (bucket, id) = (bucket_of(&job.key, cluster.buckets), &job.key[..]);
    if job.kind == JobKind::Delete {
        let statement = statements.delete.at(level);
        let values = (at_us, bucket, id);
        cluster.session.execute_unpaged(statement, values).await?;
        return Ok(Outcome::Written);
    }
    let record = record(job);
    let size = record.len() as i32;
    let values = (bucket, id, &*record, size, at_us, seconds_left(job));
    let statement = statements.put.at(level);
    cluster.session.execute_unpaged(statement, values).await?;
    Ok(Outcome::Written)
}

async fn unconditional(
    cluster: &Cluster,
    transactions: &Transactions,
    job: &Job,
) -> Result<Outcome, ExecutionError> {
    let level = cluster.level(job.acks);
    let (bucket, id) = (bucket_of(&job.key, cluster.buckets), &job.key[..]);
    if job.kind == JobKind::Delete {
        let statement = transactions.delete.at(level);
        cluster
            .session
            .execute_unpaged(statement, (bucket, id))
            .await?;
        return Ok(Outcome::Written);
    }
    let (record, (version, ends)) = (record(job), stamp(job));
    let size = record.len() as i32;
    let ttl = seconds_left(job);
    let values = (ttl, &*record, size, version, ends, bucket, id);
    let statement = transactions.put.at(level);
    let result = cluster.session.execute_unpaged(statement, values).await?;
    Ok(match was_applied(result) {
        Some(true) => Outcome::Written,
        // The condition is always true: any other result is not understood.
        Some(false) | None => Outcome::Unknown,
    })
}

async fn conditional(
    cluster: &Cluster,
    transactions: &Transactions,
    job: &Job,
) -> Result<Outcome, ExecutionError> {
    let level = cluster.level(job.acks);
    let (bucket, id) = (bucket_of(&job.key, cluster.buckets), &job.key[..]);
    let (record, (version, ends)) = (record(job), stamp(job));
    let size = record.len() as i32;
    for _ in 0..ATTEMPTS_MAX {
        let (found, found_ends) = match look(cluster, transactions, bucket, id).await {
            Ok(found) => found,
            // Only read: nothing was written.
            Err(failure) => return Ok(failure.of_read()),
        };
        let has_ended = found_ends.is_some_and(|ends| ends as u64 <= now_ms());
        let current = found.filter(|_| !has_ended);
        let current = current.map(|version| Version(version as u64));
        if !job.condition.allows_write(current) {
            return Ok(Outcome::PreconditionFailed);
        }
        let result = match job.kind {
            JobKind::Delete => {
                let statement = transactions.delete_on.at(level);
                let values = (bucket, id, found);
                cluster.session.execute_unpaged(statement, values).await?
            }
            _ => {
                let ttl = seconds_left(job);
                let values = (ttl, &*record, size, version, ends, bucket, id, found);
                let statement = transactions.put_on.at(level);
                cluster.session.execute_unpaged(statement, values).await?
            }
        };
        match was_applied(result) {
            Some(true) => return Ok(Outcome::Written),
            Some(false) => {}
            None => return Ok(Outcome::Unknown),
        }
    }
    // Other clients write it faster than this one can read and write.
    Ok(Outcome::Overtaken)
}

/// The version that is there, by the latest transaction, and when it ends.
async fn look(
    cluster: &Cluster,
    transactions: &Transactions,
    bucket: i32,
    id: &[u8],
) -> Result<(Option<i64>, Option<i64>), QueryFailure> {
    let statement = &transactions.version;
    let result = cluster
        .session
        .execute_unpaged(statement, (bucket, id))
        .await;
    let result = result.map_err(|error| {
        cluster.complaints.add("read a version", &error);
        QueryFailure::of(&error)
    })?;
    let unreadable = |error: &dyn std::fmt::Display| {
        cluster.complaints.add("read a version", error);
        QueryFailure::Rejected
    };
    let rows = result.into_rows_result();
    let rows = rows.map_err(|error| unreadable(&error))?;
    let row = rows.maybe_first_row::<(Option<i64>, Option<i64>)>();
    Ok(row.map_err(|error| unreadable(&error))?.unwrap_or_default())
}

/// The first column of a transaction's result; the columns after it depend on the outcome.
fn was_applied(result: QueryResult) -> Option<bool> {
    let rows = result.into_rows_result().ok()?;
    let row = rows.first_row::<Row>().ok()?;
    row.columns.first()?.as_ref()?.as_boolean()
}

/// In one piece; only that of a large value is not already.
fn record(job: &Job) -> Cow<'_, [u8]> {
    match job.head.is_empty() {
        true => Cow::Borrowed(&job.value),
        false => Cow::Owned([&job.head[..], &job.value].concat()),
    }
}

/// Version and end as the columns have them.
fn stamp(job: &Job) -> (Option<i64>, Option<i64>) {
    let Some(head) = job.record_head() else {
        return (None, None);
    };
    let ends = (head.expires_ms != 0).then_some(head.expires_ms as i64);
    (Some(head.version.0 as i64), ends)
}

/// After how many seconds the nodes may forget the record; 0: never.
fn seconds_left(job: &Job) -> i32 {
    let expires_ms = job
        .record_head()
        .map_or(0, |head: Head<'_>| head.expires_ms);
    seconds_until(expires_ms, now_ms())
}

/// Never before its end, and at least a moment: nodes cannot write what has ended already.
fn seconds_until(expires_ms: u64, now_ms: u64) -> i32 {
    if expires_ms == 0 {
        return 0;
    }
    let seconds = expires_ms.saturating_sub(now_ms).div_ceil(1000) + 1;
    match seconds <= END_SECONDS_MAX {
        true => seconds as i32,
        false => 0,
    }
}

#[cfg(test)]
#[path = "tests/write.rs"]
mod tests;
