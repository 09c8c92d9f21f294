//! The statements for the nodes: prepared once, for each level of acknowledgement.
//!
//! `read`, `write` and `scan` take theirs. A statement that may be executed twice is marked idempotent: reads, and
//! writes that carry their time, which makes the second one the same write. Only these are sent again by the driver, to
//! another node: after a connection broke, or speculatively when no response came for a while. Transactions are sent
//! once: a second one would find the first, and take it for another client's write. No retry lowers a level.

use std::sync::Arc;
use std::time::Duration;

use millpond_http::log;
use millpond_http::log::LogLevel;
use scylla::client::session::Session;
use scylla::cluster::metadata::Strategy;
use scylla::errors::PrepareError;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency, Statement};

use crate::cluster_url::BUCKETS_DEFAULT;

use super::plan::Level;
use super::worker::QueryFailure;
use super::{ClusterError, ClusterUrl, Facts};

/// One statement at each level.
pub(super) struct AtEachLevel([PreparedStatement; Level::ALL.len()]);

impl AtEachLevel {
    fn new(statement: &PreparedStatement) -> Self {
        Self(Level::ALL.map(|level| {
            let mut statement = statement.clone();
            statement.set_consistency(level.consistency());
            statement
        }))
    }

    pub(super) fn at(&self, level: Level) -> &PreparedStatement {
        &self.0[level as usize]
    }
}

/// All of them. The comments list their parameters.
pub(super) struct Statements {
    /// bucket, id.
    pub(super) get: AtEachLevel,
    /// bucket, id, record, size, microseconds, seconds.
    pub(super) put: AtEachLevel,
    /// microseconds, bucket, id.
    pub(super) delete: AtEachLevel,
    /// bucket, first id, limit.
    pub(super) ids_from: AtEachLevel,
    /// bucket, first id, id behind the last, limit.
    pub(super) ids_between: AtEachLevel,
    /// bucket, first id, last id.
    pub(super) records: AtEachLevel,
    /// Where writes are transactions.
    pub(super) transactions: Option<Transactions>,
}

/// Of a keyspace with conditions, in which every write is one.
pub(super) struct Transactions {
    /// bucket, id: the current record, by the latest transaction.
    pub(super) version: PreparedStatement,
    /// seconds, record, size, version, end, bucket, id.
    pub(super) put: AtEachLevel,
    /// seconds, record, size, version, end, bucket, id, version that has to be there.
    pub(super) put_on: AtEachLevel,
    /// bucket, id.
    pub(super) delete: AtEachLevel,
    /// bucket, id, version that has to be there.
    pub(super) delete_on: AtEachLevel,
}

impl Statements {
    pub(super) async fn prepare(
        session: &Session,
        keyspace: &str,
        with_transactions: bool,
    ) -> Result<Self, PrepareError> {
        let table = format!("{keyspace}.entities");
        let repeatable = async |text: String| {
            let mut statement = session.prepare(text).await?;
            statement.set_is_idempotent(true);
            Ok::<_, PrepareError>(AtEachLevel::new(&statement))
        };
        let list = format!("SELECT id, size FROM {table} WHERE bucket = ? AND id >= ?");
        Ok(Self {
            get: repeatable(format!(
                "SELECT record FROM {table} WHERE bucket = ? AND id = ?"
            ))
            .await?,
            put: repeatable(format!(
                "INSERT INTO {table} (bucket, id, record, size) VALUES (?, ?, ?, ?) \
                 USING TIMESTAMP ? AND TTL ?"
            ))
            .await?,
            delete: repeatable(format!(
                "DELETE FROM {table} USING TIMESTAMP ? WHERE bucket = ? AND id = ?"
            ))
            .await?,
            ids_from: repeatable(format!("{list} LIMIT ?")).await?,
            ids_between: repeatable(format!("{list} AND id < ? LIMIT ?")).await?,
            records: repeatable(format!(
                "SELECT id, record FROM {table} WHERE bucket = ? AND id >= ? AND id <= ?"
            ))
            .await?,
            transactions: match with_transactions {
                true => Some(Transactions::prepare(session, &table).await?),
                false => None,
            },
        })
    }
}

impl Transactions {
    async fn prepare(session: &Session, table: &str) -> Result<Self, PrepareError> {
        let once = async |text: String| {
            let mut statement = session.prepare(text).await?;
            statement.set_is_idempotent(false);
            statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy)));
            statement.set_serial_consistency(Some(SerialConsistency::Serial));
            Ok::<_, PrepareError>(AtEachLevel::new(&statement))
        };
        let text = format!("SELECT version, ends FROM {table} WHERE bucket = ? AND id = ?");
        let mut version = session.prepare(text).await?;
        version.set_consistency(Consistency::Serial);
        version.set_is_idempotent(true);
        let put = format!(
            "UPDATE {table} USING TTL ? SET record = ?, size = ?, version = ?, ends = ? \
             WHERE bucket = ? AND id = ?"
        );
        let delete = format!("DELETE FROM {table} WHERE bucket = ? AND id = ?");
        Ok(Self {
            version,
            // No version is 0: that is true of all rows, and where there is none.
            put: once(format!("{put} IF version != 0")).await?,
            put_on: once(format!("{put} IF version = ?")).await?,
            delete: once(format!("{delete} IF version != 0")).await?,
            delete_on: once(format!("{delete} IF version = ?")).await?,
        })
    }
}

// The keyspace and its two tables: created if configured, checked in any case.
//
// ```text
// entities   bucket, id -> record (record.rs, as a whole), size; and version, ends for conditions
// settings   name -> value: what the keyspace was made with
// ```
//
// Place: `worker` calls it once connected. Settings are written by transactions, so that of two
// servers that make one keyspace at once both find what the first one wrote. Its ids lie where
// `buckets` put them.

/// How often a statement is tried if too few copies responded in time, and the time between.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// Raise it when tables or records change their meaning.
const FORMAT: u32 = 1;

/// Makes what is missing, if that was asked for; returns what is there.
pub(super) async fn prepare(session: &Session, url: &ClusterUrl) -> Result<Facts, ClusterError> {
    let keyspace = &url.keyspace;
    if let Some(copies) = url.create {
        create(session, url, copies).await?;
    }
    let replicas = replicas(session, keyspace)?;
    if let Some(copies) = url.create.filter(|&copies| copies != replicas) {
        return Err(ClusterError::Setting {
            keyspace: keyspace.clone(),
            name: "copies",
            kept: replicas.to_string(),
            asked: copies.to_string(),
        });
    }
    let found = settings(session, keyspace).await?;
    let of = |name: &str| {
        let setting = found.iter().find(|(found, _)| found == name);
        setting.map_or("", |(_, value)| value.as_str())
    };
    if of("format") != FORMAT.to_string() {
        return Err(ClusterError::Format {
            keyspace: keyspace.clone(),
            found: of("format").to_owned(),
            known: FORMAT,
        });
    }
    let (buckets, conditions) = (of("buckets"), of("conditions"));
    agree(
        keyspace,
        "buckets",
        buckets,
        url.buckets.map(|n| n.to_string()),
    )?;
    agree(
        keyspace,
        "conditions",
        conditions,
        url.conditions.map(switch),
    )?;
    let buckets = buckets.parse().map_err(|_| ClusterError::Format {
        keyspace: keyspace.clone(),
        found: buckets.to_owned(),
        known: FORMAT,
    })?;
    Ok(Facts {
        version: version(session).await?,
        replicas,
        buckets,
        conditions: conditions == "on",
    })
}

fn agree(
    keyspace: &str,
    name: &'static str,
    kept: &str,
    asked: Option<String>,
) -> Result<(), ClusterError> {
    match asked {
        Some(asked) if asked != kept => Err(ClusterError::Setting {
            keyspace: keyspace.to_owned(),
            name,
            kept: kept.to_owned(),
            asked,
        }),
        _ => Ok(()),
    }
}

fn switch(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

async fn create(session: &Session, url: &ClusterUrl, copies: u16) -> Result<(), ClusterError> {
    // A name without quotes, and numbers: nothing here is a stranger's text.
    let keyspace = &url.keyspace;
    for text in [
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.settings (name text PRIMARY KEY, value text)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.entities (bucket int, id blob, record blob, \
             size int, version bigint, ends bigint, PRIMARY KEY (bucket, id))"
        ),
    ] {
        run(session, "make the keyspace", &text, ()).await?;
    }
    let buckets = url.buckets.unwrap_or(BUCKETS_DEFAULT).to_string();
    let conditions = switch(url.conditions.unwrap_or(false));
    for (name, value) in [
        ("buckets", buckets),
        ("conditions", conditions),
        // Last: a keyspace without it is not complete.
        ("format", FORMAT.to_string()),
    ] {
        let text =
            format!("INSERT INTO {keyspace}.settings (name, value) VALUES (?, ?) IF NOT EXISTS");
        run(session, "keep the settings", &text, (name, value)).await?;
    }
    Ok(())
}

/// An idempotent statement, tried again while copies are too slow to respond: for example when the service and the
/// cluster start together.
async fn run(
    session: &Session,
    operation: &str,
    text: &str,
    values: impl scylla::serialize::row::SerializeRow + Clone,
) -> Result<scylla::response::query_result::QueryResult, ClusterError> {
    let mut statement = Statement::new(text);
    statement.set_consistency(Consistency::Quorum);
    let mut attempt = 1;
    loop {
        let result = session
            .query_unpaged(statement.clone(), values.clone())
            .await;
        let error = match result {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        if QueryFailure::of(&error) == QueryFailure::Rejected || attempt == ATTEMPTS_MAX {
            return Err(failed(operation, &error));
        }
        log::write(
            LogLevel::Warn,
            format_args!(
                "the cluster did not {operation}, attempt {attempt} of {ATTEMPTS_MAX}: {error}"
            ),
        );
        tokio::time::sleep(PAUSE).await;
        attempt += 1;
    }
}

fn failed(operation: &str, cause: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::Schema {
        operation: operation.to_owned(),
        cause: cause.to_string(),
    }
}

async fn settings(
    session: &Session,
    keyspace: &str,
) -> Result<Vec<(String, String)>, ClusterError> {
    let operation = format!("read the settings of keyspace {keyspace}");
    let text = format!("SELECT name, value FROM {keyspace}.settings");
    let result = run(session, &operation, &text, ()).await?;
    let rows = result.into_rows_result();
    let rows = rows.map_err(|error| failed(&operation, &error))?;
    let rows = rows.rows::<(String, String)>();
    let rows = rows.map_err(|error| failed(&operation, &error))?;
    rows.map(|row| row.map_err(|error| failed(&operation, &error)))
        .collect()
}

async fn version(session: &Session) -> Result<String, ClusterError> {
    let operation = "ask a node for its version";
    let text = "SELECT release_version FROM system.local";
    let mut statement = Statement::new(text);
    statement.set_consistency(Consistency::One);
    let result = session.query_unpaged(statement, ()).await;
    let rows = result.map_err(|error| failed(operation, &error))?;
    let rows = rows.into_rows_result();
    let rows = rows.map_err(|error| failed(operation, &error))?;
    let row = rows.first_row::<(String,)>();
    row.map(|(version,)| version)
        .map_err(|error| failed(operation, &error))
}

/// How many copies there are, over all data centres.
fn replicas(session: &Session, keyspace: &str) -> Result<u16, ClusterError> {
    let state = session.get_cluster_state();
    let found = state
        .get_keyspace(keyspace)
        .ok_or_else(|| ClusterError::NoKeyspace {
            keyspace: keyspace.to_owned(),
        })?;
    let copies = match &found.strategy {
        Strategy::SimpleStrategy { replication_factor } => *replication_factor,
        Strategy::NetworkTopologyStrategy {
            datacenter_repfactors,
        } => datacenter_repfactors.values().sum(),
        _ => 0,
    };
    let copies = u16::try_from(copies).ok().filter(|&copies| copies > 0);
    copies.ok_or_else(|| ClusterError::Replication {
        keyspace: keyspace.to_owned(),
    })
}

// In which partition an id lies.

/// FNV-1a, mixed so that all of its bits count, and scaled down by its high half.
pub(super) fn bucket_of(id: &[u8], buckets: u16) -> i32 {
    let hash = id.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((mixed >> 32) * u64::from(buckets)) >> 32) as i32
}

#[cfg(test)]
#[path = "tests/bucket.rs"]
mod bucket_tests;
