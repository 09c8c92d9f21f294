//! A range read as its shard sees it: turns of records in, chunks out, as fast as the client reads.
//!
//! `handler` opens a task; the scan thread (`scanner`) reads a turn; its records are written while the connection's
//! output has room, and the next turn is requested only when the last one is written. So a task holds one turn and one
//! block of output, whatever its range is. One chunk is one record, `<key>\n<value>`; one for which there is not enough
//! room leaves in parts. To an HTTP/1.0 client, which does not support chunks, the records follow one another until the
//! connection closes. Or each record is a line of JSON (`lines`), and chunks have no meaning.

use std::num::NonZeroU64;
use std::sync::Arc;

use millpond_http::body_budget::due_after_ns;
use millpond_http::{
    Completions, Field, FieldName, FieldValue, Flow, Interest, Request, RequestToken, Response,
};
use millpond_mempool::{Buffer, Handle, PoolError, PoolMode, PoolStats, Slab};

use crate::api;
use crate::api::{Reply, UNCACHED};
use crate::executor::Overloaded;
use crate::metrics::ShardCounters;
use crate::ndjson::{Line, LinePlace, ROOM_BYTES_MIN};
use crate::record::Head;
use crate::scanner::{Ask, KEY_LENGTH_BYTES, LENGTH_BYTES, ScanAnswer, ScanLink, Turn, ValuePlace};

/// Bytes a range read holds, for the demanded rate: a turn, and a block of output.
const HELD_BYTES: u64 = 64 << 10;

/// One range read.
struct Task {
    request: RequestToken,
    turn: Option<Turn>,
    /// How much of the turn is written.
    at: usize,
    /// The rest of a record whose chunk was begun.
    record_left_bytes: usize,
    format: RangeFormat,
    /// How much of the current line is written.
    line: LinePlace,
    /// Totals of all lines so far.
    line_bytes: u64,
    /// By when its client has to take the next bytes, if others wait.
    due_ns: u64,
    /// The next step is the client's, since then; or else ours.
    waits_for_client: bool,
    since_ns: u64,
}

/// Why no range read was begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RangeRefusal {
    /// Too many are open.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// No memory for one more.
    #[error(transparent)]
    NoMemory(#[from] PoolError),
}

/// The range reads of one shard.
pub struct Ranges {
    link: ScanLink,
    tasks: Slab<Task>,
    /// The same; at most as many as may be open.
    open: Vec<Handle<Task>>,
    grace_ns: u64,
    counters: Arc<ShardCounters>,
    /// Kept for its memory: empty between two calls of `woken`.
    answers: Vec<ScanAnswer>,
}

impl Ranges {
    /// None yet.
    #[must_use]
    pub fn new(
        link: ScanLink,
        pool_mode: PoolMode,
        counters: Arc<ShardCounters>,
        grace_ns: u64,
    ) -> Self {
        Self {
            link,
            tasks: Slab::new("range_tasks", pool_mode),
            open: Vec::new(),
            grace_ns,
            counters,
            answers: Vec::new(),
        }
    }

    /// Requests the first turn; the number identifies the exchange from now on.
    ///
    /// # Errors
    /// [`RangeRefusal`]; nothing was begun then.
    pub fn open(
        &mut self,
        request: RequestToken,
        range: ScanRange,
        acks: u16,
        now_ns: u64,
    ) -> Result<u64, RangeRefusal> {
        let admitted = self.link.admit(self.tasks.len());
        if admitted.is_err() && !self.give_up_slowest(now_ns) {
            admitted?;
        }
        let task = self.tasks.insert(Task {
            request,
            turn: None,
            at: 0,
            record_left_bytes: 0,
            format: range.format,
            line: LinePlace::default(),
            line_bytes: 0,
            due_ns: now_ns.saturating_add(self.grace_ns),
            waits_for_client: false,
            since_ns: now_ns,
        })?;
        self.open.push(task);
        let state = task.to_bits();
        self.link.ask(state, request, Ask::Open { range, acks });
        self.counters.ranges.add(1);
        self.publish();
        Ok(state)
    }

    /// Stops the read whose client is furthest behind the rate that is demanded while others wait
    /// (`millpond_http::body_budget`). Its exchange ends when there is room again, or by the deadline of a stalled one.
    fn give_up_slowest(&mut self, now_ns: u64) -> bool {
        let dues = self.open.iter().filter_map(|&handle| {
            let task = self.tasks.get(handle)?;
            let is_behind = task.waits_for_client && task.due_ns < now_ns;
            is_behind.then_some((task.due_ns, handle))
        });
        let Some((_, slowest)) = dues.min_by_key(|&(due_ns, _)| due_ns) else {
            return false;
        };
        if let Some(task) = self.tasks.get(slowest) {
            self.link.ask(slowest.to_bits(), task.request, Ask::Close);
        }
        self.forget(slowest);
        self.counters.slow_readers_cut.add(1);
        true
    }

    /// Takes the turns that were read and resumes their exchanges. Cuts those whose large records hold memory that
    /// others wait for; returns how many.
    pub fn on_wake(&mut self, completions: &mut Completions<'_>) -> u64 {
        let mut cut_count = 0;
        for &handle in &self.open {
            let task = self.tasks.get(handle);
            let turn = task.and_then(|task| Some((task.request, task.turn.as_ref()?)));
            if let Some((
                request,
                Turn::Records {
                    hold: Some(hold), ..
                },
            )) = turn
                && hold.is_cut()
            {
                // The exchange is then abandoned as a consequence.
                completions.cut(request);
                cut_count += 1;
            }
        }
        self.link.take_answers(&mut self.answers);
        for answer in self.answers.drain(..) {
            // The task of a client that has gone is gone too, and its turn goes after it.
            let handle = Handle::from_bits(answer.task);
            let Some(task) = self.tasks.get_mut(handle) else {
                continue;
            };
            task.turn = Some(answer.turn);
            task.at = 0;
            completions.resume(answer.request);
        }
        cut_count
    }

    /// Goes on with an exchange: a turn came, or there is room again.
    pub fn go_on(
        &mut self,
        state: u64,
        request: RequestToken,
        response: &mut Response<'_>,
        now_ns: u64,
    ) -> Flow {
        let handle = Handle::from_bits(state);
        let Some(task) = self.tasks.get_mut(handle) else {
            return Flow::Done;
        };
        if task.request != request {
            return Flow::Done;
        }
        let before = (task.at, task.line_bytes);
        let progress = task.write(response, &self.counters);
        let written_bytes = match task.format {
            RangeFormat::Chunks => (task.at - before.0) as u64,
            RangeFormat::Lines => task.line_bytes - before.1,
        };
        let is_clients = matches!(progress, Progress::NeedsRoom);
        task.note_progress(written_bytes, is_clients, (now_ns, self.grace_ns));
        match progress {
            Progress::NeedsRoom => Flow::Stream(Interest::ROOM),
            Progress::NeedsTurn => Flow::Pending,
            Progress::TurnWritten => {
                task.turn = None;
                self.link.ask(state, request, Ask::Next);
                Flow::Pending
            }
            Progress::Complete => {
                self.forget(handle);
                Flow::Done
            }
            // A response that was begun cannot be completed: the server cuts it, which the client sees.
            Progress::Broken(reply) => {
                self.link.ask(state, request, Ask::Close);
                self.forget(handle);
                if !response.is_sent() {
                    match reply {
                        Reply::TooFewReplicas => self.counters.too_few_replicas.add(1),
                        _ => self.counters.store_failures.add(1),
                    }
                    // Without memory even for this, nothing is sent and the server responds with 503.
                    let _ = reply.send(response);
                }
                Flow::Done
            }
        }
    }

    /// The client has gone.
    pub fn abandoned(&mut self, state: u64, request: RequestToken) {
        let handle = Handle::from_bits(state);
        if self
            .tasks
            .get(handle)
            .is_some_and(|task| task.request == request)
        {
            self.link.ask(state, request, Ask::Close);
            self.forget(handle);
        }
    }

    /// The accounting of the tasks.
    #[must_use]
    pub fn pool_stats(&self) -> PoolStats {
        self.tasks.stats()
    }

    /// Gives idle memory back; returns how much.
    pub fn trim(&mut self) -> usize {
        self.tasks.trim()
    }

    fn forget(&mut self, handle: Handle<Task>) {
        self.tasks.remove(handle);
        self.open.retain(|&open| open != handle);
        self.publish();
    }

    fn publish(&self) {
        self.counters.ranges_open.set(self.tasks.len() as u64);
    }
}

/// How far a task came.
enum Progress {
    /// The turn goes on when the output has left.
    NeedsRoom,
    /// The scan thread has not returned it yet.
    NeedsTurn,
    /// The turn is written and there are more.
    TurnWritten,
    /// The body is complete.
    Complete,
    /// It cannot be completed; this is why.
    Broken(Reply),
}

/// The engine failed, or there was no memory.
const BROKEN: Progress = Progress::Broken(Reply::ReadFailed);

impl Task {
    /// Written bytes replace bytes that have left: the client reads as fast. The time of reading a turn does not count
    /// against the client.
    fn note_progress(&mut self, written_bytes: u64, waits_for_client: bool, now: (u64, u64)) {
        let (now_ns, _) = now;
        if let Some(Turn::Records {
            hold: Some(hold), ..
        }) = &self.turn
        {
            hold.moved(written_bytes, now_ns);
        }
        if !self.waits_for_client {
            let waited_ns = now_ns.saturating_sub(self.since_ns);
            self.due_ns = self.due_ns.saturating_add(waited_ns);
        }
        self.due_ns = due_after_ns(self.due_ns, HELD_BYTES, written_bytes, now);
        self.waits_for_client = waits_for_client;
        self.since_ns = now_ns;
    }

    fn write(&mut self, response: &mut Response<'_>, counters: &ShardCounters) -> Progress {
        let (records, is_last, next, value) = match &self.turn {
            None => return Progress::NeedsTurn,
            Some(Turn::Failed) => return BROKEN,
            Some(Turn::TooFewReplicas) => return Progress::Broken(Reply::TooFewReplicas),
            Some(Turn::Records {
                records,
                is_last,
                next,
                value,
                ..
            }) => (&**records, *is_last, &**next, *value),
        };
        if !response.is_sent() && api::send_range_head(response, self.format).is_err() {
            return BROKEN;
        }
        if self.format == RangeFormat::Lines {
            let mut lines = Lines {
                records,
                value,
                last: is_last.then_some(match next {
                    [] => Line::End,
                    id => Line::Next(id),
                }),
                at: &mut self.at,
                place: &mut self.line,
                written_bytes: &mut self.line_bytes,
            };
            return lines.write(response, counters);
        }
        match self.write_chunks(response, counters) {
            Progress::TurnWritten if is_last => match response.finish() {
                Ok(()) => Progress::Complete,
                Err(_) => BROKEN,
            },
            progress => progress,
        }
    }

    /// Writes the turn, each record a chunk, as far as there is room.
    fn write_chunks(&mut self, response: &mut Response<'_>, counters: &ShardCounters) -> Progress {
        let Some(Turn::Records { records, .. }) = &self.turn else {
            return Progress::NeedsTurn;
        };
        let records = &**records;
        loop {
            let room_bytes = response.room_bytes();
            if self.record_left_bytes == 0 {
                let Some((record_bytes, rest)) = record_at(records, self.at) else {
                    break;
                };
                if room_bytes == 0 {
                    return Progress::NeedsRoom;
                }
                counters.range_records.add(1);
                counters.range_bytes.add(record_bytes as u64);
                self.at += LENGTH_BYTES;
                if record_bytes <= room_bytes && record_bytes <= rest.len() {
                    if response.write(&rest[..record_bytes]).is_err() {
                        return BROKEN;
                    }
                    self.at += record_bytes;
                    continue;
                }
                if response.start_chunk(record_bytes as u64).is_err() {
                    return BROKEN;
                }
                self.record_left_bytes = record_bytes;
                continue;
            }
            // Its value goes on in the next turn.
            let here_bytes = records.len().saturating_sub(self.at);
            if here_bytes == 0 {
                break;
            }
            if room_bytes == 0 {
                return Progress::NeedsRoom;
            }
            let part_bytes = self.record_left_bytes.min(room_bytes).min(here_bytes);
            let part = records.get(self.at..self.at + part_bytes);
            if part.is_none_or(|part| response.write(part).is_err()) {
                return BROKEN;
            }
            self.at += part_bytes;
            self.record_left_bytes -= part_bytes;
        }
        Progress::TurnWritten
    }
}

/// How long the record is that begins at `at`, with its length in front, and what there is from it on.
fn record_at(records: &[u8], at: usize) -> Option<(usize, &[u8])> {
    let (length, rest) = records.get(at..)?.split_first_chunk::<LENGTH_BYTES>()?;
    Some((u64::from_le_bytes(*length) as usize, rest))
}

// A turn of a range read as lines of JSON: encoded as the output has room, a block at a time.

/// Bytes encoded at once: on the stack, and a chunk of the response.
const BLOCK_BYTES: usize = 8 << 10;

/// The records of a turn not shown yet.
struct Lines<'a> {
    records: &'a [u8],
    /// Where the last of them has its value.
    value: ValuePlace,
    /// The line behind the last record, if this turn is the last.
    last: Option<Line<'a>>,
    /// Of the current record.
    at: &'a mut usize,
    /// Within its line.
    place: &'a mut LinePlace,
    /// Counts what is written.
    written_bytes: &'a mut u64,
}

impl<'a> Lines<'a> {
    fn write(&mut self, response: &mut Response<'_>, counters: &ShardCounters) -> Progress {
        let mut block = [0; BLOCK_BYTES];
        loop {
            let room_bytes = response.room_bytes().min(BLOCK_BYTES);
            if room_bytes < ROOM_BYTES_MIN {
                return Progress::NeedsRoom;
            }
            let Some((filled_bytes, is_all)) = self.fill(&mut block[..room_bytes], counters) else {
                return BROKEN;
            };
            counters.range_bytes.add(filled_bytes as u64);
            *self.written_bytes += filled_bytes as u64;
            if filled_bytes > 0 && response.write(&block[..filled_bytes]).is_err() {
                return BROKEN;
            }
            match (is_all, self.last) {
                (false, _) => {}
                (true, None) => return Progress::TurnWritten,
                (true, Some(_)) if response.finish().is_err() => return BROKEN,
                (true, Some(_)) => return Progress::Complete,
            }
        }
    }

    /// Encodes what fits; returns how many bytes, and whether it is all of the turn. `None`: a record is none.
    fn fill(&mut self, room: &mut [u8], counters: &ShardCounters) -> Option<(usize, bool)> {
        let mut filled_bytes = 0;
        loop {
            let (line, entry_bytes) = match self.record()? {
                Some(found) => found,
                None => match self.last.filter(|_| !self.place.is_complete()) {
                    Some(last) => (last, 0),
                    None => return Some((filled_bytes, true)),
                },
            };
            filled_bytes += self.place.fill(&line, &mut room[filled_bytes..]);
            if !self.place.is_complete() {
                return Some((filled_bytes, false));
            }
            // The last line stays marked as complete.
            if entry_bytes > 0 {
                let is_record = !matches!(line, Line::Rest { .. });
                counters.range_records.add(u64::from(is_record));
                *self.at += entry_bytes;
                *self.place = LinePlace::default();
            }
        }
    }

    /// The line of the current record, and how long it is in the turn.
    fn record(&self) -> Option<Option<(Line<'a>, usize)>> {
        let rest = self.records.get(*self.at..)?;
        if let ValuePlace::Follows { left_bytes } = self.value {
            let line = Line::Rest {
                value: rest,
                is_end: left_bytes == 0,
            };
            return Some((!rest.is_empty()).then_some((line, rest.len())));
        }
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Some(None);
        };
        // If its value follows, the whole rest of the turn.
        let length_bytes = (u64::from_le_bytes(*length) as usize).min(rest.len());
        let (key_length, rest) = rest
            .get(..length_bytes)?
            .split_first_chunk::<KEY_LENGTH_BYTES>()?;
        let (id, record) = rest.split_at_checked(u16::from_le_bytes(*key_length).into())?;
        let entry_bytes = LENGTH_BYTES + length_bytes;
        let is_last = *self.at + entry_bytes == self.records.len();
        let line = match self.value {
            ValuePlace::Behind if is_last => Line::Begun {
                id,
                head: Head::of(record).ok()?,
            },
            _ => Line::of(id, record).ok()?,
        };
        Some(Some((line, entry_bytes)))
    }
}

// Which entities a range read is to show, and in which format.

/// How the entities of a range are separated.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RangeFormat {
    /// One chunk `<id>\n<value>` each.
    #[default]
    Chunks,
    /// One line of JSON each (`ndjson`), and one for the end.
    Lines,
}

const NDJSON: &[u8] = b"application/x-ndjson";
const OCTETS: &[u8] = b"application/octet-stream";

impl RangeFormat {
    /// Lines are sent only where they are asked for by name, and chunks not preferred by name.
    fn of(request: &Request<'_>) -> Self {
        let (mut lines, mut chunks) = (0, 0);
        for (name, value) in request.headers() {
            if name.eq_ignore_ascii_case(b"Accept") {
                lines = lines.max(quality(value, NDJSON));
                chunks = chunks.max(quality(value, OCTETS));
            }
        }
        match lines > 0 && lines >= chunks {
            true => Self::Lines,
            false => Self::Chunks,
        }
    }

    /// The head of such a response. Caches have to know that there are two forms.
    pub(crate) const fn fields(self) -> [Field<'static>; 3] {
        let content_type = match self {
            Self::Chunks => FieldValue::OCTET_STREAM,
            Self::Lines => FieldValue::from_static("application/x-ndjson"),
        };
        [
            (FieldName::CONTENT_TYPE, content_type),
            (
                FieldName::from_static("Vary"),
                FieldValue::from_static("Accept"),
            ),
            UNCACHED,
        ]
    }
}

/// How much an `Accept` field prefers that type, in thousandths (RFC 9110 12.4.2); 0: it does not name it.
fn quality(accept: &[u8], media_type: &[u8]) -> u16 {
    let mut quality = 0;
    for range in accept.split(|&byte| byte == b',') {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        if !parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(media_type))
        {
            continue;
        }
        let weight = parts.find_map(|part| match part {
            [b'q' | b'Q', b'=', weight @ ..] => Some(thousandths(weight)),
            _ => None,
        });
        quality = quality.max(weight.unwrap_or(1000));
    }
    quality
}

/// A weight from 0 to 1 with up to three decimals; 0 for what is none.
fn thousandths(weight: &[u8]) -> u16 {
    let (whole, decimals) = match weight {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return 0,
    };
    let digits = (0..3).map(|at| decimals.get(at).unwrap_or(&b'0'));
    let number = std::iter::once(whole)
        .chain(digits)
        .try_fold(0_u16, |number, &digit| {
            let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
            Some(number * 10 + digit)
        });
    number.filter(|&number| number <= 1000).unwrap_or(0)
}

/// Parameters of a range request; ids are still encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RangeQuery<'a> {
    /// The first id.
    pub first: FirstId<'a>,
    /// The id that is not read any more; none: to the last.
    pub end: Option<&'a [u8]>,
    /// At most so many entities.
    pub limit: Option<NonZeroU64>,
    /// How they are sent.
    pub format: RangeFormat,
}

/// Where a range begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FirstId<'a> {
    /// At this id.
    At(&'a [u8]),
    /// Behind this one.
    After(&'a [u8]),
}

impl<'a> RangeQuery<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// The response sent instead.
    pub(crate) fn of(request: &Request<'a>) -> Result<Self, Reply> {
        let start = request.query_parameter(b"start");
        let after = request.query_parameter(b"after");
        let first = match (start, after) {
            (Some(start), None) => FirstId::At(start),
            (None, Some(after)) => FirstId::After(after),
            (None, None) | (Some(_), Some(_)) => return Err(Reply::MissingStart),
        };
        let limit = match request.query_parameter(b"limit") {
            None => None,
            Some(digits) => Some(limit(digits).ok_or(Reply::BadLimit)?),
        };
        Ok(Self {
            first,
            end: request.query_parameter(b"end"),
            limit,
            format: RangeFormat::of(request),
        })
    }
}

/// Digits alone: no sign, no blank.
fn limit(digits: &[u8]) -> Option<NonZeroU64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The same, decoded, as it goes to the thread that reads.
#[derive(Debug)]
pub struct ScanRange {
    /// The first id.
    pub start: Buffer,
    /// The id before which to end; none: behind the last.
    pub end: Option<Buffer>,
    /// At most so many entities.
    pub limit: Option<NonZeroU64>,
    /// Parts of each record that a turn holds.
    pub format: RangeFormat,
}

#[cfg(test)]
#[path = "tests/range_query.rs"]
mod range_query_tests;
