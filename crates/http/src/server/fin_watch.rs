//! Clients that end their side of a connection before their response.
//!
//! A FIN may mean that the client has gone, or that it has closed its sending side alone: the service decides
//! ([`crate::Service::client_finished`]). While a request is pending and more bytes have come behind it, nothing is
//! received, and the FIN is queued behind those bytes: such connections are checked a few times a second, if the
//! service asks for it.

use std::collections::VecDeque;

use millpond_io::{Driver, Event, ShardContext, SocketId, TimerId};

use crate::connection::Connection;
use crate::service::{AfterFin, RequestToken, Service};

use super::exchange::Exchange;
use super::{FIN_WATCH_TIMER, Server};

/// Interval of the checks of paused connections: no abandoned request is held much longer.
const LOOK_INTERVAL_NS: u64 = 200_000_000;

/// How many are checked each time, 0.3 us each. With more, each waits longer.
const LOOKS_MAX: usize = 512;

/// Paused connections with a pending request. Each is listed once, so that there are at most as many as
/// connections.
#[derive(Debug, Default)]
pub(super) struct FinWatch {
    watched: VecDeque<SocketId>,
    timer: Option<TimerId>,
}

impl FinWatch {
    pub(super) fn timer_count(&self) -> usize {
        usize::from(self.timer.is_some())
    }
}

impl Exchange {
    /// Ends the current request, whose client has gone and whose service has been notified. Earlier responses leave; a
    /// response that had begun is cut by a reset.
    pub(crate) fn cancel(&mut self, connection: &mut Connection) {
        if let Some(log) = self.access_log.as_deref_mut() {
            log.ended(connection.socket.slot(), None, false);
        }
        self.counters.requests_cancelled += 1;
        let stream = connection.stream.take();
        connection.ends_by_reset = stream.is_some_and(|stream| stream.sent.is_some());
        connection.pending = None;
        connection.gathering = None;
        connection.input = None;
        connection.close(false);
        self.marks.mark_dirty(connection);
    }
}

impl<S: Service> Server<S> {
    pub(super) fn peer_finished<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
    ) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return self.client_event(shard, &Event::PeerFinished { socket });
        };
        connection.is_peer_finished = true;
        self.cancel_if_gone(shard, socket);
        if let Some(connection) = self.connections.get_mut(socket) {
            self.exchange
                .finish_tunnel_input(&mut self.service, connection, shard);
            self.exchange.settle(connection, shard);
        }
    }

    /// Asks the service what a FIN means for the request that is pending.
    #[cold]
    pub(super) fn cancel_if_gone<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
    ) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return;
        };
        let pending = connection.pending.filter(|pending| pending.is_of_service);
        let Some(pending) = pending.filter(|_| !connection.is_tunnel()) else {
            return;
        };
        let token = RequestToken::new(socket.slot() as u32, pending.sequence);
        let after = self
            .service
            .client_finished(token, pending.state, shard.now_ns);
        if after == AfterFin::Cancel {
            self.exchange.cancel(connection);
            self.service.abandoned(token, pending.state);
        }
    }

    /// The connection of a request that is cancelled by a failure of its socket.
    pub(super) fn count_cancelled(&mut self, socket: SocketId) {
        let connection = self.connections.get_mut(socket);
        let pending = connection.and_then(|connection| connection.pending);
        if pending.is_some_and(|pending| pending.is_of_service) {
            self.exchange.counters.requests_cancelled += 1;
        }
    }

    /// From now on the connection is checked, as long as it is paused and its request is pending.
    pub(super) fn watch_for_fin<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
    ) {
        let Some(connection) = self.connections.get_mut(socket) else {
            return;
        };
        let is_meant = hides_fin(connection) && !connection.is_fin_watched;
        if !is_meant || !self.service.watches_clients() {
            return;
        }
        connection.is_fin_watched = true;
        self.fin_watch.watched.push_back(socket);
        if self.fin_watch.timer.is_none() {
            let timer = shard.timers.create(FIN_WATCH_TIMER);
            shard.timers.set(timer, shard.now_ns + LOOK_INTERVAL_NS);
            self.fin_watch.timer = Some(timer);
        }
    }

    #[cold]
    pub(super) fn look_for_fins<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        for _ in 0..self.fin_watch.watched.len().min(LOOKS_MAX) {
            let Some(socket) = self.fin_watch.watched.pop_front() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(socket) else {
                continue;
            };
            if !hides_fin(connection) {
                connection.is_fin_watched = false;
            } else if shard.driver.has_peer_finished(socket) {
                connection.is_fin_watched = false;
                // If it still gets a response, receiving goes on afterwards.
                self.cancel_if_gone(shard, socket);
            } else {
                self.fin_watch.watched.push_back(socket);
            }
        }
        let Some(timer) = self.fin_watch.timer else {
            return;
        };
        if self.fin_watch.watched.is_empty() {
            shard.timers.remove(timer);
            self.fin_watch.timer = None;
        } else {
            shard.timers.set(timer, shard.now_ns + LOOK_INTERVAL_NS);
        }
    }
}

/// Nothing is received from it while its request is pending.
fn hides_fin(connection: &Connection) -> bool {
    connection.is_paused && connection.pending.is_some() && !connection.is_closing()
}
