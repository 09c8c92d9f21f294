//! The hand-over between shards, which never wait for a disk, and the store threads, which do.
//!
//! ```text
//! shard: handler -> ShardLink::submit .. tick ends: flush -> WorkQueue -> writer:  Committer::commit
//!                                                         -> WorkQueue -> reader:  Store::get
//! shard: handler <- ShardLink::take_answers <- io::Mailbox <- one send and one wake per batch
//! ```
//!
//! One writer thread, so that all queued jobs form one batch; a few readers, for reads that miss every cache. A job's
//! buffers travel with it and return to be freed. A shard that has too much in flight gets [`Overloaded`] at once and
//! responds with 503. Of what may be in flight reads take no more than half: those of large values wait for clients
//! that read slowly, and no write should wait for those.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millpond_http::BodyBudget;
use millpond_io::{Mailbox, MailboxSender, Waker};
use millpond_mempool::{BlockPool, PoolMode, flush_remote_frees};

use crate::commit::{Committer, Job, JobKind, Outcome};
use crate::metrics::{CommitCounters, ShardCounters, StoreThread, ThreadPanics};
use crate::parts::PartSets;
use crate::reader::run_reader;
use crate::stamps::{StampWriter, Stamps};
use crate::store::{Room, Store};
use crate::work_queue::{Taken, WorkQueue};

/// Limits of the hand-over.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorConfig {
    /// Shards that will be linked, with indexes below this.
    pub shards: usize,
    /// Threads for reads.
    pub read_threads: usize,
    /// Jobs in flight at most, all shards together.
    pub jobs_in_flight_max: usize,
    /// Bytes of keys and values in flight at most, all shards together.
    pub bytes_in_flight_max: u64,
    /// Large values that were read and are on their way to clients hold at most this many bytes, or
    /// one of them does.
    pub large_bytes_max: u64,
    /// Longest wait of a read for a part of these.
    pub large_wait_max: Duration,
    /// How far a reader of a large value or a range may be behind while others wait
    /// (`contended_grace_ns` of the limits).
    pub contended_grace_ns: u64,
    /// A batch holds at most this many bytes (or one job, if that is larger): the engine copies the
    /// batch twice, and no other limit covers those copies.
    pub batch_bytes_max: u64,
    /// Number of stamps for cached values (`stamps`), 1 or more.
    pub stamp_count: usize,
    /// For the read threads' value buffers.
    pub pool_mode: PoolMode,
}

/// This shard has as much in flight as it may.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{jobs_in_flight} requests ({bytes_in_flight} bytes) wait for the store: try again later")]
pub struct Overloaded {
    /// Jobs of this shard that wait.
    pub jobs_in_flight: usize,
    /// Bytes they hold.
    pub bytes_in_flight: u64,
}

/// A job on its way home.
#[derive(Debug)]
pub struct Answer {
    /// The job, its buffers included.
    pub job: Job,
    /// How it ended.
    pub outcome: Outcome,
}

/// State shared by all threads of the hand-over.
pub(crate) struct ExecutorShared {
    writes: WorkQueue<Job>,
    reads: Box<[WorkQueue<Job>]>,
    replies: Box<[OnceLock<MailboxSender<Answer>>]>,
    shard_counters: Box<[Arc<ShardCounters>]>,
    commit_counters: Arc<CommitCounters>,
    stamps: Arc<Stamps>,
    /// Limit for large values that are being sent.
    pub(crate) large: BodyBudget,
    pub(crate) large_wait_max: Duration,
    pub(crate) panics: Arc<ThreadPanics>,
    part_sets: Arc<PartSets>,
    wakers: Box<[OnceLock<Waker>]>,
}

impl ExecutorShared {
    /// Wakes the shard to cut a response.
    pub(crate) fn waker(&self, shard_index: usize) -> Option<Waker> {
        self.wakers[shard_index].get().cloned()
    }
}

/// The store threads. Dropping it commits what is queued, then joins them.
pub struct Executor {
    shared: Arc<ExecutorShared>,
    threads: Vec<JoinHandle<()>>,
    jobs_per_shard_max: usize,
    bytes_per_shard_max: u64,
}

impl Executor {
    /// Starts the store threads.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start<S: Store>(
        store: &Arc<S>,
        policy: crate::SyncPolicy,
        config: &ExecutorConfig,
    ) -> std::io::Result<Self> {
        let (mut executor, stamp_writer) = Self::idle(config);
        let shared = Arc::clone(&executor.shared);
        let committer = Committer::new(
            Arc::clone(store),
            policy,
            Arc::clone(&shared.commit_counters),
            stamp_writer,
        );
        let writer = thread::Builder::new().name("store-writer".to_owned());
        executor.threads.push(writer.spawn({
            let shared = Arc::clone(&shared);
            let batch_bytes_max = config.batch_bytes_max;
            let store = Arc::clone(store);
            move || {
                store.thread_started();
                run_writer(&shared, committer, batch_bytes_max);
            }
        })?);
        for lane_index in 0..config.read_threads {
            let (shared, store) = (Arc::clone(&shared), Arc::clone(store));
            let pool_mode = config.pool_mode;
            let reader = thread::Builder::new().name(format!("store-reader-{lane_index}"));
            executor.threads.push(reader.spawn(move || {
                store.thread_started();
                let values = BlockPool::new("values read", pool_mode);
                run_reader(&shared, &shared.reads[lane_index], &*store, values);
            })?);
        }
        Ok(executor)
    }

    /// No thread is started yet.
    fn idle(config: &ExecutorConfig) -> (Self, StampWriter) {
        assert!(
            config.shards > 0 && config.read_threads > 0,
            "nobody to serve, or nobody serving"
        );
        let (stamps, stamp_writer) = Stamps::new(config.stamp_count);
        let shared = ExecutorShared {
            writes: WorkQueue::new(),
            reads: (0..config.read_threads).map(|_| WorkQueue::new()).collect(),
            replies: (0..config.shards).map(|_| OnceLock::new()).collect(),
            shard_counters: (0..config.shards).map(|_| Arc::default()).collect(),
            commit_counters: Arc::default(),
            stamps,
            large: BodyBudget::new(config.large_bytes_max, config.contended_grace_ns),
            large_wait_max: config.large_wait_max,
            panics: Arc::default(),
            part_sets: Arc::default(),
            wakers: (0..config.shards).map(|_| OnceLock::new()).collect(),
        };
        let executor = Self {
            shared: Arc::new(shared),
            threads: Vec::new(),
            jobs_per_shard_max: (config.jobs_in_flight_max / config.shards).max(1),
            bytes_per_shard_max: config.bytes_in_flight_max / config.shards as u64,
        };
        (executor, stamp_writer)
    }

    /// A cluster's: without threads of its own. The jobs are in the queue, until it is dropped.
    #[cfg(feature = "distributed")]
    pub(crate) fn remote(config: &ExecutorConfig) -> (Self, JobQueue) {
        let (executor, _) = Self::idle(config);
        let queue = JobQueue(Arc::clone(&executor.shared));
        (executor, queue)
    }

    /// Links a shard; each index once. Call it on the shard's own thread, whose `waker` it is.
    #[must_use]
    pub fn link(&self, shard_index: usize, waker: Waker) -> ShardLink {
        let _ = self.shared.wakers[shard_index].set(waker.clone());
        // Whatever is in flight can be in the mailbox, so it can never be full.
        let (sender, mailbox) = Mailbox::new(self.jobs_per_shard_max, waker);
        let fresh = self.shared.replies[shard_index].set(sender).is_ok();
        assert!(fresh, "shard {shard_index} is linked already");
        ShardLink {
            shard_index,
            counters: Arc::clone(&self.shared.shard_counters[shard_index]),
            shared: Arc::clone(&self.shared),
            mailbox,
            pending_writes: Vec::new(),
            pending_reads: Vec::new(),
            next_reader: shard_index,
            delayed: VecDeque::new(),
            reads: InFlight::default(),
            all: InFlight::default(),
            all_max: InFlight {
                jobs: self.jobs_per_shard_max,
                bytes: self.bytes_per_shard_max,
            },
        }
    }

    /// Counters of each shard, by index.
    #[must_use]
    pub fn shard_counters(&self) -> Box<[Arc<ShardCounters>]> {
        self.shared.shard_counters.clone()
    }

    /// Which cached values are current.
    #[must_use]
    pub fn stamps(&self) -> Arc<Stamps> {
        Arc::clone(&self.shared.stamps)
    }

    /// Limit for large values that are being sent.
    #[must_use]
    pub fn large(&self) -> BodyBudget {
        self.shared.large.clone()
    }

    /// Which values in parts are in use, all shards together.
    #[must_use]
    pub fn part_sets(&self) -> Arc<PartSets> {
        Arc::clone(&self.shared.part_sets)
    }

    /// Makes the writer thread check for work other than jobs.
    pub fn wake_writer(&self) -> impl Fn() + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.writes.wake()
    }

    /// Notes of the store's threads about their panics.
    #[must_use]
    pub fn panics(&self) -> Arc<ThreadPanics> {
        Arc::clone(&self.shared.panics)
    }

    /// Counters of the writer.
    #[must_use]
    pub fn commit_counters(&self) -> Arc<CommitCounters> {
        Arc::clone(&self.shared.commit_counters)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.writes.close();
        for queue in &self.shared.reads {
            queue.close();
        }
        for thread in self.threads.drain(..) {
            // A store thread that panicked has printed why; the others still finish their work.
            let _ = thread.join();
        }
    }
}

/// The other end of all [`ShardLink`]s, for one that does not sleep on a queue.
#[cfg(feature = "distributed")]
pub(crate) struct JobQueue(Arc<ExecutorShared>);

#[cfg(feature = "distributed")]
impl JobQueue {
    /// All jobs that wait, reads and writes; see [`WorkQueue::poll_take_all`].
    pub(crate) fn poll_take_all(
        &self,
        jobs: &mut Vec<Job>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Taken> {
        use std::task::Poll::{Pending, Ready};
        let mut answer = Ready(Taken::Closed);
        for queue in std::iter::once(&self.0.writes).chain(&self.0.reads) {
            answer = match (queue.poll_take_all(jobs, context), answer) {
                (Ready(Taken::Work), _) | (_, Ready(Taken::Work)) => Ready(Taken::Work),
                (Pending, _) | (_, Pending) => Pending,
                (Ready(_), Ready(_)) => Ready(Taken::Closed),
            };
        }
        answer
    }

    /// Sends a job home.
    pub(crate) fn answer(&self, job: Job, outcome: Outcome) {
        let sender = self.0.replies[job.shard_index].get();
        let sender = sender.expect("a job came from this shard");
        let sent = sender.send(Answer { job, outcome });
        assert!(
            sent.is_ok(),
            "a mailbox holds all that its shard may have in flight"
        );
    }
}

/// A shard's end: jobs out, results in. Not shared.
pub struct ShardLink {
    shard_index: usize,
    shared: Arc<ExecutorShared>,
    counters: Arc<ShardCounters>,
    mailbox: Mailbox<Answer>,
    pending_writes: Vec<Job>,
    pending_reads: Vec<Job>,
    /// Reads are dealt out one tick's worth at a time.
    next_reader: usize,
    /// Admitted one after another when results come in.
    delayed: VecDeque<Job>,
    /// Of `all`.
    reads: InFlight,
    all: InFlight,
    all_max: InFlight,
}

/// Jobs without a result yet.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    jobs: usize,
    /// Bytes they hold.
    bytes: u64,
}

impl InFlight {
    /// A job larger than the whole limit may go alone.
    fn has_room_for(self, bytes: u64, max: Self) -> bool {
        self.jobs == 0 || (self.jobs < max.jobs && self.bytes.saturating_add(bytes) <= max.bytes)
    }

    fn add(&mut self, bytes: u64) {
        self.jobs += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: u64) {
        self.jobs -= 1;
        self.bytes -= bytes;
    }

    fn half(self) -> Self {
        Self {
            jobs: self.jobs.div_ceil(2),
            bytes: self.bytes / 2,
        }
    }
}

impl ShardLink {
    /// The index given to [`Executor::link`].
    #[must_use]
    pub fn shard_index(&self) -> usize {
        self.shard_index
    }

    /// Counters of this shard.
    #[must_use]
    pub fn counters(&self) -> &ShardCounters {
        &self.counters
    }

    /// Whether a commit has failed: no write can succeed until a restart.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.shared.commit_counters.is_poisoned()
    }

    /// Whether writes wait because the engine is short of a resource.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.commit_counters.is_paused()
    }

    /// Whether a thread of the store has panicked since the start.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.shared.panics.is_any()
    }

    /// Whether the engine accepts no write until its merges have caught up.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.commit_counters.is_stopped()
    }

    /// Which writes the disk has room for.
    #[must_use]
    pub fn room(&self) -> Room {
        self.shared.commit_counters.room()
    }

    /// Jobs without a result yet.
    #[must_use]
    pub fn jobs_in_flight(&self) -> usize {
        self.all.jobs + self.delayed.len()
    }

    /// Whether a job of `bytes` may be submitted now. Call it before filling buffers for it. A job larger than the
    /// whole limit may go alone.
    ///
    /// # Errors
    /// [`Overloaded`] when too much waits already.
    pub fn admit(&self, kind: JobKind, bytes: usize) -> Result<(), Overloaded> {
        let bytes = bytes as u64;
        let is_read = !kind.is_write();
        let has_room = self.all.has_room_for(bytes, self.all_max)
            && (!is_read || self.reads.has_room_for(bytes, self.all_max.half()));
        if !has_room {
            return Err(Overloaded {
                jobs_in_flight: self.all.jobs,
                bytes_in_flight: self.all.bytes,
            });
        }
        Ok(())
    }

    /// Takes an admitted job; it leaves with the next [`flush`](Self::flush).
    pub fn submit(&mut self, job: Job) {
        assert!(
            self.all.jobs < self.all_max.jobs,
            "submitted without asking admit()"
        );
        let bytes = job.uncounted_bytes() as u64;
        self.all.add(bytes);
        match job.kind.is_write() {
            false => {
                self.reads.add(bytes);
                self.pending_reads.push(job);
            }
            true => self.pending_writes.push(job),
        }
    }

    /// Takes a job of a request that was begun already: it waits here while too much is in flight, and leaves when
    /// results come in. Such requests have one or two jobs at a time, and their number is bounded.
    pub(crate) fn submit_or_delay(&mut self, job: Job) {
        match self.admit(job.kind, job.uncounted_bytes()) {
            Ok(()) if self.delayed.is_empty() => self.submit(job),
            _ => self.delayed.push_back(job),
        }
    }

    fn submit_delayed(&mut self) {
        while let Some(job) = self.delayed.front() {
            if self.admit(job.kind, job.uncounted_bytes()).is_err() {
                return;
            }
            let job = self.delayed.pop_front();
            self.submit(job.expect("it was in front"));
        }
    }

    /// Hands over what was submitted; once per tick, so that a tick is one lock and one wake.
    pub fn flush(&mut self) {
        if !self.pending_writes.is_empty() {
            let open = self.shared.writes.send_all(&mut self.pending_writes);
            debug_assert!(open, "the executor outlives the shards");
        }
        if !self.pending_reads.is_empty() {
            let queue = &self.shared.reads[self.next_reader % self.shared.reads.len()];
            let open = queue.send_all(&mut self.pending_reads);
            debug_assert!(open, "the executor outlives the shards");
            self.next_reader = self.next_reader.wrapping_add(1);
        }
        self.counters.jobs_in_flight.set(self.all.jobs as u64);
    }

    /// Moves the responses that came in to the end of `answers`, oldest first.
    pub fn take_answers(&mut self, answers: &mut Vec<Answer>) {
        let before = answers.len();
        self.mailbox.drain_into(answers);
        for answer in &answers[before..] {
            let bytes = match answer.job.kind.is_write() {
                // It brings a value home that was not counted when it left.
                false => {
                    let bytes = answer.job.asked_bytes() as u64;
                    self.reads.take(bytes);
                    bytes
                }
                true => answer.job.uncounted_bytes() as u64,
            };
            self.all.take(bytes);
        }
        self.submit_delayed();
        self.counters.jobs_in_flight.set(self.all.jobs as u64);
    }
}

/// Results on their way, sorted by shard, so that each batch wakes a shard once.
pub(crate) struct Outbox {
    by_shard: Vec<Vec<Answer>>,
}

impl Outbox {
    pub(crate) fn new(shared: &ExecutorShared) -> Self {
        Self {
            by_shard: shared.replies.iter().map(|_| Vec::new()).collect(),
        }
    }

    pub(crate) fn push(&mut self, job: Job, outcome: Outcome) {
        self.by_shard[job.shard_index].push(Answer { job, outcome });
    }

    pub(crate) fn send(&mut self, shared: &ExecutorShared) {
        for (shard_index, answers) in self.by_shard.iter_mut().enumerate() {
            if answers.is_empty() {
                continue;
            }
            let count = answers.len();
            let sender = shared.replies[shard_index]
                .get()
                .expect("a job came from this shard");
            let sent = sender.send_all(answers);
            assert_eq!(
                sent, count,
                "a mailbox holds all that its shard may have in flight"
            );
        }
    }
}

/// The writer thread: takes all queued jobs, commits them, returns results, until the queue is closed.
fn run_writer<S: Store>(shared: &ExecutorShared, committer: Committer<S>, batch_bytes_max: u64) {
    let mut writer = Writer {
        shared,
        committer,
        batch_bytes_max,
        outbox: Outbox::new(shared),
        queued: Vec::new(),
    };
    // Requests would wait for ever if the thread ended. The committer refuses everything after a panic, and does not
    // use the store any more: its state after the panic is unknown.
    while panic::catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
        shared.panics.note(StoreThread::Writer);
        writer.committer.refuse_after_panic();
    }
}

struct Writer<'a, S> {
    shared: &'a ExecutorShared,
    committer: Committer<S>,
    batch_bytes_max: u64,
    outbox: Outbox,
    /// Taken from the queue, without a result.
    queued: Vec<Job>,
}

impl<S: Store> Writer<'_, S> {
    fn run(&mut self) {
        loop {
            self.commit_queued();
            self.committer.delete_dead_parts(&self.shared.part_sets);
            flush_remote_frees();
            // Under steady load the queue never runs into its deadline.
            self.committer.do_what_is_due();
            let deadline = self.committer.deadline();
            if self.shared.writes.take_all(&mut self.queued, deadline) == Taken::Closed {
                break;
            }
        }
        self.committer.sync();
    }

    fn commit_queued(&mut self) {
        while !self.queued.is_empty() {
            let batch_len = batch_len(&self.queued, self.batch_bytes_max);
            let outcome = self.committer.commit(&mut self.queued[..batch_len]);
            for job in self.queued.drain(..batch_len) {
                // A refusal is valid only if the state it was based on is durable.
                let refusal = job.refusal.filter(|_| outcome == Outcome::Written);
                self.outbox.push(job, refusal.unwrap_or(outcome));
            }
            self.outbox.send(self.shared);
        }
    }
}

/// How many of the queued jobs the next batch takes.
fn batch_len(queued: &[Job], bytes_max: u64) -> usize {
    let mut bytes = 0;
    let fits = queued.iter().take_while(|job| {
        bytes += job.bytes() as u64;
        bytes <= bytes_max
    });
    fits.count().max(1)
}
