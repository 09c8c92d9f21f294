//! Connections whose large bodies wait for memory, and those that have some.
//!
//! `exchange` puts a connection here when what arrives of its body finds no memory; nothing more is read from it, so
//! TCP alone slows its client. When a tick ends those that wait are tried again, in turn: one that fits does not wait
//! for one that does not. Free memory wakes no shard, because that happens on any thread and too often; while a body
//! waits, this shard checks every few milliseconds, and has the slowest holder of memory cut
//! ([`BodyBudget::cut_slowest`]).
//!
//! [`BodyBudget::cut_slowest`]: crate::BodyBudget::cut_slowest

use std::collections::VecDeque;

use millpond_io::{Driver, ShardContext, SocketId, TICK_NS};

use crate::connection::{Connection, Refusal};
use crate::limits::Limit;
use crate::service::Service;

use super::Server;
use super::exchange::Exchange;

/// Up to this a body takes no hold: there are no more such bodies than connections.
pub(crate) const SHORT_BYTES: u64 = 64 * 1024;

/// Longest wait of a body for its first memory; then the response is 503.
const WAIT_MAX_NS: u64 = 5_000_000_000;

/// Longest wait of one that has some, for more: each before it has to be completed, or cut.
const WAIT_WITHIN_MAX_NS: u64 = 30_000_000_000;

/// Interval of the checks for memory.
const LOOK_INTERVAL_NS: u64 = 2_000_000;

/// Of the waiting requests, so many are tried each time, the next ones the next time.
const TRIES_PER_LOOK: usize = 32;

/// Beyond this number per shard they do not wait, and get 503 at once.
const WAITING_MAX: usize = 1024;

/// More sockets than that are not remembered as holders before those that are none any more are forgotten.
const HOLDING_MAX: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    socket: SocketId,
    since_ns: u64,
}

/// The bodies of one shard that wait for memory or hold some.
#[derive(Debug, Default)]
pub(crate) struct BodyQueue {
    /// At most [`WAITING_MAX`].
    waiting: VecDeque<Waiting>,
    /// The one that is tried now.
    tried: Option<Waiting>,
    /// Connections whose bodies have memory; some have returned it. At most [`HOLDING_MAX`] and those of one tick.
    holding: Vec<SocketId>,
}

impl BodyQueue {
    /// Whether this connection was added last.
    pub(super) fn ends_with(&self, socket: SocketId) -> bool {
        self.waiting
            .back()
            .is_some_and(|last| last.socket == socket)
    }

    /// When to check again, if a body waits.
    pub(super) fn look_at_ns(&self, now_ns: u64) -> Option<u64> {
        (!self.waiting.is_empty()).then(|| now_ns.saturating_add(LOOK_INTERVAL_NS))
    }
}

impl Exchange {
    /// There is no memory for the next bytes of this connection's body: it waits, or is refused.
    pub(super) fn await_memory(&mut self, connection: &mut Connection, now_ns: u64) {
        self.note_hold(connection);
        let socket = connection.socket;
        let queue = &mut self.body_queue;
        let tried = queue.tried.take_if(|tried| tried.socket == socket);
        if tried.is_none() {
            self.counters.count_limit_hit(Limit::Bodies);
        }
        if queue.waiting.len() >= WAITING_MAX {
            let is_head = connection.is_head_request();
            return self.refuse(connection, Refusal::Bodies, is_head);
        }
        if let Some(hold) = connection
            .gathering
            .as_ref()
            .and_then(|it| it.hold.as_ref())
        {
            hold.demand(false, now_ns);
        }
        connection.is_backlogged = true;
        let fresh = Waiting {
            socket,
            since_ns: now_ns,
        };
        queue.waiting.push_back(tried.unwrap_or(fresh));
    }

    /// Remembers the connection if its body has got its first hold.
    pub(super) fn note_hold(&mut self, connection: &mut Connection) {
        if let Some(gathering) = connection.gathering.as_deref_mut()
            && gathering.hold.is_some()
            && !gathering.is_noted
        {
            gathering.is_noted = true;
            self.body_queue.holding.push(connection.socket);
        }
    }
}

impl<S: Service> Server<S> {
    /// Goes on with those for which there is memory, and refuses those that waited long enough.
    pub(super) fn serve_body_queue<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if self.exchange.bodies.has_marked() || self.exchange.body_queue.holding.len() > HOLDING_MAX
        {
            self.cut_slow_bodies(shard);
        }
        let tries = self.exchange.body_queue.waiting.len().min(TRIES_PER_LOOK);
        for _ in 0..tries {
            let Some(waiting) = self.exchange.body_queue.waiting.pop_front() else {
                return;
            };
            self.try_again(shard, waiting);
        }
        self.have_slowest_cut(shard.now_ns);
    }

    fn try_again<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, waiting: Waiting) {
        let Waiting { socket, since_ns } = waiting;
        let Some(connection) = self.connections.get_mut(socket) else {
            return;
        };
        connection.is_backlogged = false;
        let gathering = connection.gathering.as_deref();
        let hold = gathering.and_then(|gathering| gathering.hold.as_ref());
        let wait_max_ns = match hold {
            Some(hold) if hold.bytes() > 0 => WAIT_WITHIN_MAX_NS,
            _ => WAIT_MAX_NS,
        };
        if let Some(hold) = hold {
            hold.demand(true, shard.now_ns);
        }
        self.exchange.body_queue.tried = Some(waiting);
        self.go_on(shard, socket);
        self.exchange.body_queue.tried = None;
        let is_overdue = shard.now_ns.saturating_sub(since_ns) >= wait_max_ns;
        if is_overdue && self.exchange.body_queue.ends_with(socket) {
            self.exchange.body_queue.waiting.pop_back();
            self.refuse_body(shard, socket, Refusal::Bodies);
        }
    }

    /// A request waits: the client that holds the memory has to keep up.
    fn have_slowest_cut(&mut self, now_ns: u64) {
        let exchange = &self.exchange;
        let Some(first) = exchange.body_queue.waiting.front() else {
            return;
        };
        let connection = self.connections.get_mut_as_it_is(first.socket);
        if let Some(gathering) = connection.and_then(|it| it.gathering.as_deref()) {
            exchange.bodies.cut_slowest(gathering.total_bytes(), now_ns);
        }
    }

    /// Refuses connections that were too slow while others wait, and forgets those that hold nothing any more.
    #[cold]
    pub(super) fn cut_slow_bodies<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let mut holding = std::mem::take(&mut self.exchange.body_queue.holding);
        holding.retain(|&socket| {
            let connection = self.connections.get_mut_as_it_is(socket);
            let gathering = connection.and_then(|connection| connection.gathering.as_deref());
            let Some(hold) = gathering.and_then(|gathering| gathering.hold.as_ref()) else {
                return false;
            };
            if !hold.is_cut() {
                return true;
            }
            self.refuse_body(shard, socket, Refusal::BodyContended);
            false
        });
        self.exchange.body_queue.holding = holding;
    }

    fn refuse_body<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        refusal: Refusal,
    ) {
        self.exchange.standing_lines.refresh(shard.now_ns);
        if let Some(connection) = self.connections.get_mut(socket) {
            connection.is_backlogged = false;
            let is_head = connection.is_head_request();
            self.exchange.refuse(connection, refusal, is_head);
            self.exchange.settle(connection, shard);
        }
    }
}

// Connections that used up their budget of a tick: which one continues next, and how many at once.
//
// Floods of pipelined requests, and responses in parts to clients that take them, want more of the shard than one tick
// gives them. They are served in order, a few in each tick, so that the delay for other connections does not grow with
// their number.

/// Requests of one share: a hundred are some 50 us.
const SHARE_REQUESTS: usize = 16;
/// Size of a share, responses included.
const SHARE_NS: u64 = TICK_NS / 4;
/// Shares of one tick: they bound the delay for other connections.
const SHARES_PER_TICK: usize = (TICK_NS / SHARE_NS) as usize;
/// Cost of the next part of a response: 32 KiB that are read, and copied to the kernel.
const STREAM_SHARES: usize = 2;

impl<S: Service> Server<S> {
    pub(super) fn serve_backlog<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let requests_max = self.exchange.limits.pipelined_per_tick_max;
        self.exchange.requests_per_turn = requests_max.min(SHARE_REQUESTS);
        let mut due = std::mem::take(&mut self.backlog_due);
        let (mut shares, mut had_turn) = (0, 0);
        while shares < SHARES_PER_TICK && had_turn < due.len() {
            let socket = due[had_turn];
            had_turn += 1;
            if let Some(connection) = self.connections.get_mut(socket) {
                shares += match connection.stream {
                    Some(_) => STREAM_SHARES,
                    None => 1,
                };
                connection.is_backlogged = false;
                self.go_on(shard, socket);
            }
        }
        self.exchange.requests_per_turn = requests_max;
        due.drain(..had_turn);
        // Behind those that had no turn yet.
        due.append(&mut self.exchange.marks.backlogged);
        self.backlog_due = due;
    }
}

#[cfg(test)]
#[path = "tests/body_queue.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/backlog.rs"]
mod backlog_tests;
