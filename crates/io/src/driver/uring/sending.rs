//! Sends: one per socket and tick through the ring, or straight to the kernel, or queued while it
//! has no room.
//!
//! ```text
//! send --small--> due --before the wait--> handed over --nothing comes back--> done
//!   |                                          `--short or refused--> queue   (SendBlocked)
//!   `--large, or the second of a tick--> system call --short--> queue         (Blocked)
//! queue --the kernel has room--> ... --empty--> SendDrained
//! ```
//! A send that is handed over is tried once, at once (`MSG_DONTWAIT`), so when the call returns it has gone out whole
//! or its completion has the rest: the buffer can be returned without one.

#![allow(unsafe_code)]

use std::net::IpAddr;
use std::ops::Range;

use io_uring::{cqueue, opcode, squeue, types};
use millpond_mempool::Buffer;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::address::Address;
use crate::driver::features::DriverFeature;
use crate::driver::lifecycle::{SocketDriver, Stage, perform};
use crate::driver::socket_count::Opener;
use crate::error::IoError;
use crate::op::connect::{connect_outcome, connect_start};
use crate::op::finish_sending;
use crate::op::send_file::send_file_now;
use crate::op::send_now;
use crate::pools::ShardPools;
use crate::scheduler::Usage;

use super::ring::{Operation, is_slot_nameable};
use super::{Event, SendOperation, SendOutcome, Socket, SocketId, UringDriver, handle_of, id_of};

/// More than this goes out at once: the system call is small beside copying so much, and its result shows whether the
/// kernel is full.
const DUE_BYTES_MAX: usize = 64 << 10;

impl UringDriver {
    #[inline]
    pub(super) fn send_or_queue(&mut self, id: SocketId, data: Buffer) -> SendOutcome {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        socket.usage.sent();
        match socket.life.stage() {
            Stage::Open if socket.queue.is_empty() => {}
            Stage::Open | Stage::Connecting => return self.queue_send(id, data),
            // The failure is reported in the socket's turn; until then further output is dropped.
            Stage::Failing(_) => return SendOutcome::Blocked,
            _ => return SendOutcome::Done,
        }
        match socket.send {
            SendOperation::None if data.len() <= DUE_BYTES_MAX => {
                socket.sending = data;
                socket.send = SendOperation::Due;
                self.due.push(id);
                SendOutcome::Done
            }
            SendOperation::None => self.send_directly(id, data),
            _ => self.send_second(id, data),
        }
    }

    /// A second send within a tick: the first must leave before it.
    #[cold]
    fn send_second(&mut self, id: SocketId, data: Buffer) -> SendOutcome {
        match self.send_due_directly(id) {
            SendOutcome::Done => match self.known(id) {
                Some(socket) if socket.life.stage() == Stage::Open => self.send_directly(id, data),
                _ => SendOutcome::Blocked,
            },
            SendOutcome::Blocked => self.queue_send(id, data),
        }
    }

    /// Sends by system call; the rest is queued.
    #[cold]
    fn send_directly(&mut self, id: SocketId, mut data: Buffer) -> SendOutcome {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        self.counters.sends += 1;
        match send_now(socket.fd(), &data) {
            Ok(sent) => {
                self.counters.sent_bytes += sent as u64;
                if sent == data.len() {
                    return SendOutcome::Done;
                }
                data.consume_front(sent);
                self.counters.sends_blocked += 1;
                self.queue_send(id, data)
            }
            Err(error) => {
                self.fail_later(id, error);
                SendOutcome::Blocked
            }
        }
    }

    /// A ring could splice as well, but would hand it to threads of the kernel's.
    pub(super) fn send_file_directly(
        &mut self,
        id: SocketId,
        file: BorrowedFd<'_>,
        range: &Range<u64>,
    ) -> Option<u64> {
        let socket = self.sockets.get(handle_of(id))?;
        if socket.life.stage() != Stage::Open
            || socket.send != SendOperation::None
            || !socket.queue.is_empty()
        {
            return None;
        }
        // Only the socket's own flag makes this call non-blocking. Every socket has it from its first moment on and
        // keeps it: system calls here count on it.
        let sent = send_file_now(socket.fd(), file, range)?;
        self.counters.file_sends += 1;
        self.counters.sent_bytes += sent;
        Some(sent)
    }

    /// Sends what is due by system call instead of with the next wait.
    pub(super) fn send_due_directly(&mut self, id: SocketId) -> SendOutcome {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        if socket.send != SendOperation::Due {
            return SendOutcome::Done;
        }
        socket.send = SendOperation::None;
        let data = std::mem::take(&mut socket.sending);
        self.send_directly(id, data)
    }

    /// Sends all due bytes by system calls. Blocked sends are reported in this tick.
    pub(super) fn send_all_due_directly(&mut self) {
        while let Some(id) = self.due.pop() {
            if self.send_due_directly(id) == SendOutcome::Blocked {
                self.found_blocked.push(id);
            }
        }
    }

    /// The FIN of a socket that goes on to receive.
    pub(super) fn finish_open(&mut self, id: SocketId) -> SendOutcome {
        if self.send_due_directly(id) == SendOutcome::Blocked {
            return SendOutcome::Blocked;
        }
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        if socket.life.stage() == Stage::Connecting || !socket.queue.is_empty() {
            return SendOutcome::Blocked;
        }
        if socket.life.stage() == Stage::Open {
            debug_assert!(socket.send == SendOperation::None);
            socket.is_send_finished = true;
            // A connection that is gone already needs none.
            let _ = finish_sending(socket.fd());
        }
        SendOutcome::Done
    }

    /// Keeps `data` until the socket drains; without memory for that the socket fails.
    #[cold]
    fn queue_send(&mut self, id: SocketId, data: Buffer) -> SendOutcome {
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return SendOutcome::Done;
        };
        if socket.queue.push(queued, data).is_err() {
            self.fail_later(id, Errno::NOMEM);
        } else {
            self.arm_queued_send(id);
        }
        SendOutcome::Blocked
    }

    /// Gives the front of the queue to the kernel, to be sent when there is room.
    pub(super) fn arm_queued_send(&mut self, id: SocketId) {
        let Self {
            sockets,
            queued,
            ring,
            counters,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.send != SendOperation::None
            || !matches!(socket.life.stage(), Stage::Open | Stage::Sending)
        {
            return;
        }
        let Some(bytes) = socket.queue.front(queued) else {
            return;
        };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        socket.send = SendOperation::Queued;
        counters.sends += 1;
        let entry = opcode::Send::new(types::Fd(socket.raw_fd()), bytes.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL)
            .build()
            .user_data(Operation::SendQueued.on(id));
        // SAFETY: the buffer stays in the queue until the completion is here: only that takes it
        // out, and a socket that is closed meanwhile is abandoned, with its queue.
        unsafe { ring.push(&entry) };
    }

    /// Puts the sends of this tick in.
    #[inline]
    pub(super) fn hand_over_due(&mut self) {
        let Self {
            due,
            handed_over,
            sockets,
            ring,
            counters,
            features,
            ..
        } = self;
        let flags = if features.has(DriverFeature::SkipSuccess) {
            squeue::Flags::SKIP_SUCCESS
        } else {
            squeue::Flags::empty()
        };
        for id in due.drain(..) {
            let Some(socket) = sockets.get_mut(handle_of(id)) else {
                continue;
            };
            if socket.send != SendOperation::Due {
                continue;
            }
            socket.send = SendOperation::HandedOver;
            counters.sends += 1;
            let bytes = socket.sending.as_slice();
            #[expect(clippy::cast_possible_truncation, reason = "at most DUE_BYTES_MAX")]
            let len = bytes.len() as u32;
            let entry = opcode::Send::new(types::Fd(socket.raw_fd()), bytes.as_ptr(), len)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL)
                .build()
                .flags(flags)
                .user_data(Operation::SendNow.on(id));
            // SAFETY: tried once while it is handed over; the buffer stays in the socket until
            // `note_sent` has seen that all entries were, and no method runs before that.
            unsafe { ring.push(&entry) };
            handed_over.push(id);
        }
    }

    /// A send of this tick came back: it fell short, failed, or the kernel reports success too.
    pub(super) fn note_send_result(&mut self, id: SocketId, completion: &cqueue::Entry) {
        let result = completion.result();
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            self.counters.stale_events += 1;
            return;
        };
        if socket.send != SendOperation::HandedOver {
            self.counters.stale_events += 1;
            return;
        }
        let sent = match usize::try_from(result) {
            Ok(sent) => sent,
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::AGAIN | Errno::INTR => 0,
                error => {
                    socket.send = SendOperation::None;
                    socket.sending.release();
                    return self.fail_later(id, error);
                }
            },
        };
        if sent >= socket.sending.len() {
            return;
        }
        socket.send = SendOperation::None;
        self.counters.sent_bytes += sent as u64;
        self.counters.sends_blocked += 1;
        let mut rest = std::mem::take(&mut socket.sending);
        rest.consume_front(sent);
        let _ = self.queue_send(id, rest);
        self.found_blocked.push(id);
    }

    /// All entries were handed over and all bad news is in: the other sends are done.
    #[inline]
    pub(super) fn note_sent(&mut self) {
        let Self {
            handed_over,
            sockets,
            counters,
            ..
        } = self;
        for id in handed_over.drain(..) {
            if let Some(socket) = sockets.get_mut(handle_of(id))
                && socket.send == SendOperation::HandedOver
            {
                socket.send = SendOperation::None;
                counters.sent_bytes += socket.sending.len() as u64;
                socket.sending.release();
            }
        }
    }

    /// Reports blocked sends to the owners.
    pub(super) fn report_found_blocked<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        while let Some(id) = self.found_blocked.pop() {
            if self
                .known(id)
                .is_some_and(|socket| socket.life.stage() == Stage::Open)
            {
                handler(self, pools, Event::SendBlocked { socket: id });
            }
        }
    }

    /// The kernel took some of the queue, or failed.
    pub(super) fn queued_send_completed<H>(
        &mut self,
        id: SocketId,
        completion: &cqueue::Entry,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let result = completion.result();
        let Self {
            sockets,
            queued,
            counters,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            counters.stale_events += 1;
            return;
        };
        socket.send = SendOperation::None;
        if socket.life.stage() == Stage::Closed {
            return self.release_in_turn(id);
        }
        let error = match usize::try_from(result) {
            Ok(sent) => {
                counters.sent_bytes += sent as u64;
                socket.queue.consume_front(queued, sent);
                None
            }
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::AGAIN | Errno::INTR => None,
                error => Some(error),
            },
        };
        let (stage, is_empty) = (socket.life.stage(), socket.queue.is_empty());
        match (stage, error) {
            // Not at once: the reason for it may have arrived.
            (Stage::Open, Some(error)) => self.fail_later(id, error),
            (Stage::Sending, Some(_)) => self.remove(id),
            (Stage::Open, None) if is_empty => {
                handler(self, pools, Event::SendDrained { socket: id });
            }
            (Stage::Sending, None) if is_empty => {
                let step = socket.life.queue_sent();
                perform(self, id, step);
            }
            (Stage::Open, None) => self.arm_queued_send(id),
            (Stage::Sending, None) => {
                let step = socket.life.queue_moved();
                perform(self, id, step);
                self.arm_queued_send(id);
            }
            _ => {}
        }
    }
}

// Outgoing connections: one poll reports the end of the handshake, whatever the result.

impl UringDriver {
    pub(super) fn start_connecting(
        &mut self,
        to: &Address,
        source: Option<IpAddr>,
    ) -> Result<SocketId, IoError> {
        self.counters.connects += 1;
        let (fd, started) = connect_start(to, source)?;
        let no_memory = IoError::System {
            call: "io_uring_enter",
            error: Errno::NOMEM,
        };
        let Ok(handle) = self
            .sockets
            .insert(Socket::new(fd, Stage::Connecting, Usage::OURS))
        else {
            return Err(no_memory);
        };
        if !is_slot_nameable(handle.index()) {
            self.sockets.remove(handle);
            return Err(no_memory);
        }
        let id = id_of(handle);
        self.alive_count += 1;
        self.socket_count.opened(Opener::Us);
        if let Err(error) = started {
            self.fail_later(id, error);
            return Ok(id);
        }
        if let Some(socket) = self.sockets.get_mut(handle) {
            socket.has_connect = true;
            let events = libc::EPOLLOUT.cast_unsigned();
            let entry = opcode::PollAdd::new(types::Fd(socket.raw_fd()), events)
                .build()
                .user_data(Operation::Connect.on(id));
            // SAFETY: the entry points to no memory.
            unsafe { self.ring.push(&entry) };
        }
        Ok(id)
    }

    pub(super) fn connect_completed<H>(
        &mut self,
        id: SocketId,
        completion: &cqueue::Entry,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            self.counters.stale_events += 1;
            return;
        };
        socket.has_connect = false;
        match socket.life.stage() {
            Stage::Closed => return self.release_in_turn(id),
            Stage::Connecting => {}
            _ => return,
        }
        // A poll that failed has seen nothing: the socket then has no error, and is not connected.
        let outcome = match completion.result() {
            0.. => connect_outcome(socket.fd()),
            negative => Err(Errno::from_raw_os_error(-negative)),
        };
        if let Err(error) = outcome {
            return self.remove_failed(id, error, pools, handler);
        }
        socket.life.connected();
        // The connecting side means to exchange more than one message.
        socket.is_lasting = true;
        self.arm_queued_send(id);
        handler(self, pools, Event::Connected { socket: id });
        self.arm_receive(id);
    }
}
