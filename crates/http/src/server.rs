//! The server of one shard: connects sockets, the connection state machine and a service.
//!
//! `io` delivers events; received bytes go through `exchange` (requests out of bytes, service,
//! responses into the connection's output); when the tick ends every connection with output gets
//! one send. Deadlines and the stop are in `deadline`, the numbers that `/metrics` shows in `heartbeat`, limits on
//! connections in `admission`, clients that end early in `fin_watch`.
//!
//! Back-pressure: a connection whose output the kernel did not take, whose request is pending, or that used up its
//! share of the tick, is not served further. Later bytes are kept, then receiving is paused, so at most two receives
//! wait per connection.

mod exchange;
mod calling;
mod stream;
mod refusing;
mod body_queue;
mod deadline;
mod admission;
mod heartbeat;
mod fin_watch;
#[cfg(test)]
#[path = "tests/test_server.rs"]
mod test_server;

pub(crate) use body_queue::SHORT_BYTES;
pub(crate) use deadline::HAND_OVER_NS;
pub(crate) use exchange::Exchange;
use exchange::Progress;
pub(crate) use refusing::log_output;
pub(crate) use stream::Written;

use crate::access_log::ShardLog;
use crate::body_budget::BodyBudget;
use crate::client::Client;
use crate::completions::Completions;
use crate::connection::Connection;
use crate::connection_table::Connections;
use crate::counters::HttpCounters;
use crate::limits::{Limit, Limits};
use crate::metrics::MetricsAccess;
use crate::metrics::Scrape;
use crate::metrics::Snapshots;
use crate::service::{RequestToken, Service};
use deadline::Drain;
use deadline::IdleSweep;
use fin_watch::FinWatch;
use heartbeat::Heartbeat;
use millpond_io::{Driver, Event, IoError, Protocol, ShardContext, SocketId, WaitPlan};
use millpond_mempool::{BlockPool, PoolMode, PoolStats};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Users of timers that are no socket; no socket has these ids, its slots being dense.
const DRAIN_TIMER: u64 = u64::MAX;
const HEARTBEAT_TIMER: u64 = u64::MAX - 1;
const IDLE_TIMER: u64 = u64::MAX - 2;
const TURN_AWAY_TIMER: u64 = u64::MAX - 3;
const FIN_WATCH_TIMER: u64 = u64::MAX - 4;

/// Resources of a server besides its service.
pub(crate) struct ServerParts {
    pub(crate) limits: Limits,
    pub(crate) pool_mode: PoolMode,
    /// The shard's own pool.
    pub(crate) blocks: BlockPool,
    /// The same for all shards.
    pub(crate) bodies: BodyBudget,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) build_labels: Arc<[(&'static str, String)]>,
    pub(crate) is_handing_over: Arc<AtomicBool>,
    pub(crate) access_log: Option<ShardLog>,
    pub(crate) metrics_access: MetricsAccess,
    /// Of the shard that writes metrics for a listener of their own.
    pub(crate) scrape: Option<Arc<Scrape>>,
}

/// A [`Service`] as an [`io::Protocol`](Protocol).
pub(crate) struct Server<S> {
    service: S,
    /// The service's requests to others; it is borrowed while it reports them.
    client: Option<Client>,
    /// It has more to do than one tick let it.
    client_has_pending_work: bool,
    connections: Connections,
    exchange: Exchange,
    /// Connections with a late response, to go on with.
    answered: Vec<SocketId>,
    /// Connections whose share of the last tick was used up.
    backlog_due: Vec<SocketId>,
    snapshots: Arc<Snapshots>,
    build_labels: Arc<[(&'static str, String)]>,
    scrape: Option<Arc<Scrape>>,
    heartbeat: Heartbeat,
    idle_sweep: IdleSweep,
    fin_watch: FinWatch,
    /// Another process takes the address over.
    is_handing_over: Arc<AtomicBool>,
    drain: Drain,
}

impl<S: Service> Server<S> {
    pub(crate) fn new(service: S, parts: ServerParts) -> Self {
        let mut exchange = Exchange::new(
            parts.limits,
            parts.pool_mode,
            parts.blocks,
            parts.bodies,
            service.routes().len(),
        );
        let client = service.client().cloned();
        let log = parts.access_log;
        exchange.metrics_access = parts.metrics_access;
        exchange.access_log = log.map(|log| Box::new(log.relaying(client.is_some())));
        Self {
            client,
            client_has_pending_work: false,
            service,
            connections: Connections::new(parts.pool_mode, &parts.limits),
            exchange,
            answered: Vec::new(),
            backlog_due: Vec::new(),
            snapshots: parts.snapshots,
            build_labels: parts.build_labels,
            scrape: parts.scrape,
            heartbeat: Heartbeat::default(),
            idle_sweep: IdleSweep::default(),
            fin_watch: FinWatch::default(),
            is_handing_over: parts.is_handing_over,
            drain: Drain::default(),
        }
    }

    pub(crate) fn service(&self) -> &S {
        &self.service
    }

    pub(crate) fn counters(&self) -> &HttpCounters {
        &self.exchange.counters
    }

    pub(crate) fn exchange_stats(&self) -> [PoolStats; 3] {
        self.exchange.pool_stats()
    }

    pub(crate) fn connection_stats(&self) -> PoolStats {
        self.connections.stats()
    }

    /// Timers that belong to no connection: the heartbeat's, the idle sweep's, the drain's.
    pub(crate) fn own_timer_count(&self) -> usize {
        self.client.as_ref().map_or(0, Client::spare_timer_count)
            + usize::from(self.heartbeat.timer.is_some())
            + usize::from(self.idle_sweep.timer.is_some())
            + usize::from(self.exchange.is_draining)
            + self.fin_watch.timer_count()
            + self.drain.timer_count()
    }

    pub(crate) fn is_drain_over(&self) -> bool {
        self.drain.is_over
    }

    fn accepted<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let peer = if self.asks_for_peers() {
            let peer = shard.driver.peer(socket);
            if peer.is_none() {
                // Reset while it waited: there is no client to serve.
                shard.driver.close(socket);
                return;
            }
            peer
        } else {
            None
        };
        if let Some(refusal) = self.lacks_room(shard, peer) {
            self.exchange
                .refuse_connection(shard.driver, (socket, peer), refusal, shard.now_ns);
            return;
        }
        let connection = Connection::new(socket, shard.now_ns);
        let inserted = self.connections.insert(connection, peer, shard.now_ns);
        if inserted.is_err() {
            shard.driver.close(socket);
            return;
        }
        self.exchange.counters.connections_accepted += 1;
        if let Some(peer) = peer {
            self.introduce(shard, socket, peer);
        }
        self.connections_changed();
        if self.exchange.is_draining {
            self.expect_request_soon(shard, socket);
        }
        self.plan_idle_sweep(shard);
    }

    /// A separate call, which keeps the driver's code for other events out of it.
    #[inline(never)]
    fn received<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        bytes: &[u8],
    ) {
        let Some(connection) = self.connections.get_mut_receiving(socket, shard.now_ns) else {
            return self.client_event(shard, &Event::Received { socket, bytes });
        };
        let mut served = Progress::default();
        debug_assert!(!connection.is_known_plain || connection.is_plain());
        if connection.is_known_plain || connection.is_plain() {
            let (service, exchange) = (&mut self.service, &mut self.exchange);
            exchange.standing_lines.refresh(shard.now_ns);
            if shard.driver.sends_at_once() {
                exchange.borrow_scratch(connection);
            }
            let goes_on = exchange.serve_plain(service, connection, bytes, &mut served, shard);
            if served.is_load() {
                shard.driver.deprioritize(socket);
            }
            if goes_on && served.bytes == bytes.len() {
                return exchange.settle_plain(connection, shard);
            }
            exchange.leave_plain(connection);
            if served.bytes == bytes.len() && connection.awaits_answer() {
                (connection.since_ns, connection.is_known_plain) = (shard.now_ns, false);
                return exchange.settle(connection, shard);
            }
        } else if connection.is_closing() {
            return;
        }
        self.received_more(shard, socket, bytes, served);
    }

    /// Input that is not only whole requests with immediate responses. The first requests may have been.
    fn received_more<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        bytes: &[u8],
        mut served: Progress,
    ) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return;
        };
        if connection.must_wait() && served.request_count == 0 {
            self.exchange.keep(connection, bytes);
            shard.driver.pause_receive(socket);
            shard.driver.deprioritize(socket);
            connection.is_paused = true;
        } else if connection.input.is_none() {
            let consumed_bytes =
                self.exchange
                    .serve(&mut self.service, connection, bytes, &mut served, shard);
            if consumed_bytes < bytes.len() {
                self.exchange.keep(connection, &bytes[consumed_bytes..]);
                let is_in_body =
                    connection.stream.is_some() || self.exchange.body_queue.ends_with(socket);
                if is_in_body && connection.must_wait() {
                    // A client that sends a body has more of it: every receive would be kept.
                    shard.driver.pause_receive(socket);
                    connection.is_paused = true;
                }
            }
        } else {
            let is_worth_it = connection.is_worth_parsing(bytes, &self.exchange.limits);
            self.exchange.keep(connection, bytes);
            if is_worth_it {
                self.exchange
                    .serve_kept(&mut self.service, connection, shard);
            }
        }
        self.exchange.settle(connection, shard);
        self.watch_for_fin(shard, socket);
    }

    /// Whatever happens not as often as bytes come.
    #[inline(never)]
    fn other_event<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, event: &Event<'_>) {
        match *event {
            Event::Accepted { socket } => self.accepted(shard, socket),
            Event::PeerFinished { socket } => self.peer_finished(shard, socket),
            Event::Failed { socket, .. } => {
                self.count_cancelled(socket);
                self.forget(shard, socket);
                self.client_event(shard, event);
            }
            Event::Connected { .. } => self.client_event(shard, event),
            Event::SendDrained { socket } => self.send_drained(shard, socket),
            Event::SendBlocked { socket } => self.send_blocked(shard, socket),
            Event::Woken => self.on_wake(shard),
            Event::AcceptFailed { error } => self.accept_failed(shard, error),
            // Kinds of events to come are not for it.
            _ => {}
        }
    }

    /// A reason to wait is gone: serves what came meanwhile.
    fn go_on<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return;
        };
        if connection.pending.is_some() {
            self.exchange
                .advance_stream(&mut self.service, connection, shard);
        }
        if !connection.must_wait() && connection.input.is_some() {
            shard.driver.deprioritize(socket);
            self.exchange
                .serve_kept(&mut self.service, connection, shard);
        }
        if connection.is_peer_finished && connection.pending.is_some() {
            self.cancel_if_gone(shard, socket);
        } else if connection.is_paused && connection.pending.is_some() {
            self.watch_for_fin(shard, socket);
        }
        if let Some(connection) = self.connections.get_mut(socket) {
            if connection.is_peer_finished {
                self.exchange
                    .finish_tunnel_input(&mut self.service, connection, shard);
            }
            self.exchange.settle(connection, shard);
        }
    }

    /// The kernel was full for a response that had counted as sent.
    #[cold]
    fn send_blocked<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return self.client_event(shard, &Event::SendBlocked { socket });
        };
        connection.is_blocked = true;
        let output_bytes = u64::from(connection.output_bytes_last);
        self.exchange.watch_write(connection, shard, output_bytes);
    }

    fn send_drained<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return self.client_event(shard, &Event::SendDrained { socket });
        };
        connection.is_blocked = false;
        connection.since_ns = shard.now_ns;
        if connection.stream.is_some() {
            // Before room is reported: there is none beside the waiting bytes.
            self.exchange.send_output(connection, shard);
        }
        if connection.is_closing() || !connection.output.is_empty() {
            self.exchange.marks.mark_dirty(connection);
        }
        if connection.input.is_some() && connection.stream.is_none() {
            // It sends faster than it reads, and the kernel has room again for many of its kind at once.
            self.exchange.marks.mark_backlogged(connection);
        } else if !connection.is_closing() {
            self.go_on(shard, socket);
        }
    }

    fn on_wake<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.exchange.standing_lines.refresh(shard.now_ns);
        if self.exchange.bodies.has_marked() {
            self.cut_slow_bodies(shard);
        }
        if let Some(client) = &self.client {
            client.on_wake(shard);
        }
        self.answer_scrape(shard);
        self.complete(shard, S::on_wake);
    }

    /// Lets `answer` respond to pending requests, then goes on with their connections.
    fn complete<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        answer: impl FnOnce(&mut S, &mut Completions<'_>),
    ) {
        let mut completions = Completions {
            connections: &mut self.connections,
            exchange: &mut self.exchange,
            pools: shard.pools,
            now_ns: shard.now_ns,
            answered: &mut self.answered,
        };
        answer(&mut self.service, &mut completions);
        self.go_on_with_answered(shard);
    }

    /// Continues the connections whose requests were continued.
    fn go_on_with_answered<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        while let Some(socket) = self.exchange.to_reset.pop() {
            // Bytes that it does not read would stay with the kernel.
            self.exchange.counters.count_limit_hit(Limit::Contended);
            shard.driver.reset(socket);
            self.forget(shard, socket);
        }
        let mut answered = std::mem::take(&mut self.answered);
        for socket in answered.drain(..) {
            // From here on it is idle, however long the response took.
            if let Some(connection) = self.connections.get_mut_active(socket, shard.now_ns) {
                connection.since_ns = shard.now_ns;
            }
            self.go_on(shard, socket);
        }
        self.answered = answered;
    }

    /// One send for each connection with output; closes those that are done.
    #[inline]
    fn flush<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let mut dirty = std::mem::take(&mut self.exchange.marks.dirty);
        for socket in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut_as_it_is(socket) else {
                continue;
            };
            connection.is_dirty = false;
            self.exchange.send_output(connection, shard);
            if connection.pending.is_some() {
                self.exchange.offer_room(connection);
            }
            if self.exchange.closes_idle && connection.is_idle() {
                connection.close(false);
                connection.is_known_plain = false;
            }
            if connection.is_closing() && (!connection.is_blocked || connection.ends_by_reset) {
                if connection.ends_by_reset {
                    shard.driver.reset(socket);
                } else if connection.closes_cleanly() {
                    shard.driver.close(socket);
                } else {
                    shard.driver.close_after_send(socket);
                }
                self.forget(shard, socket);
            }
        }
        self.exchange.marks.dirty = dirty;
    }

    /// The socket is closed or closing by itself: nothing of it stays here.
    fn forget<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        if let Some(connection) = self.connections.remove(socket) {
            self.heartbeat.beats_left = Heartbeat::BEATS_AFTER_EVENT;
            if self.exchange.access_log.is_some() {
                self.exchange.log_forgotten(&connection);
            }
            if let Some(timer) = connection.timer {
                shard.timers.remove(timer);
            }
            if let Some(pending) = connection.pending.filter(|pending| pending.is_of_service) {
                let token = RequestToken::new(socket.slot() as u32, pending.sequence);
                self.service.abandoned(token, pending.state);
            }
            self.connections_changed();
            if self.connections.is_empty() {
                self.idle_sweep.cancel(shard);
            }
        }
    }

    fn connections_changed(&mut self) {
        let open_count = self.connections.len();
        let exchange = &mut self.exchange;
        exchange.counters.connections_open = open_count as u64;
        exchange.idle_timeout_ns = exchange.limits.idle_timeout_with_ns(open_count);
    }

    fn cut<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        shard.driver.close(socket);
        self.forget(shard, socket);
    }
}

impl<S: Service, D: Driver> Protocol<D> for Server<S> {
    fn started(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        self.heartbeat.timer = Some(shard.timers.create(HEARTBEAT_TIMER));
        self.idle_sweep.timer = Some(shard.timers.create(IDLE_TIMER));
        self.publish(shard);
        Ok(())
    }

    #[inline(always)]
    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        self.heartbeat.beats_left = Heartbeat::BEATS_AFTER_EVENT;
        match event {
            Event::Received { socket, bytes } => self.received(shard, socket, bytes),
            event => self.other_event(shard, &event),
        }
    }

    fn timer_expired(&mut self, shard: &mut ShardContext<'_, D>, user: u64) {
        if user != HEARTBEAT_TIMER {
            // A deadline frees what its connection held, and no event may follow for hours.
            self.heartbeat.beats_left = Heartbeat::BEATS_AFTER_EVENT;
        }
        match user {
            DRAIN_TIMER => self.drain_expired(shard),
            HEARTBEAT_TIMER => self.beat(shard),
            IDLE_TIMER => self.close_idle(shard),
            TURN_AWAY_TIMER => self.refuse_waiting(shard),
            FIN_WATCH_TIMER => self.look_for_fins(shard),
            user => {
                let futures = self.service.async_shard();
                let is_theirs = futures.is_some_and(|futures| futures.timer_expired(shard, user));
                if !is_theirs && !self.client_timer_expired(shard, user) {
                    self.deadline_passed(shard, SocketId::from_bits(user));
                }
            }
        }
    }

    fn tick_ended(&mut self, shard: &mut ShardContext<'_, D>) {
        self.serve_backlog(shard);
        self.serve_body_queue(shard);
        self.service.tick_ended();
        self.answer_metrics(shard);
        if let Some(futures) = self.service.async_shard() {
            futures.pump(shard);
        }
        self.pump_client(shard);
        self.flush(shard);
        let driver = &*shard.driver;
        self.exchange
            .durations
            .tick_ended(shard.now_ns, || driver.clock_ns());
        self.exchange.spare_output.release();
        if self.exchange.is_draining {
            self.drain_on(shard);
        }
        if let Some(log) = self.exchange.access_log.as_deref_mut() {
            log.tick_ended();
        }
        self.keep_beating(shard);
    }

    fn stop_requested(&mut self, shard: &mut ShardContext<'_, D>) {
        self.begin_drain(shard);
    }

    fn finished(&self) -> bool {
        let is_drained =
            !self.drain.expects_more() && self.connections.is_empty() && self.service.can_stop();
        self.exchange.is_draining && (is_drained || self.drain.is_over)
    }

    fn wait_plan(&mut self, now_ns: u64) -> WaitPlan {
        let has_backlog = !self.backlog_due.is_empty() || self.client_has_pending_work;
        let look_at_ns = self.exchange.body_queue.look_at_ns(now_ns);
        WaitPlan {
            deadline_ns: has_backlog.then_some(now_ns).or(look_at_ns),
            ..WaitPlan::default()
        }
    }
}
