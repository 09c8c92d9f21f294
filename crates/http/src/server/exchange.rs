//! Requests out of bytes, through the service, into responses.

use super::logging::log_output;
use super::stream::Written;
use crate::access_log::{ShardLog, body_bytes};
use crate::connection::{
    Advance, Connection, Gathering, Pending, Ready, Refusal, Whole, is_head_request,
};
use crate::counters::HttpCounters;
use crate::date::StandingLines;
use crate::encode::{Persistence, ResponseParts, encode_response};
use crate::head::{HeadFields, RequestHead, Version};
use crate::limits::{Limit, Limits};
use crate::method::Method;
use crate::request::{Request, RequestBody};
use crate::response::Response;
use crate::service::{Flow, RequestToken, Service, ServiceContext};
use crate::status::StatusCode;
use crate::streaming::{Outgoing, Streaming};
use millpond_io::{Driver, Peer, SendOutcome, ShardContext, SocketId};
use millpond_mempool::{BlockPool, Buffer, Pool, PoolError, PoolMode, PoolStats, Pooled};
use std::io::Write;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const METRICS_PATH: &[u8] = b"/metrics";
const TEXT_PLAIN: &str = "text/plain";
/// Longest sentence of a refusal; a longer one is cut.
const REFUSAL_TEXT_BYTES_MAX: usize = 192;

/// Connections that need attention when the tick ends.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) dirty: Vec<SocketId>,
    pub(crate) backlogged: Vec<SocketId>,
}

impl Marks {
    #[inline]
    pub(crate) fn mark_dirty(&mut self, connection: &mut Connection) {
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(connection.socket);
        }
    }

    pub(super) fn mark_backlogged(&mut self, connection: &mut Connection) {
        if !connection.is_backlogged {
            connection.is_backlogged = true;
            self.backlogged.push(connection.socket);
        }
    }
}

/// What was made of the bytes on hand.
enum Served {
    /// A request was handed to the service.
    Request,
    /// Something else.
    Part,
    /// Nothing is to be done without more.
    NeedMore,
}

/// How much of what came was served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: usize,
    pub(super) request_count: usize,
}

/// All a shard's exchanges share; everything of a server but its connections and its service.
pub(crate) struct Exchange {
    pub(super) limits: Limits,
    pub(crate) blocks: BlockPool,
    pub(crate) counters: HttpCounters,
    pub(crate) marks: Marks,
    pub(crate) standing_lines: StandingLines,
    /// Who wants to know of every request.
    pub(crate) access_log: Option<Box<ShardLog>>,
    /// What comes or goes in parts.
    pub(super) streams: Pool<Streaming>,
    /// Bodies that come in pieces and are wanted whole.
    gatherings: Pool<Gathering>,
    /// Bytes that wait, for the rest of a head or for an earlier request.
    inputs: Pool<Buffer>,
    /// Requests for `/metrics`, answered when the tick ends.
    pub(super) metrics_requests: Vec<RequestToken>,
    /// Every response is the last of its connection.
    pub(crate) is_draining: bool,
    /// It drains, and connections without a request go.
    pub(crate) closes_idle: bool,
    /// How long a connection may be idle, with as many as there are now.
    pub(super) idle_timeout_ns: u64,
    pub(super) fields: HeadFields,
    /// Tells apart the requests of a slot.
    sequence: u32,
}

impl Exchange {
    pub(super) fn new(limits: Limits, mode: PoolMode, blocks: BlockPool) -> Self {
        Self {
            limits,
            blocks,
            counters: HttpCounters::default(),
            marks: Marks::default(),
            standing_lines: StandingLines::new(),
            access_log: None,
            streams: Pool::new("http_streams", mode),
            gatherings: Pool::new("http_gatherings", mode),
            inputs: Pool::new("http_inputs", mode),
            metrics_requests: Vec::new(),
            is_draining: false,
            closes_idle: false,
            idle_timeout_ns: limits.idle_timeout_ns,
            fields: HeadFields::new(),
            sequence: 0,
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

    /// Serves requests behind those that were, as long as they are whole and answered at once.
    /// Whether all were: then the connection is as plain as before.
    #[inline]
    pub(super) fn serve_plain<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        served: &mut Progress,
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        let mut whole = Whole::new();
        while served.bytes < bytes.len()
            && connection.output.len() < self.limits.output_bytes_max
            && served.request_count < self.limits.pipelined_per_tick_max
            && whole.read(&bytes[served.bytes..], &self.limits, &mut self.fields)
        {
            let (head, head_bytes) = (whole.head(), whole.head_bytes);
            served.bytes += head_bytes.len();
            served.request_count += 1;
            if !whole.body.is_empty() {
                if self.is_streamed(service, head, head_bytes) {
                    self.open_stream(service, connection, head, head_bytes, true, shard);
                    return false;
                }
                served.bytes += whole.body.len();
            }
            if served.request_count == 1 && served.bytes < bytes.len() {
                self.expect_more_output(connection);
            }
            let body = RequestBody::Borrowed(whole.body);
            if !self.call(service, connection, head, head_bytes, body, shard) {
                return false;
            }
        }
        true
    }

    /// Serves requests behind those that were, until one must wait; returns the bytes used in all.
    pub(super) fn serve<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        mut served: Progress,
        shard: &mut ShardContext<'_, D>,
    ) -> usize {
        self.standing_lines.refresh(shard.now_ns);
        let was_gathering = connection.gathering.is_some();
        while served.bytes < bytes.len() && !connection.must_wait() {
            if connection.output.len() >= self.limits.output_bytes_max {
                self.put_off(connection, Limit::Output);
                break;
            }
            if served.request_count == self.limits.pipelined_per_tick_max {
                self.put_off(connection, Limit::Pipelined);
                break;
            }
            if connection.gathering.is_none() && connection.stream.is_none() {
                let before = served.bytes;
                self.serve_plain(service, connection, bytes, &mut served, shard);
                if served.bytes > before {
                    continue;
                }
            }
            match self.serve_part(service, connection, bytes, &mut served.bytes, shard) {
                Served::Request => served.request_count += 1,
                Served::Part => {}
                Served::NeedMore => break,
            }
        }
        let mut at = served.bytes;
        if connection.is_closing {
            connection.is_last_request &= at == bytes.len();
            at = bytes.len();
        }
        let is_mid_request =
            at < bytes.len() || connection.gathering.is_some() || connection.stream.is_some();
        let is_new_phase = !was_gathering && connection.gathering.is_some();
        if served.request_count > 0 || is_new_phase || is_mid_request != connection.is_mid_request {
            connection.since_ns = shard.now_ns;
            connection.is_mid_request = is_mid_request;
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
        let Self {
            limits,
            fields,
            blocks,
            ..
        } = self;
        let advance = match connection.advance(bytes, at, limits, fields, blocks) {
            Advance::Body(head) => {
                let head_bytes = &bytes[*at..][..head.head_bytes];
                if self.is_streamed(service, &head, head_bytes) {
                    *at += head.head_bytes;
                    let has_more = *at < bytes.len();
                    self.open_stream(service, connection, &head, head_bytes, has_more, shard);
                    return Served::Request;
                }
                {
                    let (limits, gatherings) = (&self.limits, &self.gatherings);
                    connection.begin_body(&head, bytes, at, limits, &self.blocks, gatherings)
                }
            }
            advance => advance,
        };
        match advance {
            // A body that is to be gathered has begun.
            Advance::NeedMore | Advance::Body(_) => {
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
    fn is_streamed<S: Service>(
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
            body: RequestBody::Borrowed(&[]),
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
        let Some(mut input) = connection.input.take() else {
            return;
        };
        let consumed_bytes = self.serve(service, connection, &input, Progress::default(), shard);
        if consumed_bytes < input.len() {
            input.consume_front(consumed_bytes);
            connection.input = Some(input);
        }
    }

    /// Hands the output to the driver, unless that still has some.
    #[inline]
    pub(super) fn send_output<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        if connection.output.is_empty() || connection.is_blocked {
            return;
        }
        let output = std::mem::take(&mut connection.output);
        let output_bytes = output.len() as u64;
        connection.output_bytes_last = u32::try_from(output_bytes).unwrap_or(u32::MAX);
        if shard.driver.send(connection.socket, output) == SendOutcome::Blocked {
            connection.is_blocked = true;
            self.watch_write(connection, shard, output_bytes);
        }
    }

    /// Keeps bytes for later. Without memory for them the connection ends.
    pub(super) fn keep(&mut self, connection: &mut Connection, bytes: &[u8]) {
        let kept = match connection.input.as_mut() {
            Some(input) => input.extend_from_slice(&self.blocks, bytes),
            None => self.keep_first(bytes).map(|input| connection.input = input),
        };
        if let Err(error) = kept {
            let is_head = connection.is_head_request();
            self.refuse(connection, error.into(), is_head);
        }
    }

    fn keep_first(&self, bytes: &[u8]) -> Result<Option<Pooled<Buffer>>, PoolError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut input = Buffer::with_capacity(&self.blocks, bytes.len())?;
        input.append_within_capacity(bytes);
        self.inputs.insert(input).map(Some)
    }

    /// More responses will follow in this tick, likely as much as last time. Without memory the
    /// response itself will fail and say so.
    #[cold]
    fn expect_more_output(&self, connection: &mut Connection) {
        if connection.output.capacity() == 0 {
            let last_bytes = connection.output_bytes_last as usize;
            let _ = connection.output.reserve(&self.blocks, last_bytes);
        }
    }

    /// Like `call`, for a request that came in pieces.
    #[inline(never)]
    fn call_gathered<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        ready: Ready<'_>,
        shard: &mut ShardContext<'_, D>,
    ) {
        let head_bytes = ready.head_bytes.as_slice();
        let (head, body) = (&ready.head, ready.body);
        self.call(service, connection, head, head_bytes, body, shard);
    }

    /// Calls the service; whether the connection can go on with its next request at once.
    #[inline(always)]
    pub(super) fn call<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        body: RequestBody<'_>,
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        if self.access_log.is_some() {
            self.log_call(connection, head, head_bytes, &body, shard.now_ns);
        }
        let goes_on = self.answer(service, connection, head, head_bytes, body, shard);
        if self.access_log.is_some() {
            self.log_answer(connection);
        }
        goes_on
    }

    /// See `call`.
    #[inline(always)]
    fn answer<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        body: RequestBody<'_>,
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        self.counters.requests += 1;
        self.sequence = self.sequence.wrapping_add(1);
        connection.is_last_request = !head.keep_alive;
        let is_head = head.method == Method::Head;
        let persistence = self.persistence(head);
        let pending = Pending {
            sequence: self.sequence,
            persistence,
            is_head,
            is_old_version: head.version == Version::Http10,
            is_of_service: true,
            state: 0,
        };
        let token = RequestToken::new(connection.socket.slot() as u32, self.sequence);
        if is_metrics(head, head_bytes) {
            self.metrics_requests.push(token);
            connection.pending = Some(Pending {
                is_of_service: false,
                ..pending
            });
            return false;
        }
        let stream = connection.stream.as_deref();
        let closes_if_answered = stream.is_some_and(Streaming::closes_if_answered);
        let mut request = Request {
            method: head.method,
            bytes: head_bytes,
            head,
            fields: &self.fields,
            body,
        };
        let mut response = Response {
            output: &mut connection.output,
            blocks: &self.blocks,
            standing_lines: &mut self.standing_lines,
            persistence,
            is_head,
            is_old_version: pending.is_old_version,
            closes_if_answered,
            sent: None,
            outgoing: Outgoing::Whole,
            wire: None,
        };
        let mut context = ServiceContext {
            pools: shard.pools,
            now_ns: shard.now_ns,
            token,
            shard_index: shard.shard_index,
            state: 0,
        };
        let flow = service.call(&mut request, &mut response, &mut context);
        context.pools.arena.reset();
        let is_simple = flow == Flow::Done && response.outgoing == Outgoing::Whole;
        if !is_simple || connection.stream.is_some() {
            let state = context.state;
            let written = Written::of(&response);
            let pending = Pending { state, ..pending };
            self.call_went_on(service, connection, flow, pending, written, shard.now_ns);
            // A request without a body is at its end at once.
            self.deliver_end(service, connection, shard);
            return false;
        }
        let (sent, persistence) = (response.sent, response.persistence);
        self.marks.mark_dirty(connection);
        let Some(status) = sent.or_else(|| self.send_unanswered(connection, is_head)) else {
            connection.is_closing = true;
            return false;
        };
        self.counters.count_response(status);
        connection.is_closing |= sent.is_none() || persistence == Persistence::Close;
        !connection.is_closing
    }

    /// A service that answered nothing ran out of memory, or forgot: 503, and the connection is to be
    /// closed.
    #[cold]
    pub(super) fn send_unanswered(
        &mut self,
        connection: &mut Connection,
        is_head: bool,
    ) -> Option<StatusCode> {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let parts = ResponseParts {
            status,
            standing_lines: &self.standing_lines,
            content_type: Some(TEXT_PLAIN.as_bytes()),
            fields: &[],
            persistence: Persistence::Close,
            body: b"the service has no answer: try again later\n",
            is_head,
        };
        let encoded = encode_response(&mut connection.output, &self.blocks, &parts);
        encoded.is_ok().then_some(status)
    }

    /// The request is not answered by the call alone.
    fn call_went_on<S: Service>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        flow: Flow,
        pending: Pending,
        written: Written,
        now_ns: u64,
    ) {
        if flow == Flow::Pending && written.sent.is_none() && connection.stream.is_none() {
            let persistence = written.persistence;
            connection.pending = Some(Pending {
                persistence,
                ..pending
            });
            return;
        }
        self.take_flow(service, connection, flow, pending, written, now_ns);
    }

    #[inline]
    fn persistence(&self, head: &RequestHead) -> Persistence {
        match head.version {
            _ if !head.keep_alive || self.is_draining => Persistence::Close,
            Version::Http11 => Persistence::Silent,
            Version::Http10 => Persistence::KeepAlive,
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

    /// Answers with the refusal's status and sentence; nothing is read any more.
    #[cold]
    pub(super) fn refuse(&mut self, connection: &mut Connection, refusal: Refusal, is_head: bool) {
        if self.access_log.is_some() {
            self.log_unserved(connection, &[]);
        }
        connection.is_closing = true;
        connection.is_last_request = false;
        connection.gathering = None;
        connection.input = None;
        self.marks.mark_dirty(connection);
        let sent = self.send_refusal(connection, refusal, is_head);
        if let Some(log) = self.access_log.as_deref_mut() {
            let slot = connection.socket.slot();
            log.ended(slot, sent.map(StatusCode::code), sent.is_some());
        }
    }

    /// Writes the refusal, where there is a place for it.
    fn send_refusal(
        &mut self,
        connection: &mut Connection,
        refusal: Refusal,
        is_head: bool,
    ) -> Option<StatusCode> {
        if let Some(limit) = refusal.limit() {
            self.counters.strike(limit);
        }
        let stream = connection.stream.take();
        if stream.is_some_and(|stream| stream.sent.is_some()) {
            // Behind the part of an answer there is no place for another: it ends there.
            return None;
        }
        let output_bytes_before = connection.output.len();
        self.encode_refusal(&mut connection.output, refusal, is_head)
            .ok()?;
        let sent = Some(refusal.status());
        self.counters.count_response(refusal.status());
        log_output(&mut self.access_log, connection, output_bytes_before, sent);
        sent
    }

    /// One connection more than allowed: told so and closed, without ever becoming one.
    #[cold]
    pub(super) fn refuse_connection<D: Driver>(
        &mut self,
        driver: &mut D,
        (socket, peer): (SocketId, Option<Peer>),
        refusal: Refusal,
        now_ns: u64,
    ) {
        self.standing_lines.refresh(now_ns);
        if let Some(limit) = refusal.limit() {
            self.counters.strike(limit);
        }
        let mut output = Buffer::new();
        if self.encode_refusal(&mut output, refusal, false).is_ok() {
            self.counters
                .count_response(StatusCode::SERVICE_UNAVAILABLE);
            if let (Some(log), Some(peer)) = (self.access_log.as_deref_mut(), peer) {
                log.turned_away(peer, refusal.status().code(), body_bytes(&output));
            }
            // Blocked or not: the driver sends what it can before it closes.
            let _ = driver.send(socket, output);
        }
        driver.close_after_send(socket);
    }

    fn encode_refusal(
        &self,
        output: &mut Buffer,
        refusal: Refusal,
        is_head: bool,
    ) -> Result<(), PoolError> {
        let mut text = [0; REFUSAL_TEXT_BYTES_MAX];
        let mut rest = &mut text[..];
        // A sentence that does not fit is cut, which is all that can go wrong.
        let _ = writeln!(rest, "{refusal}");
        let text_bytes = REFUSAL_TEXT_BYTES_MAX - rest.len();
        let parts = ResponseParts {
            status: refusal.status(),
            standing_lines: &self.standing_lines,
            content_type: Some(TEXT_PLAIN.as_bytes()),
            fields: &[],
            persistence: Persistence::Close,
            body: &text[..text_bytes],
            is_head,
        };
        encode_response(output, &self.blocks, &parts)
    }
}

#[inline(always)]
fn is_metrics(head: &RequestHead, head_bytes: &[u8]) -> bool {
    matches!(head.method, Method::Get | Method::Head) && head.path.of(head_bytes) == METRICS_PATH
}
