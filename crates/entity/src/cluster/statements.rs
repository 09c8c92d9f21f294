//! What is said to the nodes: prepared once, for each level of acknowledgement.
//!
//! On the path: `read`, `write` and `scan` take theirs.
//! A statement that may be done twice says so: reads do, and writes that carry their time, which makes
//! the second one the same write. Only such a one is sent again by the driver, to another node: after a
//! connection broke, or on suspicion when no answer came for a while. Transactions are sent once: a
//! second one would meet the first, and take it for somebody else's.
//! Absent on purpose: weaker levels than asked for. No retry lowers one.

use std::sync::Arc;

use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

use super::level::Level;

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

/// All of them. In the comments: what they are given.
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
    /// bucket, id: what is there, by the latest transaction.
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
