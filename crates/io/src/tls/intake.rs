//! Events of the driver below, kept until its tick is over and this driver can be lent out.

use super::counters::TlsFailure;
use super::layer::Layer;
use crate::driver::{Driver, Event, SocketId};
use crate::proxy_protocol::ProxyHeadFailure;
use rustix::io::Errno;

/// Something to tell the owner, or to look at first.
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

    /// A peer that speaks TLS is spoken to first; the owner hears of it when the handshake is over, or at
    /// once if it is for him to begin.
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
