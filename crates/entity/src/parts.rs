//! Values in parts: how a value that is longer than a part is stored, so that it is never in memory as a whole.
//!
//! ```text
//! id                                      head, extent          the record: what readers of the id find
//! 1025 x FF, 0, version, BE u64           count, LE u32; id     whose parts these are
//! 1025 x FF, 1, version, index, BE u32    the bytes
//! ```
//!
//! No id is as long as these keys' beginning, so all of them sort after all ids. They are written first, the record
//! last: a reader that finds the record finds its parts. Parts whose record is not there (its upload was cut off, or
//! the id was overwritten or deleted, or has ended) are dead: the monitor searches for them, and the writer thread
//! deletes them. Neither touches a set that is pinned, by its upload or by its readers.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_http::{BodyHold, Completions, Flow, Interest, RequestToken, Response};
use millpond_io::monotonic_ns;

use crate::api;
use crate::api::Reply;
use crate::commit::Job;
use crate::key::ID_BYTES_MAX;
use crate::record::{Extent, Head, PARTED_BYTES_MAX, Value, Version, encode};
use crate::store::{Held as _, Snapshot, Store, StoreError};

/// The length of a part. A longer value is stored in parts. Divisible by 3, so that parts that are sent in base64 need no
/// padding between them. Of this length or less are also what a client's connection takes, and what the engine copies
/// several times.
pub const PART_BYTES: usize = 240 << 10;

/// Where the keys of entities end.
pub(crate) const IDS_END: &[u8] = &[0xff; ID_BYTES_MAX + 1];

const PREFIX_BYTES: usize = ID_BYTES_MAX + 1;
const HEADERS: u8 = 0;
const PARTS: u8 = 1;
const VERSION_AT: usize = PREFIX_BYTES + 1;
const INDEX_AT: usize = VERSION_AT + 8;

/// The key of a set's header.
pub(crate) type HeaderKey = [u8; INDEX_AT];
/// The key of a part.
pub(crate) type PartKey = [u8; INDEX_AT + 4];

/// In a header: the number of parts was not known yet (a body in chunks).
pub(crate) const COUNT_UNKNOWN: u32 = 0;

/// How many dead sets one search returns.
const DEAD_MAX: usize = 1024;

/// Whether it is the key of a part or of a header, and not an entity's.
#[inline]
#[must_use]
pub(crate) fn is_part(key: &[u8]) -> bool {
    key.len() > ID_BYTES_MAX
}

pub(crate) fn header_key(set: Version) -> HeaderKey {
    let mut key = [0xff; INDEX_AT];
    key[PREFIX_BYTES] = HEADERS;
    key[VERSION_AT..].copy_from_slice(&set.0.to_be_bytes());
    key
}

pub(crate) fn part_key(set: Version, index: u32) -> PartKey {
    let mut key = [0xff; INDEX_AT + 4];
    key[PREFIX_BYTES] = PARTS;
    key[VERSION_AT..INDEX_AT].copy_from_slice(&set.0.to_be_bytes());
    key[INDEX_AT..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The set that a part belongs to; `None`: the key is no part's.
pub(crate) fn set_of_part(key: &[u8]) -> Option<Version> {
    let key: &PartKey = key.try_into().ok()?;
    let version = key[VERSION_AT..INDEX_AT].try_into().ok()?;
    (key[PREFIX_BYTES] == PARTS).then(|| Version(u64::from_be_bytes(version)))
}

fn set_of_header(key: &[u8]) -> Option<Version> {
    let key: &HeaderKey = key.try_into().ok()?;
    let version = key[VERSION_AT..].try_into().ok()?;
    (key[PREFIX_BYTES] == HEADERS).then(|| Version(u64::from_be_bytes(version)))
}

/// All that is written for an entity at once, for tools and tests: a record, or parts and a record.
///
/// # Panics
/// As [`encode`].
#[must_use]
pub fn writes_of(id: Vec<u8>, head: &Head<'_>, value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    if value.len() <= PART_BYTES {
        return vec![(id, encode(head, value))];
    }
    let extent = Extent {
        value_bytes: value.len() as u64,
        part_bytes: PART_BYTES as u32,
    };
    let header = [&extent.parts().to_le_bytes()[..], &id].concat();
    let mut writes = vec![(header_key(head.version).to_vec(), header)];
    for (index, part) in (0..).zip(value.chunks(PART_BYTES)) {
        writes.push((part_key(head.version, index).to_vec(), part.to_vec()));
    }
    let mut room = [0; PARTED_BYTES_MAX];
    let len = head.write_parted(extent, &mut room);
    writes.push((id, room[..len].to_vec()));
    writes
}

/// A set whose value cannot be read any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeadSet {
    /// Its name.
    pub(crate) set: Version,
    /// How many parts it has.
    pub(crate) parts: u32,
}

/// Which sets are in use, and which wait to be deleted. Shared by all threads.
#[derive(Debug, Default)]
pub struct PartSets {
    state: Mutex<PartSetState>,
    /// There are, or were, values in parts since the start.
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct PartSetState {
    /// How many use each.
    pinned: HashMap<Version, u32>,
    /// Not to be pinned any more: among `dead`, or being deleted. At most [`DEAD_MAX`].
    condemned: HashSet<Version>,
    dead: Vec<DeadSet>,
}

/// Keeps a set from being deleted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    sets: Arc<PartSets>,
    set: Version,
}

impl Pinned {
    /// `None`: the set is dead. Parts in a snapshot stay readable as long as the snapshot exists.
    pub(crate) fn new(sets: &Arc<PartSets>, set: Version) -> Option<Self> {
        let sets = Arc::clone(sets);
        sets.pin(set).then_some(Self { sets, set })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.sets.unpin(self.set);
    }
}

impl PartSets {
    /// Keeps a set from being deleted, until [`unpin`](Self::unpin). False: it is dead.
    fn pin(&self, set: Version) -> bool {
        self.is_used.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        if state.condemned.contains(&set) {
            return false;
        }
        *state.pinned.entry(set).or_insert(0) += 1;
        true
    }

    /// Once for each [`pin`](Self::pin).
    fn unpin(&self, set: Version) {
        let mut state = self.lock();
        match state.pinned.get_mut(&set) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(state.pinned.remove(&set)),
            None => debug_assert!(false, "unpinned more often than pinned"),
        }
    }

    /// Whether there may be any sets to check.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    fn is_pinned(&self, set: Version) -> bool {
        self.lock().pinned.contains_key(&set)
    }

    /// Leaves a set to the writer thread, unless it is in use.
    fn condemn(&self, dead: DeadSet) {
        let mut state = self.lock();
        let is_free = !state.pinned.contains_key(&dead.set) && state.dead.len() < DEAD_MAX;
        if is_free && state.condemned.insert(dead.set) {
            state.dead.push(dead);
        }
    }

    /// A set to delete, for the writer thread.
    pub(crate) fn next_dead(&self) -> Option<DeadSet> {
        self.lock().dead.pop()
    }

    /// It was deleted, and is not found any more; or the delete failed, and the next search finds it again.
    pub(crate) fn let_go(&self, set: Version) {
        self.lock().condemned.remove(&set);
    }

    fn lock(&self) -> MutexGuard<'_, PartSetState> {
        // It is whole after every statement under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks all sets and queues the dead ones for the writer thread; returns how many these are. Reads the record of each
/// set from the engine, so it may take long: never on a shard or on the writer thread.
///
/// # Errors
/// When the engine fails; the sets found until then are valid.
pub(crate) fn find_dead<S: Store>(store: &S, sets: &PartSets) -> Result<usize, StoreError> {
    let held = store.hold()?;
    let snapshot = held.snapshot();
    let mut found = Vec::new();
    let mut failed = None;
    let (from, end) = (header_key(Version(0)), part_key(Version(0), 0));
    snapshot.visit(&from, Some(&end), &mut |key, header| {
        if found.len() == DEAD_MAX || store.wants_release() {
            return ControlFlow::Break(());
        }
        let Some(set) = set_of_header(key) else {
            return ControlFlow::Continue(());
        };
        sets.is_used.store(true, Ordering::Relaxed);
        // In this order: the record of an upload that is over, and pins no more, is there by now or never will be.
        if sets.is_pinned(set) {
            return ControlFlow::Continue(());
        }
        match is_alive(store, set, header) {
            Ok(true) => {}
            Ok(false) => found.push((set, count_of(header))),
            Err(error) => {
                failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    let count = found.len();
    for (set, parts) in found {
        let parts = count_parts(&snapshot, set, parts)?;
        sets.condemn(DeadSet { set, parts });
    }
    failed.map_or(Ok(count), Err)
}

fn count_of(header: &[u8]) -> u32 {
    let count = header.first_chunk::<4>();
    count.map_or(COUNT_UNKNOWN, |count| u32::from_le_bytes(*count))
}

/// Whether the record of the set is there.
fn is_alive<S: Store>(store: &S, set: Version, header: &[u8]) -> Result<bool, StoreError> {
    let Some((_, id)) = header.split_first_chunk::<4>() else {
        return Ok(false);
    };
    let alive = store.get(id, |record| match Head::split(record) {
        Ok((head, Value::Parted(_))) => head.version == set && !head.is_expired(),
        Ok((_, Value::Whole(_))) => false,
        // Of a later build, or damaged: unknown.
        Err(_) => true,
    })?;
    Ok(alive.unwrap_or(false))
}

/// How many parts of a set exist, given the announced number. They are written from the first on and deleted from the
/// last on, so a few probes are enough.
fn count_parts(snapshot: &impl Snapshot, set: Version, announced: u32) -> Result<u32, StoreError> {
    let is_there = |index: u32| {
        let mut is_there = false;
        let (from, end) = (part_key(set, index), part_key(set, index.saturating_add(1)));
        snapshot.visit(&from, Some(&end), &mut |_, _| {
            is_there = true;
            ControlFlow::Break(())
        })?;
        Ok::<_, StoreError>(is_there)
    };
    // Those below `there` are, the one at `absent` is not.
    let (mut there, mut absent) = (0, announced);
    if announced == COUNT_UNKNOWN {
        absent = 1;
        while is_there(absent - 1)? {
            there = absent;
            absent = absent.saturating_mul(2);
        }
        absent -= 1;
    } else if is_there(announced - 1)? {
        return Ok(announced);
    }
    while there < absent {
        let middle = there + (absent - there) / 2;
        match is_there(middle)? {
            true => there = middle + 1,
            false => absent = middle,
        }
    }
    Ok(there)
}

// Large values that are stored whole on their way out: held once, and written as fast as each client reads. Longer ones
// are stored in parts (`downloads`).
//
// ```text
// reader: Store::get -> BodyBudget::take -> Job::hold          no room: it waits, then 503
// shard: Job -> LargeResponses::begin -> Response::write ...     as there is room
// ```
// On the path: a small value is copied into the connection's output at once, which is made for it. A large one would
// take a copy per reader there, for as long as it takes; so it stays in the read thread's buffer, and the bytes of
// these are limited. While others wait for them, the client that reads slowest for the bytes it holds is cut
// (`millpond_http::body_budget`).

/// A record longer than this is large: half of what a connection may have unsent.
pub const LARGE_BYTES: usize = 128 << 10;

/// How often holders of memory are checked while a request waits for it.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A response under way.
struct LargeResponse {
    request: RequestToken,
    /// Holds the record, and the bytes of it.
    job: Job,
    /// How much of the value is written.
    at: usize,
}

/// Those of one shard. Few, by their size: a list is searched as fast as a table.
#[derive(Default)]
pub struct LargeResponses {
    answers: Vec<LargeResponse>,
}

impl LargeResponses {
    /// Begins the response to a read with the record found; returns another response to be sent instead, if any, which
    /// the caller counts.
    pub fn begin(&mut self, completions: &mut Completions<'_>, job: Job) -> Option<Reply> {
        let mut reply = None;
        let request = job.request;
        let mut answer = LargeResponse {
            request,
            job,
            at: 0,
        };
        let mut is_open = false;
        completions.continue_with(request, |response, _| {
            let (record, condition) = (&answer.job.value, &answer.job.condition);
            match api::start_record(response, record, condition) {
                // Without memory for it nothing is sent and the server responds with 503.
                Err(_) => return Flow::Done,
                Ok(api::Started::Value) => {}
                Ok(api::Started::Whole) => return Flow::Done,
                Ok(api::Started::Reply(other)) => {
                    reply = Some(other);
                    let _ = other.send(response);
                    return Flow::Done;
                }
            }
            let flow = answer.write(response);
            is_open = flow != Flow::Done;
            flow
        });
        if is_open {
            self.answers.push(answer);
        }
        reply
    }

    /// Goes on with a response, if the request's is one of these.
    pub fn go_on(&mut self, request: RequestToken, response: &mut Response<'_>) -> Option<Flow> {
        let place = self.place(request)?;
        let flow = self.answers[place].write(response);
        if flow == Flow::Done {
            self.answers.swap_remove(place);
        }
        Some(flow)
    }

    /// The client has gone.
    pub fn abandoned(&mut self, request: RequestToken) {
        if let Some(place) = self.place(request) {
            self.answers.swap_remove(place);
        }
    }

    /// Cuts those whose clients read too slowly while others wait for the memory; returns how many.
    pub fn cut(&mut self, completions: &mut Completions<'_>) -> u64 {
        let mut count = 0;
        self.answers.retain(|answer| {
            let is_cut = answer.job.hold.as_ref().is_some_and(BodyHold::is_cut);
            if is_cut {
                completions.cut(answer.request);
                count += 1;
            }
            !is_cut
        });
        count
    }

    fn place(&self, request: RequestToken) -> Option<usize> {
        let mut answers = self.answers.iter();
        answers.position(|answer| answer.request == request)
    }
}

impl LargeResponse {
    fn write(&mut self, response: &mut Response<'_>) -> Flow {
        if self.job.hold.as_ref().is_some_and(BodyHold::is_cut) {
            return Flow::Done;
        }
        let value = api::value_of(&self.job.value);
        while self.at < value.len() {
            let room = response.room_bytes();
            if room == 0 {
                return Flow::Stream(Interest::ROOM);
            }
            let end = value.len().min(self.at + room);
            // Without memory it cannot be completed: the server cuts it, which the client sees.
            if response.write(&value[self.at..end]).is_err() {
                return Flow::Done;
            }
            if let Some(hold) = &self.job.hold {
                hold.moved((end - self.at) as u64, monotonic_ns());
            }
            self.at = end;
        }
        Flow::Done
    }
}

#[cfg(test)]
#[path = "tests/parts.rs"]
mod tests;
