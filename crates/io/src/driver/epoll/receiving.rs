//! Receives: one per turn, and pausing without system calls.

use std::ops::Range;

use millpond_mempool::{Buffer, Lease};
use rustix::event::epoll::EventFlags;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::driver::handle_of;
use crate::driver::lifecycle::{Receiving, Stage, perform};
use crate::driver::receive_stamps::ReceiveStamps;
use crate::op::send_file::send_file_now;
use crate::op::send_now;
use crate::op::{Received, receive_now};
use crate::op::{finish_sending, pending_error};
use crate::pools::ShardPools;
use crate::scheduler::{Usage, Work};

use super::{EpollDriver, Event, IsTurn, STICKY, SendOutcome, Socket, SocketId};

impl EpollDriver {
    #[cold]
    pub(super) fn receive_open<H>(
        &mut self,
        id: SocketId,
        is_turn: IsTurn,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let turn_bytes = self.turn_bytes;
        let Self {
            sockets,
            receive_stamps,
            ..
        } = self;
        // The handler of another event may have closed it since.
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.life.stage() != Stage::Open {
            return;
        }
        if socket.life.receiving() != Receiving::On {
            let flags = socket.ready;
            return self.ready_but_unwanted(id, flags, pools, handler);
        }
        let turn_bytes = socket.usage.receive_bytes(turn_bytes);
        let received = receive(socket, buffer, turn_bytes, receive_stamps);
        self.report_received(id, is_turn, received, buffer, pools, handler);
    }

    /// Inlined into the dispatch, which nearly always comes here.
    #[inline(always)]
    pub(super) fn report_bytes<H>(
        &mut self,
        id: SocketId,
        buffer: &Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.counters.receives += 1;
        self.counters.received_bytes += buffer.len() as u64;
        handler(
            self,
            pools,
            Event::Received {
                socket: id,
                bytes: &buffer[..],
            },
        );
    }

    /// Result of handling the reported events, and events that may still come.
    #[inline(never)]
    pub(super) fn report_received<H>(
        &mut self,
        id: SocketId,
        is_turn: IsTurn,
        received: Received,
        buffer: &Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let turn_bytes = self.turn_bytes;
        let Self {
            sockets, scheduler, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        let flags = socket.ready;
        let leaves = matches!(received, Received::Finished) && is_turn == IsTurn::No;
        if leaves && !scheduler.admits_end(socket.usage, Work::End) {
            socket.usage = Usage::NEW;
            return self.defer(id, flags);
        }
        let turn_bytes = socket.usage.receive_bytes(turn_bytes);
        socket.ready = left_after(received, flags, turn_bytes);
        self.look_again(id);
        if let Received::Bytes(_) = received {
            return self.report_bytes(id, buffer, pools, handler);
        }
        self.counters.receives += 1;
        self.report_no_bytes(id, received, pools, handler);
    }

    fn report_no_bytes<H>(
        &mut self,
        id: SocketId,
        received: Received,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        match received {
            Received::Finished => {
                if let Some(socket) = self.socket(id) {
                    let step = socket.life.peer_finished();
                    perform(self, id, step);
                }
                handler(self, pools, Event::PeerFinished { socket: id });
            }
            Received::Bytes(_) | Received::NotReady => {}
            Received::Failed(error) => self.fail_in_turn(id, error, pools, handler),
        }
    }

    pub(super) fn pause(&mut self, id: SocketId) {
        if let Some(socket) = self.socket(id) {
            socket.life.pause();
        }
    }

    pub(super) fn resume(&mut self, id: SocketId) {
        let Some(socket) = self.socket(id) else {
            return;
        };
        if socket.life.resume() {
            self.look_again(id);
        }
    }

    /// Bytes, a FIN or a failure came while receiving is paused.
    #[cold]
    pub(super) fn ready_but_unwanted<H>(
        &mut self,
        id: SocketId,
        flags: EventFlags,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.socket(id) else {
            return;
        };
        let (receiving, is_send_finished) = (socket.life.receiving(), socket.is_send_finished);
        // Kept for the time when receiving goes on. A unix peer that closed has its last bytes here, and
        // sends fail by themselves.
        socket.ready = match receiving {
            Receiving::Finished => EventFlags::empty(),
            Receiving::On | Receiving::Paused => flags,
        };
        if !flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            return;
        }
        match pending_error(socket.fd()) {
            Some(error) => self.fail_in_turn(id, error, pools, handler),
            // Hung up after the FIN was reported: sending cannot work any more either.
            None if receiving == Receiving::Finished && !is_send_finished => {
                self.fail_in_turn(id, Errno::PIPE, pools, handler);
            }
            None => {}
        }
    }
}

/// The part of `flags` still to be handled, after a receive on an edge-triggered socket.
pub(super) fn left_after(received: Received, flags: EventFlags, turn_bytes: usize) -> EventFlags {
    match received {
        Received::Bytes(count) if count < turn_bytes && !flags.intersects(STICKY) => {
            EventFlags::empty()
        }
        Received::Bytes(_) => flags,
        // Hung up as well: its owner gets the failure next, since sending cannot work any more.
        Received::Finished => flags.intersection(EventFlags::ERR.union(EventFlags::HUP)),
        Received::NotReady | Received::Failed(_) => EventFlags::empty(),
    }
}

/// For a socket that receives. Part of the dispatch, which handles nearly all of them: a separate call is 50
/// instructions of each request's 800.
#[inline(always)]
pub(super) fn receive(
    socket: &mut Socket,
    buffer: &mut Lease,
    turn_bytes: usize,
    stamps: &mut ReceiveStamps,
) -> Received {
    let received = if stamps.turn() {
        stamps.receive(socket.fd(), buffer, turn_bytes)
    } else {
        receive_now(socket.fd(), buffer, turn_bytes)
    };
    if let Received::Bytes(count) = received {
        socket.usage.received(count);
    }
    received
}

// Sends: straight to the kernel, or queued while it has no room.

/// Result of a flush.
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
            // The failure is reported in the socket's turn; until then further output is dropped.
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
