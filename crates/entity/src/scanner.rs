//! The scan thread: turns of range reads, one after another, each a buffer of whole records.
//!
//! ```text
//! shard: range -> ScanLink::ask -> WorkQueue -> scan thread: Held::snapshot, Snapshot::visit
//! shard: range <- ScanLink::take_answers <- io::Mailbox <- one turn: 32 KiB of records
//! ```
//!
//! A range read leaves its shard at once, and its results return in turns. All snapshots live on this thread, because
//! they borrow the engine; a shard identifies one by its own task. The next turn is read only when it is requested, so
//! a stalled client costs one buffer and a sequence number, and the sequence number no longer than
//! [`SNAPSHOT_KEPT_MAX`]: after that its next turn is read from the current state, from the first id that it has not
//! had. So each id comes once at most and in order, and its value was there at some moment since the read began; within
//! that time a client gets the state of one moment. A large record is a turn of its own and needs a hold on the budget
//! of large values; its scan waits for one, and no other scan waits for it. Nothing is read ahead of the client, and no
//! iterator is kept between turns: it would pin memtables and tables that are gone otherwise for as long as the slowest
//! reader takes.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond_http::log::{self, LogLevel};
use millpond_http::{BodyBudget, BodyHold, RequestToken};
use millpond_io::{Mailbox, MailboxSender, Waker, monotonic_ns};
use millpond_mempool::{
    BlockPool, Buffer, POOLED_BYTES_MAX, PoolError, PoolMode, flush_remote_frees,
};

use crate::budget::Sweeps;
use crate::executor::Overloaded;
use crate::metrics::{StoreThread, ThreadPanics};
use crate::parts::{self, PartSets, Pinned};
use crate::parts::{LARGE_BYTES, LOOK_INTERVAL};
use crate::range::{RangeFormat, ScanRange};
use crate::record::{Extent, HEAD_BYTES_MAX, Head, RecordError, Value, Version};
use crate::store::{Held, Snapshot, Store, StoreError};
use crate::work_queue::{Taken, WorkQueue};

/// Maximum size of a turn, or one record if that is larger: the largest block that is pooled.
const TURN_BYTES: usize = POOLED_BYTES_MAX;

/// Records that a turn reads, at most: so many small ones take a millisecond or two, which others wait for.
const TURN_RECORDS: usize = 4096;

/// How long the engine keeps what was overwritten since a range read began, however slow its reader is.
pub const SNAPSHOT_KEPT_MAX: Duration = Duration::from_secs(30);

/// How often a thread that keeps snapshots checks whether the engine has to be released.
const RELEASE_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two attempts to hold an engine that is being reopened; after so many its readers get an error.
const REFUSED_WAIT: Duration = Duration::from_millis(20);
const REFUSALS_MAX: u32 = 250;

/// In front of each record in a turn: how long the record is.
pub(crate) const LENGTH_BYTES: usize = size_of::<u64>();

/// In front of each key in a turn of lines.
pub(crate) const KEY_LENGTH_BYTES: usize = size_of::<u16>();

/// A shard's request to the scan thread for one of its tasks.
#[derive(Debug)]
pub enum Ask {
    /// Take a snapshot and read the first turn.
    Open {
        /// The range to read.
        range: ScanRange,
        /// How many copies have to respond (`replicas`).
        acks: u16,
    },
    /// Read the next turn.
    Next,
    /// The rest is not wanted.
    Close,
}

/// Message from a shard to a scan thread.
pub(crate) struct ScanJob {
    pub(crate) shard_index: usize,
    pub(crate) task: u64,
    pub(crate) request: RequestToken,
    pub(crate) ask: Ask,
}

/// One turn, on its way home.
#[derive(Debug)]
pub struct ScanAnswer {
    /// The shard's number for it.
    pub task: u64,
    /// The request it belongs to.
    pub request: RequestToken,
    /// The records read.
    pub turn: Turn,
}

/// Where the value of the last record of a turn is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValuePlace {
    /// In the turn.
    InRecord,
    /// In parts, each the whole of one of the next turns. The record's length is with them.
    Behind,
    /// The turn is such a part.
    Follows {
        /// Bytes of the value in the turns behind it.
        left_bytes: u64,
    },
}

/// Result of a turn. The scan thread has forgotten a scan whose turn was the last, or failed.
#[derive(Debug)]
pub enum Turn {
    /// Whole records.
    Records {
        /// Each is 8 bytes of length, then `<key>\n<value>`; or for lines 2 bytes of the key's length, the key and the
        /// record as it is stored.
        records: Buffer,
        /// There are no more.
        is_last: bool,
        /// The id to go on after, where the limit ended the range; or else empty.
        next: Buffer,
        /// Where the value of the last record is.
        value: ValuePlace,
        /// The hold of a large record, until its last part is written.
        hold: Option<BodyHold>,
    },
    /// The engine failed, or there was no memory.
    Failed,
    /// Fewer copies responded than requested.
    TooFewReplicas,
}

struct ScannerShared {
    jobs: WorkQueue<ScanJob>,
    replies: Box<[OnceLock<MailboxSender<ScanAnswer>>]>,
    wakers: Box<[OnceLock<Waker>]>,
    panics: Arc<ThreadPanics>,
}

/// The scan thread. Dropping it ends it; scans that are open then get no more turns.
pub struct Scanner {
    shared: Arc<ScannerShared>,
    thread: Option<JoinHandle<()>>,
    scans_per_shard_max: usize,
}

impl Scanner {
    /// Starts the thread for `shards` shards, which have `scans_max` scans open at most together. Large
    /// records take of `large`.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start<S: Store>(
        store: &Arc<S>,
        shards: usize,
        scans_max: usize,
        large: BodyBudget,
        (panics, sets): (Arc<ThreadPanics>, Arc<PartSets>),
        pool_mode: PoolMode,
    ) -> std::io::Result<Self> {
        let mut scanner = Self::idle(shards, scans_max, panics);
        let thread = thread::Builder::new().name("store-scanner".to_owned());
        let thread = thread.spawn({
            let (shared, store) = (Arc::clone(&scanner.shared), Arc::clone(store));
            move || {
                let blocks = BlockPool::new("records scanned", pool_mode);
                store.thread_started();
                run(&shared, &*store, &blocks, &large, sets);
            }
        })?;
        scanner.thread = Some(thread);
        Ok(scanner)
    }

    /// No thread scans yet.
    fn idle(shards: usize, scans_max: usize, panics: Arc<ThreadPanics>) -> Self {
        let shared = ScannerShared {
            jobs: WorkQueue::new(),
            replies: (0..shards).map(|_| OnceLock::new()).collect(),
            wakers: (0..shards).map(|_| OnceLock::new()).collect(),
            panics,
        };
        Self {
            shared: Arc::new(shared),
            thread: None,
            scans_per_shard_max: (scans_max / shards).max(1),
        }
    }

    /// A cluster's: `take` gets the requests, and starts the thread that serves them.
    #[cfg(feature = "distributed")]
    pub(crate) fn remote(
        shards: usize,
        scans_max: usize,
        take: impl FnOnce(ScanQueue) -> JoinHandle<()>,
    ) -> Self {
        let mut scanner = Self::idle(shards, scans_max, Arc::default());
        scanner.thread = Some(take(ScanQueue(Arc::clone(&scanner.shared))));
        scanner
    }

    /// Links a shard; each index once. Call it on the shard's own thread, whose `waker` it is.
    #[must_use]
    pub fn link(&self, shard_index: usize, waker: Waker) -> ScanLink {
        let _ = self.shared.wakers[shard_index].set(waker.clone());
        // A scan has one turn under way at most, and scans are few; those that were stopped
        // meanwhile may add theirs.
        let (sender, mailbox) = Mailbox::new(usize::MAX, waker);
        let fresh = self.shared.replies[shard_index].set(sender).is_ok();
        assert!(fresh, "shard {shard_index} is linked already");
        ScanLink {
            shard_index,
            shared: Arc::clone(&self.shared),
            mailbox,
            outgoing: Vec::new(),
            scans_max: self.scans_per_shard_max,
        }
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.shared.jobs.close();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, is on stderr already.
            let _ = thread.join();
        }
    }
}

/// The other end of all [`ScanLink`]s, for one that does not sleep on a queue.
#[cfg(feature = "distributed")]
pub(crate) struct ScanQueue(Arc<ScannerShared>);

#[cfg(feature = "distributed")]
impl ScanQueue {
    /// See [`WorkQueue::poll_take_all`].
    pub(crate) fn poll_take_all(
        &self,
        jobs: &mut Vec<ScanJob>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Taken> {
        self.0.jobs.poll_take_all(jobs, context)
    }

    /// Sends a turn home.
    pub(crate) fn answer(&self, shard_index: usize, task: u64, request: RequestToken, turn: Turn) {
        answer(&self.0, shard_index, task, request, turn);
    }
}

/// A shard's end. Not shared.
pub struct ScanLink {
    shard_index: usize,
    shared: Arc<ScannerShared>,
    mailbox: Mailbox<ScanAnswer>,
    /// Kept for its memory: empty between two calls.
    outgoing: Vec<ScanJob>,
    scans_max: usize,
}

impl ScanLink {
    /// Whether one more scan may be opened if `open` are.
    ///
    /// # Errors
    /// [`Overloaded`] when there are too many.
    pub fn admit(&self, open: usize) -> Result<(), Overloaded> {
        if open < self.scans_max {
            return Ok(());
        }
        Err(Overloaded {
            jobs_in_flight: open,
            bytes_in_flight: 0,
        })
    }

    /// Asks at once: a turn is 32 KiB, so the lock that it takes is taken rarely.
    pub fn ask(&mut self, task: u64, request: RequestToken, ask: Ask) {
        self.outgoing.push(ScanJob {
            shard_index: self.shard_index,
            task,
            request,
            ask,
        });
        let open = self.shared.jobs.send_all(&mut self.outgoing);
        debug_assert!(open, "the scanner outlives the shards");
    }

    /// Moves the turns that came in to the end of `answers`, oldest first.
    pub fn take_answers(&mut self, answers: &mut Vec<ScanAnswer>) {
        self.mailbox.drain_into(answers);
    }
}

/// A range read between two turns.
struct Scan {
    /// The first key of the next turn.
    from: Vec<u8>,
    /// Behind all ids there are parts of values.
    end: Vec<u8>,
    quota: Quota,
    /// The parts of a value that follow its record.
    parted: Option<PartedValue>,
}

/// A value in parts between two of them.
struct PartedValue {
    set: Version,
    extent: Extent,
    next: u32,
    /// A snapshot may be dropped before its reader has all.
    _pinned: Option<Pinned>,
}

impl PartedValue {
    /// The rest to be read.
    fn left_bytes(&self) -> u64 {
        let before = u64::from(self.extent.part_bytes).saturating_mul(u64::from(self.next));
        self.extent.value_bytes.saturating_sub(before)
    }

    fn turn(
        &mut self,
        snapshot: &impl Snapshot,
        (blocks, large): (&BlockPool, &BodyBudget),
        waker: Option<Waker>,
    ) -> Result<Turn, Busy> {
        let len = self.extent.part_len(self.next);
        let bytes = len as u64;
        let hold = large.take(bytes, monotonic_ns(), waker);
        let hold = hold.ok_or(Busy { bytes })?;
        let Ok(mut records) = Buffer::with_capacity(blocks, len) else {
            return Ok(Turn::Failed);
        };
        let keys = [self.next, self.next + 1].map(|index| parts::part_key(self.set, index));
        let visited = snapshot.visit(&keys[0], Some(&keys[1]), &mut |_, part| {
            if part.len() == len {
                records.append_within_capacity(part);
            }
            ControlFlow::Break(())
        });
        if let Err(error) = visited {
            cut_short(&error);
            return Ok(Turn::Failed);
        }
        if records.len() < len {
            let left_bytes = self.left_bytes();
            cut_short(&RecordError::MissingParts { left_bytes });
            return Ok(Turn::Failed);
        }
        self.next += 1;
        Ok(Turn::Records {
            records,
            is_last: false,
            next: Buffer::new(),
            value: ValuePlace::Follows {
                left_bytes: self.left_bytes(),
            },
            hold: Some(hold),
        })
    }
}

/// By what a shard names its scans.
type Name = (usize, u64);

/// The source that a scan reads from, while it is kept.
struct KeptSnapshot<T> {
    snapshot: T,
    until: Instant,
}

/// The scan thread's state: it survives a panic.
struct ScanThread<'a, S> {
    shared: &'a ScannerShared,
    store: &'a S,
    blocks: &'a BlockPool,
    large: &'a BodyBudget,
    sets: Arc<PartSets>,
    scans: HashMap<Name, Scan>,
    /// Turns that wait for room, and for how many bytes.
    waiting: VecDeque<(ScanJob, u64)>,
    queued: VecDeque<ScanJob>,
    /// Kept for its memory: empty between two calls.
    taken: Vec<ScanJob>,
    sweeps: Sweeps,
    /// The current turn.
    current: Option<(Name, RequestToken)>,
}

fn run<S: Store>(
    shared: &ScannerShared,
    store: &S,
    blocks: &BlockPool,
    large: &BodyBudget,
    sets: Arc<PartSets>,
) {
    let mut thread = ScanThread {
        shared,
        store,
        blocks,
        large,
        sets,
        scans: HashMap::new(),
        waiting: VecDeque::new(),
        queued: VecDeque::new(),
        taken: Vec::new(),
        sweeps: Sweeps::default(),
        current: None,
    };
    // Its readers would wait for ever if the thread ended.
    while panic::catch_unwind(AssertUnwindSafe(|| thread.run())).is_err() {
        shared.panics.note(StoreThread::Scanner);
        if let Some((name, request)) = thread.current.take() {
            thread.scans.remove(&name);
            answer(shared, name.0, name.1, request, Turn::Failed);
        }
    }
}

impl<S: Store> ScanThread<'_, S> {
    /// Until there is no shard any more.
    fn run(&mut self) {
        let mut refusals = 0;
        loop {
            if self.queued.is_empty() && !self.take_more(None) {
                return;
            }
            match self.store.hold() {
                Ok(held) => {
                    refusals = 0;
                    if !self.serve(&held) {
                        return;
                    }
                }
                Err(error) => {
                    // It is being opened again.
                    refusals += 1;
                    thread::sleep(REFUSED_WAIT);
                    if refusals >= REFUSALS_MAX {
                        self.fail_all(&error);
                    }
                }
            }
        }
    }

    /// Reads turns from snapshots of an engine that is held, as long as there are any. False: there is no shard
    /// any more.
    fn serve(&mut self, held: &S::Held) -> bool {
        let mut kept: HashMap<Name, KeptSnapshot<_>> = HashMap::new();
        loop {
            while let Some(job) = self.queued.pop_front() {
                let name = (job.shard_index, job.task);
                if !self.expects(&job) {
                    kept.remove(&name);
                    continue;
                }
                let snapshot = kept.entry(name).or_insert_with(|| KeptSnapshot {
                    snapshot: held.snapshot(),
                    until: Instant::now() + SNAPSHOT_KEPT_MAX,
                });
                self.turn(&job, &snapshot.snapshot);
                if !self.scans.contains_key(&name) {
                    kept.remove(&name);
                }
            }
            // The ids came from a shard's pool.
            flush_remote_frees();
            let now = Instant::now();
            kept.retain(|_, kept| now < kept.until);
            if kept.is_empty() || self.store.wants_release() {
                return true;
            }
            if !self.take_more(Some(now + RELEASE_LOOK_INTERVAL)) {
                return false;
            }
        }
    }

    /// Waits for jobs, or until `look`. False: there will be none.
    fn take_more(&mut self, look: Option<Instant>) -> bool {
        let room_look = (!self.waiting.is_empty()).then(|| Instant::now() + LOOK_INTERVAL);
        let deadlines = self.sweeps.deadline().into_iter().chain(room_look);
        let deadline = deadlines.chain(look).min();
        let taken = self.shared.jobs.take_all(&mut self.taken, deadline);
        if taken == Taken::Closed {
            return false;
        }
        self.queued.extend(self.taken.drain(..));
        // In order: one that fits does not wait for one that does not.
        if let Some((job, bytes)) = self.waiting.pop_front() {
            if self.large.has_room_for(bytes) {
                self.queued.push_back(job);
            } else {
                self.large.cut_slowest(bytes, monotonic_ns());
                self.waiting.push_back((job, bytes));
            }
        }
        self.blocks.drain_remote();
        let now = Instant::now();
        if taken == Taken::Work {
            self.sweeps.note_use(now);
        }
        self.sweeps.sweep_if_due(now, || self.blocks.trim());
        true
    }

    /// Whether the job requests a turn of a scan that is open, or opens one.
    fn expects(&mut self, job: &ScanJob) -> bool {
        let name = (job.shard_index, job.task);
        match &job.ask {
            Ask::Open { range, .. } => {
                let scan = Scan {
                    from: range.start.to_vec(),
                    end: range.end.as_deref().unwrap_or(parts::IDS_END).to_vec(),
                    quota: Quota::of(range),
                    parted: None,
                };
                self.scans.insert(name, scan);
                true
            }
            Ask::Next => self.scans.contains_key(&name),
            Ask::Close => {
                if self.scans.remove(&name).is_some() {
                    let is_other = |job: &ScanJob| (job.shard_index, job.task) != name;
                    self.waiting.retain(|(job, _)| is_other(job));
                }
                false
            }
        }
    }

    fn turn(&mut self, job: &ScanJob, snapshot: &impl Snapshot) {
        let name = (job.shard_index, job.task);
        let Some(scan) = self.scans.get_mut(&name) else {
            return;
        };
        self.current = Some((name, job.request));
        let waker = self.shared.wakers[job.shard_index].get().cloned();
        let turn = match scan.turn(snapshot, self.blocks, self.large, waker, &self.sets) {
            Ok(turn) => turn,
            Err(Busy { bytes }) => {
                self.current = None;
                let next = ScanJob {
                    ask: Ask::Next,
                    ..*job
                };
                self.waiting.push_back((next, bytes));
                return;
            }
        };
        self.current = None;
        if !matches!(turn, Turn::Records { is_last: false, .. }) {
            self.scans.remove(&name);
        }
        answer(self.shared, job.shard_index, job.task, job.request, turn);
    }

    /// The engine does not come back.
    fn fail_all(&mut self, error: &StoreError) {
        while let Some(job) = self.queued.pop_front() {
            self.scans.remove(&(job.shard_index, job.task));
            if !matches!(job.ask, Ask::Close) {
                cut_short(error);
                answer(
                    self.shared,
                    job.shard_index,
                    job.task,
                    job.request,
                    Turn::Failed,
                );
            }
        }
    }
}

fn answer(
    shared: &ScannerShared,
    shard_index: usize,
    task: u64,
    request: RequestToken,
    turn: Turn,
) {
    let sender = shared.replies[shard_index].get();
    let sender = sender.expect("a job came from this shard");
    let answer = ScanAnswer {
        task,
        request,
        turn,
    };
    // The mailbox has no limit.
    let _ = sender.send(answer);
}

impl Scan {
    fn turn(
        &mut self,
        snapshot: &impl Snapshot,
        blocks: &BlockPool,
        large: &BodyBudget,
        waker: Option<Waker>,
        sets: &Arc<PartSets>,
    ) -> Result<Turn, Busy> {
        if let Some(parted) = &mut self.parted {
            let turn = parted.turn(snapshot, (blocks, large), waker)?;
            if parted.left_bytes() == 0 {
                self.parted = None;
            }
            return Ok(turn);
        }
        let mut page = Page::new(blocks, large, waker, &mut self.quota);
        let visited = snapshot.visit(&self.from, Some(&self.end), &mut |key, value| {
            page.add(key, value)
        });
        let cause = match (visited, page.fault.take()) {
            (Err(error), _) => error.to_string(),
            (Ok(()), Some(PageFault::Busy(busy))) => return Err(busy),
            (Ok(()), Some(fault)) => fault.to_string(),
            (Ok(()), None) => {
                let is_last = page.first_left.is_none();
                self.parted = page.parted.map(|(set, extent)| PartedValue {
                    set,
                    extent,
                    next: 0,
                    _pinned: Pinned::new(sets, set),
                });
                let (turn, first_left) = page.into_turn(is_last);
                if let Some(first_left) = first_left {
                    self.from = first_left;
                }
                return Ok(turn);
            }
        };
        cut_short(&cause);
        Ok(Turn::Failed)
    }
}

/// Logs why a reader gets only the beginning of a range.
pub(crate) fn cut_short(cause: &dyn std::fmt::Display) {
    log::write(
        LogLevel::Error,
        format_args!("a range read is cut short: {cause}"),
    );
}

/// The first record of a turn is large, and others have the memory.
#[derive(Debug, thiserror::Error)]
#[error("other large values have the {bytes} bytes that the next one takes")]
pub(crate) struct Busy {
    bytes: u64,
}

/// Why a turn cannot be filled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageFault {
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    NoMemory(#[from] PoolError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The records that a range read may still show, and their form.
pub(crate) struct Quota {
    format: RangeFormat,
    /// None: all of them.
    left: Option<u64>,
    /// The last one that the limit allowed.
    last_id: Vec<u8>,
}

impl Quota {
    pub(crate) fn of(range: &ScanRange) -> Self {
        Self {
            format: range.format,
            left: range.limit.map(NonZeroU64::get),
            last_id: Vec::new(),
        }
    }

    fn note(&mut self, key: &[u8]) {
        if let Some(left) = &mut self.left {
            *left -= 1;
            if *left == 0 {
                self.last_id = key.to_vec();
            }
        }
    }
}

/// A turn as it fills.
pub(crate) struct Page<'a> {
    blocks: &'a BlockPool,
    large: &'a BodyBudget,
    /// Of the shard that a large record is for.
    waker: Option<Waker>,
    pub(crate) records: Buffer,
    pub(crate) hold: Option<BodyHold>,
    seen: usize,
    pub(crate) fault: Option<PageFault>,
    /// The key that did not fit any more.
    first_left: Option<Vec<u8>>,
    /// Of the last record, whose value follows.
    parted: Option<(Version, Extent)>,
    quota: &'a mut Quota,
    /// There is one more than the limit allows, and this is the last that it did.
    next: Buffer,
}

impl<'a> Page<'a> {
    /// An empty one, to be filled from `blocks`, with a hold of `large` on a large record.
    pub(crate) fn new(
        blocks: &'a BlockPool,
        large: &'a BodyBudget,
        waker: Option<Waker>,
        quota: &'a mut Quota,
    ) -> Self {
        Self {
            blocks,
            large,
            waker,
            records: Buffer::new(),
            hold: None,
            seen: 0,
            fault: None,
            first_left: None,
            parted: None,
            quota,
            next: Buffer::new(),
        }
    }

    /// Whether more was added than the range may show.
    #[cfg(feature = "distributed")]
    pub(crate) fn has_reached_limit(&self) -> bool {
        !self.next.is_empty()
    }

    /// The turn, and the key that did not fit into it.
    pub(crate) fn into_turn(self, is_last: bool) -> (Turn, Option<Vec<u8>>) {
        let turn = Turn::Records {
            records: self.records,
            is_last,
            next: self.next,
            value: match self.parted {
                None => ValuePlace::InRecord,
                Some(_) => ValuePlace::Behind,
            },
            hold: self.hold,
        };
        (turn, self.first_left)
    }

    /// Adds a record, or breaks: it did not fit any more, or there is a fault.
    pub(crate) fn add(&mut self, key: &[u8], record: &[u8]) -> ControlFlow<()> {
        match self.try_add(key, record) {
            Ok(flow) => flow,
            Err(fault) => {
                self.fault = Some(fault);
                ControlFlow::Break(())
            }
        }
    }

    fn try_add(&mut self, key: &[u8], record: &[u8]) -> Result<ControlFlow<()>, PageFault> {
        let (head, value) = Head::split(record)?;
        let key_length = (key.len() as u16).to_le_bytes();
        let mut room = [0; HEAD_BYTES_MAX];
        let (whole, parted) = match value {
            Value::Whole(value) => (value, None),
            Value::Parted(extent) => (&[][..], Some(extent)),
        };
        let pieces: [&[u8]; 3] = match (self.quota.format, parted) {
            (RangeFormat::Chunks, _) => [key, b"\n", whole],
            (RangeFormat::Lines, None) => [&key_length, key, record],
            (RangeFormat::Lines, Some(_)) => {
                let len = head.write(&mut room);
                [&key_length, key, &room[..len]]
            }
        };
        let record_bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let parted_bytes = parted.map_or(0, |extent| extent.value_bytes);
        let is_full = LENGTH_BYTES + record_bytes > self.records.spare_bytes();
        if self.seen == TURN_RECORDS || (is_full && !self.records.is_empty()) {
            self.first_left = Some(key.to_vec());
            return Ok(ControlFlow::Break(()));
        }
        self.seen += 1;
        if head.is_expired() {
            return Ok(ControlFlow::Continue(()));
        }
        if self.quota.left == Some(0) {
            let last_id = &self.quota.last_id;
            self.next = Buffer::with_capacity(self.blocks, last_id.len())?;
            self.next.append_within_capacity(last_id);
            return Ok(ControlFlow::Break(()));
        }
        if is_full {
            if record_bytes > LARGE_BYTES {
                let bytes = record_bytes as u64;
                let waker = self.waker.clone();
                let hold = self.large.take(bytes, monotonic_ns(), waker);
                self.hold = Some(hold.ok_or(Busy { bytes })?);
            }
            let capacity_bytes = TURN_BYTES.max(LENGTH_BYTES + record_bytes);
            self.records = Buffer::with_capacity(self.blocks, capacity_bytes)?;
        }
        let length = (record_bytes as u64 + parted_bytes).to_le_bytes();
        self.records
            .append_all_within_capacity([&length, pieces[0], pieces[1], pieces[2]]);
        self.quota.note(key);
        let Some(extent) = parted else {
            return Ok(ControlFlow::Continue(()));
        };
        self.parted = Some((head.version, extent));
        self.first_left = Some([key, &[0]].concat());
        Ok(ControlFlow::Break(()))
    }
}
