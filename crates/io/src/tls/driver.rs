//! The driver that its owner sees.

use super::awaited_proxy_header::Awaited;
use super::client::TlsClient;
use super::layer::LayerStep;
use super::layer::Queued;
use super::layer::{Closing, Layer};
use super::server::TlsServer;
use super::{TlsCounters, TlsFailure};
use crate::address::{Address, Peer};
use crate::driver::features::DriverFeatures;
use crate::driver::{Driver, DriverCounters, Event, SendOutcome, SocketId};
use crate::error::IoError;
use crate::listener::Listener;
use crate::pools::ShardPools;
use crate::proxy_protocol::{Ends, ProxyHeadCounters};
use crate::waker::Waker;
use millpond_mempool::{Buffer, PoolMode, PoolStats};
use rustix::io::Errno;
use std::fmt;
use std::net::IpAddr;

/// A driver whose accepted sockets, or connected ones, use TLS below and plaintext above.
///
/// Differences from the driver below:
/// - A socket is reported as accepted before its handshake, so that code that counts connections
///   counts it. It fails with `ETIMEDOUT` when the handshake takes too long and with `EPROTO` when
///   TLS does not allow what the peer does.
/// - What is sent before the handshake is over waits for it, and counts as blocked.
/// - [`Driver::close`] sends `close_notify` to the peer unless bytes are dropped: so a peer can distinguish a whole
///   response from a cut one.
/// - [`Event::PeerFinished`] comes with the peer's `close_notify`, or with a FIN without it, which
///   [`TlsCounters::truncated`] counts: an owner whose protocol has message lengths, like HTTP requests, detects cut
///   messages itself.
/// - Sockets made by [`Driver::connect`] use TLS only if it was made by [`Self::client`], those of
///   [`Driver::connect_tls`] always. They are reported as connected after their handshake, so that timing of requests
///   does not include it; but at once with [`TlsClient::behind_head`], whose handshake begins with
///   [`Driver::send_below_tls`].
/// - [`DriverCounters`] are those of the driver below: of ciphertext.
pub struct Tls<D> {
    inner: D,
    layer: Layer,
    /// No socket uses TLS: the layer is only needed for the PROXY header.
    is_clear: bool,
    /// Why the socket failed that was reported last, if TLS ended it.
    told_failure: Option<(SocketId, TlsFailure)>,
}

impl<D> fmt::Debug for Tls<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("is_clear", &self.is_clear)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Tls<D> {
    /// TLS over `inner`, which has no sockets yet.
    pub fn new(inner: D, server: &TlsServer, mode: PoolMode) -> Self {
        let layer = Layer::new(Some(server.source()), None, mode, inner.clock_ns());
        Self::over(inner, layer)
    }

    /// As [`Self::new`], but connected sockets use TLS instead of accepted ones.
    pub fn client(inner: D, client: &TlsClient, mode: PoolMode) -> Self {
        let layer = Layer::new(None, Some(client.clone()), mode, inner.clock_ns());
        Self::over(inner, layer)
    }

    /// As [`Self::new`], for callers that connect to others with [`Driver::connect_tls`]; accepted sockets use TLS only
    /// with a `server`.
    pub fn towards_others(inner: D, server: Option<&TlsServer>, mode: PoolMode) -> Self {
        let source = server.map(TlsServer::source);
        let layer = Layer::new(source, None, mode, inner.clock_ns());
        Self::over(inner, layer)
    }

    /// Plaintext on all sockets, for [`Self::awaiting_heads`]: [`Driver::tls_counters`] returns nothing.
    pub fn in_plaintext(inner: D, mode: PoolMode) -> Self {
        let layer = Layer::new(None, None, mode, inner.clock_ns());
        Self {
            is_clear: true,
            ..Self::over(inner, layer)
        }
    }

    fn over(inner: D, layer: Layer) -> Self {
        Self {
            inner,
            layer,
            is_clear: false,
            told_failure: None,
        }
    }

    /// The same, where every accepted socket begins with a PROXY header, which has the address for [`Driver::peer`].
    /// Such a socket is reported once its head is whole; one without it is closed. Head and handshake together may take
    /// `timeout_ns`, and `count_max` heads may be awaited at a time.
    #[must_use]
    pub fn awaiting_heads(mut self, timeout_ns: u64, count_max: usize, mode: PoolMode) -> Self {
        let awaited = Awaited::new(timeout_ns, count_max, mode);
        self.layer.awaited = Some(Box::new(awaited));
        self
    }

    /// Content of the header of an accepted socket.
    fn told(&self, socket: SocketId) -> Option<Ends> {
        self.layer.awaited.as_ref()?.ends(socket)
    }

    /// The driver below.
    pub fn inner(&mut self) -> &mut D {
        &mut self.inner
    }

    fn take_in(
        &mut self,
        socket: SocketId,
        outcome: Result<(), TlsFailure>,
    ) -> Result<SocketId, IoError> {
        outcome.map(|()| socket).map_err(|failure| {
            self.layer.counters.failed[failure as usize] += 1;
            self.inner.close(socket);
            IoError::System {
                call: "connect",
                error: Errno::NOMEM,
            }
        })
    }

    fn leave(&mut self, socket: SocketId, wanted: Closing) {
        match self.layer.leave(&mut self.inner, socket, wanted) {
            Closing::Now => self.inner.close(socket),
            Closing::AfterSend => self.inner.close_after_send(socket),
            Closing::Reset => self.inner.reset(socket),
        }
    }

    /// Hands out what is queued, and what that leads to.
    fn deliver<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        while let Some(queued) = self.layer.queue.pop_front() {
            let event = match queued {
                Queued::Arrived(socket) => {
                    self.deliver_arrived(socket, pools, handler);
                    continue;
                }
                Queued::SendBlocked(socket) if !self.layer.tells_blocked(socket) => continue,
                Queued::SendDrained(socket)
                    if !self.layer.tells_drained(socket, self.inner.now_ns()) =>
                {
                    continue;
                }
                Queued::Connected(socket) if self.layer.find(socket).is_none() => continue,
                Queued::Accepted(socket) => Event::Accepted { socket },
                Queued::AcceptFailed(error) => Event::AcceptFailed { error },
                Queued::Connected(socket) => Event::Connected { socket },
                Queued::Failed {
                    socket,
                    error,
                    failure,
                } => {
                    self.told_failure = failure.map(|failure| (socket, failure));
                    Event::Failed { socket, error }
                }
                Queued::SendBlocked(socket) => Event::SendBlocked { socket },
                Queued::SendDrained(socket) => Event::SendDrained { socket },
                Queued::Woken => Event::Woken,
            };
            handler(self, pools, event);
        }
    }

    #[inline]
    fn deliver_arrived<H>(&mut self, socket: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        loop {
            match self.layer.step(&mut self.inner, socket) {
                LayerStep::Nothing => return,
                LayerStep::Bytes(bytes) => {
                    let event = Event::Received {
                        socket,
                        bytes: &bytes,
                    };
                    handler(self, pools, event);
                    self.layer.give_back(bytes);
                }
                LayerStep::Finished => handler(self, pools, Event::PeerFinished { socket }),
            }
        }
    }
}

impl<D: Driver> Driver for Tls<D> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn features(&self) -> DriverFeatures {
        self.inner.features()
    }

    fn listen(&mut self, listener: Listener) -> Result<(), IoError> {
        self.inner.listen(listener)
    }

    fn set_accepted_max(&mut self, count: usize) {
        self.inner.set_accepted_max(count);
    }

    fn stop_listening(&mut self) {
        self.inner.stop_listening();
        self.layer.hurry_heads(self.inner.clock_ns());
    }

    fn peer(&self, socket: SocketId) -> Option<Peer> {
        let peer = self.inner.peer(socket);
        // A closed socket stays closed, whatever was reported of it.
        peer.map(|peer| self.told(socket).map_or(peer, |told| told.source))
    }

    fn destination(&self, socket: SocketId) -> Option<Peer> {
        match self.told(socket) {
            Some(told) => Some(told.destination),
            None => self.inner.destination(socket),
        }
    }

    fn connect_from(&mut self, to: &Address, source: Option<IpAddr>) -> Result<SocketId, IoError> {
        let socket = self.inner.connect_from(to, source)?;
        let taken_in = self.layer.connect(&mut self.inner, socket);
        self.take_in(socket, taken_in)
    }

    fn connect_tls(&mut self, to: &Address, client: &TlsClient) -> Result<SocketId, IoError> {
        let socket = self.inner.connect(to)?;
        let taken_in = self.layer.connect_as(&mut self.inner, socket, client);
        self.take_in(socket, taken_in)
    }

    fn send(&mut self, socket: SocketId, data: Buffer) -> SendOutcome {
        self.layer.send(&mut self.inner, socket, data)
    }

    fn finish_send(&mut self, socket: SocketId) -> SendOutcome {
        self.layer.finish_send(&mut self.inner, socket)
    }

    fn send_below_tls(&mut self, socket: SocketId, head: Buffer) -> SendOutcome {
        self.layer.send_below_tls(&mut self.inner, socket, head)
    }

    fn is_truncated(&mut self, socket: SocketId) -> bool {
        let session = self.layer.session(socket);
        session.is_some_and(|it| it.has_fin && !it.has_close_notify && !it.is_clear())
    }

    fn pause_receive(&mut self, socket: SocketId) {
        if let Some(session) = self.layer.session(socket) {
            session.is_paused = true;
            // A handshake goes on whatever its owner wants to read.
            if !session.is_handshaking() {
                self.inner.pause_receive(socket);
            }
        }
    }

    fn has_peer_finished(&self, socket: SocketId) -> bool {
        self.inner.has_peer_finished(socket)
    }

    fn deprioritize(&mut self, socket: SocketId) {
        self.inner.deprioritize(socket);
    }

    fn resume_receive(&mut self, socket: SocketId) {
        let Some(session) = self.layer.session(socket) else {
            return;
        };
        if std::mem::take(&mut session.is_paused) {
            self.inner.resume_receive(socket);
            self.layer.look_at(socket);
        }
    }

    fn has_events_left(&mut self) -> bool {
        !self.layer.queue.is_empty() || self.inner.has_events_left()
    }

    fn close(&mut self, socket: SocketId) {
        self.leave(socket, Closing::Now);
    }

    fn reset(&mut self, socket: SocketId) {
        self.leave(socket, Closing::Reset);
    }

    fn close_after_send(&mut self, socket: SocketId) {
        self.leave(socket, Closing::AfterSend);
    }

    fn socket_count(&self) -> usize {
        self.inner.socket_count()
    }

    fn shorten_lingering(&mut self, allowed_ns: u64) {
        self.inner.shorten_lingering(allowed_ns);
    }

    fn closing_count(&self) -> usize {
        let nameless_count = self.layer.awaited.as_ref().map_or(0, |a| a.ending_count());
        self.inner.closing_count() + nameless_count
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn set_busy_poll(&mut self, limit_ns: u64) {
        self.inner.set_busy_poll(limit_ns);
    }

    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn clock_ns(&self) -> u64 {
        self.inner.clock_ns()
    }

    fn tick<H>(
        &mut self,
        deadline_ns: Option<u64>,
        pools: &mut ShardPools,
        mut handler: H,
    ) -> Result<(), IoError>
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Self { inner, layer, .. } = self;
        let must_look_only = layer.blocks.go_on_trimming() || !layer.queue.is_empty();
        let wait_until_ns = if must_look_only {
            Some(0)
        } else {
            let own_ns = layer.deadlines.next_deadline_ns();
            deadline_ns.into_iter().chain(own_ns).min()
        };
        inner.tick(wait_until_ns, pools, |inner, _, event| {
            layer.note(inner, &event);
        })?;
        self.deliver(pools, &mut handler);
        self.layer.expire(&mut self.inner);
        self.deliver(pools, &mut handler);
        if self.layer.sessions.is_empty() {
            self.layer.room.release();
        }
        Ok(())
    }

    fn counters(&self) -> DriverCounters {
        self.inner.counters()
    }

    fn handshake_began_ns(&self, socket: SocketId) -> Option<u64> {
        let session = self.layer.sessions.get(self.layer.find(socket)?)?;
        (session.began_ns > 0).then_some(session.began_ns)
    }

    fn tls_failure(&self, socket: SocketId) -> Option<TlsFailure> {
        let (failed, failure) = self.told_failure?;
        (failed == socket).then_some(failure)
    }

    fn tls_counters(&self) -> Option<TlsCounters> {
        (!self.is_clear).then_some(self.layer.counters)
    }

    fn proxy_head_counters(&self) -> Option<ProxyHeadCounters> {
        self.layer.awaited.as_ref().map(|awaited| awaited.counters)
    }

    fn trim_pools(&mut self) -> usize {
        self.layer.trim() + self.inner.trim_pools()
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        self.layer.visit_stats(visit);
        self.inner.visit_pool_stats(visit);
    }
}
