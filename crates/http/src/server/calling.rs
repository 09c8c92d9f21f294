//! The service's turn: what it is given of a request, and what becomes of what it did.

use super::exchange::Exchange;
use super::stream::Written;
use crate::connection::{Connection, Pending, Ready};
use crate::head::RequestHead;
use crate::manner::Manner;
use crate::method::Method;
use crate::proxy::Failure;
use crate::request::{Request, RequestBody};
use crate::response::Response;
use crate::service::{Flow, RequestToken, Service, ServiceContext};
use crate::status::StatusCode;
use crate::streaming::{Outgoing, Streaming};
use millpond_io::{Driver, ShardContext, SocketId};
use millpond_mempool::Buffer;

const METRICS_PATH: &[u8] = b"/metrics";

/// What the service did.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    flow: Flow,
    pub(super) written: Written,
    /// Why the proxy has answered by itself.
    pub(super) failure: Option<Failure>,
    state: u64,
}

impl Turn {
    /// The status of an answer that is whole.
    #[inline(always)]
    pub(super) fn answered(&self) -> Option<StatusCode> {
        match self.is_simple() {
            true => self.written.sent,
            false => None,
        }
    }

    /// It is done, and began no body in parts.
    #[inline(always)]
    fn is_simple(&self) -> bool {
        self.flow == Flow::Done && self.written.outgoing == Outgoing::Whole
    }
}

impl Exchange {
    /// Names the next request.
    #[inline(always)]
    pub(super) fn next_token(&mut self, connection: &Connection) -> RequestToken {
        self.counters.requests += 1;
        self.sequence = self.sequence.wrapping_add(1);
        RequestToken::new(connection.socket.slot() as u32, self.sequence)
    }

    /// Whether the server itself answers this.
    #[inline(always)]
    pub(super) fn is_metrics<S: Service, D: Driver>(
        &self,
        service: &S,
        socket: SocketId,
        (head, head_bytes): (&RequestHead, &[u8]),
        shard: &ShardContext<'_, D>,
    ) -> bool {
        // By its length first, which is at hand.
        head.path.len() == METRICS_PATH.len()
            && asks_for_metrics(head, head_bytes)
            && self.shows_metrics(service, socket, (head, head_bytes), shard)
    }

    /// Whether this peer may read the metrics here; if not, the path is one of the service's.
    #[cold]
    fn shows_metrics<S: Service, D: Driver>(
        &self,
        service: &S,
        socket: SocketId,
        (head, bytes): (&RequestHead, &[u8]),
        shard: &ShardContext<'_, D>,
    ) -> bool {
        let request = Request {
            method: head.method,
            bytes,
            head,
            fields: &self.fields,
            body: RequestBody::Received(&[]),
        };
        let peer = || shard.driver.peer(socket);
        self.metrics_access.allows(&request, peer) && service.shows_metrics(&request)
    }

    /// It is answered when the tick ends.
    #[cold]
    pub(super) fn await_metrics(
        &mut self,
        connection: &mut Connection,
        token: RequestToken,
        manner: Manner,
    ) {
        self.metrics_requests.push(token);
        connection.pending = Some(Pending {
            sequence: token.sequence(),
            manner,
            is_of_service: false,
            state: 0,
        });
    }

    /// Lets the service have the request.
    #[inline(always)]
    pub(super) fn ask<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        output: &mut Buffer,
        (head, head_bytes, body): (&RequestHead, &[u8], RequestBody<'_>),
        (token, manner): (RequestToken, Manner),
        shard: &mut ShardContext<'_, D>,
    ) -> Turn {
        let mut request = Request {
            method: head.method,
            bytes: head_bytes,
            head,
            fields: &self.fields,
            body,
        };
        let mut response = Response {
            output,
            blocks: &self.blocks,
            standing_lines: &mut self.standing_lines,
            manner,
            sent: None,
            outgoing: Outgoing::Whole,
            failure: None,
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
        Turn {
            flow,
            written: Written::of(&response),
            failure: response.failure,
            state: context.state,
        }
    }

    /// Calls the service for a request that came in pieces.
    #[inline(never)]
    pub(super) fn call_gathered<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        mut ready: Ready<'_>,
        shard: &mut ShardContext<'_, D>,
    ) {
        let head_bytes = ready.head_bytes.as_slice();
        let (head, body) = (&ready.head, RequestBody::Gathered(&mut ready.body));
        self.call(service, connection, head, head_bytes, body, shard);
    }

    /// Calls the service, for a request of any kind.
    #[inline(never)]
    pub(super) fn call<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        body: RequestBody<'_>,
        shard: &mut ShardContext<'_, D>,
    ) {
        if self.access_log.is_some() {
            let is_gathered = matches!(body, RequestBody::Gathered(_));
            self.log_call(connection, head, head_bytes, is_gathered, shard.now_ns);
        }
        let token = self.next_token(connection);
        let manner = Manner::of(head, self.is_draining);
        let mut failure = None;
        if self.is_metrics(service, connection.socket, (head, head_bytes), shard) {
            self.await_metrics(connection, token, manner);
        } else {
            let stream = connection.stream.as_deref();
            let closes_if_answered = stream.is_some_and(Streaming::closes_if_answered);
            let manner = manner.closing_if_answered(closes_if_answered);
            let (output, request) = (&mut connection.output, (head, head_bytes, body));
            let turn = self.ask(service, output, request, (token, manner), shard);
            failure = turn.failure;
            self.settle_turn(service, connection, token, turn, shard);
        }
        if self.access_log.is_some() {
            self.log_answer(connection, failure);
        }
    }

    /// After the service's turn: whatever it did.
    #[inline(never)]
    pub(super) fn settle_turn<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        token: RequestToken,
        turn: Turn,
        shard: &mut ShardContext<'_, D>,
    ) {
        if !turn.is_simple() || connection.stream.is_some() {
            let pending = Pending {
                sequence: token.sequence(),
                manner: turn.written.manner,
                is_of_service: true,
                state: turn.state,
            };
            self.call_went_on(service, connection, &turn, pending, shard.now_ns);
            // A request without a body is at its end at once.
            return self.deliver_end(service, connection, shard);
        }
        let Written { sent, manner, .. } = turn.written;
        self.marks.mark_dirty(connection);
        let Some(status) = sent.or_else(|| self.send_unanswered(connection, manner.is_head()))
        else {
            return connection.close(manner.is_last_of_client());
        };
        self.counters.count_response(status);
        if sent.is_none() || manner.closes() {
            connection.close(manner.is_last_of_client());
        }
    }

    /// The request is not answered by the call alone.
    fn call_went_on<S: Service>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        turn: &Turn,
        pending: Pending,
        now_ns: u64,
    ) {
        let Turn { flow, written, .. } = *turn;
        if flow == Flow::Pending && written.sent.is_none() && connection.stream.is_none() {
            connection.pending = Some(pending);
            return;
        }
        self.take_flow(service, connection, flow, pending, written, now_ns);
    }
}

#[cold]
fn asks_for_metrics(head: &RequestHead, head_bytes: &[u8]) -> bool {
    matches!(head.method, Method::Get | Method::Head) && head.path.of(head_bytes) == METRICS_PATH
}
