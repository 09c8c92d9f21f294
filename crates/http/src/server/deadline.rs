//! What a connection may take how long for, and what happens when it took longer.
//!
//! One timer per connection. Every event moves its deadline, which costs one store; the wheel
//! looks at it only when the old deadline would have passed.

use super::Server;
use super::exchange::Exchange;
use crate::connection::{Connection, Refusal};
use crate::service::Service;
use millpond_io::{Driver, ShardContext, SocketId};

const SECOND_NS: u64 = 1_000_000_000;

impl Exchange {
    /// A connection that has not sent anything is merely idle, except while the server drains:
    /// what it wants to say is then on its way already.
    pub(super) fn fresh_timeout_ns(&self) -> u64 {
        if self.is_draining {
            SECOND_NS
        } else {
            self.limits.idle_timeout_ns
        }
    }

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
                shard.timers.clear(connection.timer);
            }
            return;
        }
        if connection.is_peer_finished || self.is_draining && connection.is_idle() {
            // Nothing can complete what is half here.
            connection.is_closing = true;
            self.marks.mark_dirty(connection);
            return;
        }
        if connection.is_paused {
            connection.is_paused = false;
            shard.driver.resume_receive(connection.socket);
        }
        shard
            .timers
            .set(connection.timer, self.deadline_ns(connection));
    }

    #[inline]
    fn deadline_ns(&self, connection: &Connection) -> u64 {
        let allowed_ns = if let Some(gathering) = &connection.gathering {
            let rate = self.limits.body_rate_bytes_per_s_min;
            let earned_ns = gathering.received_bytes.saturating_mul(SECOND_NS) / rate;
            self.limits.body_grace_ns.saturating_add(earned_ns)
        } else if connection.is_mid_request {
            self.limits.head_timeout_ns
        } else {
            self.limits.idle_timeout_ns
        };
        connection.since_ns.saturating_add(allowed_ns)
    }

    /// The kernel did not take all: the peer gets `write_stall_ns`, and the time a slow but honest
    /// one needs for so many bytes.
    pub(super) fn watch_write<D: Driver>(
        &self,
        connection: &Connection,
        shard: &mut ShardContext<'_, D>,
        output_bytes: u64,
    ) {
        let rate = self.limits.write_rate_bytes_per_s_min;
        let needed_ns = output_bytes.saturating_mul(SECOND_NS) / rate;
        let allowed_ns = self.limits.write_stall_ns.saturating_add(needed_ns);
        shard
            .timers
            .set(connection.timer, shard.now_ns.saturating_add(allowed_ns));
    }
}

impl<S: Service> Server<S> {
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
            exchange.counters.write_stalls += 1;
            self.cut(shard, socket);
            return;
        }
        if connection.is_mid_request {
            let is_head = connection.is_head_request();
            let refusal = if connection.gathering.is_some() {
                exchange.counters.body_timeouts += 1;
                Refusal::BodyTimeout
            } else {
                exchange.counters.head_timeouts += 1;
                Refusal::HeadTimeout
            };
            exchange.standing_lines.refresh(shard.now_ns);
            exchange.refuse(connection, refusal, is_head);
            return;
        }
        if connection.is_idle() {
            exchange.counters.idle_timeouts += 1;
            self.cut(shard, socket);
        }
    }
}
