//! The graceful stop: answer what was asked, close what is idle, cut what is left at a deadline.

use super::{DRAIN_TIMER, Server};
use crate::connection::Connection;
use crate::limits::Limit;
use crate::service::Service;
use millpond_io::{Driver, ShardContext, SocketId};

impl<S: Service> Server<S> {
    /// Requests that have begun are answered with `Connection: close`; idle connections close now.
    #[cold]
    pub(super) fn begin_drain<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.exchange.is_draining = true;
        shard.driver.stop_listening();
        for socket in self.sockets(Connection::is_idle) {
            shard.driver.close_after_send(socket);
            self.forget(shard, socket);
        }
        let deadline = shard.timers.create(DRAIN_TIMER);
        shard.timers.set(
            deadline,
            shard.now_ns + self.exchange.limits.drain_timeout_ns,
        );
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
