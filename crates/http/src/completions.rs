//! Late responses: how a service reaches a connection again, outside of a call.
//!
//! Another thread finishes, uses the shard's waker, and `server` calls [`crate::Service::on_wake`]
//! with this. Each response goes into its connection's output; afterwards the server goes on with
//! that connection's next request and sends all at the end of the tick.

use crate::access_log::Relayed;
use crate::connection::{Connection, Pending};
use crate::connection_table::Connections;
use crate::response::Response;
use crate::server::{Exchange, Written, log_output};
use crate::service::{Flow, Interest, RequestToken};
use crate::streaming::{Outgoing, Streaming, has_room_for_part};
use millpond_io::{ShardPools, SocketId};
use std::fmt;

/// The way back for requests that were [`crate::Flow::Pending`] or [`crate::Flow::Stream`].
pub struct Completions<'a> {
    pub(crate) connections: &'a mut Connections,
    pub(crate) exchange: &'a mut Exchange,
    pub(crate) pools: &'a mut ShardPools,
    pub(crate) now_ns: u64,
    /// Connections to go on with.
    pub(crate) answered: &'a mut Vec<SocketId>,
}

impl fmt::Debug for Completions<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Completions")
            .field("now_ns", &self.now_ns)
            .finish_non_exhaustive()
    }
}

impl Completions<'_> {
    /// Responds to the request behind the token. False: its connection is gone, or it has its response; `answer` was
    /// not called then. A response that sends nothing becomes 503; one that begins a body and does not finish it goes
    /// on in [`crate::Service::stream`] when there is room.
    pub fn respond(
        &mut self,
        token: RequestToken,
        answer: impl FnOnce(&mut Response<'_>, &mut ShardPools),
    ) -> bool {
        self.continue_with(token, |response, pools| {
            answer(response, pools);
            match response.outgoing.is_open() {
                true => Flow::Stream(Interest::ROOM),
                false => Flow::Done,
            }
        })
    }

    /// Goes on with the request behind the token, as if [`crate::Service::stream`] had been called for it, except that
    /// earlier waits stay: `Stream` adds to that, `Pending` adds nothing. Written bytes leave with the tick. False: its
    /// connection is gone, or it has its response; `go_on` was not called then.
    pub fn continue_with(
        &mut self,
        token: RequestToken,
        go_on: impl FnOnce(&mut Response<'_>, &mut ShardPools) -> Flow,
    ) -> bool {
        let Some((connection, pending)) = find(self.connections, token) else {
            return false;
        };
        let exchange = &mut *self.exchange;
        let stream = connection.stream.as_deref();
        let manner = match exchange.is_draining {
            true => pending.manner.closing(),
            false => pending.manner,
        };
        let closes_if_answered = stream.is_some_and(Streaming::closes_if_answered);
        let output_bytes_before = connection.output.len();
        let mut response = Response {
            output: &mut connection.output,
            blocks: &exchange.blocks,
            standing_lines: &mut exchange.standing_lines,
            manner: manner.closing_if_answered(closes_if_answered),
            sent: stream.and_then(|stream| stream.sent),
            outgoing: stream.map_or(Outgoing::Whole, |stream| stream.outgoing),
            failure: None,
            wire: None,
        };
        let flow = go_on(&mut response, self.pools);
        let written = Written::of(&response);
        let log = &mut exchange.access_log;
        log_output(log, connection, output_bytes_before, written.sent);
        let before = connection.stream.as_deref().map(|stream| stream.wants);
        let before = before.unwrap_or_default();
        let wants = match flow {
            Flow::Done => None,
            _ if written.is_complete() => None,
            Flow::Pending => Some(before),
            Flow::Stream(wants) => Some(Interest {
                body: before.body || wants.body,
                room: before.room || wants.room,
            }),
        };
        match wants {
            Some(wants) => exchange.wait_for(connection, wants, pending, written, self.now_ns),
            None => exchange.end_exchange(connection, pending, written, self.now_ns),
        }
        let socket = connection.socket;
        self.go_on_with(socket);
        true
    }

    /// Cancels the request behind the token: its client has gone, and its service has given it up.
    pub(crate) fn cancel(&mut self, token: RequestToken) {
        if let Some((connection, _)) = find(self.connections, token) {
            self.exchange.cancel(connection);
        }
    }

    /// Resets the connection of this request, whose client reads too slowly; the service gets the abandoned call.
    /// False: it is gone, or has its response.
    pub fn cut(&mut self, token: RequestToken) -> bool {
        let Some((connection, _)) = find(self.connections, token) else {
            return false;
        };
        let socket = connection.socket;
        self.exchange.to_reset.push(socket);
        true
    }

    /// Whether the connection of this request takes nothing now and holds so much that the next part of an upstream's
    /// response does not fit beside it: a caller with more should wait for [`crate::StreamEvent::Room`].
    pub(crate) fn is_full(&mut self, token: RequestToken) -> bool {
        find(self.connections, token)
            .is_some_and(|(it, _)| it.is_blocked && !has_room_for_part(&it.output))
    }

    /// Whether notes are kept at all.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.exchange.access_log.is_some()
    }

    /// Sets the access log's note for the request behind the token, if there is a log. Before its response is complete;
    /// the last note counts.
    pub(crate) fn note(&mut self, token: RequestToken, relayed: Relayed) {
        let is_there = find(self.connections, token).is_some();
        if let Some(log) = self.exchange.access_log.as_deref_mut()
            && is_there
        {
            log.note(token.slot() as usize, relayed);
        }
    }

    /// Once for several calls in a row about one connection.
    fn go_on_with(&mut self, socket: SocketId) {
        if self.answered.last() != Some(&socket) {
            self.answered.push(socket);
        }
    }

    /// Memory of the shard.
    pub fn pools(&mut self) -> &mut ShardPools {
        self.pools
    }

    /// Time of the event being handled.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Makes the server call [`crate::Service::stream`] for this request, with [`crate::StreamEvent::Resumed`], before
    /// the tick ends. False: its connection is gone, or it has its response.
    pub fn resume(&mut self, token: RequestToken) -> bool {
        let Some((connection, pending)) = find(self.connections, token) else {
            return false;
        };
        if connection.stream.is_none() {
            let written = Written {
                sent: None,
                outgoing: Outgoing::Whole,
                manner: pending.manner,
            };
            let wants = Interest::default();
            self.exchange
                .wait_for(connection, wants, pending, written, self.now_ns);
        }
        if let Some(stream) = connection.stream.as_deref_mut() {
            stream.is_resumed = true;
        }
        let socket = connection.socket;
        self.go_on_with(socket);
        true
    }
}

fn find(connections: &mut Connections, token: RequestToken) -> Option<(&mut Connection, Pending)> {
    let connection = connections.get_mut_by_slot(token.slot() as usize)?;
    let pending = connection.pending?;
    // One that was refused meanwhile has its response, and closes.
    let is_this = pending.sequence == token.sequence() && !connection.is_closing();
    is_this.then_some((connection, pending))
}
