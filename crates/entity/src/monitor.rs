//! The monitor: a thread that watches the engine.
//!
//! ```text
//! shard: handler -> MonitorLink::ask -> WorkQueue -> monitor: Store::checkpoint
//! shard: handler <- MonitorLink::take_answers <- io::Mailbox <- done, or why not
//! ```
//!
//! Four times a second it reads the engine's state and the room on the disk, and publishes both, so that shards neither
//! take the engine's locks nor wait for the kernel. Writes that the engine has stopped or the disk has no room for are
//! then refused at once, and accepted again without a restart. It logs the events that shards only count. In between it
//! makes checkpoints, one after another. The writer checks the disk too, by bytes written and not by time (`commit`),
//! so a fast writer cannot outrun this thread.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond_http::RequestToken;
use millpond_http::log::{self, CountedEvent, LogLevel};
use millpond_io::{Mailbox, MailboxSender, Waker, monotonic_ns};
use millpond_mempool::{free_heap_bytes, give_back_free_heap};

use crate::data_dir::DataDirError;
use crate::metrics::{CommitCounters, EngineCounters, ShardCounters, StoreThread, ThreadPanics};
use crate::parts::PartSets;
use crate::store::{Engine, Room};
use crate::work_queue::{Taken, WorkQueue};

const INTERVAL: Duration = Duration::from_millis(250);

/// From one try to make room to the next: at first, and behind deletes; and where none helps.
const MAKE_ROOM_WAIT_MIN: Duration = Duration::from_secs(1);
const MAKE_ROOM_WAIT_MAX: Duration = Duration::from_secs(10);

/// Minimum time between two searches for dead parts.
const PART_SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// The same, where the disk is short of room.
const PART_SWEEP_INTERVAL_SHORT: Duration = Duration::from_secs(1);

/// How often a thread that does something long is asked whether it has ended.
const FINISH_INTERVAL: Duration = Duration::from_millis(20);

/// Files are noted once in so many checks.
const LOOKS_PER_NOTE: u32 = 4;
/// Of readers that were cut.
const SLOW_READERS: &str = "readers of large values and ranges cut: others waited for what they held, and they were \
                            the slowest (--contended-grace)";

/// The longest name of a checkpoint.
const NAME_BYTES_MAX: usize = 64;

/// Operations on the engine while it serves, besides copies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Upkeep {
    /// Write out what lies in memory, so that the next start reads no log.
    Flush,
    /// Merge all tables: overwritten, deleted and expired entries are removed.
    Compact,
}

impl Upkeep {
    fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compact => "compact",
        }
    }
}

/// A task of the monitor.
enum MonitorTask {
    Checkpoint(PathBuf),
    Upkeep(Upkeep),
}

/// Result of a checkpoint, a flush or a compaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MonitorOutcome {
    /// The checkpoint is complete.
    Made,
    /// The flush or the compaction is.
    Done,
    /// There is something of that name.
    NotNew,
    /// The disk has no room for what the engine would write.
    NoRoom,
    /// The reason is in the log.
    Failed,
}

/// Why no checkpoint, flush or compaction was begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckpointRefusal {
    /// No directory for them is configured.
    Off,
    /// Not a plain name.
    BadName,
    /// This shard's last one is not complete yet.
    Busy,
}

struct MonitorJob {
    shard_index: usize,
    request: RequestToken,
    task: MonitorTask,
}

/// Result of a task, on its way back.
#[derive(Debug)]
pub struct MonitorReply {
    /// The request it belongs to.
    pub request: RequestToken,
    /// The result.
    pub outcome: MonitorOutcome,
}

struct MonitorShared {
    jobs: WorkQueue<MonitorJob>,
    replies: Box<[OnceLock<MailboxSender<MonitorReply>>]>,
    engine: EngineCounters,
    commits: Arc<CommitCounters>,
    shards: Box<[Arc<ShardCounters>]>,
    panics: Arc<ThreadPanics>,
    /// Where checkpoints are made, if they are.
    directory: Option<PathBuf>,
    /// So much of malloc's memory may be free; then its pages go back to the system.
    free_heap_bytes_max: usize,
    /// A flush or a compaction waits or is under way: one more would do nothing that it does not.
    has_upkeep: AtomicBool,
}

/// The thread. Dropping it ends it.
pub struct Monitor {
    shared: Arc<MonitorShared>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Checks once, then starts the thread. Checkpoints are made in `directory`.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start<S: Engine>(
        store: &Arc<S>,
        commits: Arc<CommitCounters>,
        panics: Arc<ThreadPanics>,
        shards: Box<[Arc<ShardCounters>]>,
        directory: Option<PathBuf>,
        free_heap_bytes_max: usize,
        part_sweep: PartSweep,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(MonitorShared {
            jobs: WorkQueue::new(),
            replies: shards.iter().map(|_| OnceLock::new()).collect(),
            engine: EngineCounters::default(),
            commits,
            shards,
            panics,
            directory,
            free_heap_bytes_max,
            has_upkeep: AtomicBool::new(false),
        });
        look(&**store, &shared);
        let thread = thread::Builder::new().name("store-monitor".to_owned());
        let thread = thread.spawn({
            let (shared, store) = (Arc::clone(&shared), Arc::clone(store));
            move || run(&shared, &*store, part_sweep)
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Links a shard; each index once. Call it on the shard's own thread, whose `waker` it is.
    #[must_use]
    pub fn link(&self, shard_index: usize, waker: Waker) -> MonitorLink {
        // A shard has one under way at most.
        let (sender, mailbox) = Mailbox::new(1, waker);
        let fresh = self.shared.replies[shard_index].set(sender).is_ok();
        assert!(fresh, "shard {shard_index} is linked already");
        MonitorLink {
            shard_index,
            shared: Arc::clone(&self.shared),
            mailbox,
            is_busy: false,
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.jobs.close();
        if let Some(thread) = self.thread.take() {
            // A monitor that panicked has printed why; nothing waits for it.
            let _ = thread.join();
        }
    }
}

/// A shard's end. Not shared.
pub struct MonitorLink {
    shard_index: usize,
    shared: Arc<MonitorShared>,
    mailbox: Mailbox<MonitorReply>,
    is_busy: bool,
}

impl MonitorLink {
    /// Requests a checkpoint of that name; the result comes back by queue.
    ///
    /// # Errors
    /// [`CheckpointRefusal`].
    pub fn ask(&mut self, request: RequestToken, name: &[u8]) -> Result<(), CheckpointRefusal> {
        let directory = self.shared.directory.as_deref();
        let directory = directory.ok_or(CheckpointRefusal::Off)?;
        let path = path_of(directory, name).ok_or(CheckpointRefusal::BadName)?;
        if self.is_busy {
            return Err(CheckpointRefusal::Busy);
        }
        self.send(request, MonitorTask::Checkpoint(path));
        Ok(())
    }

    /// Requests a flush or a compaction; the result comes back by queue.
    ///
    /// # Errors
    /// [`CheckpointRefusal::Busy`]: one is under way, or this shard's checkpoint.
    pub fn ask_upkeep(
        &mut self,
        request: RequestToken,
        upkeep: Upkeep,
    ) -> Result<(), CheckpointRefusal> {
        if self.is_busy || self.shared.has_upkeep.swap(true, Ordering::AcqRel) {
            return Err(CheckpointRefusal::Busy);
        }
        self.send(request, MonitorTask::Upkeep(upkeep));
        Ok(())
    }

    fn send(&mut self, request: RequestToken, task: MonitorTask) {
        self.is_busy = true;
        let job = MonitorJob {
            shard_index: self.shard_index,
            request,
            task,
        };
        let open = self.shared.jobs.send_all(&mut vec![job]);
        debug_assert!(open, "the monitor outlives the shards");
    }

    /// The result that came in, if one did.
    pub fn take_answer(&mut self) -> Option<MonitorReply> {
        if !self.is_busy {
            return None;
        }
        let mut answers = Vec::new();
        self.mailbox.drain_into(&mut answers);
        let answer = answers.pop();
        self.is_busy = answer.is_none();
        answer
    }

    /// Whether a result is outstanding.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The monitor's last values.
    #[must_use]
    pub fn engine(&self) -> &EngineCounters {
        &self.shared.engine
    }
}

/// A name selects a directory, never a path: letters, digits, and `-`, `_` or `.` after the first.
fn path_of(directory: &Path, name: &[u8]) -> Option<PathBuf> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let starts_well = name.first().is_some_and(u8::is_ascii_alphanumeric);
    let is_good = starts_well && name.len() <= NAME_BYTES_MAX && name.iter().all(is_plain);
    let text = std::str::from_utf8(name).ok().filter(|_| is_good)?;
    Some(directory.join(text))
}

/// The thread's state that survives a panic.
struct MonitorWork {
    slow_readers: CountedEvent,
    queued: Vec<MonitorJob>,
    /// For which shard, and which of its requests, a checkpoint is made.
    current: Option<(usize, RequestToken)>,
    room_making: RoomMaking,
    part_sweep: PartSweep,
    /// Free memory of malloc when its pages had just been returned to the system.
    given_back_bytes: usize,
}

impl MonitorWork {
    /// Memory that memtables, merged tables and values of less than a part leave free between small blocks is returned
    /// to the system when it is more than `free_bytes_max`. Free blocks count whether they have pages or not: as long
    /// as nothing was allocated since, they have none.
    fn give_back_heap(&mut self, free_bytes_max: usize) {
        let free_bytes = free_heap_bytes();
        if free_bytes > free_bytes_max && free_bytes != self.given_back_bytes {
            give_back_free_heap();
            self.given_back_bytes = free_heap_bytes();
        }
    }
}

fn run<S: Engine>(shared: &MonitorShared, store: &S, part_sweep: PartSweep) {
    let mut work = MonitorWork {
        slow_readers: CountedEvent::new(LogLevel::Warn, "slow_readers_cut", SLOW_READERS),
        queued: Vec::new(),
        current: None,
        room_making: RoomMaking::new(),
        part_sweep,
        given_back_bytes: 0,
    };
    // The published values would stay outdated if the thread ended.
    while panic::catch_unwind(AssertUnwindSafe(|| keep(shared, store, &mut work))).is_err() {
        shared.panics.note(StoreThread::Monitor);
        if let Some(asked) = work.current.take() {
            shared.has_upkeep.store(false, Ordering::Release);
            answer(shared, asked, MonitorOutcome::Failed);
        }
        // It may come again at once.
        thread::sleep(INTERVAL);
    }
}

/// Until it is stopped.
fn keep<S: Engine>(shared: &MonitorShared, store: &S, work: &mut MonitorWork) {
    for count in (0..LOOKS_PER_NOTE).cycle() {
        if count == 0 {
            store.note_files();
            shared.engine.publish_sizes(&store.sizes());
        }
        while let Some(job) = work.queued.pop() {
            let asked = (job.shard_index, job.request);
            work.current = Some(asked);
            let outcome = match job.task {
                MonitorTask::Checkpoint(path) => checkpoint(shared, store, &path),
                MonitorTask::Upkeep(asked) => upkeep(shared, store, asked),
            };
            work.current = None;
            answer(shared, asked, outcome);
        }
        let deadline = Instant::now() + INTERVAL;
        if shared.jobs.take_all(&mut work.queued, Some(deadline)) == Taken::Closed {
            return;
        }
        look(store, shared);
        if count == 0 {
            work.give_back_heap(shared.free_heap_bytes_max);
        }
        let shards = shared.shards.iter();
        let cut = shards.map(|shard| shard.slow_readers_cut.value()).sum();
        work.slow_readers.look(cut, monotonic_ns());
        work.part_sweep.go_on(shared, store);
        work.room_making.go_on(shared, store);
    }
}

fn answer(
    shared: &MonitorShared,
    (shard_index, request): (usize, RequestToken),
    outcome: MonitorOutcome,
) {
    let sender = shared.replies[shard_index].get();
    let sender = sender.expect("a job came from this shard");
    let sent = sender.send(MonitorReply { request, outcome });
    assert!(sent.is_ok(), "a shard has one under way at most");
}

fn upkeep<S: Engine>(shared: &MonitorShared, store: &S, asked: Upkeep) -> MonitorOutcome {
    // With little room it is made by itself.
    let outcome = match shared.commits.room() {
        Room::Enough => {
            let done = while_looking(shared, store, asked.name(), || store.keep_up(asked));
            let failed = |error: &dyn std::fmt::Display| {
                log::write(
                    LogLevel::Error,
                    format_args!("no {}: {error}", asked.name()),
                );
                MonitorOutcome::Failed
            };
            match done {
                Ok(Ok(())) => MonitorOutcome::Done,
                Ok(Err(error)) => failed(&error),
                Err(error) => failed(&error),
            }
        }
        Room::ForDeletes | Room::None => MonitorOutcome::NoRoom,
    };
    shared.has_upkeep.store(false, Ordering::Release);
    outcome
}

fn checkpoint<S: Engine>(shared: &MonitorShared, store: &S, path: &Path) -> MonitorOutcome {
    // It writes memtables out.
    if shared.commits.room() != Room::Enough {
        return MonitorOutcome::NoRoom;
    }
    let made = while_looking(shared, store, "checkpoint", || store.checkpoint(path));
    let made = made.unwrap_or_else(|source| {
        Err(DataDirError::Io {
            path: path.to_owned(),
            operation: "start a thread to copy into",
            source,
        })
    });
    match made {
        Ok(()) => MonitorOutcome::Made,
        Err(DataDirError::NotNew { .. }) => MonitorOutcome::NotNew,
        Err(error) => {
            log::write(LogLevel::Error, format_args!("no checkpoint: {error}"));
            MonitorOutcome::Failed
        }
    }
}

/// Does `work`, which may take minutes, on a separate thread: the published values must not become outdated meanwhile.
///
/// # Errors
/// If no thread could be started.
fn while_looking<S: Engine, R: Send>(
    shared: &MonitorShared,
    store: &S,
    name: &str,
    work: impl FnOnce() -> R + Send,
) -> std::io::Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn_scoped(scope, work)?;
        while !thread.is_finished() {
            thread::sleep(FINISH_INTERVAL);
            look(store, shared);
        }
        let done = thread.join();
        Ok(done.unwrap_or_else(|cause| panic::resume_unwind(cause)))
    })
}

/// When the disk is asked to give back what was deleted or has ended. The engine would do so only when other reasons to
/// merge come up, and where puts are refused for lack of room none does.
#[derive(Debug)]
struct RoomMaking {
    next_try: Instant,
    wait: Duration,
    /// Batches that were written by the last try: with little room they are deletes.
    commits: u64,
}

impl RoomMaking {
    fn new() -> Self {
        Self {
            next_try: Instant::now(),
            wait: MAKE_ROOM_WAIT_MIN,
            commits: 0,
        }
    }

    /// Where room is short, makes some, at once behind deletes and else again and again, more and more seldom.
    fn go_on<S: Engine>(&mut self, shared: &MonitorShared, store: &S) {
        if shared.commits.room() == Room::Enough {
            self.wait = MAKE_ROOM_WAIT_MIN;
            return;
        }
        let commits = shared.commits.commits.value();
        let deletes = commits != self.commits;
        if deletes {
            self.wait = MAKE_ROOM_WAIT_MIN;
            self.next_try = self.next_try.min(Instant::now() + self.wait);
        }
        if Instant::now() < self.next_try {
            return;
        }
        self.commits = commits;
        // Without a thread for it: later.
        let _ = while_looking(shared, store, "make-room", || store.make_room());
        self.next_try = Instant::now() + self.wait;
        self.wait = (2 * self.wait).min(MAKE_ROOM_WAIT_MAX);
    }
}

/// When to search for dead parts (`parts`). Each search reads the record of every value in parts, so it may take no
/// more than a twentieth of the time.
pub struct PartSweep {
    sets: Arc<PartSets>,
    wake_writer: Box<dyn Fn() + Send>,
    /// When the last search ended, and how long it took; none before the first.
    last: Option<(Instant, Duration)>,
}

impl PartSweep {
    /// Of these sets; `wake_writer` has the writer thread delete what was found.
    pub fn new(sets: Arc<PartSets>, wake_writer: impl Fn() + Send + 'static) -> Self {
        Self {
            sets,
            wake_writer: Box::new(wake_writer),
            last: None,
        }
    }

    fn go_on<S: Engine>(&mut self, shared: &MonitorShared, store: &S) {
        // The first search shows whether there are any.
        let is_due = self.last.is_none_or(|(end, taken)| {
            let interval = match shared.commits.room() {
                Room::Enough => PART_SWEEP_INTERVAL,
                Room::ForDeletes | Room::None => PART_SWEEP_INTERVAL_SHORT,
            };
            self.sets.is_used() && end.elapsed() >= interval.max(20 * taken)
        });
        if !is_due {
            return;
        }
        let start = Instant::now();
        let found = while_looking(shared, store, "find-parts", || {
            store.find_dead_parts(&self.sets)
        });
        // An engine that fails is reported elsewhere, and the next search tries again.
        if let Ok(Ok(1..)) = found {
            (self.wake_writer)();
        }
        self.last = Some((Instant::now(), start.elapsed()));
    }
}

fn look<S: Engine>(store: &S, shared: &MonitorShared) {
    let gauges = store.gauges();
    // In this order: a client that is refused finds the reason in the metrics.
    shared.engine.publish(&gauges);
    shared.commits.set_stopped(gauges.writes_are_stopped);
    if let Some(disk) = store.disk() {
        shared.engine.publish_disk(&disk);
        shared.commits.set_room(disk.room());
    }
}

#[cfg(test)]
#[path = "tests/monitor.rs"]
mod tests;
