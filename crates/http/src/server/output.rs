//! What leaves: a connection's answers to the driver, and the room they are written into.
//!
//! An idle connection owns no buffer, so each batch of answers needs one. Where the driver hands bytes
//! to the kernel at once, one block serves a connection after the other, until the tick ends.

use super::exchange::Exchange;
use crate::connection::Connection;
use millpond_io::{Driver, SendOutcome, ShardContext};

/// Room that held more goes back to the pool at once: most answers need no such.
const SPARE_BYTES_MAX: usize = 4 * 1024;

impl Exchange {
    /// Gives the connection the spare room to write into, if it has none.
    #[inline(always)]
    pub(super) fn lend_room(&mut self, connection: &mut Connection) {
        connection.output.take_block_of(&mut self.spare_output);
    }

    /// The connection is plain no more, or not certainly: what was answered waits for the end of the
    /// tick.
    #[inline]
    pub(super) fn leave_plain(&mut self, connection: &mut Connection) {
        if connection.output.is_empty() {
            self.take_room_back(connection, 0);
        } else {
            self.marks.mark_dirty(connection);
        }
    }

    /// What was lent goes back, as does what the driver left otherwise.
    #[inline(always)]
    fn take_room_back(&mut self, connection: &mut Connection, used_bytes: usize) {
        if !connection.output.has_block() {
            return;
        }
        if self.spare_output.has_block() || used_bytes > SPARE_BYTES_MAX {
            connection.output.release();
        } else {
            self.spare_output.take_block_of(&mut connection.output);
        }
    }

    /// A connection that was plain is so still: its answers leave now where that costs no send more
    /// than later, else when the tick ends.
    #[inline(always)]
    pub(super) fn settle_plain<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        connection.since_ns = shard.now_ns;
        connection.is_known_plain = true;
        if shard.driver.sends_at_once() && !connection.is_dirty && !self.closes_idle {
            self.send_now(connection, shard);
        } else {
            self.marks.mark_dirty(connection);
        }
    }

    /// Hands the output to the driver, unless that still has some.
    #[inline(never)]
    pub(super) fn send_output<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        self.send_now(connection, shard);
        if connection.stream.is_some() {
            self.finish_tunnel_output(connection, shard);
        }
    }

    #[inline(always)]
    fn send_now<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let output_bytes = connection.output.len();
        if output_bytes == 0 || connection.is_blocked {
            return;
        }
        connection.output_bytes_last = u32::try_from(output_bytes).unwrap_or(u32::MAX);
        let outcome = shard
            .driver
            .send_from(connection.socket, &mut connection.output);
        self.take_room_back(connection, output_bytes);
        if outcome == SendOutcome::Blocked {
            connection.is_blocked = true;
            connection.is_known_plain = false;
            self.watch_write(connection, shard, output_bytes as u64);
        }
    }

    /// More responses will follow in this tick, likely as much as last time. Without memory the
    /// response itself will fail and say so.
    #[cold]
    pub(super) fn expect_more_output(&self, connection: &mut Connection) {
        let last_bytes = connection.output_bytes_last as usize;
        if connection.output.capacity() < last_bytes && connection.output.is_empty() {
            let _ = connection.output.reserve(&self.blocks, last_bytes);
        }
    }
}
