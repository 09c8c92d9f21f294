//! The call of the service: its arguments, and the handling of its result.

use millpond_io::{Driver, Event, ShardContext, SocketId};
use millpond_mempool::Buffer;

use crate::client::{Client, ExchangeEvent, ExchangeId, Listener};
use crate::completions::Completions;
use crate::connection::{Connection, Pending, Ready};
use crate::connection_table::Connections;
use crate::head::RequestHead;
use crate::head::ResponseFraming;
use crate::method::Method;
use crate::proxy::Failure;
use crate::request::{Request, RequestBody};
use crate::response::Response;
use crate::service::{Flow, RequestToken, Service, ServiceContext};
use crate::status::StatusCode;
use crate::streaming::{Outgoing, Streaming, has_room_for_part};

use super::Server;
use super::exchange::Exchange;
use super::stream::Written;

const METRICS_PATH: &[u8] = b"/metrics";

/// Result of the service's call.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    flow: Flow,
    pub(super) written: Written,
    /// Why the proxy has responded by itself.
    pub(super) failure: Option<Failure>,
    state: u64,
    pub(super) route: u8,
}

impl Turn {
    /// The status of a response that is whole.
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

    /// Whether the server itself responds to this.
    #[inline(always)]
    pub(super) fn is_metrics<S: Service, D: Driver>(
        &self,
        service: &S,
        socket: SocketId,
        (head, head_bytes): (&RequestHead, &[u8]),
        shard: &ShardContext<'_, D>,
    ) -> bool {
        // By its length first, which is known already.
        head.path.len() == METRICS_PATH.len()
            && asks_for_metrics(head, head_bytes)
            && self.shows_metrics(service, socket, (head, head_bytes), shard)
    }

    /// Whether this peer may read the metrics here; if not, the path belongs to the service.
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

    /// Its response is written when the tick ends.
    #[cold]
    pub(super) fn await_metrics(
        &mut self,
        connection: &mut Connection,
        token: RequestToken,
        manner: ResponseFraming,
    ) {
        self.metrics_requests.push(token);
        connection.pending = Some(Pending {
            sequence: token.sequence(),
            manner,
            is_of_service: false,
            state: 0,
            route: 0,
            started_ns: 0,
        });
    }

    /// Lets the service have the request.
    #[inline(always)]
    pub(super) fn ask<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        output: &mut Buffer,
        (head, head_bytes, body): (&RequestHead, &[u8], RequestBody<'_>),
        (token, manner): (RequestToken, ResponseFraming),
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
            route: 0,
        };
        let flow = service.call(&mut request, &mut response, &mut context);
        context.pools.arena.reset();
        Turn {
            flow,
            written: Written::of(&response),
            failure: response.failure,
            state: context.state,
            route: context.route,
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
        let manner = ResponseFraming::of(head, self.is_draining);
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
                route: turn.route,
                started_ns: shard.now_ns,
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
        self.durations.count_at_once(turn.route, status);
        if sent.is_none() || manner.closes() {
            connection.close(manner.is_last_of_client());
        }
    }

    /// The request is not complete after the call.
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

// The service's requests to other servers: events of their sockets, timers, and what they wait for.

/// Requests that are gone on with may ask others again: so often in one tick.
const ROUNDS_MAX: usize = 4;

/// All of a server but its client.
struct Hearing<'a, S> {
    service: &'a mut S,
    connections: &'a mut Connections,
    exchange: &'a mut Exchange,
    answered: &'a mut Vec<SocketId>,
}

impl<S: Service> Listener for Hearing<'_, S> {
    fn hear<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        id: ExchangeId,
        user: u64,
        event: ExchangeEvent<'_>,
    ) {
        let may_go_on = matches!(
            event,
            ExchangeEvent::Informational(_) | ExchangeEvent::Head(_) | ExchangeEvent::Body(_)
        );
        let completions = &mut Completions {
            connections: self.connections,
            exchange: self.exchange,
            pools: shard.pools,
            now_ns: shard.now_ns,
            answered: self.answered,
        };
        self.service.exchange_event(id, user, event, completions);
        if may_go_on {
            self.send_if_full(shard);
        }
    }
}

impl<S> Hearing<'_, S> {
    /// More of the same response may follow at once: if it may not fit the output's block, the block leaves now.
    fn send_if_full<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let Some(connection) = self
            .answered
            .last()
            .and_then(|&socket| self.connections.get_mut(socket))
        else {
            return;
        };
        if !has_room_for_part(&connection.output) {
            self.exchange.send_output(connection, shard);
        }
    }
}

impl<S: Service> Server<S> {
    /// Applies a change to the service's client, if it has one, and reports the events to the service.
    fn with_client<D: Driver, R>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        act: impl FnOnce(&Client, &mut ShardContext<'_, D>, &mut Hearing<'_, S>) -> R,
    ) -> Option<R> {
        let client = self.client.take()?;
        self.exchange.standing_lines.refresh(shard.now_ns);
        let mut hearing = Hearing {
            service: &mut self.service,
            connections: &mut self.connections,
            exchange: &mut self.exchange,
            answered: &mut self.answered,
        };
        let result = act(&client, shard, &mut hearing);
        self.client = Some(client);
        Some(result)
    }

    /// Something happened to a socket that is no client's of ours.
    #[inline(never)]
    pub(super) fn client_event<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        event: &Event<'_>,
    ) {
        self.with_client(shard, |client, shard, hearing| {
            client.event(shard, event, hearing);
        });
        self.go_on_with_answered(shard);
    }

    /// False: the timer is none of the client's.
    pub(super) fn client_timer_expired<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        user: u64,
    ) -> bool {
        let expired = self.with_client(shard, |client, shard, hearing| {
            client.timer_expired(shard, user, hearing)
        });
        let Some(Some(is_alarm)) = expired else {
            return false;
        };
        if is_alarm {
            self.complete(shard, S::alarm);
        } else {
            self.go_on_with_answered(shard);
        }
        true
    }

    /// Carries out the service's recorded calls; their direct results may lead to more.
    pub(super) fn pump_client<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if self.client.is_none() {
            return;
        }
        self.client_has_pending_work = true;
        for _ in 0..ROUNDS_MAX {
            let is_restless =
                self.with_client(shard, |client, shard, hearing| client.pump(shard, hearing));
            if self.answered.is_empty() {
                self.client_has_pending_work = is_restless == Some(true);
                return;
            }
            self.go_on_with_answered(shard);
        }
    }
}
