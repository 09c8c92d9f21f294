//! A range over all partitions, in the order of ids.
//!
//! `worker` runs a turn for each request of a shard. When a scan has no records left it lists the next ids of every
//! partition, with sizes, and reads those that come first (`plan`), in amounts that keep memory bounded whatever the
//! range holds. So a turn is a query to each partition and another one to most, and concurrent writes may be seen or
//! not. Every record is shown as it was at some moment during the range read, and none twice.

use std::collections::VecDeque;
use std::rc::Rc;

use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use tokio::task::JoinSet;

use super::plan::Level;
use super::plan::{Listed, Slice, plan};
use super::worker::Cluster;
use super::worker::QueryFailure;
use crate::key::ID_BYTES_MAX;
use crate::range::ScanRange;
use crate::scanner::{Page, Quota, Turn, cut_short};

/// Records that a scan reads at once and keeps, or one if that is larger.
const READ_BYTES_MAX: u64 = 512 << 10;

/// Ids that a partition lists: few at first, for short ranges, then more each time, as long as those of all
/// partitions take no more than so much.
const LIST_FIRST: i32 = 16;
const LIST_MAX: i32 = 256;
const LIST_BYTES_MAX: usize = 1 << 20;

/// An id and its record.
type Found = (Vec<u8>, Vec<u8>);

/// A range read between two turns.
pub(super) struct ClusterScan {
    reading: Reading,
    quota: Quota,
}

/// Records read and not shown yet, and the rest to read.
struct Reading {
    level: Level,
    /// Where to go on; none: all is read.
    from: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    list: i32,
    records: VecDeque<Found>,
}

impl ClusterScan {
    pub(super) fn new(level: Level, buckets: u16, range: &ScanRange) -> Self {
        let (start, end) = (&range.start[..], range.end.as_deref());
        let is_empty = end.is_some_and(|end| end <= start);
        let reading = Reading {
            level,
            from: (!is_empty).then(|| start.to_vec()),
            end: end.map(<[u8]>::to_vec),
            list: LIST_FIRST.min(list_max(buckets, ID_BYTES_MAX)),
            records: VecDeque::new(),
        };
        let quota = Quota::of(range);
        Self { reading, quota }
    }

    /// The next records, as many as go into a turn.
    pub(super) async fn turn(&mut self, cluster: &Rc<Cluster>) -> Turn {
        let reading = &mut self.reading;
        let mut page = Page::new(&cluster.values, &cluster.large, None, &mut self.quota);
        loop {
            while let Some((id, record)) = reading.records.front() {
                if page.add(id, record).is_break() {
                    break;
                }
                reading.records.pop_front();
            }
            if let Some(fault) = &page.fault {
                cut_short(fault);
                return Turn::Failed;
            }
            let is_all = reading.records.is_empty() && reading.from.is_none();
            let is_last = is_all || page.has_reached_limit();
            if is_last || !reading.records.is_empty() || !page.records.is_empty() {
                return page.into_turn(is_last).0;
            }
            match reading.read_on(cluster).await {
                Ok(()) => {}
                Err(QueryFailure::TooFew) => return Turn::TooFewReplicas,
                Err(QueryFailure::Rejected) => return Turn::Failed,
            }
        }
    }
}

impl Reading {
    async fn read_on(&mut self, cluster: &Rc<Cluster>) -> Result<(), QueryFailure> {
        let Some(from) = self.from.take() else {
            return Ok(());
        };
        let bounds = Rc::new((from, self.end.clone()));
        let (level, list) = (self.level, self.list);
        let listed = of_each(0..cluster.buckets, |bucket| {
            let (cluster, bounds) = (Rc::clone(cluster), Rc::clone(&bounds));
            async move { list_ids(&cluster, level, bucket, &bounds, list).await }
        });
        let listed = listed.await?;
        let plan = plan(&listed, READ_BYTES_MAX);
        self.list = list_next(self.list, &listed);
        drop(listed);
        let read = of_each(plan.slices, |slice| {
            let cluster = Rc::clone(cluster);
            async move { read_records(&cluster, level, slice).await }
        });
        let mut found: Vec<Found> = read.await?.into_iter().flatten().collect();
        found.sort_unstable();
        self.records = found.into();
        self.from = plan.next;
        Ok(())
    }
}

/// How many ids each partition lists the next time, if they are as long as those that it just did.
fn list_next(list: i32, listed: &[Listed]) -> i32 {
    let ids = listed.iter().flat_map(|listed| &listed.ids);
    let (count, bytes) = ids.fold((0, 0), |(count, bytes), (id, _)| {
        (count + 1, bytes + id.len())
    });
    let id_bytes = bytes.div_ceil(count.max(1));
    let partitions = u16::try_from(listed.len()).unwrap_or(u16::MAX);
    (list * 4).min(list_max(partitions, id_bytes))
}

/// How many ids of that length each of so many partitions may list.
fn list_max(partitions: u16, id_bytes: usize) -> i32 {
    let each = usize::from(partitions.max(1)) * (id_bytes + size_of::<(Vec<u8>, u64)>());
    let fits = i32::try_from(LIST_BYTES_MAX / each).unwrap_or(LIST_MAX);
    fits.clamp(1, LIST_MAX)
}

/// Sends all queries at once; the responses in their order.
async fn of_each<T, R: 'static, F: Future<Output = Result<R, QueryFailure>> + 'static>(
    items: impl IntoIterator<Item = T>,
    ask: impl Fn(T) -> F,
) -> Result<Vec<R>, QueryFailure> {
    let mut tasks = JoinSet::new();
    for (index, item) in items.into_iter().enumerate() {
        let answer = ask(item);
        tasks.spawn_local(async move { (index, answer.await) });
    }
    let mut answers = Vec::with_capacity(tasks.len());
    while let Some(joined) = tasks.join_next().await {
        // A panic is on stderr already.
        let (index, answer) = joined.map_err(|_| QueryFailure::Rejected)?;
        answers.push((index, answer?));
    }
    answers.sort_unstable_by_key(|(index, _)| *index);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

async fn list_ids(
    cluster: &Cluster,
    level: Level,
    bucket: u16,
    (from, end): &(Vec<u8>, Option<Vec<u8>>),
    limit: i32,
) -> Result<Listed, QueryFailure> {
    let (statements, bucket) = (&cluster.statements, i32::from(bucket));
    let from = &from[..];
    let rows = match end {
        Some(end) => {
            let values = (bucket, from, &end[..], limit);
            rows(cluster, statements.ids_between.at(level), values).await?
        }
        None => {
            let values = (bucket, from, limit);
            rows(cluster, statements.ids_from.at(level), values).await?
        }
    };
    let ids = each::<(&[u8], Option<i32>), _>(cluster, &rows, |(id, size)| {
        (id.to_vec(), size.unwrap_or(0).max(0) as u64)
    })?;
    let is_whole = ids.len() < limit as usize;
    Ok(Listed { ids, is_whole })
}

async fn read_records(
    cluster: &Cluster,
    level: Level,
    slice: Slice,
) -> Result<Vec<Found>, QueryFailure> {
    let values = (i32::from(slice.bucket), &slice.first[..], &slice.last[..]);
    let rows = rows(cluster, cluster.statements.records.at(level), values).await?;
    each::<(&[u8], &[u8]), _>(cluster, &rows, |(id, record)| {
        (id.to_vec(), record.to_vec())
    })
}

async fn rows(
    cluster: &Cluster,
    statement: &PreparedStatement,
    values: impl SerializeRow,
) -> Result<QueryRowsResult, QueryFailure> {
    // Not a permit: a waiter for one lets others ask.
    let _permit = cluster.questions.acquire().await;
    let result = cluster.session.execute_unpaged(statement, values).await;
    let result = result.map_err(|error| {
        cluster.complaints.add("answer a range", &error);
        QueryFailure::of(&error)
    })?;
    result.into_rows_result().map_err(|error| {
        cluster.complaints.add("answer a range", &error);
        QueryFailure::Rejected
    })
}

fn each<'a, R: scylla::deserialize::row::DeserializeRow<'a, 'a>, T>(
    cluster: &Cluster,
    rows: &'a QueryRowsResult,
    convert: impl Fn(R) -> T,
) -> Result<Vec<T>, QueryFailure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        cluster.complaints.add("answer a range", error);
        QueryFailure::Rejected
    };
    let rows = rows.rows::<R>().map_err(|error| unreadable(&error))?;
    rows.map(|row| row.map(&convert).map_err(|error| unreadable(&error)))
        .collect()
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
