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
            if !has_room && !is_overdue {
                return;
            }
            self.exchange.body_queue.waiting.pop_front();
            let Some(connection) = self.connections.get_mut(socket) else {
                continue;
            };
            connection.is_backlogged = false;
            if !has_room {
                self.exchange.standing_lines.refresh(shard.now_ns);
                self.exchange.refuse(connection, Refusal::Bodies, false);
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
