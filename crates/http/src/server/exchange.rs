//! Requests out of bytes, through the service, into responses.

use super::body_queue::BodyQueue;
use super::marks::Marks;
use super::plain::Progress;
use crate::access_log::ShardLog;
use crate::body_budget::BodyBudget;
use crate::connection::{Advance, Connection, Gathering, GatheringRoom, is_head_request};
use crate::counters::HttpCounters;
use crate::date::StandingLines;
use crate::head::{HeadFields, RequestHead};
use crate::kept_input::KeptInput;
use crate::limits::{Limit, Limits};
use crate::metrics::MetricsAccess;
use crate::request::{Request, RequestBody};
use crate::service::{RequestToken, Service};
use crate::streaming::Streaming;
use millpond_io::{Driver, ShardContext};
use millpond_mempool::{BlockPool, Buffer, Pool, PoolMode, PoolStats};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What was made of the bytes on hand.
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
    /// Requests of one connection in one turn: as many as the limit says, or fewer; see `backlog`.
    pub(super) requests_per_turn: usize,
    pub(crate) blocks: BlockPool,
    pub(crate) counters: HttpCounters,
    pub(crate) marks: Marks,
    pub(crate) standing_lines: StandingLines,
    /// Who wants to know of every request.
    pub(crate) access_log: Option<Box<ShardLog>>,
    pub(crate) metrics_access: MetricsAccess,
    /// What comes or goes in parts.
    pub(super) streams: Pool<Streaming>,
    /// Bodies that come in pieces and are wanted whole.
    gatherings: Pool<Gathering>,
    /// What they may hold, with those of all other shards.
    pub(super) bodies: BodyBudget,
    /// Who waits for them.
    pub(super) body_queue: BodyQueue,
    /// Bytes that wait, for the rest of a head or for an earlier request.
    inputs: Pool<KeptInput>,
    /// Requests for `/metrics`, answered when the tick ends.
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
    /// Tells apart the requests of a slot.
    pub(super) sequence: u32,
    /// Room for the next answers, kept until the tick ends.
    pub(super) spare_output: Buffer,
}

impl Exchange {
    pub(super) fn new(
        limits: Limits,
        mode: PoolMode,
        blocks: BlockPool,
        bodies: BodyBudget,
    ) -> Self {
        Self {
            limits,
            requests_per_turn: limits.pipelined_per_tick_max,
            blocks,
            counters: HttpCounters::default(),
            marks: Marks::default(),
            standing_lines: StandingLines::new(),
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
                self.put_off(connection, Limit::Output);
                break;
            }
            if served.request_count >= self.requests_per_turn {
                self.put_off(connection, Limit::Pipelined);
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
            shard.driver.put_behind(connection.socket);
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

    /// Whether the service wants the body of this request in parts.
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
    fn put_off(&mut self, connection: &mut Connection, limit: Limit) {
        self.counters.strike(limit);
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

    /// What is left of the first block is the beginning of a head.
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
