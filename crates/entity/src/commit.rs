//! Group commit: the point at which a write is durable.
//!
//! The writer thread (`executor`) hands over all that queued while the last commit ran; one batch
//! and one sync later every job in it has the same outcome. A lone write is committed at once;
//! under load the sync itself is the window in which the next batch gathers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_http::log::{self, LogLevel};
use millpond_http::{BodyHold, RequestToken};
use millpond_mempool::Buffer;

use crate::condition::Condition;
use crate::config::SyncPolicy;
use crate::metrics::CommitCounters;
use crate::parts::{DeadSet, PartKey, PartSets, header_key, part_key};
use crate::record::{Head, Version};
use crate::stamps::{Stamp, StampWriter};
use crate::store::{Durability, Failure, Room, Store, StoreError, Write};

/// One request that waits for the store. It travels from its shard to a store thread and back,
/// so its buffers are freed by the shard that filled them.
#[derive(Debug)]
pub struct Job {
    /// The shard that gets the result.
    pub shard_index: usize,
    /// The request it belongs to.
    pub request: RequestToken,
    /// The operation.
    pub kind: JobKind,
    /// The id, decoded.
    pub key: Buffer,
    /// The head of the record to put, where it is not in `value`: in front of a large value, which
    /// the shard would have had to copy.
    pub head: Buffer,
    /// The record to put, or the one a read found.
    pub value: Buffer,
    /// Its condition on the current record.
    pub condition: Condition,
    /// How many copies have to respond (`replicas`).
    pub acks: u16,
    /// How often a read found the beginning of a value whose rest was gone (`downloads`).
    pub attempt: u8,
    /// Why this one job of its batch was not done.
    pub refusal: Option<Outcome>,
    /// Under what the value may be cached (`stamps`): a read leaves with the stamp of before it, a write returns with
    /// the one of after it. `None`: not at all.
    pub stamp: Option<Stamp>,
    /// The hold of a large value: while it arrives until its response, while it leaves until it has left.
    pub hold: Option<BodyHold>,
}

impl Job {
    /// A job with nothing but a key.
    #[must_use]
    pub fn new(shard_index: usize, request: RequestToken, kind: JobKind, key: Buffer) -> Self {
        Self {
            shard_index,
            request,
            kind,
            key,
            head: Buffer::new(),
            value: Buffer::new(),
            condition: Condition::default(),
            acks: 1,
            attempt: 0,
            refusal: None,
            stamp: None,
            hold: None,
        }
    }

    /// Bytes of the job, for batch sizes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.len() + self.head.len() + self.value.len()
    }

    /// The same with a long condition, and without what the hold counts: for limits on what waits.
    #[must_use]
    pub fn uncounted_bytes(&self) -> usize {
        let bytes = match self.hold {
            Some(_) => self.key.len() + self.head.len(),
            None => self.bytes(),
        };
        bytes + self.condition.heap_bytes()
    }

    /// The size a read was counted with when it left, before it found a value.
    pub(crate) fn asked_bytes(&self) -> usize {
        self.key.len() + self.condition.heap_bytes()
    }

    /// The head of the record to put.
    #[must_use]
    pub fn record_head(&self) -> Option<Head<'_>> {
        let start = match self.head.is_empty() {
            true => &self.value,
            false => &self.head,
        };
        Head::of(start).ok()
    }

    /// The change this job makes; a read makes none, nor does a job that was refused.
    fn as_write(&self) -> Option<Write<'_>> {
        match self.kind {
            _ if self.refusal.is_some() => None,
            JobKind::Put | JobKind::Part => Some(Write::Put {
                key: &self.key,
                head: &self.head,
                value: &self.value,
            }),
            JobKind::Delete => Some(Write::Delete { key: &self.key }),
            JobKind::Get | JobKind::GetPart | JobKind::Judge | JobKind::Hold => None,
        }
    }

    /// The version that is there behind this job.
    fn version_after(&self) -> Option<Version> {
        match self.kind {
            JobKind::Put => self
                .record_head()
                .filter(|head| !head.is_expired())
                .map(|head| head.version),
            JobKind::Delete
            | JobKind::Part
            | JobKind::Get
            | JobKind::GetPart
            | JobKind::Judge
            | JobKind::Hold => None,
        }
    }
}

/// The operation of a [`Job`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JobKind {
    /// Set the entity to `value`.
    Put,
    /// Remove the entity.
    Delete,
    /// Set a part of a value, or the record of a value in parts (`parts`).
    Part,
    /// Read the entity from disk into `value`.
    Get,
    /// The same, of a part.
    GetPart,
    /// Whether the condition of a write is known to hold.
    Judge,
    /// A hold on what an upload keeps in memory.
    Hold,
}

impl JobKind {
    /// Whether the writer thread does it, and not a read thread.
    #[must_use]
    pub fn is_write(self) -> bool {
        match self {
            Self::Put | Self::Delete | Self::Part => true,
            Self::Get | Self::GetPart | Self::Judge | Self::Hold => false,
        }
    }
}

/// How a [`Job`] ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The write is as durable as the policy promises: acknowledge it.
    Written,
    /// The write is not, or not known to be, durable: refuse it.
    Refused,
    /// The engine is short of something that passes, or is opened again: not done, or not known to be durable.
    /// The same request may succeed soon.
    Paused,
    /// The read found `value`.
    Found,
    /// The upload may go on: its condition holds, or its hold is there.
    Granted,
    /// The read found nothing.
    Absent,
    /// The read failed: the engine, or no memory for the value.
    ReadFailed,
    /// Another version was there than the write depends on: it was not done.
    PreconditionFailed,
    /// The disk has no room for the write: it was not done.
    NoRoom,
    /// Fewer copies responded to the read than requested.
    TooFewReplicas,
    /// Fewer copies responded to the write than requested: it may have been done, or may still be done.
    Unknown,
    /// The cluster rejects the write: it was not done.
    Rejected,
    /// Other clients wrote the entity faster than it could be read: it was not done.
    Overtaken,
    /// The value is large, and others have the memory that large ones may take.
    Busy,
}

/// Of parts, in one batch: their keys are 1 KiB long.
const DELETES_PER_BATCH: usize = 512;

/// How often an engine that was short of something is tried.
const TRY_INTERVAL: Duration = Duration::from_millis(250);

/// Commits batches and remembers failure.
///
/// Invariant: once poisoned, `commit` never returns [`Outcome::Written`] again. After a failed sync the kernel may have
/// dropped the dirty pages and report success on the next one, so only a restart, which reads the log back, finds the
/// real state.
///
/// A failure that passes ([`Failure::Passing`]) came before any sync: writes are paused, and
/// [`Store::recover`] is tried until the engine writes again.
pub struct Committer<S> {
    store: Arc<S>,
    policy: SyncPolicy,
    counters: Arc<CommitCounters>,
    stamps: StampWriter,
    /// When the oldest write that no sync covers yet was made.
    unsynced_since: Option<Instant>,
    /// Writes are paused.
    pause: Option<Pause>,
    /// Written since the disk was last asked for room; none was asked before the first batch.
    unchecked_bytes: Option<u64>,
    /// After how many it is asked again.
    check_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    tries: u32,
    next_try: Instant,
}

impl<S: Store> Committer<S> {
    /// For a store that no other committer writes to.
    #[must_use]
    pub fn new(
        store: Arc<S>,
        policy: SyncPolicy,
        counters: Arc<CommitCounters>,
        stamps: StampWriter,
    ) -> Self {
        Self {
            store,
            policy,
            counters,
            stamps,
            unsynced_since: None,
            pause: None,
            unchecked_bytes: None,
            check_bytes: 0,
        }
    }

    /// Makes the batch durable, in its order. The result holds for all its jobs, except those refused one by one when
    /// it is [`Outcome::Written`]. On success the jobs whose values may be cached are marked with their stamps.
    pub fn commit(&mut self, batch: &mut [Job]) -> Outcome {
        if self.counters.is_poisoned() {
            return Outcome::Refused;
        }
        if self.pause.is_some() {
            return Outcome::Paused;
        }
        self.make_sure_of_room(batch);
        judge(&*self.store, batch);
        let done = batch.iter().filter(|job| job.refusal.is_none());
        let (done_count, batch_bytes) = done.fold((0, 0), |(count, bytes), job| {
            (count + 1, bytes + job.bytes())
        });
        if done_count == 0 {
            return Outcome::Written;
        }
        let is_awaited = |job: &Job| job.refusal.is_none() && job.kind != JobKind::Part;
        let durability = match self.policy {
            _ if !batch.iter().any(is_awaited) => Durability::Unacknowledged,
            SyncPolicy::Always => Durability::Synced,
            SyncPolicy::Interval { .. } | SyncPolicy::Off => Durability::Written,
        };
        self.stamps.begin(batch);
        let writes = Writes { jobs: batch.iter() };
        if let Err(error) = self.store.commit(writes, batch_bytes, durability) {
            // The stamps stay as they are: nothing of this batch is cached before the engine has recovered.
            return match self.failed(&error) {
                Failure::Passing => Outcome::Paused,
                Failure::Lasting => Outcome::Refused,
            };
        }
        self.stamps.finish(batch);
        self.counters.count_commit(done_count, batch_bytes);
        match durability {
            Durability::Synced => self.counters.count_sync(),
            Durability::Written => {
                self.unsynced_since.get_or_insert_with(Instant::now);
            }
            Durability::Unacknowledged => {}
        }
        Outcome::Written
    }

    /// When [`do_what_is_due`](Self::do_what_is_due) must be called: under an interval policy while a write
    /// waits for its sync, and while writes are paused.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.pause {
            Some(pause) => Some(pause.next_try),
            None => Some(self.unsynced_since? + self.policy.interval()?),
        }
    }

    /// Syncs, or tries the engine that writes wait for, where the time for it has come.
    pub fn do_what_is_due(&mut self) {
        if self.deadline().is_none_or(|due| Instant::now() < due) {
            return;
        }
        match self.pause {
            Some(pause) => self.recover(pause),
            None => self.sync(),
        }
    }

    /// Syncs the writes that the interval policy left unsynced. A permanent failure poisons: writes acknowledged within
    /// this interval may be lost with the power, as the policy allows, but none after it.
    pub fn sync(&mut self) {
        let is_idle = self.counters.is_poisoned() || self.pause.is_some();
        let Some(since) = self.unsynced_since.take().filter(|_| !is_idle) else {
            return;
        };
        match self.store.sync() {
            Ok(()) => self.counters.count_sync(),
            Err(error) => {
                if self.failed(&error) == Failure::Passing {
                    self.unsynced_since = Some(since);
                }
            }
        }
    }

    fn recover(&mut self, pause: Pause) {
        match self.store.recover(pause.tries) {
            Ok(true) => {
                self.stamps.finish_failed();
                self.pause = None;
                self.counters.recoveries.add(1);
                self.counters.set_paused(false);
                log::write(LogLevel::Info, format_args!("the store writes again"));
            }
            Ok(false) => {
                self.pause = Some(Pause {
                    tries: pause.tries.saturating_add(1),
                    next_try: Instant::now() + TRY_INTERVAL,
                });
            }
            Err(error) => self.poison(&error),
        }
    }

    /// Refuses what the disk has no room for. It is asked whenever an eighth of what is to be left
    /// there was written: by bytes and not by time, so that no writer is too fast for it.
    fn make_sure_of_room(&mut self, batch: &mut [Job]) {
        let batch_bytes: u64 = batch.iter().map(|job| job.bytes() as u64).sum();
        let unchecked_bytes = self.unchecked_bytes.unwrap_or(u64::MAX);
        let unchecked_bytes = unchecked_bytes.saturating_add(batch_bytes);
        self.unchecked_bytes = Some(unchecked_bytes);
        if unchecked_bytes >= self.check_bytes {
            let Some(disk) = self.store.disk() else {
                return;
            };
            self.unchecked_bytes = Some(0);
            self.check_bytes = disk.reserve_bytes / 8;
            self.counters.set_room(disk.room());
        }
        let room = self.counters.room();
        for job in batch {
            let may_go = match job.kind {
                JobKind::Put | JobKind::Part => room == Room::Enough,
                JobKind::Delete => room != Room::None,
                JobKind::Get | JobKind::GetPart | JobKind::Judge | JobKind::Hold => true,
            };
            job.refusal = (!may_go).then_some(Outcome::NoRoom);
        }
    }

    /// Deletes the parts of dead values, as many as there is room for.
    pub(crate) fn delete_dead_parts(&mut self, sets: &PartSets) {
        while let Some(dead) = sets.next_dead() {
            let may_write = !self.counters.is_poisoned() && self.pause.is_none();
            if may_write && self.counters.room() != Room::None && self.delete_parts(dead).is_ok() {
                self.counters.dead_parts_deleted.add(u64::from(dead.parts));
            }
            sets.let_go(dead.set);
        }
    }

    fn delete_parts(&mut self, dead: DeadSet) -> Result<(), Failure> {
        // From the last on: where it is cut off, those that are left are counted by the first that is not there.
        let parts = (0..dead.parts).rev().map(|n| part_key(dead.set, n));
        let parts: Vec<_> = parts.collect();
        let batches = parts.chunks(DELETES_PER_BATCH);
        for keys in batches {
            self.delete_all(keys.iter().map(|key| &key[..]))?;
        }
        // Last: as long as it is there, the rest is found again.
        self.delete_all(std::iter::once(&header_key(dead.set)[..]))
    }

    fn delete_all<'k>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) -> Result<(), Failure> {
        let bytes = keys.len() * size_of::<PartKey>();
        let deletes = keys.map(|key| Write::Delete { key });
        let written = self
            .store
            .commit(deletes, bytes, Durability::Unacknowledged);
        written.map_err(|error| self.failed(&error))
    }

    /// After a panic of this thread: as after a failed commit, it is unknown which writes are durable. A second panic
    /// comes from the refusals themselves, and would repeat for ever.
    pub(crate) fn refuse_after_panic(&mut self) {
        let is_second = self.counters.is_poisoned();
        self.counters.poison();
        self.unsynced_since = None;
        self.pause = None;
        self.counters.set_paused(false);
        if is_second {
            let sentence =
                "the store's writer thread panicked while it refused writes: the process ends";
            log::write(LogLevel::Error, format_args!("{sentence}"));
            std::process::abort();
        }
    }

    /// After a commit or a sync that failed.
    fn failed(&mut self, error: &StoreError) -> Failure {
        match error.failure {
            Failure::Lasting => self.poison(error),
            Failure::Passing => {
                self.pause = Some(Pause {
                    tries: 0,
                    next_try: Instant::now() + TRY_INTERVAL,
                });
                self.counters.set_paused(true);
                log::write(
                    LogLevel::Error,
                    format_args!(
                        "{error}; writes are answered 503 until there is enough of it again, reads go on"
                    ),
                );
            }
        }
        error.failure
    }

    fn poison(&mut self, error: &StoreError) {
        self.pause = None;
        self.counters.poison();
        self.counters.set_paused(false);
        log::write(
            LogLevel::Error,
            format_args!("{error}; writes are refused until a restart, reads go on"),
        );
    }
}

/// Refuses the jobs whose condition does not hold at their place in the order: after all committed writes, and after
/// the jobs before them. Only for these is the engine read; it may wait for the disk, and the batch with it.
fn judge<S: Store>(store: &S, batch: &mut [Job]) {
    if batch.iter().all(|job| job.condition.is_none()) {
        return;
    }
    let mut changed: HashMap<&[u8], Option<Version>> = HashMap::new();
    let mut refusals = Vec::with_capacity(batch.len());
    for job in &*batch {
        let refusal = job.refusal.or_else(|| refusal_of(store, &changed, job));
        if refusal.is_none() {
            changed.insert(&job.key, job.version_after());
        }
        refusals.push(refusal);
    }
    for (job, refusal) in batch.iter_mut().zip(refusals) {
        job.refusal = refusal;
    }
}

fn refusal_of<S: Store>(
    store: &S,
    changed: &HashMap<&[u8], Option<Version>>,
    job: &Job,
) -> Option<Outcome> {
    if job.condition.is_none() {
        return None;
    }
    let current = match changed.get(&*job.key) {
        Some(version) => *version,
        None => match current_version(store, &job.key) {
            Ok(version) => version,
            Err(outcome) => return Some(outcome),
        },
    };
    (!job.condition.allows_write(current)).then_some(Outcome::PreconditionFailed)
}

/// Which version of an entity is there, if any is.
///
/// # Errors
/// [`Outcome::ReadFailed`], or [`Outcome::Paused`] while the engine is opened again.
pub(crate) fn current_version<S: Store>(store: &S, key: &[u8]) -> Result<Option<Version>, Outcome> {
    let read = store.get(key, |record| {
        Head::of(record).map(|head| (!head.is_expired()).then_some(head.version))
    });
    match read {
        Ok(None) => Ok(None),
        Ok(Some(Ok(version))) => Ok(version),
        Err(error) if error.failure == Failure::Passing => Err(Outcome::Paused),
        Ok(Some(Err(_))) | Err(_) => Err(Outcome::ReadFailed),
    }
}

/// The changes of a batch, in order. As many as jobs at most, so that an engine reserves once.
struct Writes<'a> {
    jobs: std::slice::Iter<'a, Job>,
}

impl<'a> Iterator for Writes<'a> {
    type Item = Write<'a>;

    fn next(&mut self) -> Option<Write<'a>> {
        self.jobs.find_map(Job::as_write)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.jobs.len()))
    }
}
