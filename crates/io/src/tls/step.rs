//! What one socket's bytes lead to, one event at a time.

use super::counters::TlsFailure;
use super::intake::Queued;
use super::layer::Layer;
use super::server::ServerSource;
use super::session::Standing;
use crate::driver::{Driver, SendOutcome, SocketId};
use millpond_mempool::Buffer;

/// Plaintext handed to the owner at once, at most: what one receive brings.
const ROOM_BYTES: usize = crate::pools::IO_BUFFER_BYTES;

/// What the owner is to hear next of a socket.
pub(super) enum Step {
    /// Nothing for now.
    Nothing,
    /// Plaintext; the buffer goes back by [`Layer::give_back`].
    Bytes(Buffer),
    /// No more of it will come.
    Finished,
}

impl Layer {
    /// Goes on with a socket until there is something to tell.
    pub(super) fn step<D: Driver>(&mut self, inner: &mut D, socket: SocketId) -> Step {
        let Some(session) = self.session(socket) else {
            return Step::Nothing;
        };
        session.is_queued = false;
        if session.is_paused && !session.is_handshaking() {
            return Step::Nothing;
        }
        if !session.held.is_empty() && !session.is_paused {
            return Step::Bytes(std::mem::take(&mut session.held));
        }
        if session.is_clear() && !session.incoming.is_empty() {
            return Step::Bytes(std::mem::take(&mut session.incoming));
        }
        let may_open = !session.is_clear() && !session.awaits_head;
        if may_open && session.has_news() && !session.has_close_notify {
            let is_new_client_of_ours = session.deadline.is_some() && !session.is_client();
            if is_new_client_of_ours && self.is_turned_away(inner, socket) {
                return Step::Nothing;
            }
            if let Some(bytes) = self.open(inner, socket) {
                return Step::Bytes(bytes);
            }
        }
        self.finish(inner, socket)
    }

    /// Says the first words to a server.
    #[cold]
    pub(super) fn begin_handshake<D: Driver>(&mut self, inner: &mut D, socket: SocketId) {
        if let Some(session) = self.session(socket) {
            session.began_ns = inner.clock_ns();
        }
        // Nothing has come, so nothing is for the owner.
        let _ = self.open(inner, socket);
    }

    /// Takes the buffer of [`Step::Bytes`] back.
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
        if let Standing::Broken(failure) = standing {
            self.fail(inner, socket, failure, outgoing);
            // What was whole before it is good.
            return plaintext;
        }
        session.has_close_notify = matches!(standing, Standing::Finished);
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

    /// Answers a peer that does not speak TLS in words it understands, if that is what it is.
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
            let text = self.source.as_ref().map(ServerSource::clear_text_answer);
            let text = text.unwrap_or_default();
            // Without memory it is closed without a word.
            let _ = answer.extend_from_slice(&self.blocks, text);
            TlsFailure::ClearText
        } else {
            TlsFailure::NotTls
        };
        self.fail(inner, socket, failure, answer);
        true
    }

    /// Nothing is left to be read: whether that is the end.
    fn finish<D: Driver>(&mut self, inner: &mut D, socket: SocketId) -> Step {
        let Some(session) = self.session(socket) else {
            return Step::Nothing;
        };
        let is_over = session.has_fin || session.has_close_notify;
        if !is_over || session.has_told_finish || session.is_paused {
            return Step::Nothing;
        }
        if session.deadline.is_some() {
            self.fail(inner, socket, TlsFailure::Closed, Buffer::new());
            return Step::Nothing;
        }
        session.has_told_finish = true;
        if !session.is_clear() && !session.has_close_notify {
            self.counters.truncated += 1;
        }
        Step::Finished
    }

    /// Whether the owner is to hear that the kernel is full.
    pub(super) fn tells_blocked(&mut self, socket: SocketId) -> bool {
        let Some(session) = self.session(socket) else {
            return false;
        };
        let is_news = session.is_blocked && !session.has_told_blocked && session.deadline.is_none();
        session.has_told_blocked |= is_news;
        is_news
    }

    /// Whether the owner is to hear that all of it is with the kernel.
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
