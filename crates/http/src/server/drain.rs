//! The graceful stop: answer what was asked, close what is idle, cut what is left at a deadline.
//!
//! What was asked is what had arrived: so who is idle goes not at the stop, but once the driver has told
//! of all that it knew of then. A client that came just now may wait behind regulars for its turn, and a
//! close with its request unread is a reset.
//!
//! When another process takes the address over, connections are taken for a while longer: their
//! handshakes had begun. And idle ones are kept that long, even if their last answer was the one before
//! the stop: a request may be on its way that a close would cross; its answer says
//! `Connection: close`.

use super::{DRAIN_TIMER, Server, TURN_AWAY_TIMER};
use crate::connection::Connection;
use crate::limits::Limit;
use crate::service::Service;
use millpond_io::{Driver, ShardContext, SocketId, TimerId};
use std::sync::atomic::Ordering;

/// How long a server that hands its address over still takes connections: longer than a handshake
/// takes around the world.
pub(crate) const HAND_OVER_NS: u64 = 1_000_000_000;

/// How far a stop has come.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Set while who is idle is kept although the server drains.
    turn_away_timer: Option<TimerId>,
    /// Another process takes the address over: connections are taken until the timer fires.
    is_handing_over: bool,
    /// Ticks until all are seen that had connected when listening ended.
    ticks_to_last: u8,
    /// Its deadline passed: what is left is cut.
    pub(super) is_over: bool,
}

impl Drain {
    /// This tick's end, in which listening ends, and that of the next one, in which the driver takes those
    /// who had connected.
    const TICKS_TO_LAST: u8 = 2;

    /// Timers that are its own, without that of the deadline.
    pub(super) fn timer_count(&self) -> usize {
        usize::from(self.turn_away_timer.is_some())
    }

    /// Somebody may come yet, or be heard of who is taken for idle.
    pub(super) fn expects_more(&self) -> bool {
        self.turn_away_timer.is_some() || self.ticks_to_last > 0
    }
}

impl<S: Service> Server<S> {
    /// From here on answers say `Connection: close`.
    #[cold]
    pub(super) fn begin_drain<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.exchange.is_draining = true;
        self.drain.is_handing_over = self.is_handing_over.load(Ordering::Acquire);
        if !self.drain.is_handing_over {
            self.stop_listening(shard);
        }
        // Without a hand-over it ends sooner, but for a crowd that has the driver always behind.
        let timer = shard.timers.create(TURN_AWAY_TIMER);
        shard.timers.set(timer, shard.now_ns + HAND_OVER_NS);
        self.drain.turn_away_timer = Some(timer);
        let deadline = shard.timers.create(DRAIN_TIMER);
        shard.timers.set(
            deadline,
            shard.now_ns + self.exchange.limits.drain_timeout_ns,
        );
    }

    fn stop_listening<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        shard.driver.stop_listening();
        self.drain.ticks_to_last = Drain::TICKS_TO_LAST;
    }

    /// The end of a tick while the server drains.
    #[cold]
    pub(super) fn drain_on<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let drain = &mut self.drain;
        drain.ticks_to_last = drain.ticks_to_last.saturating_sub(1);
        let has_told_all = drain.ticks_to_last == 0 && !shard.driver.has_events_left();
        if has_told_all && !drain.is_handing_over {
            self.turn_away(shard);
        }
    }

    /// Those who are idle go, but for those who came while it drains and have their time to ask.
    #[cold]
    pub(super) fn turn_away<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let Some(timer) = self.drain.turn_away_timer.take() else {
            return;
        };
        shard.timers.remove(timer);
        if std::mem::take(&mut self.drain.is_handing_over) {
            self.stop_listening(shard);
        }
        self.exchange.closes_idle = true;
        for socket in self.sockets(|c| c.is_idle() && c.timer.is_none()) {
            shard.driver.close_after_send(socket);
            self.forget(shard, socket);
        }
    }

    #[cold]
    pub(super) fn drain_expired<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.drain.is_over = true;
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
