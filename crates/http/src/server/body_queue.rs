//! Connections whose next request has a large body for which there is no memory now.
//!
//! On the path: `exchange` puts a connection here in place of beginning to gather the body; nothing more is
//! read from it, so that its client is held up by TCP alone. When a tick ends those in front are served whose
//! bodies fit. Newcomers stand behind them, or a large body would wait for ever beside smaller ones.
//! Absent on purpose: being woken. Memory is given back on any thread, too often for a wake each time; while
//! somebody waits, this shard looks every few milliseconds.

use super::Server;
use super::exchange::Exchange;
use crate::body_budget::BodyHold;
use crate::connection::{Connection, Refusal};
use crate::head::{Framing, RequestHead};
use crate::limits::Limit;
use crate::service::Service;
use millpond_io::{Driver, ShardContext, SocketId};
use std::collections::VecDeque;

/// Up to this a body takes no hold: there are no more such bodies than connections.
pub(crate) const SHORT_BYTES: u64 = 64 * 1024;

/// Longest wait; then the answer is 503. Who holds the memory may be a client that sends slowly.
const WAIT_MAX_NS: u64 = 5_000_000_000;

/// How often one looks whether there is memory.
const LOOK_INTERVAL_NS: u64 = 2_000_000;

#[derive(Debug)]
struct Waiting {
    socket: SocketId,
    bytes: u64,
    since_ns: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BodyQueue {
    waiting: VecDeque<Waiting>,
    /// Who may begin although others wait.
    turn: Option<SocketId>,
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
    /// What the body of a request needs before it is gathered: nothing, or a hold on all of it. An error:
    /// the connection waits for one.
    pub(super) fn hold_for(
        &mut self,
        connection: &mut Connection,
        head: &RequestHead,
        now_ns: u64,
    ) -> Result<Option<BodyHold>, AwaitsMemory> {
        let bytes = match head.framing {
            Framing::Length(bytes) if bytes > SHORT_BYTES => bytes,
            _ => return Ok(None),
        };
        let (queue, socket) = (&mut self.body_queue, connection.socket);
        if (queue.waiting.is_empty() || queue.turn == Some(socket))
            && let Some(hold) = self.bodies.take(bytes)
        {
            return Ok(Some(hold));
        }
        connection.is_backlogged = true;
        queue.waiting.push_back(Waiting {
            socket,
            bytes,
            since_ns: now_ns,
        });
        self.counters.strike(Limit::Bodies);
        Err(AwaitsMemory)
    }
}

/// It is in the queue.
pub(super) struct AwaitsMemory;

impl<S: Service> Server<S> {
    /// Goes on with those for whom there is memory, and refuses those that waited long enough.
    pub(super) fn serve_body_queue<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        while let Some(&Waiting {
            socket,
            bytes,
            since_ns,
        }) = self.exchange.body_queue.waiting.front()
        {
            let has_room = self.exchange.bodies.has_room_for(bytes);
            let is_overdue = shard.now_ns.saturating_sub(since_ns) >= WAIT_MAX_NS;
            // Whoever has gone needs no room, and holds nobody up.
            let is_there = self.connections.get_mut(socket).is_some();
            if is_there && !has_room && !is_overdue {
                return;
            }
            self.exchange.body_queue.waiting.pop_front();
            let Some(connection) = self.connections.get_mut(socket) else {
                continue;
            };
            connection.is_backlogged = false;
            if !has_room {
                self.exchange.standing_lines.refresh(shard.now_ns);
                let is_head = connection.is_head_request();
                self.exchange.refuse(connection, Refusal::Bodies, is_head);
                continue;
            }
            self.exchange.body_queue.turn = Some(socket);
            self.go_on(shard, socket);
            self.exchange.body_queue.turn = None;
            self.keep_place(socket, since_ns);
        }
    }

    /// Another shard was faster: it waits on, in front and from when it came.
    fn keep_place(&mut self, socket: SocketId, since_ns: u64) {
        let waiting = &mut self.exchange.body_queue.waiting;
        if let Some(mut again) = waiting.pop_back_if(|last| last.socket == socket) {
            again.since_ns = since_ns;
            waiting.push_front(again);
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

    /// Another connection, that announces a body and sends none of it.
    fn announce(bench: &mut Bench<Gatherer>, slot: u64, method: &str, body_bytes: u64) {
        let socket = socket(slot);
        bench.event(Event::Accepted { socket });
        let head =
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n");
        let bytes = head.as_bytes();
        bench.event(Event::Received { socket, bytes });
    }

    fn connection(bench: &mut Bench<Gatherer>, slot: u64) -> &mut Connection {
        bench.server.connections.get_mut(socket(slot)).unwrap()
    }

    /// A client that announced a large body and was reset while it waited kept its place: those behind
    /// it, for whose bodies there was memory, waited for its five seconds. Goal: who has gone is passed
    /// over at once, who is there is not.
    #[test]
    fn who_has_gone_holds_nobody_up() {
        let mut bench = Bench::with(Gatherer, 2 * SHARE);
        announce(&mut bench, 0, "PUT", SHARE);
        announce(&mut bench, 1, "PUT", 2 * SHARE);
        announce(&mut bench, 2, "PUT", SHARE / 2);
        bench.act(Server::tick_ended);
        let begun = [0, 1, 2].map(|slot| connection(&mut bench, slot).gathering.is_some());
        assert_eq!(
            begun,
            [true, false, false],
            "the second waits, and the third behind it"
        );
        let (socket, error) = (socket(1), Errno::CONNRESET);
        bench.event(Event::Failed { socket, error });
        bench.act(Server::tick_ended);
        assert!(connection(&mut bench, 2).gathering.is_some());
    }

    /// Behind the head of the refusal of a HEAD request stood its sentence. Goal: HEAD gets no body, here
    /// as elsewhere.
    #[test]
    fn a_refused_head_request_gets_no_body() {
        let mut bench = Bench::with(Gatherer, SHARE);
        announce(&mut bench, 0, "PUT", SHARE);
        announce(&mut bench, 1, "HEAD", SHARE);
        announce(&mut bench, 2, "PUT", SHARE);
        bench.wait(WAIT_MAX_NS);
        bench.act(Server::serve_body_queue);
        for (slot, has_body) in [(1, false), (2, true)] {
            let output = connection(&mut bench, slot).output.to_vec();
            let text = String::from_utf8(output).unwrap();
            assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
            assert_eq!(text.ends_with("\r\n\r\n"), !has_body, "{text}");
        }
    }
}
