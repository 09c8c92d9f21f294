//! Late answers: how a service reaches a connection again, outside of a call.
//!
//! On the path: another thread finishes, uses the shard's waker, and `server` calls
//! [`crate::Service::woken`] with this. Each answer goes into its connection's output; afterwards
//! the server goes on with that connection's next request and sends all at the end of the tick.

use crate::connections::Connections;
use crate::counters::HttpCounters;
use crate::date::StandingLines;
use crate::encode::Persistence;
use crate::response::Response;
use crate::server::{Marks, send_unanswered};
use crate::service::RequestToken;
use millpond_io::{ShardPools, SocketId};
use millpond_mempool::BlockPool;

/// The way back for requests that were [`crate::Flow::Pending`].
pub struct Completions<'a> {
    pub(crate) connections: &'a mut Connections,
    pub(crate) counters: &'a mut HttpCounters,
    pub(crate) marks: &'a mut Marks,
    pub(crate) blocks: &'a BlockPool,
    pub(crate) standing_lines: &'a StandingLines,
    pub(crate) pools: &'a mut ShardPools,
    pub(crate) is_draining: bool,
    /// Connections to go on with.
    pub(crate) answered: &'a mut Vec<SocketId>,
}

impl Completions<'_> {
    /// Answers the request behind the token. False: its connection is gone, or it was answered;
    /// `answer` was not called then. An answer that sends nothing becomes 503.
    pub fn respond(
        &mut self,
        token: RequestToken,
        answer: impl FnOnce(&mut Response<'_>, &mut ShardPools),
    ) -> bool {
        let Some(connection) = self.connections.get_mut_by_slot(token.slot() as usize) else {
            return false;
        };
        let is_this =
            |pending: &mut crate::connection::Pending| pending.sequence == token.sequence();
        let Some(pending) = connection.pending.take_if(is_this) else {
            return false;
        };
        let persistence = if self.is_draining {
            Persistence::Close
        } else {
            pending.persistence
        };
        let mut response = Response {
            output: &mut connection.output,
            blocks: self.blocks,
            standing_lines: self.standing_lines,
            persistence,
            is_head: pending.is_head,
            sent: None,
        };
        answer(&mut response, self.pools);
        let sent = response
            .sent
            .map_or_else(|| send_unanswered(&mut response), Ok);
        let persistence = response.persistence;
        if let Ok(status) = sent {
            self.counters.count_response(status);
        }
        connection.is_closing |= persistence == Persistence::Close || sent.is_err();
        self.marks.mark_dirty(connection);
        self.answered.push(connection.socket);
        true
    }
}
