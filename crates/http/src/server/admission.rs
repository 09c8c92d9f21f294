//! Admission control: caps on connections, and which idle ones are closed for new ones.

use millpond_io::{Driver, Errno, Peer, ShardContext, SocketId};

use crate::connection::{Connection, Refusal};
use crate::service::Service;

use super::Server;

impl<S: Service> Server<S> {
    /// Whether peers' addresses are needed, which costs a system call each time.
    pub(super) fn asks_for_peers(&self) -> bool {
        self.connections.counts_addresses()
            || self.exchange.access_log.is_some()
            || self.service.wants_peers()
    }

    /// Reports the peer's address to the access log and the service.
    pub(super) fn introduce<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        peer: Peer,
    ) {
        if let Some(log) = self.exchange.access_log.as_deref_mut() {
            log.accepted(socket.slot(), peer);
        }
        if !self.service.wants_peers() {
            return;
        }
        let destination = match self.service.wants_destinations() {
            true => shard.driver.destination(socket),
            false => None,
        };
        self.service.accepted(socket.slot(), peer, destination);
    }

    /// Why a new connection of this peer has no place, after idle connections have made room.
    pub(super) fn lacks_room<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        peer: Option<Peer>,
    ) -> Option<Refusal> {
        if peer.is_some_and(|peer| self.connections.is_full_for(peer)) {
            return Some(Refusal::CrowdedAddress);
        }
        let limits = &self.exchange.limits;
        let is_full = self.connections.len() >= limits.connections_max;
        if is_full && !self.shed_idle(shard, limits.idle_timeout_min_ns) {
            return Some(Refusal::Crowded);
        }
        None
    }

    /// Closes the connection idle for longest if that is at least `idle_ns`; false if none is.
    #[cold]
    fn shed_idle<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, idle_ns: u64) -> bool {
        let Some(oldest) = self.connections.oldest_idle() else {
            return false;
        };
        if shard.now_ns.saturating_sub(oldest.since_ns) < idle_ns {
            return false;
        }
        self.exchange.counters.connections_shed += 1;
        self.cut(shard, oldest.socket);
        true
    }

    /// No descriptor is left for a waiting peer: the connection idle for longest makes room. The kernel reports this
    /// even when no peer waits yet, so a connection accepted just now is spared, and none is closed while others are
    /// about to close by themselves.
    #[cold]
    pub(super) fn accept_failed<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        error: Errno,
    ) {
        let is_exhausted = matches!(error, Errno::MFILE | Errno::NFILE);
        if is_exhausted && !self.closes_soon() {
            self.shed_idle(shard, 1);
        }
    }

    /// Whether the end of this tick closes a connection.
    fn closes_soon(&mut self) -> bool {
        let Self {
            exchange,
            connections,
            ..
        } = self;
        exchange.marks.dirty.iter().any(|&socket| {
            let connection = connections.get_mut(socket);
            connection.is_some_and(|c| c.is_closing() && !c.is_blocked)
        })
    }
}

// Connections that need attention when the tick ends: each is listed once, however often it does
// something.

/// Sockets of these connections.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) dirty: Vec<SocketId>,
    pub(crate) backlogged: Vec<SocketId>,
}

impl Marks {
    #[inline]
    pub(crate) fn mark_dirty(&mut self, connection: &mut Connection) {
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(connection.socket);
        }
    }

    pub(super) fn mark_backlogged(&mut self, connection: &mut Connection) {
        if !connection.is_backlogged {
            connection.is_backlogged = true;
            self.backlogged.push(connection.socket);
        }
    }
}
