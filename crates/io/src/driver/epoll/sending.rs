//! Sends: straight to the kernel, or queued while it has no room.

use super::{EpollDriver, Event, SendOutcome, SocketId, handle_of};
use crate::driver::lifecycle::Stage;
use crate::op::close::finish_sending;
use crate::op::send::send_now;
use crate::op::send_file::send_file_now;
use crate::pools::ShardPools;
use millpond_mempool::Buffer;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ops::Range;

/// What a flush achieved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flushed {
    /// Nothing is queued any more.
    All {
        sent_any: bool,
    },
    /// The kernel is full.
    Some {
        sent_any: bool,
    },
    Failed(Errno),
}

impl EpollDriver {
    /// Leaves `data` its room when the kernel took all of it.
    #[inline]
    pub(super) fn send_or_queue(&mut self, id: SocketId, data: &mut Buffer) -> SendOutcome {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            data.release();
            return SendOutcome::Done;
        };
        socket.usage.sent();
        if socket.life.stage() != Stage::Open || !socket.queue.is_empty() {
            return self.queue_send(id, std::mem::take(data));
        }
        self.counters.sends += 1;
        match send_now(socket.fd(), data) {
            Ok(sent) => {
                self.counters.sent_bytes += sent as u64;
                if sent == data.len() {
                    data.clear();
                    return SendOutcome::Done;
                }
                data.consume_front(sent);
                self.counters.sends_blocked += 1;
                self.watch_room(id, true);
                self.queue_send(id, std::mem::take(data))
            }
            Err(error) => {
                data.release();
                self.fail_later(id, error);
                SendOutcome::Blocked
            }
        }
    }

    pub(super) fn send_file_directly(
        &mut self,
        id: SocketId,
        file: BorrowedFd<'_>,
        range: &Range<u64>,
    ) -> Option<u64> {
        let socket = self.sockets.get(handle_of(id))?;
        if socket.life.stage() != Stage::Open || !socket.queue.is_empty() {
            return None;
        }
        let sent = send_file_now(socket.fd(), file, range)?;
        self.counters.file_sends += 1;
        self.counters.sent_bytes += sent;
        Some(sent)
    }

    /// The FIN of a socket that goes on to receive.
    pub(super) fn finish_open(&mut self, id: SocketId) -> SendOutcome {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        if socket.life.stage() == Stage::Connecting || !socket.queue.is_empty() {
            return SendOutcome::Blocked;
        }
        if socket.life.stage() == Stage::Open {
            socket.is_send_finished = true;
            // A connection that is gone already needs none.
            let _ = finish_sending(socket.fd());
        }
        SendOutcome::Done
    }

    /// Keeps `data` until the socket drains, unless its owner has left; without memory for that the
    /// socket fails.
    #[cold]
    fn queue_send(&mut self, id: SocketId, data: Buffer) -> SendOutcome {
        let Self {
            sockets,
            queued_sends,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        match socket.life.stage() {
            // Its owner is told in the socket's turn; until then it makes no more of what nobody gets.
            Stage::Failing(_) => return SendOutcome::Blocked,
            Stage::Sending | Stage::Lingering | Stage::Closed => return SendOutcome::Done,
            Stage::Connecting | Stage::Open => {}
        }
        if socket.queue.push(queued_sends, data).is_err() {
            self.fail_later(id, Errno::NOMEM);
        }
        SendOutcome::Blocked
    }

    /// Sends what is queued until the kernel is full.
    pub(super) fn flush(&mut self, id: SocketId) -> Flushed {
        let Self {
            sockets,
            queued_sends,
            counters,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return Flushed::All { sent_any: false };
        };
        let mut sent_any = false;
        while let Some(bytes) = socket.queue.front(queued_sends) {
            counters.sends += 1;
            let sent = match send_now(socket.fd(), bytes) {
                Ok(sent) => sent,
                Err(error) => return Flushed::Failed(error),
            };
            counters.sent_bytes += sent as u64;
            sent_any |= sent > 0;
            let is_full = sent < bytes.len();
            socket.queue.consume_front(queued_sends, sent);
            if is_full {
                return Flushed::Some { sent_any };
            }
        }
        Flushed::All { sent_any }
    }

    /// A blocked socket takes bytes again.
    pub(super) fn flush_open<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        // The handler may have closed it since.
        if self
            .socket(id)
            .is_none_or(|socket| socket.life.stage() != Stage::Open)
        {
            return;
        }
        match self.flush(id) {
            Flushed::Some { .. } => {}
            // Not at once: the reason for it may have arrived.
            Flushed::Failed(error) => self.fail_later(id, error),
            Flushed::All { .. } => {
                self.watch_room(id, false);
                handler(self, pools, Event::SendDrained { socket: id });
            }
        }
    }
}
