//! The sessions of a shard, found by their socket, and what they share.

use std::collections::VecDeque;

use millpond_mempool::{BlockPool, Buffer, Handle, PoolError, PoolMode, PoolStats, Slab};
use rustix::io::Errno;
use rustls::server::UnbufferedServerConnection;

use crate::driver::{Driver, Event, SendOutcome, SocketId};
use crate::proxy_protocol::ProxyHeadFailure;
use crate::timer_wheel::TimerWheel;

use super::awaited_proxy_header::Awaited;
use super::client::TlsClient;
use super::server::ServerSource;
use super::session::Records;
use super::session::{ReadStatus, SealError, Session};
use super::{TlsCounters, TlsFailure};

/// Entries of an empty queue, and places of the table, that are kept whatever happens.
pub(super) const KEPT_COUNT: usize = 1024;

/// How a socket of the driver below is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Closing {
    Now,
    AfterSend,
    /// Without a goodbye, which the peer would not read.
    Reset,
}

/// For so long after a send a peer may not have read it. Its `close_notify`, unknown to the owner, may be on its way
/// meanwhile: closing the socket with that unread resets it, and the sent bytes are lost.
const UNREAD_NS: u64 = 200_000_000;

/// All of [`super::Tls`] but the driver below it.
pub(super) struct Layer {
    /// For sockets that are accepted; without it they stay in plaintext.
    pub(super) source: Option<ServerSource>,
    /// For sockets that are connected; without it they stay in plaintext.
    pub(super) client: Option<TlsClient>,
    /// The largest handshake limit of the clients so far, in bytes from a server.
    client_bytes_max: usize,
    pub(super) sessions: Slab<Session>,
    by_slot: Vec<Option<Handle<Session>>>,
    /// Events for the owner, in this order.
    pub(super) queue: VecDeque<Queued>,
    /// Of handshakes.
    pub(super) deadlines: TimerWheel,
    /// Received bytes not decrypted yet, records to be sent, plaintext for the owner.
    pub(super) blocks: BlockPool,
    /// Buffer that records are decrypted into; kept while there are sessions.
    pub(super) room: Buffer,
    pub(super) counters: TlsCounters,
    /// Accepted sockets begin with a PROXY header.
    pub(super) awaited: Option<Box<Awaited>>,
}

impl Layer {
    pub(super) fn new(
        source: Option<ServerSource>,
        client: Option<TlsClient>,
        mode: PoolMode,
        now_ns: u64,
    ) -> Self {
        Self {
            source,
            client,
            client_bytes_max: 0,
            sessions: Slab::new("tls_sessions", mode),
            by_slot: Vec::new(),
            queue: VecDeque::new(),
            deadlines: TimerWheel::new(now_ns),
            blocks: BlockPool::new("tls_records", mode),
            room: Buffer::new(),
            counters: TlsCounters::default(),
            awaited: None,
        }
    }

    /// The session of a socket, unless that is gone.
    #[inline]
    pub(super) fn find(&self, socket: SocketId) -> Option<Handle<Session>> {
        let handle = (*self.by_slot.get(socket.slot())?)?;
        (self.sessions.get(handle)?.socket == socket).then_some(handle)
    }

    /// The same, with the memory for its records.
    #[inline]
    fn session_and_blocks(&mut self, socket: SocketId) -> Option<(&mut Session, &BlockPool)> {
        let handle = self.find(socket)?;
        Some((self.sessions.get_mut(handle)?, &self.blocks))
    }

    #[inline]
    pub(super) fn session(&mut self, socket: SocketId) -> Option<&mut Session> {
        let handle = (*self.by_slot.get(socket.slot())?)?;
        let session = self.sessions.get_mut(handle)?;
        (session.socket == socket).then_some(session)
    }

    fn insert(&mut self, session: Session) -> Result<(), PoolError> {
        let slot = session.socket.slot();
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(self.sessions.insert(session)?);
        Ok(())
    }

    /// Adds a socket whose peer is to use TLS, with the deadline `until_ns` if it is not counted from now; without
    /// memory for a session it is closed and not reported.
    pub(super) fn accept<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        until_ns: Option<u64>,
    ) {
        let Some(source) = &mut self.source else {
            match self.take_clear(socket) {
                Ok(()) => self.queue.push_back(Queued::Accepted(socket)),
                Err(_) => inner.close(socket),
            }
            return;
        };
        let connection = UnbufferedServerConnection::new(source.config());
        let timeout_ns = source.handshake_timeout_ns();
        let begun = match connection {
            Err(_) => Err(TlsFailure::Internal),
            Ok(connection) => {
                let records = Records::Server(connection);
                let until_ns = until_ns.unwrap_or(inner.now_ns() + timeout_ns);
                self.begin(until_ns, socket, records)
            }
        };
        match begun {
            Ok(()) => self.queue.push_back(Queued::Accepted(socket)),
            Err(failure) => {
                self.counters.failed[failure as usize] += 1;
                inner.close(socket);
            }
        }
    }

    /// Adds a socket that is being connected to a peer with TLS.
    pub(super) fn connect<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
    ) -> Result<(), TlsFailure> {
        match self.client.clone() {
            Some(client) => self.connect_as(inner, socket, &client),
            None => self.take_clear(socket).map_err(|_| TlsFailure::Memory),
        }
    }

    /// The same, with the TLS settings `client`.
    pub(super) fn connect_as<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        client: &TlsClient,
    ) -> Result<(), TlsFailure> {
        self.client_bytes_max = self.client_bytes_max.max(client.handshake_bytes_max);
        let connection = client.connection().map_err(|_| TlsFailure::Internal)?;
        let until_ns = inner.clock_ns() + client.handshake_timeout_ns;
        self.begin(until_ns, socket, Records::Client(Box::new(connection)))?;
        if let Some(session) = self.session(socket) {
            session.awaits_head = client.is_behind_head;
            session.was_told_connected = client.is_behind_head;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        until_ns: u64,
        socket: SocketId,
        records: Records,
    ) -> Result<(), TlsFailure> {
        let session = Session::new(socket, Some(records));
        self.insert(session).map_err(|_| TlsFailure::Memory)?;
        let deadline = self.deadlines.create(socket.to_bits());
        self.deadlines.set(deadline, until_ns);
        if let Some(session) = self.session(socket) {
            session.deadline = Some(deadline);
        }
        self.counters.handshaking += 1;
        Ok(())
    }

    /// Bytes a peer may send before a handshake is over.
    pub(super) fn handshake_bytes_max(&self) -> usize {
        let server = self.source.as_ref().map(ServerSource::handshake_bytes_max);
        server.unwrap_or(0).max(self.client_bytes_max)
    }

    /// Takes in a socket that stays in plaintext.
    pub(super) fn take_clear(&mut self, socket: SocketId) -> Result<(), PoolError> {
        self.insert(Session::new(socket, None))
    }

    /// Forgets a session. A handshake that ends this way failed for `failure`.
    pub(super) fn forget(&mut self, socket: SocketId, failure: TlsFailure) -> Option<Session> {
        let handle = self.find(socket)?;
        let session = self.sessions.remove(handle)?;
        self.by_slot[socket.slot()] = None;
        if self.sessions.is_empty() {
            self.room.release();
        }
        if let Some(deadline) = session.deadline {
            self.deadlines.remove(deadline);
        }
        if session.deadline.is_some() {
            self.counters.handshaking -= 1;
            self.counters.failed[failure as usize] += 1;
        } else if !session.is_clear() {
            self.counters.established -= 1;
        }
        Some(session)
    }

    /// Ends a connection that cannot go on; reported to its owner after all earlier events. Outgoing bytes have the
    /// reason, and reach even a peer that is still sending.
    #[cold]
    pub(super) fn fail<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        failure: TlsFailure,
        outgoing: Buffer,
    ) {
        let Some(session) = self.forget(socket, failure) else {
            return;
        };
        if session.deadline.is_none() && !session.is_clear() {
            self.counters.broken += 1;
        }
        if outgoing.is_empty() {
            inner.close(socket);
        } else {
            // Whether it is blocked does not matter: the driver keeps it either way.
            let _ = inner.send(socket, outgoing);
            inner.close_after_send(socket);
        }
        let error = match failure {
            TlsFailure::Timeout => Errno::TIMEDOUT,
            TlsFailure::Memory => Errno::NOMEM,
            TlsFailure::Closed => Errno::CONNRESET,
            _ => Errno::PROTO,
        };
        self.queue.push_back(Queued::Failed {
            socket,
            error,
            failure: Some(failure),
        });
    }

    /// Makes records of `plaintext` and hands them to the driver below.
    pub(super) fn send<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        plaintext: Buffer,
    ) -> SendOutcome {
        let Some((session, blocks)) = self.session_and_blocks(socket) else {
            return SendOutcome::Done;
        };
        if session.is_clear() {
            let outcome = inner.send(socket, plaintext);
            return note_outcome(session, outcome);
        }
        if session.is_handshaking() {
            return match session.waiting.extend_from_slice(blocks, &plaintext) {
                Ok(()) => {
                    session.has_told_blocked = true;
                    SendOutcome::Blocked
                }
                Err(_) => self.fail_sending(inner, socket, SealError::Memory),
            };
        }
        if plaintext.is_empty() {
            return SendOutcome::Done;
        }
        session.sent_ns = inner.now_ns();
        let mut outgoing = Buffer::new();
        match session.seal(&plaintext, &mut outgoing, blocks) {
            Ok(()) => {
                drop(plaintext);
                let outcome = inner.send(socket, outgoing);
                note_outcome(session, outcome)
            }
            Err(error) => self.fail_sending(inner, socket, error),
        }
    }

    /// Sends `close_notify`, and a FIN behind it.
    pub(super) fn finish_send<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
    ) -> SendOutcome {
        let Some((session, blocks)) = self.session_and_blocks(socket) else {
            return SendOutcome::Done;
        };
        if session.is_handshaking() || session.is_blocked {
            session.has_told_blocked = true;
            return SendOutcome::Blocked;
        }
        if !session.is_clear() && !std::mem::replace(&mut session.is_close_notify_sent, true) {
            let mut outgoing = Buffer::new();
            if let Err(error) = session.say_goodbye(&mut outgoing, blocks) {
                return self.fail_sending(inner, socket, error);
            }
            let outcome = inner.send(socket, outgoing);
            if note_outcome(session, outcome) == SendOutcome::Blocked {
                return SendOutcome::Blocked;
            }
        }
        let outcome = inner.finish_send(socket);
        note_outcome(session, outcome)
    }

    /// Sends what comes before TLS, and begins the handshake behind it.
    #[cold]
    pub(super) fn send_below_tls<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        head: Buffer,
    ) -> SendOutcome {
        let Some(session) = self.session(socket) else {
            return SendOutcome::Done;
        };
        let outcome = note_outcome(session, inner.send(socket, head));
        if std::mem::take(&mut session.awaits_head) {
            self.begin_handshake(inner, socket);
        }
        outcome
    }

    #[cold]
    fn fail_sending<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        error: SealError,
    ) -> SendOutcome {
        let failure = match error {
            SealError::Memory => TlsFailure::Memory,
            SealError::Refused => TlsFailure::Internal,
        };
        self.fail(inner, socket, failure, Buffer::new());
        SendOutcome::Blocked
    }

    /// Ends a session whose owner leaves, with `close_notify` to the peer if possible: not in the middle of a
    /// handshake, nor after bytes that will be dropped. Returns how the socket is to be closed.
    pub(super) fn leave<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        wanted: Closing,
    ) -> Closing {
        let Some(mut session) = self.forget(socket, TlsFailure::Refused) else {
            // Its end was still to be reported: it is dropped now.
            let is_its_end = |queued: &Queued| matches!(queued, Queued::Failed { socket: of, .. } if *of == socket);
            self.queue.retain(|queued| !is_its_end(queued));
            return wanted;
        };
        if wanted == Closing::Reset {
            return wanted;
        }
        if session.deadline.is_some() {
            // Its pending events are dropped.
            return Closing::Now;
        }
        if session.is_clear() || session.is_blocked && wanted == Closing::Now {
            return wanted;
        }
        if session.is_close_notify_sent {
            return wanted;
        }
        let mut outgoing = Buffer::new();
        let goodbye = session.say_goodbye(&mut outgoing, &self.blocks);
        if goodbye.is_ok() && inner.send(socket, outgoing) == SendOutcome::Blocked {
            // Behind what counts as sent, and that has to reach the peer.
            return Closing::AfterSend;
        }
        let has_peer_ended = session.has_fin || session.has_close_notify;
        if !has_peer_ended && inner.now_ns().saturating_sub(session.sent_ns) < UNREAD_NS {
            return Closing::AfterSend;
        }
        wanted
    }

    /// Ends the handshakes that took too long.
    pub(super) fn expire<D: Driver>(&mut self, inner: &mut D) {
        let now_ns = inner.now_ns();
        while let Some((bits, _)) = self.deadlines.pop_expired(now_ns) {
            let socket = SocketId::from_bits(bits);
            if self.refuse_head(socket, ProxyHeadFailure::Timeout) {
                inner.close(socket);
                continue;
            }
            self.fail(inner, socket, TlsFailure::Timeout, Buffer::new());
        }
    }

    /// See [`Driver::trim_pools`].
    pub(super) fn trim(&mut self) -> usize {
        if self.sessions.is_empty() {
            self.room.release();
            self.by_slot.truncate(KEPT_COUNT);
            self.by_slot.shrink_to(KEPT_COUNT);
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT_COUNT);
        }
        let of_heads = self.awaited.as_deref_mut().map_or(0, Awaited::trim);
        self.sessions.trim() + self.blocks.begin_trim() + of_heads
    }

    /// See [`Driver::visit_pool_stats`].
    pub(super) fn visit_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.sessions.stats());
        visit(self.blocks.stats());
        if let Some(awaited) = &self.awaited {
            visit(awaited.nameless().stats());
        }
    }
}

/// Stores the result of a send for the owner.
#[inline]
fn note_outcome(session: &mut Session, outcome: SendOutcome) -> SendOutcome {
    if outcome == SendOutcome::Blocked {
        session.is_blocked = true;
        session.has_told_blocked = true;
    }
    outcome
}

// Events of the driver below, kept until its tick is over and this driver can be lent out.

/// An event for the owner, or bytes to be handled first.
#[derive(Debug)]
pub(super) enum Queued {
    Accepted(SocketId),
    AcceptFailed(Errno),
    Connected(SocketId),
    /// Bytes or the end of them came, or their owner wants them again.
    Arrived(SocketId),
    Failed {
        socket: SocketId,
        error: Errno,
        /// Why, where it was TLS that ended it.
        failure: Option<TlsFailure>,
    },
    SendBlocked(SocketId),
    SendDrained(SocketId),
    Woken,
}

impl Layer {
    /// Keeps one event of the driver below.
    pub(super) fn note<D: Driver>(&mut self, inner: &mut D, event: &Event<'_>) {
        match *event {
            Event::Accepted { socket } => self.welcome(inner, socket),
            Event::AcceptFailed { error } => self.queue.push_back(Queued::AcceptFailed(error)),
            Event::Connected { socket } => self.note_connected(inner, socket),
            Event::Received { socket, bytes } => {
                if !self.takes_head(inner, socket, bytes) {
                    self.note_received(inner, socket, bytes);
                }
            }
            Event::PeerFinished { socket } => {
                if self.refuse_head(socket, ProxyHeadFailure::Closed) {
                    return inner.close(socket);
                }
                if let Some(session) = self.session(socket) {
                    session.has_fin = true;
                    self.look_at(socket);
                }
            }
            Event::Failed { socket, error } => {
                if self.refuse_head(socket, ProxyHeadFailure::Closed) {
                    return;
                }
                self.forget(socket, TlsFailure::Closed);
                self.queue.push_back(Queued::Failed {
                    socket,
                    error,
                    failure: None,
                });
            }
            Event::SendBlocked { socket } => {
                if let Some(session) = self.session(socket) {
                    session.is_blocked = true;
                    self.queue.push_back(Queued::SendBlocked(socket));
                }
            }
            Event::SendDrained { socket } => {
                if let Some(session) = self.session(socket) {
                    session.is_blocked = false;
                    self.queue.push_back(Queued::SendDrained(socket));
                }
            }
            Event::Woken => self.queue.push_back(Queued::Woken),
        }
    }

    /// With TLS the handshake comes first; the owner gets the event when it is over, or at once if the owner has to
    /// send first.
    fn note_connected<D: Driver>(&mut self, inner: &mut D, socket: SocketId) {
        let speaks_first = self
            .session(socket)
            .is_some_and(|session| session.is_client() && !session.awaits_head);
        if speaks_first {
            self.begin_handshake(inner, socket);
        } else {
            self.queue.push_back(Queued::Connected(socket));
        }
    }

    pub(super) fn note_received<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        bytes: &[u8],
    ) {
        let Some(handle) = self.find(socket) else {
            return;
        };
        let Self {
            sessions,
            blocks,
            counters,
            ..
        } = self;
        let Some(session) = sessions.get_mut(handle) else {
            return;
        };
        if session.has_close_notify {
            // Nothing can follow it.
            return;
        }
        if session.incoming.extend_from_slice(blocks, bytes).is_err() {
            return self.fail(
                inner,
                socket,
                TlsFailure::Memory,
                millpond_mempool::Buffer::new(),
            );
        }
        if session.deadline.is_some() {
            session.handshake_bytes += bytes.len();
            counters.handshake_bytes += bytes.len() as u64;
        }
        self.look_at(socket);
    }

    /// Puts a session into the queue, once.
    pub(super) fn look_at(&mut self, socket: SocketId) {
        if let Some(session) = self.session(socket)
            && !std::mem::replace(&mut session.is_queued, true)
        {
            self.queue.push_back(Queued::Arrived(socket));
        }
    }
}

// Processes one socket's bytes, one event at a time.

/// Plaintext passed to the owner at once, at most: the size of one receive.
const ROOM_BYTES: usize = crate::pools::IO_BUFFER_BYTES;

/// The next event for the owner of a socket.
pub(super) enum LayerStep {
    /// Nothing for now.
    Nothing,
    /// Plaintext; the buffer goes back by [`Layer::give_back`].
    Bytes(Buffer),
    /// No more of it will come.
    Finished,
}

impl Layer {
    /// Processes a socket until there is an event.
    pub(super) fn step<D: Driver>(&mut self, inner: &mut D, socket: SocketId) -> LayerStep {
        let Some(session) = self.session(socket) else {
            return LayerStep::Nothing;
        };
        session.is_queued = false;
        if session.is_paused && !session.is_handshaking() {
            return LayerStep::Nothing;
        }
        if !session.held.is_empty() && !session.is_paused {
            return LayerStep::Bytes(std::mem::take(&mut session.held));
        }
        if session.is_clear() && !session.incoming.is_empty() {
            return LayerStep::Bytes(std::mem::take(&mut session.incoming));
        }
        let may_open = !session.is_clear() && !session.awaits_head;
        if may_open && session.has_news() && !session.has_close_notify {
            let is_new_client_of_ours = session.deadline.is_some() && !session.is_client();
            if is_new_client_of_ours && self.is_turned_away(inner, socket) {
                return LayerStep::Nothing;
            }
            if let Some(bytes) = self.open(inner, socket) {
                return LayerStep::Bytes(bytes);
            }
        }
        self.finish(inner, socket)
    }

    /// Sends the first handshake message to a server.
    #[cold]
    pub(super) fn begin_handshake<D: Driver>(&mut self, inner: &mut D, socket: SocketId) {
        if let Some(session) = self.session(socket) {
            session.began_ns = inner.clock_ns();
        }
        // Nothing has come, so nothing is for the owner.
        let _ = self.open(inner, socket);
    }

    /// Takes the buffer of [`LayerStep::Bytes`] back.
    pub(super) fn give_back(&mut self, mut bytes: Buffer) {
        if bytes.capacity() >= ROOM_BYTES && self.room.capacity() == 0 {
            bytes.clear();
            self.room = bytes;
        }
    }

    /// Opens the records that came; plaintext if there is any for the owner now.
    fn open<D: Driver>(&mut self, inner: &mut D, socket: SocketId) -> Option<Buffer> {
        let handle = self.find(socket)?;
        if self.room.capacity() == 0 {
            match Buffer::with_capacity(&self.blocks, ROOM_BYTES) {
                Ok(room) => self.room = room,
                Err(_) => {
                    self.fail(inner, socket, TlsFailure::Memory, Buffer::new());
                    return None;
                }
            }
        }
        let mut outgoing = Buffer::new();
        let session = self.sessions.get_mut(handle)?;
        let standing = session.take_in(&mut self.room, &mut outgoing, &self.blocks);
        let plaintext = (!self.room.is_empty()).then(|| std::mem::take(&mut self.room));
        if let ReadStatus::Broken(failure) = standing {
            self.fail(inner, socket, failure, outgoing);
            // Complete records before it are valid.
            return plaintext;
        }
        session.has_close_notify = matches!(standing, ReadStatus::Finished);
        if !outgoing.is_empty() && inner.send(socket, outgoing) == SendOutcome::Blocked {
            session.is_blocked = true;
        }
        if session.deadline.is_some() {
            self.handshake_went_on(inner, socket);
        }
        let session = self.session(socket)?;
        if session.is_paused {
            session.held = plaintext.unwrap_or_default();
            return None;
        }
        plaintext
    }

    /// A handshake is over, or goes on as long as its peer may let it.
    #[cold]
    fn handshake_went_on<D: Driver>(&mut self, inner: &mut D, socket: SocketId) {
        let bytes_max = self.handshake_bytes_max();
        let Some(session) = self.session(socket) else {
            return;
        };
        if session.is_handshaking() {
            if session.handshake_bytes > bytes_max {
                self.fail(inner, socket, TlsFailure::TooLong, Buffer::new());
            }
            return;
        }
        let deadline = session.deadline.take();
        let (version, kind) = match session.records() {
            Some(records) => (records.protocol_version(), records.handshake_kind()),
            None => (None, None),
        };
        if session.is_paused {
            inner.pause_receive(socket);
        }
        let waiting = std::mem::take(&mut session.waiting);
        if session.is_client() && !session.was_told_connected {
            self.queue.push_back(Queued::Connected(socket));
        }
        self.counters.count_handshake(version, kind);
        self.counters.handshaking -= 1;
        self.counters.established += 1;
        if let Some(deadline) = deadline {
            self.deadlines.remove(deadline);
        }
        if !waiting.is_empty() && self.send(inner, socket, waiting) == SendOutcome::Done {
            self.queue.push_back(Queued::SendDrained(socket));
        }
    }

    /// Responds to a peer without TLS in plaintext HTTP, if it uses that.
    fn is_turned_away<D: Driver>(&mut self, inner: &mut D, socket: SocketId) -> bool {
        /// The content type of a handshake, with which everything begins (RFC 8446, 5.1).
        const HANDSHAKE: u8 = 22;
        let first = self
            .session(socket)
            .and_then(|session| session.first_byte());
        let Some(first) = first.filter(|first| *first != HANDSHAKE) else {
            return false;
        };
        let mut answer = Buffer::new();
        let failure = if first.is_ascii_uppercase() {
            let text = self.source.as_ref().map(ServerSource::plaintext_response);
            let text = text.unwrap_or_default();
            // Without memory it is closed silently.
            let _ = answer.extend_from_slice(&self.blocks, text);
            TlsFailure::Plaintext
        } else {
            TlsFailure::NotTls
        };
        self.fail(inner, socket, failure, answer);
        true
    }

    /// No bytes are left to read: whether that is the end.
    fn finish<D: Driver>(&mut self, inner: &mut D, socket: SocketId) -> LayerStep {
        let Some(session) = self.session(socket) else {
            return LayerStep::Nothing;
        };
        let is_over = session.has_fin || session.has_close_notify;
        if !is_over || session.has_told_finish || session.is_paused {
            return LayerStep::Nothing;
        }
        if session.deadline.is_some() {
            self.fail(inner, socket, TlsFailure::Closed, Buffer::new());
            return LayerStep::Nothing;
        }
        session.has_told_finish = true;
        if !session.is_clear() && !session.has_close_notify {
            self.counters.truncated += 1;
        }
        LayerStep::Finished
    }

    /// Whether the owner gets the event that the kernel is full.
    pub(super) fn tells_blocked(&mut self, socket: SocketId) -> bool {
        let Some(session) = self.session(socket) else {
            return false;
        };
        let is_news = session.is_blocked && !session.has_told_blocked && session.deadline.is_none();
        session.has_told_blocked |= is_news;
        is_news
    }

    /// Whether the owner gets the event that all bytes are with the kernel.
    pub(super) fn tells_drained(&mut self, socket: SocketId, now_ns: u64) -> bool {
        let Some(session) = self.session(socket) else {
            return false;
        };
        let is_news = session.has_told_blocked && !session.is_blocked && session.waiting.is_empty();
        session.has_told_blocked &= !is_news;
        session.sent_ns = now_ns;
        is_news
    }
}
