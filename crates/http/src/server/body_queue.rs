//! Connections whose large bodies wait for memory, and those that have some.
//!
//! `exchange` puts a connection here when what arrives of its body finds no memory; nothing more is read from
//! it, so that its client is held up by TCP alone. When a tick ends those that wait are tried again, in turn:
//! one that fits does not stand behind one that does not. Nobody is woken when memory comes back, which
//! happens on any thread and too often; while somebody waits, this shard looks every few milliseconds, and
//! has the slowest of those who hold memory cut ([`BodyBudget::cut_slowest`]).
//!
//! [`BodyBudget::cut_slowest`]: crate::BodyBudget::cut_slowest

use super::Server;
use super::exchange::Exchange;
use crate::connection::{Connection, Refusal};
use crate::limits::Limit;
use crate::service::Service;
use millpond_io::{Driver, ShardContext, SocketId};
use std::collections::VecDeque;

/// Up to this a body takes no hold: there are no more such bodies than connections.
pub(crate) const SHORT_BYTES: u64 = 64 * 1024;

/// Longest wait of a body for its first memory; then the answer is 503.
const WAIT_MAX_NS: u64 = 5_000_000_000;

/// Longest wait of one that has some, for more: each before it has to be completed, or cut.
const WAIT_WITHIN_MAX_NS: u64 = 30_000_000_000;

/// How often one looks whether there is memory.
const LOOK_INTERVAL_NS: u64 = 2_000_000;

/// Of those who wait, so many are tried at each look, the next ones at the next.
const TRIES_PER_LOOK: usize = 32;

/// More of one shard do not wait: they are answered 503 at once.
const WAITING_MAX: usize = 1024;

/// More sockets than that are not remembered as holders before those that are none any more are forgotten.
const HOLDING_MAX: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    socket: SocketId,
    since_ns: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BodyQueue {
    /// At most [`WAITING_MAX`].
    waiting: VecDeque<Waiting>,
    /// The one that is tried now.
    tried: Option<Waiting>,
    /// Whose bodies have memory; some have it no more. At most [`HOLDING_MAX`] and those of one tick.
    holding: Vec<SocketId>,
}

impl BodyQueue {
    /// Whether this connection came last.
    pub(super) fn ends_with(&self, socket: SocketId) -> bool {
        self.waiting
            .back()
            .is_some_and(|last| last.socket == socket)
    }

    /// When to look again, if anybody waits.
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
            self.counters.strike(Limit::Bodies);
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
    /// Goes on with those for whom there is memory, and refuses those that waited long enough.
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

    /// Somebody waits: who holds what he waits for has to keep up.
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

    /// Refuses those that were too slow for those who wait, and forgets those that hold nothing any more.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::response::Response;
    use crate::server::bench::Bench;
    use crate::service::{Flow, ServiceContext};
    use millpond_io::{Errno, Event, Protocol};

    const SHARE: u64 = 1 << 20;

    /// Takes bodies whole, of which none comes here.
    struct Gatherer;

    impl Service for Gatherer {
        fn call(
            &mut self,
            _request: &mut Request<'_>,
            _response: &mut Response<'_>,
            _context: &mut ServiceContext<'_>,
        ) -> Flow {
            Flow::Done
        }
    }

    fn socket(slot: u64) -> SocketId {
        SocketId::from_bits(slot | 1 << 32)
    }

    /// Another connection, that announces a body and sends so much of it.
    fn announce(bench: &mut Bench<Gatherer>, slot: u64, method: &str, body_bytes: u64, sent: u64) {
        let socket = socket(slot);
        bench.event(Event::Accepted { socket });
        let head =
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n");
        let bytes = head.as_bytes();
        bench.event(Event::Received { socket, bytes });
        send(bench, slot, sent);
    }

    fn send(bench: &mut Bench<Gatherer>, slot: u64, mut bytes: u64) {
        let socket = socket(slot);
        while bytes > 0 {
            let part = vec![b'x'; bytes.min(16 << 10) as usize];
            bench.event(Event::Received {
                socket,
                bytes: &part,
            });
            bytes -= part.len() as u64;
        }
    }

    fn connection(bench: &mut Bench<Gatherer>, slot: u64) -> &mut Connection {
        bench.server.connections.get_mut(socket(slot)).unwrap()
    }

    fn held(bench: &mut Bench<Gatherer>, slots: [u64; 3]) -> [u64; 3] {
        slots.map(|slot| connection(bench, slot).body_held_bytes())
    }

    const MORE: u64 = SHORT_BYTES + 1;

    /// One client that announced 60 MB and sent a byte now and then kept all others from beginning.
    ///
    /// Goal: what is announced and has not come holds nothing, whoever waits; a longer body than the budget has
    /// its own place.
    #[test]
    fn announcements_keep_nobody_waiting() {
        let mut bench = Bench::with(Gatherer, SHARE);
        announce(&mut bench, 0, "PUT", 60 * SHARE, MORE);
        announce(&mut bench, 1, "PUT", SHARE, MORE);
        announce(&mut bench, 2, "PUT", SHARE / 2, MORE);
        let [long, first, second] = held(&mut bench, [0, 1, 2]);
        assert!(long >= MORE && first >= MORE && second >= MORE);
        send(&mut bench, 2, SHARE / 2 - MORE);
        assert!(
            connection(&mut bench, 2).gathering.is_none(),
            "it was complete"
        );
        assert_eq!(bench.server.counters().requests, 1);
    }

    /// A client that was reset while it waited kept its place: those behind it, for whose bodies there was
    /// memory, waited for its five seconds. Goal: who has gone is passed over at once, and so is who is there
    /// and does not fit.
    #[test]
    fn who_waits_holds_nobody_up() {
        let mut bench = Bench::with(Gatherer, SHARE);
        announce(&mut bench, 0, "PUT", SHARE, SHARE - 100);
        announce(&mut bench, 1, "PUT", SHARE, MORE);
        announce(&mut bench, 2, "PUT", SHARE / 2, MORE);
        assert_eq!(held(&mut bench, [0, 1, 2]), [SHARE, 0, 0]);
        bench.act(Server::tick_ended);
        assert_eq!(held(&mut bench, [0, 1, 2]), [SHARE, 0, 0], "both wait");
        let error = Errno::CONNRESET;
        bench.event(Event::Failed {
            socket: socket(1),
            error,
        });
        send(&mut bench, 0, 100);
        bench.act(Server::tick_ended);
        assert!(connection(&mut bench, 2).body_held_bytes() > 0);
    }

    /// Goal: of two that hold memory, the one that stands still is answered 408 when a third waits; the one
    /// that keeps up is not.
    #[test]
    fn the_slowest_goes_when_others_wait() {
        let mut bench = Bench::with(Gatherer, SHARE);
        announce(&mut bench, 0, "PUT", SHARE / 2, SHARE / 2 - 100);
        announce(&mut bench, 1, "PUT", SHARE / 2, MORE);
        announce(&mut bench, 2, "PUT", SHARE * 3 / 4, SHARE * 3 / 4);
        assert!(connection(&mut bench, 2).is_backlogged, "it waits for more");
        for _ in 0..5 {
            bench.wait(1_000_000_000 - 1);
            send(&mut bench, 1, 70 << 10);
            if connection(&mut bench, 0).is_closing() {
                break;
            }
            bench.act(Server::tick_ended);
            bench.event(Event::Woken);
        }
        let output = connection(&mut bench, 0).output.to_vec();
        assert!(
            output.starts_with(b"HTTP/1.1 408 "),
            "{}",
            output.escape_ascii()
        );
        assert!(connection(&mut bench, 1).body_held_bytes() > 0);
        assert!(!connection(&mut bench, 1).is_closing());
    }

    /// Behind the head of the refusal of a HEAD request stood its sentence. Goal: HEAD gets no body, here
    /// as elsewhere; who waited long enough is answered 503.
    #[test]
    fn a_refused_head_request_gets_no_body() {
        let mut bench = Bench::with(Gatherer, SHARE);
        announce(&mut bench, 0, "PUT", SHARE, SHARE - 100);
        announce(&mut bench, 1, "HEAD", SHARE, MORE);
        announce(&mut bench, 2, "PUT", SHARE, MORE);
        // It keeps up until the very end.
        bench.wait(WAIT_MAX_NS);
        send(&mut bench, 0, 10);
        bench.act(Server::serve_body_queue);
        for (slot, has_body) in [(1, false), (2, true)] {
            let output = connection(&mut bench, slot).output.to_vec();
            let text = String::from_utf8(output).unwrap();
            assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
            assert_eq!(text.ends_with("\r\n\r\n"), !has_body, "{text}");
        }
    }
}
