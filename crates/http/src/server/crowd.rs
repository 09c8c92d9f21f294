//! Admission control: caps on connections, and which idle ones are closed for new ones.

use std::collections::VecDeque;

use millpond_io::{Driver, Errno, Event, Peer, ShardContext, SocketId, TimerId};
use millpond_mempool::{Buffer, PoolError, give_back_free_heap};

use crate::access_log::ShardLog;
use crate::connection::{Connection, Refusal};
use crate::metrics::report::write_all;
use crate::metrics::{MetricsText, PROMETHEUS_TEXT};
use crate::service::{AfterFin, RequestToken, Service};
use crate::status::StatusCode;

use super::exchange::Exchange;
use super::{FIN_WATCH_TIMER, Server};

impl<S: Service> Server<S> {
    /// Whether peers' addresses are needed, which costs a system call each time.
    pub(super) fn asks_for_peers(&self) -> bool {
        self.connections.counts_addresses()
            || self.exchange.access_log.is_some()
            || self.service.wants_peers()
    }

    /// Tells the access log and the service the peer's address.
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

    /// No descriptor is left for a waiting peer: the connection idle for longest makes room. The
    /// kernel says so even when nobody waits yet, so a connection accepted just now is spared, and
    /// nobody is closed while others are about to close by themselves.
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

/// See the module.
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

// `/metrics`, and the copy of this shard's numbers that the others read.

/// How old the numbers of a shard may be that did something in the meantime.
const BEAT_NS: u64 = 1_000_000_000;

/// What a shard does about once a second while anything happens, and a few times after: publish
/// its numbers, and give memory back that nobody used in between. Then it sleeps until the next
/// event.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    pub(super) timer: Option<TimerId>,
    pub(super) beats_left: u8,
    is_scheduled: bool,
    bytes_given_back: u64,
    large_blocks: LargeBlocks,
}

impl Heartbeat {
    /// The first beat ends the interval that something happened in, the second gives back half of
    /// what was idle in the whole next one; as long as that was anything, more follow.
    pub(super) const BEATS_AFTER_EVENT: u8 = 2;
}

/// Whether much memory was freed lately and stays free. Blocks over 32 KiB are malloc's, which keeps
/// what is freed below anything that is still in use: after a flood that had the server hold much
/// for it, for good.
#[derive(Debug, Default)]
struct LargeBlocks {
    live_bytes_max: u64,
    low_beats: u8,
}

impl LargeBlocks {
    /// Less than this is not worth malloc's walk through its free memory.
    const FALL_BYTES_MIN: u64 = 4 << 20;
    /// A fall that lasted for so many beats lasts.
    const LOW_BEATS: u8 = 2;

    /// Once for each fall: it lasted.
    fn fell(&mut self, live_bytes: u64) -> bool {
        if live_bytes + Self::FALL_BYTES_MIN > self.live_bytes_max {
            self.live_bytes_max = self.live_bytes_max.max(live_bytes);
            self.low_beats = 0;
            return false;
        }
        self.low_beats += 1;
        if self.low_beats < Self::LOW_BEATS {
            return false;
        }
        *self = Self {
            live_bytes_max: live_bytes,
            low_beats: 0,
        };
        true
    }
}

impl<S: Service> Server<S> {
    pub(super) fn beat<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.heartbeat.beats_left = self.heartbeat.beats_left.saturating_sub(1);
        let log = self.exchange.access_log.as_deref_mut();
        let bytes_given_back = shard.trim_pools()
            + self.connections.trim()
            + log.map_or(0, ShardLog::trim)
            + self.exchange.trim()
            + self.service.trim_pools();
        self.heartbeat.bytes_given_back += bytes_given_back as u64;
        let live_bytes = shard.pools.blocks.stats().live_bytes;
        if self.heartbeat.large_blocks.fell(live_bytes) {
            give_back_free_heap();
        }
        if bytes_given_back > 0 || self.heartbeat.large_blocks.low_beats > 0 {
            self.heartbeat.beats_left = self.heartbeat.beats_left.max(1);
        }
        self.heartbeat.is_scheduled = false;
        self.publish(shard);
    }

    /// Copies this shard's numbers to where the others read them.
    #[cold]
    pub(super) fn publish<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let mut snapshot = self.snapshots.lock(shard.shard_index);
        snapshot.http.clone_from(&self.exchange.counters);
        snapshot.routes = self.service.routes();
        self.exchange.durations.copy_to(&mut snapshot.durations);
        snapshot.driver = shard.driver.counters();
        snapshot.tls = shard.driver.tls_counters();
        snapshot.proxy_heads = shard.driver.proxy_head_counters();
        snapshot.driver_name = shard.driver.name();
        snapshot.pools.clear();
        snapshot.pools.push(self.connections.stats());
        snapshot.pools.extend(self.exchange.pool_stats());
        snapshot.access_log = None;
        if let Some(log) = self.exchange.access_log.as_deref() {
            snapshot.access_log = Some(log.counters());
            snapshot.pools.push(log.stats());
        }
        let visit = &mut |stats| snapshot.pools.push(stats);
        self.service.visit_pool_stats(visit);
        shard.visit_pool_stats(&mut |stats| snapshot.pools.push(stats));
        snapshot.bytes_given_back = self.heartbeat.bytes_given_back;
        snapshot.io_buffers_addressed_bytes = shard.pools.io_buffers.addressed_bytes() as u64;
        snapshot.classes.clear();
        snapshot.classes.extend(shard.pools.blocks.class_stats());
    }

    #[inline]
    pub(super) fn keep_beating<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if self.heartbeat.is_scheduled || self.heartbeat.beats_left == 0 {
            return;
        }
        if let Some(timer) = self.heartbeat.timer {
            self.heartbeat.is_scheduled = true;
            shard.timers.set(timer, shard.now_ns + BEAT_NS);
        }
    }

    /// Answers the requests for `/metrics` of this tick.
    #[inline]
    pub(super) fn answer_metrics<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if !self.exchange.metrics_requests.is_empty() {
            self.write_metrics(shard);
        }
    }

    #[cold]
    fn write_metrics<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let text = self.metrics_text(shard);
        let tokens = std::mem::take(&mut self.exchange.metrics_requests);
        self.complete(shard, |_service, completions| {
            for &token in &tokens {
                completions.respond(token, |response, _pools| {
                    // Without memory nothing is sent, which becomes 503.
                    if let Ok(text) = &text {
                        let _ = response.send(StatusCode::OK, Some(PROMETHEUS_TEXT), text);
                    }
                });
            }
        });
    }

    /// The listener for metrics gets its text, if it asked for one.
    pub(super) fn answer_scrape<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let scrape = self.scrape.as_ref().filter(|scrape| scrape.take_question());
        if let Some(scrape) = scrape.cloned() {
            // Without memory for all of it there is none of it.
            let text = self.metrics_text(shard).map(|text| text.to_vec());
            scrape.answer(text.unwrap_or_default());
        }
    }

    /// The numbers of all shards, and what the service of this one adds.
    #[cold]
    fn metrics_text<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
    ) -> Result<Buffer, PoolError> {
        self.publish(shard);
        let blocks = self.exchange.blocks.clone();
        let mut text = MetricsText::new(&blocks);
        let (limits, snapshots) = (&self.exchange.limits, self.snapshots.to_vec());
        let log_writer = self.snapshots.log_writer.as_deref();
        write_all(
            &mut text,
            &snapshots,
            limits,
            &self.build_labels,
            log_writer,
        );
        self.service.write_metrics(&mut text);
        text.finish()
    }
}

// Clients that end their side of a connection before their request is answered.
//
// A FIN may mean that the client has gone, or that it has closed its sending side alone: the service
// says which it is taken for ([`crate::Service::client_finished`]). While a request is pending and more
// bytes have come behind it, nothing is received, and the FIN stands behind those bytes: such
// connections are looked at a few times a second, if the service asks for it.

/// How often paused connections are looked at: no request is held much longer for nothing.
const LOOK_INTERVAL_NS: u64 = 200_000_000;

/// How many are looked at each time, 0.3 us each. With more than that each waits for longer.
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
    /// Ends the request at hand, whose client has gone and whose service knows it. What was answered
    /// before leaves; a response that had begun is cut by a reset.
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

    /// From now on the connection is looked at, as long as it is paused and its request is pending.
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
                // If it is to be answered all the same, receiving goes on afterwards.
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

#[cfg(test)]
#[path = "tests/observe.rs"]
mod observe_tests;
