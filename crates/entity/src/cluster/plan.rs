//! Which records of all partitions come next, given the next ids of every partition.
//!
//! `scan` lists the first ids of each partition, with sizes, and this module chooses those to read. Of a partition with
//! more to list, nothing is known after its last id; so ids after the smallest of such last ids have to wait.

use millpond_mempool::Buffer;
use scylla::statement::Consistency;

use crate::commit::{Job, Outcome};
use crate::condition::quorum;

use super::statements::bucket_of;
use super::worker::Cluster;
use super::worker::QueryFailure;

/// The first ids of a partition that are in the range, in order, and the bytes of their records.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Listed {
    pub(super) ids: Vec<(Vec<u8>, u64)>,
    /// There are no more.
    pub(super) is_whole: bool,
}

/// From which id to which, in one partition; both are there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Slice {
    pub(super) bucket: u16,
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
}

/// The records to read now, and where to go on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Plan {
    pub(super) slices: Vec<Slice>,
    /// The least id that may come behind all of them; none: nothing does.
    pub(super) next: Option<Vec<u8>>,
}

/// The records that come first over all partitions, `bytes_max` of them or one.
pub(super) fn plan(listed: &[Listed], bytes_max: u64) -> Plan {
    let last_ids = listed
        .iter()
        .filter(|listed| !listed.is_whole)
        .filter_map(|listed| listed.ids.last());
    let horizon = last_ids.map(|(id, _)| id).min();
    let mut known: Vec<(&Vec<u8>, u64, u16)> = (0..)
        .zip(listed)
        .flat_map(|(bucket, listed)| listed.ids.iter().map(move |(id, size)| (id, *size, bucket)))
        .filter(|(id, ..)| horizon.is_none_or(|horizon| *id <= horizon))
        .collect();
    known.sort_unstable();
    let mut bytes = 0;
    let fits = known.iter().take_while(|(id, size, _)| {
        bytes += id.len() as u64 + size;
        bytes <= bytes_max
    });
    let count = fits.count().max(1).min(known.len());
    let is_more = count < known.len() || horizon.is_some();
    let taken = &known[..count];
    let mut slices: Vec<Option<Slice>> = listed.iter().map(|_| None).collect();
    for (id, _, bucket) in taken {
        match &mut slices[usize::from(*bucket)] {
            Some(slice) => slice.last.clone_from(id),
            slice => {
                *slice = Some(Slice {
                    bucket: *bucket,
                    first: id.to_vec(),
                    last: id.to_vec(),
                });
            }
        }
    }
    Plan {
        slices: slices.into_iter().flatten().collect(),
        next: taken
            .last()
            .filter(|_| is_more)
            .map(|(id, ..)| successor(id)),
    }
}

/// The least id that is greater.
fn successor(id: &[u8]) -> Vec<u8> {
    [id, &[0]].concat()
}

// One entity, from as many copies as were asked for.

/// Reads into the job's value.
pub(super) async fn read(cluster: &Cluster, job: &mut Job) -> Outcome {
    let statement = cluster.statements.get.at(cluster.level(job.acks));
    let place = (bucket_of(&job.key, cluster.buckets), &job.key[..]);
    let rows = match cluster.session.execute_unpaged(statement, place).await {
        Ok(result) => result.into_rows_result(),
        Err(error) => {
            cluster.complaints.add("read", &error);
            return QueryFailure::of(&error).of_read();
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

// Number of acknowledgement counts that have a consistency level.

/// Its CQL consistency level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    One,
    Two,
    Three,
    Quorum,
    All,
}

impl Level {
    /// In the order of their numbers.
    pub(super) const ALL: [Self; 5] = [Self::One, Self::Two, Self::Three, Self::Quorum, Self::All];

    /// Waits for `acks` of `kept` copies.
    pub(super) fn of(acks: u16, kept: u16) -> Self {
        match acks {
            // First, so that it stays right where the keyspace gets more copies meanwhile.
            _ if acks == quorum(kept) && kept > 1 => Self::Quorum,
            1 => Self::One,
            _ if acks == kept => Self::All,
            2 => Self::Two,
            3 => Self::Three,
            _ => Self::All,
        }
    }

    pub(super) fn consistency(self) -> Consistency {
        match self {
            Self::One => Consistency::One,
            Self::Two => Consistency::Two,
            Self::Three => Consistency::Three,
            Self::Quorum => Consistency::Quorum,
            Self::All => Consistency::All,
        }
    }
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/level.rs"]
mod level_tests;
