//! One entity, from as many copies as were asked for.
//!
//! On the path: `worker` runs it for each read. The newest of the answers counts, and copies that are
//! behind are mended by the nodes.
//! Absent on purpose: expiry, which `api` reads off the record as everywhere.

use millpond_mempool::Buffer;

use super::bucket::bucket_of;
use super::failure::Failure;
use super::worker::Cluster;
use crate::commit::{Job, Outcome};

/// Reads into the job's value.
pub(super) async fn read(cluster: &Cluster, job: &mut Job) -> Outcome {
    let statement = cluster.statements.get.at(cluster.level(job.acks));
    let place = (bucket_of(&job.key, cluster.buckets), &job.key[..]);
    let rows = match cluster.session.execute_unpaged(statement, place).await {
        Ok(result) => result.into_rows_result(),
        Err(error) => {
            cluster.complaints.add("read", &error);
            return Failure::of(&error).of_read();
        }
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => {
            cluster.complaints.add("read", &error);
            return Outcome::ReadFailed;
        }
    };
    match rows.maybe_first_row::<(Option<&[u8]>,)>() {
        Ok(Some((Some(record),))) => match copy(cluster, record) {
            Some(value) => {
                job.value = value;
                Outcome::Found
            }
            None => Outcome::ReadFailed,
        },
        Ok(Some((None,)) | None) => Outcome::Absent,
        Err(error) => {
            cluster.complaints.add("read", &error);
            Outcome::ReadFailed
        }
    }
}

fn copy(cluster: &Cluster, record: &[u8]) -> Option<Buffer> {
    let mut value = Buffer::with_capacity(&cluster.values, record.len()).ok()?;
    value.append_within_capacity(record);
    Some(value)
}
