//! The graceful stop: answer what was asked, close what is idle, cut what is left at a deadline.
//!
//! When another process takes the address over, connections are taken for a while longer: their
//! handshakes had begun. And idle ones are kept that long, even if their last answer was the one before
//! the stop: a request may be on its way that a close would cross; its answer says
//! `Connection: close`.

use super::{DRAIN_TIMER, HAND_OVER_TIMER, Server};
use crate::connection::Connection;
use crate::limits::Limit;
use crate::service::Service;
use millpond_io::{Driver, ShardContext, SocketId};
use std::sync::atomic::Ordering;

/// How long a server that hands its address over still takes connections: longer than a handshake
/// takes around the world.
pub(crate) const HAND_OVER_NS: u64 = 1_000_000_000;

impl<S: Service> Server<S> {
    /// From here on answers say `Connection: close`.
    #[cold]
    pub(super) fn begin_drain<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.exchange.is_draining = true;
        if self.is_handing_over.load(Ordering::Acquire) {
            let timer = shard.timers.create(HAND_OVER_TIMER);
            shard.timers.set(timer, shard.now_ns + HAND_OVER_NS);
            self.hand_over_timer = Some(timer);
        } else {
            self.turn_away(shard);
        }
        let deadline = shard.timers.create(DRAIN_TIMER);
        shard.timers.set(
            deadline,
            shard.now_ns + self.exchange.limits.drain_timeout_ns,
        );
    }

    /// Nobody new, and those who are idle go.
    fn turn_away<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        shard.driver.stop_listening();
        self.exchange.closes_idle = true;
        for socket in self.sockets(Connection::is_idle) {
            shard.driver.close_after_send(socket);
            self.forget(shard, socket);
        }
    }

    #[cold]
    pub(super) fn end_hand_over<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if let Some(timer) = self.hand_over_timer.take() {
            shard.timers.remove(timer);
            self.turn_away(shard);
            // The end of this tick, and of the next one, in which the driver takes them.
            self.ticks_to_last = 2;
        }
    }

    #[cold]
    pub(super) fn drain_expired<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.is_drain_over = true;
        for socket in self.sockets(|_| true) {
            self.exchange.counters.strike(Limit::Drain);
            self.cut(shard, socket);
        }
    }

    fn sockets(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<SocketId> {
        self.connections
            .iter()
            .filter(|c| is_meant(c))
            .map(|c| c.socket)
            .collect()
    }
}
