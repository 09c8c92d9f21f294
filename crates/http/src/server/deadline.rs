//! Time limits of a connection, and the action when one passes.
//!
//! A connection has a timer only while something is half done: a head, a body, a write. Those that are idle have none,
//! which keeps the timers out of most requests and their memory out of many connections: one sweep checks those idle
//! for longest, so that the time they have can shrink for all of them at once.

use std::sync::atomic::Ordering;

use millpond_io::{Driver, ShardContext, SocketId, TimerId};

use crate::connection::{Connection, Phase, Refusal};
use crate::connection_table::IdleConnection;
use crate::limits::Limit;
use crate::service::Service;

use super::exchange::Exchange;
use super::{DRAIN_TIMER, Server, TURN_AWAY_TIMER};

const SECOND_NS: u64 = 1_000_000_000;

/// A body that is gathered whole must arrive in this time plus the grace, whatever else needs its memory: 64 MiB at 75
/// KB/s. The bytes it holds shorten its time.
const BODY_SECONDS_MAX: u64 = 900;

impl Exchange {
    /// After each event: sets the deadline of what the connection does now, lets it receive again
    /// when nothing needs to wait, and closes it when it has nothing left to do.
    #[inline]
    pub(super) fn settle<D: Driver>(
        &mut self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        if connection.must_wait() {
            if !connection.is_blocked {
                no_deadline(connection, shard);
            }
            return;
        }
        let is_half_here = connection.is_peer_finished && !connection.is_tunnel();
        if is_half_here || self.closes_idle && connection.is_idle() {
            // Nothing can complete what is half here.
            connection.close(false);
            self.marks.mark_dirty(connection);
            return;
        }
        if connection.is_paused {
            connection.is_paused = false;
            shard.driver.resume_receive(connection.socket);
        }
        debug_assert!(connection.is_phase_sound(), "{:?}", connection.phase);
        if connection.phase != Phase::BetweenRequests && !connection.is_tunnel() {
            self.set_deadline(connection, shard);
        } else {
            no_deadline(connection, shard);
        }
    }

    /// The deadline of the head or body that has begun.
    fn set_deadline<D: Driver>(
        &self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let allowed_ns = if let Some(received_bytes) = connection.body_received_bytes() {
            let held_rate = connection.body_held_bytes() / BODY_SECONDS_MAX;
            let rate = self.limits.body_rate_bytes_per_s_min.max(held_rate);
            let earned_ns = received_bytes.saturating_mul(SECOND_NS) / rate;
            self.limits.body_grace_ns.saturating_add(earned_ns)
        } else {
            self.limits.head_timeout_ns
        };
        let deadline_ns = connection.since_ns.saturating_add(allowed_ns);
        ends_by(connection, shard, deadline_ns);
    }

    /// The kernel did not take all: the peer gets `write_stall_ns`, and the time a slow but honest
    /// one needs for so many bytes.
    pub(super) fn watch_write<D: Driver>(
        &self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
        output_bytes: u64,
    ) {
        let rate = self.limits.write_rate_bytes_per_s_min;
        let needed_ns = output_bytes.saturating_mul(SECOND_NS) / rate;
        let allowed_ns = self.limits.write_stall_ns.saturating_add(needed_ns);
        let deadline_ns = shard.now_ns.saturating_add(allowed_ns);
        ends_by(connection, shard, deadline_ns);
    }
}

/// Gives it a timer, or its timer another deadline.
fn ends_by<D: Driver>(
    connection: &mut Connection,
    shard: &mut ShardContext<'_, D>,
    deadline_ns: u64,
) {
    let socket = connection.socket;
    let timer = connection
        .timer
        .get_or_insert_with(|| shard.timers.create(socket.to_bits()));
    shard.timers.set(*timer, deadline_ns);
}

#[inline]
fn no_deadline<D: Driver>(connection: &mut Connection, shard: &mut ShardContext<'_, D>) {
    if let Some(timer) = connection.timer.take() {
        shard.timers.remove(timer);
    }
}

/// When the connections idle for longest are checked next.
#[derive(Debug)]
pub(super) struct IdleSweep {
    pub(super) timer: Option<TimerId>,
    due_ns: u64,
    /// Kept for its memory.
    overdue: Vec<IdleConnection>,
}

impl Default for IdleSweep {
    fn default() -> Self {
        Self {
            timer: None,
            due_ns: u64::MAX,
            overdue: Vec::new(),
        }
    }
}

impl IdleSweep {
    /// No connection is left to check.
    pub(super) fn cancel<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.due_ns = u64::MAX;
        if let Some(timer) = self.timer {
            shard.timers.clear(timer);
        }
    }
}

impl<S: Service> Server<S> {
    /// While the server drains, the request of a connection accepted now is on its way already.
    pub(super) fn expect_request_soon<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
    ) {
        if let Some(connection) = self.connections.get_mut(socket) {
            ends_by(connection, shard, shard.now_ns + SECOND_NS);
        }
    }

    /// After a connection came, which shortens the time that all have.
    pub(super) fn plan_idle_sweep<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if let Some(active_ns) = self.connections.oldest_activity_ns() {
            let due_ns = active_ns.saturating_add(self.exchange.idle_timeout_ns);
            if due_ns < self.idle_sweep.due_ns {
                self.sweep_idle_at(shard, due_ns);
            }
        }
    }

    fn sweep_idle_at<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, due_ns: u64) {
        if let Some(timer) = self.idle_sweep.timer {
            self.idle_sweep.due_ns = due_ns;
            shard.timers.set(timer, due_ns);
        }
    }

    /// Closes connections that have been idle for too long, and plans the next check.
    #[cold]
    pub(super) fn close_idle<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.idle_sweep.due_ns = u64::MAX;
        let mut overdue = std::mem::take(&mut self.idle_sweep.overdue);
        let allowed_ns = self.exchange.idle_timeout_ns;
        let mut due_ns = self
            .connections
            .idle_for(allowed_ns, shard.now_ns, &mut overdue);
        for IdleConnection { socket, since_ns } in overdue.drain(..) {
            let overdue_ns = since_ns.saturating_add(self.exchange.idle_timeout_ns);
            if overdue_ns <= shard.now_ns {
                self.exchange.counters.count_limit_hit(Limit::IdleTime);
                self.cut(shard, socket);
            } else {
                // Each one that goes leaves the others more time, which ends as well.
                due_ns = Some(due_ns.map_or(overdue_ns, |earlier| earlier.min(overdue_ns)));
            }
        }
        self.idle_sweep.overdue = overdue;
        if let Some(due_ns) = due_ns {
            self.sweep_idle_at(shard, due_ns);
        }
    }

    #[cold]
    pub(super) fn deadline_passed<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
    ) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return;
        };
        let exchange = &mut self.exchange;
        if connection.is_blocked {
            exchange.counters.count_limit_hit(Limit::WriteStall);
            // Many clients that do not read would leave the kernel with all that it was sent.
            shard.driver.reset(socket);
            self.forget(shard, socket);
            return;
        }
        if matches!(connection.phase, Phase::MidRequest | Phase::ReadingBody) {
            let is_head = connection.is_head_request();
            let refusal = match connection.body_received_bytes() {
                Some(_) => Refusal::BodyTimeout,
                None => Refusal::HeadTimeout,
            };
            if connection.is_answered() {
                // It does not even send the rest of the ignored body.
                exchange.counters.count_limit_hit(Limit::BodyRate);
                self.cut(shard, socket);
                return;
            }
            exchange.standing_lines.refresh(shard.now_ns);
            exchange.refuse(connection, refusal, is_head);
            return;
        }
        if connection.is_idle() {
            exchange.counters.count_limit_hit(Limit::IdleTime);
            self.cut(shard, socket);
        }
    }
}

// The graceful stop: complete arrived requests, close idle connections, cut the rest at a deadline.
//
// Requests that had arrived are served: so idle connections are closed not at the stop, but after the driver has
// reported all events that it had then. A client that came just now may wait behind established clients for its turn,
// and a close with its request unread is a reset.
//
// When another process takes the address over, connections are accepted for a while longer: their handshakes had begun.
// And idle ones are kept that long, even if their last response was the one before the stop: a request may be on its
// way that a close would cross; its response has `Connection: close`.

/// How long a server that hands its address over still takes connections: longer than a handshake
/// takes around the world.
pub(crate) const HAND_OVER_NS: u64 = 1_000_000_000;

/// How far a stop has come.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Set while idle connections are kept although the server drains.
    turn_away_timer: Option<TimerId>,
    /// Another process takes the address over: connections are taken until the timer fires.
    is_handing_over: bool,
    /// Ticks until all are seen that had connected when listening ended.
    ticks_to_last: u8,
    /// Its deadline passed: the rest is cut.
    pub(super) is_over: bool,
}

impl Drain {
    /// This tick's end, in which listening ends, and that of the next one, in which the driver takes those
    /// that had connected.
    const TICKS_TO_LAST: u8 = 2;

    /// Timers that are its own, without that of the deadline.
    pub(super) fn timer_count(&self) -> usize {
        usize::from(self.turn_away_timer.is_some())
    }

    /// A connection may come yet, or data of one that is taken for idle.
    pub(super) fn expects_more(&self) -> bool {
        self.turn_away_timer.is_some() || self.ticks_to_last > 0
    }
}

impl<S: Service> Server<S> {
    /// From here on responses have `Connection: close`.
    #[cold]
    pub(super) fn begin_drain<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.exchange.is_draining = true;
        self.drain.is_handing_over = self.is_handing_over.load(Ordering::Acquire);
        if !self.drain.is_handing_over {
            self.stop_listening(shard);
        }
        // Without a hand-over it ends sooner, but for a flood that keeps the driver always behind.
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
            self.refuse_waiting(shard);
        }
    }

    /// Idle connections are closed, but for those that came while it drains and have their time to ask.
    #[cold]
    pub(super) fn refuse_waiting<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
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
            self.exchange.counters.count_limit_hit(Limit::Drain);
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
