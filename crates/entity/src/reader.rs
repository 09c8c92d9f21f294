//! A read thread: values that are not in memory, from the engine into its own buffers.
//!
//! `executor` distributes the shards' reads; each result is returned as soon as its value is there. A large value needs
//! a hold on the budget of such values. Without one its job waits here, which costs no more than its id, and is read
//! when there is room, in order: clients need not retry. Reading 64 values in one call was a fifth faster than one by
//! one if the page cache has them, but keeps all of them in memory at a time, however long they are.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use millpond_http::BodyHold;
use millpond_io::monotonic_ns;
use millpond_mempool::{BlockPool, Buffer, flush_remote_frees};

use crate::budget::Sweeps;
use crate::commit::{Job, JobKind, Outcome, current_version};
use crate::executor::{ExecutorShared, Outbox};
use crate::metrics::StoreThread;
use crate::parts::{LARGE_BYTES, LOOK_INTERVAL};
use crate::store::{Failure, Store};
use crate::uploads::UPLOAD_BYTES;
use crate::work_queue::{Taken, WorkQueue};

/// How many waiting jobs are checked each time.
const TRIES_PER_LOOK: usize = 32;

/// A read that waits for room.
struct Waiting {
    job: Job,
    bytes: u64,
    until: Instant,
}

/// Executes the jobs of the queue, until it is closed.
pub(crate) fn run_reader<S: Store>(
    shared: &ExecutorShared,
    queue: &WorkQueue<Job>,
    store: &S,
    values: BlockPool,
) {
    let mut reader = Reader {
        store,
        values,
        shared,
        wait_max: shared.large_wait_max,
        waiting: VecDeque::new(),
        outbox: Outbox::new(shared),
    };
    let mut queued = Vec::new();
    let mut sweeps = Sweeps::default();
    loop {
        let look = (!reader.waiting.is_empty()).then(|| Instant::now() + LOOK_INTERVAL);
        let deadline = sweeps.deadline().into_iter().chain(look).min();
        let taken = queue.take_all(&mut queued, deadline);
        if taken == Taken::Closed {
            break;
        }
        reader.values.drain_remote();
        let now = Instant::now();
        if taken == Taken::Work {
            sweeps.note_use(now);
        }
        // Under steady load the queue never runs into its deadline.
        sweeps.sweep_if_due(now, || reader.values.trim());
        if !reader.waiting.is_empty() {
            reader.look_after_waiting(now);
            reader.outbox.send(shared);
        }
        for job in queued.drain(..) {
            reader.read(job);
            reader.outbox.send(shared);
        }
        flush_remote_frees();
    }
}

struct Reader<'a, S> {
    store: &'a S,
    values: BlockPool,
    shared: &'a ExecutorShared,
    /// Longest wait for room; then the response is 503.
    wait_max: Duration,
    waiting: VecDeque<Waiting>,
    outbox: Outbox,
}

/// Why a value that was found is not brought home.
enum NoCopy {
    /// Others have the bytes that large ones may take, of which it needs so many.
    Busy(u64),
    /// There is no memory.
    Memory,
}

impl<S: Store> Reader<'_, S> {
    fn read(&mut self, mut job: Job) {
        match self.try_read_or_fail(&mut job) {
            Ok(outcome) => self.outbox.push(job, outcome),
            Err(bytes) => self.waiting.push_back(Waiting {
                job,
                bytes,
                until: Instant::now() + self.wait_max,
            }),
        }
    }

    /// Reads those of the next few waiting jobs that there is room for, in order, and drops those that waited too long.
    /// One that fits does not wait for one that does not.
    fn look_after_waiting(&mut self, now: Instant) {
        let large = &self.shared.large;
        let tries = self.waiting.len().min(TRIES_PER_LOOK);
        for _ in 0..tries {
            let Some(mut first) = self.waiting.pop_front() else {
                return;
            };
            let outcome = match large.has_room_for(first.bytes) {
                true => self.try_read_or_fail(&mut first.job),
                false => Err(first.bytes),
            };
            match outcome {
                Ok(outcome) => self.outbox.push(first.job, outcome),
                Err(_) if now >= first.until => self.outbox.push(first.job, Outcome::Busy),
                Err(bytes) => {
                    // It may have been overwritten by a longer one.
                    first.bytes = bytes;
                    self.waiting.push_back(first);
                }
            }
        }
        if let Some(first) = self.waiting.front() {
            large.cut_slowest(first.bytes, monotonic_ns());
        }
    }

    /// A panic fails the read and not the thread, whose other jobs would wait for ever.
    fn try_read_or_fail(&self, job: &mut Job) -> Result<Outcome, u64> {
        let read = AssertUnwindSafe(|| self.try_read(job));
        panic::catch_unwind(read).unwrap_or_else(|_| {
            self.shared.panics.note(StoreThread::Reader);
            Ok(Outcome::ReadFailed)
        })
    }

    /// Whether the condition of a write is known to hold. It is checked again where the record is written.
    fn judge(&self, job: &Job) -> Outcome {
        match current_version(self.store, &job.key) {
            Ok(version) if job.condition.allows_write(version) => Outcome::Granted,
            Ok(_) => Outcome::PreconditionFailed,
            Err(outcome) => outcome,
        }
    }

    /// Takes memory for an upload.
    fn take_hold(&self, job: &mut Job) -> Result<Outcome, u64> {
        match self.hold_for(UPLOAD_BYTES, job.shard_index) {
            Ok(hold) => {
                job.hold = hold;
                Ok(Outcome::Granted)
            }
            Err(NoCopy::Busy(bytes)) => Err(bytes),
            Err(NoCopy::Memory) => Ok(Outcome::ReadFailed),
        }
    }

    /// Reads into `job`; otherwise there is no room for a value of so many bytes.
    fn try_read(&self, job: &mut Job) -> Result<Outcome, u64> {
        match job.kind {
            JobKind::Judge => return Ok(self.judge(job)),
            JobKind::Hold => return self.take_hold(job),
            _ => {}
        }
        let shard_index = job.shard_index;
        let read = self.store.get(&job.key, |value| {
            let hold = self.hold_for(value.len(), shard_index)?;
            let copy = Buffer::with_capacity(&self.values, value.len());
            let mut copy = copy.map_err(|_| NoCopy::Memory)?;
            copy.append_within_capacity(value);
            Ok((copy, hold))
        });
        match read {
            Ok(Some(Ok((value, hold)))) => {
                job.value = value;
                job.hold = hold;
                Ok(Outcome::Found)
            }
            Ok(None) => Ok(Outcome::Absent),
            Ok(Some(Err(NoCopy::Busy(bytes)))) => Err(bytes),
            Err(error) if error.failure == Failure::Passing => Ok(Outcome::Paused),
            Ok(Some(Err(NoCopy::Memory))) | Err(_) => Ok(Outcome::ReadFailed),
        }
    }

    fn hold_for(&self, len: usize, shard_index: usize) -> Result<Option<BodyHold>, NoCopy> {
        if len <= LARGE_BYTES {
            return Ok(None);
        }
        let bytes = len as u64;
        let take = || {
            let waker = self.shared.waker(shard_index);
            self.shared.large.take(bytes, monotonic_ns(), waker)
        };
        take().map(Some).ok_or(NoCopy::Busy(bytes))
    }
}
