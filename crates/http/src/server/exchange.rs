//! Requests out of bytes, through the service, into responses.

use millpond_io::{Driver, SendOutcome, ShardContext};
use millpond_mempool::{BlockPool, Buffer, Pool, PoolMode, PoolStats};

use crate::access_log::ShardLog;
use crate::body_budget::BodyBudget;
use crate::connection::{Advance, Connection, Gathering, GatheringRoom, Whole, is_head_request};
use crate::counters::HttpCounters;
use crate::durations::RequestDurations;
use crate::head::ResponseFraming;
use crate::head::{HeadFields, RequestHead};
use crate::kept_input::KeptInput;
use crate::limits::{Limit, Limits};
use crate::log::FixedHeaderLines;
use crate::metrics::MetricsAccess;
use crate::request::{Request, RequestBody};
use crate::service::{RequestToken, Service};
use crate::streaming::Streaming;

use super::admission::Marks;
use super::body_queue::BodyQueue;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Result of handling the bytes on hand.
enum Served {
    /// A request was handed to the service.
    Request,
    /// Something else.
    Part,
    /// Nothing is to be done without more.
    NeedMore,
}

/// All a shard's exchanges share; everything of a server but its connections and its service.
pub(crate) struct Exchange {
    pub(super) limits: Limits,
    /// Requests of one connection in one turn: as many as the limit allows, or fewer; see `body_queue`.
    pub(super) requests_per_turn: usize,
    pub(crate) blocks: BlockPool,
    pub(crate) counters: HttpCounters,
    pub(crate) durations: RequestDurations,
    pub(crate) marks: Marks,
    pub(crate) standing_lines: FixedHeaderLines,
    /// Notified of every request.
    pub(crate) access_log: Option<Box<ShardLog>>,
    pub(crate) metrics_access: MetricsAccess,
    /// Exchanges whose bodies come or go in parts.
    pub(super) streams: Pool<Streaming>,
    /// Bodies that come in pieces and are wanted whole.
    gatherings: Pool<Gathering>,
    /// Memory they may hold, together with those of all other shards.
    pub(super) bodies: BodyBudget,
    /// The requests that wait for them.
    pub(super) body_queue: BodyQueue,
    /// Bytes that wait, for the rest of a head or for an earlier request.
    inputs: Pool<KeptInput>,
    /// Requests for `/metrics`, which get responses when the tick ends.
    pub(super) metrics_requests: Vec<RequestToken>,
    /// Connections whose service has them cut ([`crate::Completions::cut`]); empty between two events.
    pub(crate) to_reset: Vec<millpond_io::SocketId>,
    /// Every response is the last of its connection.
    pub(crate) is_draining: bool,
    /// It drains, and connections without a request go.
    pub(crate) closes_idle: bool,
    /// How long a connection may be idle, with as many as there are now.
    pub(super) idle_timeout_ns: u64,
    pub(super) fields: HeadFields,
    /// Distinguishes the requests of a slot.
    pub(super) sequence: u32,
    /// Room for the next responses, kept until the tick ends.
    pub(super) spare_output: Buffer,
}

impl Exchange {
    pub(super) fn new(
        limits: Limits,
        mode: PoolMode,
        blocks: BlockPool,
        bodies: BodyBudget,
        route_count: usize,
    ) -> Self {
        Self {
            limits,
            requests_per_turn: limits.pipelined_per_tick_max,
            blocks,
            counters: HttpCounters::default(),
            durations: RequestDurations::new(route_count),
            marks: Marks::default(),
            standing_lines: FixedHeaderLines::new(),
            access_log: None,
            metrics_access: MetricsAccess::default(),
            streams: Pool::new("http_streams", mode),
            gatherings: Pool::new("http_gatherings", mode),
            bodies,
            body_queue: BodyQueue::default(),
            inputs: Pool::new("http_inputs", mode),
            metrics_requests: Vec::new(),
            to_reset: Vec::new(),
            is_draining: false,
            closes_idle: false,
            idle_timeout_ns: limits.idle_timeout_ns,
            fields: HeadFields::new(),
            sequence: 0,
            spare_output: Buffer::new(),
        }
    }

    /// The pools of what a connection has only for a while.
    pub(super) fn pool_stats(&self) -> [PoolStats; 3] {
        [
            self.streams.stats(),
            self.gatherings.stats(),
            self.inputs.stats(),
        ]
    }

    /// See `ShardContext::trim_pools`.
    pub(super) fn trim(&mut self) -> usize {
        self.streams.trim() + self.gatherings.trim() + self.inputs.trim()
    }

    /// Serves requests behind those that were, until one must wait; returns the bytes used in all.
    pub(super) fn serve<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        served: &mut Progress,
        shard: &mut ShardContext<'_, D>,
    ) -> usize {
        self.standing_lines.refresh(shard.now_ns);
        let was_gathering = connection.gathering.is_some();
        while served.bytes < bytes.len() && !connection.must_wait() {
            if connection.output.len() >= self.limits.output_bytes_max {
                self.defer_response(connection, Limit::Output);
                break;
            }
            if served.request_count >= self.requests_per_turn {
                self.defer_response(connection, Limit::Pipelined);
                break;
            }
            if connection.gathering.is_none() && connection.stream.is_none() {
                let before = served.bytes;
                self.serve_plain(service, connection, bytes, served, shard);
                if served.bytes > before {
                    self.leave_plain(connection);
                    continue;
                }
            }
            match self.serve_part(service, connection, bytes, &mut served.bytes, shard) {
                Served::Request => served.request_count += 1,
                Served::Part => {}
                Served::NeedMore => break,
            }
        }
        if served.is_load() {
            shard.driver.deprioritize(connection.socket);
        }
        let mut at = served.bytes;
        if connection.is_closing() {
            if at < bytes.len() {
                connection.leave_unread();
            }
            at = bytes.len();
        }
        let is_mid_request =
            at < bytes.len() || connection.gathering.is_some() || connection.stream.is_some();
        let is_new_phase = !was_gathering && connection.gathering.is_some();
        let is_new_phase = connection.set_mid_request(is_mid_request) || is_new_phase;
        if served.request_count > 0 || is_new_phase {
            connection.since_ns = shard.now_ns;
        }
        at
    }

    /// Whatever is not a whole request: a part of one, one in parts, or none at all.
    #[cold]
    #[inline(never)]
    fn serve_part<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        at: &mut usize,
        shard: &mut ShardContext<'_, D>,
    ) -> Served {
        if connection.stream.is_some() {
            *at += self.feed_stream(service, connection, &bytes[*at..], shard);
            return Served::Part;
        }
        let head_at = *at;
        let driver = &*shard.driver;
        let waker = || driver.waker();
        let room = GatheringRoom {
            blocks: &self.blocks,
            gatherings: &self.gatherings,
            bodies: &self.bodies,
            now_ns: shard.now_ns,
            waker: &waker,
        };
        let (limits, fields) = (&self.limits, &mut self.fields);
        let advance = match connection.advance(bytes, at, limits, fields, &room) {
            Advance::Body(head) => {
                let head_bytes = &bytes[*at..][..head.head_bytes];
                if self.is_streamed(service, &head, head_bytes) {
                    *at += head.head_bytes;
                    let has_more = *at < bytes.len();
                    self.open_stream(service, connection, &head, head_bytes, has_more, shard);
                    return Served::Request;
                }
                connection.begin_body(&head, bytes, at, &self.limits, &room)
            }
            advance => advance,
        };
        match advance {
            Advance::AwaitsMemory => {
                self.await_memory(connection, shard.now_ns);
                Served::NeedMore
            }
            // A body that is to be gathered has begun.
            Advance::NeedMore | Advance::Body(_) => {
                self.note_hold(connection);
                self.continue_if_wanted(connection);
                Served::NeedMore
            }
            Advance::Refused(refusal) => {
                if self.access_log.is_some() {
                    self.log_unserved(connection, &bytes[head_at..]);
                }
                self.refuse(connection, refusal, is_head_request(&bytes[*at..]));
                Served::Part
            }
            Advance::Ready(ready) => {
                self.call_gathered(service, connection, ready, shard);
                Served::Request
            }
        }
    }

    /// Whether the service takes the body of this request in parts.
    #[inline]
    pub(super) fn is_streamed<S: Service>(
        &self,
        service: &mut S,
        head: &RequestHead,
        head_bytes: &[u8],
    ) -> bool {
        service.takes_body_in_parts(&Request {
            method: head.method,
            bytes: head_bytes,
            head,
            fields: &self.fields,
            body: RequestBody::Received(&[]),
        })
    }

    /// The connection had its share of the tick: the rest of its requests waits for the next.
    #[cold]
    fn defer_response(&mut self, connection: &mut Connection, limit: Limit) {
        self.counters.count_limit_hit(limit);
        self.marks.mark_backlogged(connection);
    }

    /// Like `serve`, on what the connection kept.
    pub(super) fn serve_kept<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let mut served = Progress::default();
        while let Some(input) = connection.input.take() {
            served.bytes = 0;
            let (first_bytes, has_more) = (input.first().len(), input.has_more());
            let consumed_bytes = self.serve(service, connection, input.first(), &mut served, shard);
            if connection.is_closing() {
                if has_more {
                    connection.leave_unread();
                }
                return;
            }
            connection.input = KeptInput::without_front(input, consumed_bytes);
            if connection.must_wait() || !has_more {
                break;
            }
            if consumed_bytes < first_bytes {
                self.join_kept(connection);
            }
        }
        if connection.input.is_some() && connection.set_mid_request(true) {
            connection.since_ns = shard.now_ns;
        }
    }

    /// The rest of the first block is the beginning of a head.
    fn join_kept(&mut self, connection: &mut Connection) {
        let Some(input) = connection.input.as_deref_mut() else {
            return;
        };
        if let Err(error) = input.join_next(&self.blocks) {
            let is_head = connection.is_head_request();
            self.refuse(connection, error.into(), is_head);
        }
    }

    /// Keeps bytes for later. Without memory for them the connection ends.
    pub(super) fn keep(&mut self, connection: &mut Connection, bytes: &[u8]) {
        let kept = KeptInput::keep(&mut connection.input, bytes, &self.blocks, &self.inputs);
        if let Err(error) = kept {
            let is_head = connection.is_head_request();
            self.refuse(connection, error.into(), is_head);
        }
    }

    /// The head is accepted and its client waits for a sign before it sends the body.
    fn continue_if_wanted(&mut self, connection: &mut Connection) {
        let Some(gathering) = connection.gathering.as_mut() else {
            return;
        };
        if std::mem::take(&mut gathering.wants_continue) {
            match connection.output.extend_from_slice(&self.blocks, CONTINUE) {
                Ok(()) => self.marks.mark_dirty(connection),
                Err(error) => self.refuse(connection, error.into(), false),
            }
        }
    }
}

// The path of nearly all requests: whole in one receive, with an immediate response.
//
// All of it is inlined into one loop, and each request pays for every instruction. States that a plain connection
// cannot have (a request in parts, one that is pending, a close) are not checked; a request that causes one leaves the
// loop for `exchange` and `calling`.

/// How much of what came was served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: usize,
    pub(super) request_count: usize,
}

/// A client that pipelines more than this is not one that asks and waits: a hundred requests are 4 KiB and
/// 50 us, and a flood of clients with so many each delayed an established client for half a millisecond.
const REQUESTS_OF_A_MESSAGE: usize = 8;

impl Progress {
    /// See [`Driver::deprioritize`].
    #[inline]
    pub(super) fn is_load(self) -> bool {
        self.request_count > REQUESTS_OF_A_MESSAGE
    }
}

impl Exchange {
    /// Serves the next requests, as long as they are whole and have an immediate response. Returns whether all were:
    /// then the connection is as plain as before. The responses are in its output, which the caller sends.
    #[inline(always)]
    pub(super) fn serve_plain<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        served: &mut Progress,
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        let mut whole = Whole::EMPTY;
        while served.bytes < bytes.len()
            && connection.output.len() < self.limits.output_bytes_max
            && served.request_count < self.requests_per_turn
            && let Some(body) = whole.read(&bytes[served.bytes..], &self.limits, &mut self.fields)
        {
            let (head, head_bytes) = (whole.head(), whole.head_bytes);
            served.bytes += head_bytes.len();
            served.request_count += 1;
            if !body.is_empty() {
                if self.is_streamed(service, head, head_bytes) {
                    self.open_stream(service, connection, head, head_bytes, true, shard);
                    return false;
                }
                served.bytes += body.len();
            }
            if served.request_count == 1 && served.bytes < bytes.len() {
                self.expect_more_output(connection);
            }
            if !self.answer_plain(service, connection, head, head_bytes, body, shard) {
                return false;
            }
        }
        true
    }

    /// Calls the service; returns whether the connection can go on with its next request at once.
    #[inline(always)]
    fn answer_plain<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        body: &[u8],
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        if self.access_log.is_some() {
            self.log_call(connection, head, head_bytes, false, shard.now_ns);
        }
        let token = self.next_token(connection);
        let manner = ResponseFraming::of(head, self.is_draining);
        let is_metrics = self.is_metrics(service, connection.socket, (head, head_bytes), shard);
        let mut failure = None;
        let goes_on = if is_metrics {
            self.await_metrics(connection, token, manner);
            false
        } else {
            let (output, body) = (&mut connection.output, RequestBody::Received(body));
            let request = (head, head_bytes, body);
            let turn = self.ask(service, output, request, (token, manner), shard);
            failure = turn.failure;
            match turn.answered() {
                Some(status) if !turn.written.manner.closes() => {
                    self.counters.count_response(status);
                    self.durations.count_at_once(turn.route, status);
                    true
                }
                _ => {
                    self.settle_turn(service, connection, token, turn, shard);
                    false
                }
            }
        };
        if self.access_log.is_some() {
            self.log_answer(connection, failure);
        }
        goes_on
    }
}

// Sending: a connection's responses to the driver, and the room they are written into.
//
// An idle connection owns no buffer, so each batch of responses needs one. Where the driver hands bytes
// to the kernel at once, one block serves a connection after the other, until the tick ends.

/// Room that held more goes back to the pool at once: most responses need no such.
const SPARE_BYTES_MAX: usize = 4 * 1024;

impl Exchange {
    /// Gives the connection the spare room to write into, if it has none.
    #[inline(always)]
    pub(super) fn borrow_scratch(&mut self, connection: &mut Connection) {
        connection.output.take_block_of(&mut self.spare_output);
    }

    /// The connection is not plain any more, or may not be: the responses wait for the end of the tick.
    #[inline]
    pub(super) fn leave_plain(&mut self, connection: &mut Connection) {
        if connection.output.is_empty() {
            self.take_room_back(connection, 0);
        } else {
            self.marks.mark_dirty(connection);
        }
    }

    /// Returns the borrowed block, and blocks the driver left.
    #[inline(always)]
    fn take_room_back(&mut self, connection: &mut Connection, used_bytes: usize) {
        if !connection.output.has_block() {
            return;
        }
        if self.spare_output.has_block() || used_bytes > SPARE_BYTES_MAX {
            connection.output.release();
        } else {
            self.spare_output.take_block_of(&mut connection.output);
        }
    }

    /// A connection that was plain is so still: its responses leave now where that costs no send more
    /// than later, else when the tick ends.
    #[inline(always)]
    pub(super) fn settle_plain<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        connection.since_ns = shard.now_ns;
        connection.is_known_plain = true;
        if shard.driver.sends_at_once() && !connection.is_dirty && !self.closes_idle {
            self.send_now(connection, shard);
        } else {
            self.marks.mark_dirty(connection);
        }
    }

    /// Hands the output to the driver, unless that still has some.
    #[inline(never)]
    pub(super) fn send_output<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        self.send_now(connection, shard);
        if connection.stream.is_some() {
            self.finish_tunnel_output(connection, shard);
        }
    }

    #[inline(always)]
    fn send_now<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let output_bytes = connection.output.len();
        if output_bytes == 0 || connection.is_blocked {
            return;
        }
        connection.output_bytes_last = u32::try_from(output_bytes).unwrap_or(u32::MAX);
        let outcome = shard
            .driver
            .send_from(connection.socket, &mut connection.output);
        self.take_room_back(connection, output_bytes);
        if outcome == SendOutcome::Blocked {
            connection.is_blocked = true;
            connection.is_known_plain = false;
            self.watch_write(connection, shard, output_bytes as u64);
        }
    }

    /// More responses will follow in this tick, likely as much as last time. Without memory writing the response fails
    /// and reports it.
    #[cold]
    pub(super) fn expect_more_output(&self, connection: &mut Connection) {
        let last_bytes = connection.output_bytes_last as usize;
        if connection.output.capacity() < last_bytes && connection.output.is_empty() {
            let _ = connection.output.reserve(&self.blocks, last_bytes);
        }
    }
}
