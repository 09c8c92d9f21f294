//! What the ring driver knows about one socket.
//!
//! An idle socket owns no buffer: the kernel picks one when bytes arrive.

use crate::driver::buffer_queue::BufferQueue;
use crate::driver::lifecycle::{Life, Stage};
use crate::driver::socket_count::Opener;
use crate::scheduler::Usage;
use millpond_mempool::Buffer;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The receive operation of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReceiveOperation {
    /// None is with the kernel.
    None,
    /// One that ends with the first bytes.
    Once,
    /// One that ends with the first bytes, of which it takes no more than a turn's.
    Turn,
    /// One that goes on.
    Multishot,
    /// One that is being cancelled; bytes may still come out of it.
    Cancelled,
    /// None: it waits for its turn, because no buffer was free or its last turn left bytes behind.
    Waiting,
}

/// The send operation of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SendOperation {
    /// None.
    None,
    /// `sending` goes to the kernel before the next wait.
    Due,
    /// `sending` was handed over; if nothing comes back it went out.
    HandedOver,
    /// The front of the queue is with the kernel until it has room.
    Queued,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) life: Life,
    pub(super) usage: Usage,
    pub(super) receive: ReceiveOperation,
    pub(super) send: SendOperation,
    /// The kernel watches the handshake's end.
    pub(super) has_connect: bool,
    /// The kernel watches for a failure, since nobody receives.
    pub(super) has_watch: bool,
    /// Bytes have arrived before: it is worth asking for more than one message.
    pub(super) is_lasting: bool,
    /// Not 0: more than one receive came during a pause, so it receives one by one until so many short ones came.
    pub(super) single_receives: u8,
    /// A FIN came during a pause, or was put off, and was not reported yet.
    pub(super) has_held_finish: bool,
    /// A FIN was sent and receiving goes on: that both sides have finished is no failure.
    pub(super) is_send_finished: bool,
    /// The bytes of `SendOperation::Due` and `HandedOver`.
    pub(super) sending: Buffer,
    /// What the kernel had no room for.
    pub(super) queue: BufferQueue,
    /// What came during a pause, or was put off.
    pub(super) held: BufferQueue,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, stage: Stage, usage: Usage) -> Self {
        Self {
            fd,
            life: Life::new(stage),
            usage,
            receive: ReceiveOperation::None,
            send: SendOperation::None,
            has_connect: false,
            has_watch: false,
            is_lasting: false,
            single_receives: 0,
            has_held_finish: false,
            is_send_finished: false,
            sending: Buffer::new(),
            queue: BufferQueue::default(),
            held: BufferQueue::default(),
        }
    }

    pub(super) fn opener(&self) -> Opener {
        match self.usage {
            Usage::OURS => Opener::Us,
            _ => Opener::Peer,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Whether a receive is with the kernel.
    pub(super) fn has_receive(&self) -> bool {
        use ReceiveOperation::{Cancelled, Multishot, Once, Turn};
        matches!(self.receive, Once | Turn | Multishot | Cancelled)
    }

    /// Whether the kernel has any operation on it that will be completed some time.
    pub(super) fn is_in_flight(&self) -> bool {
        self.has_receive()
            || self.send == SendOperation::Queued
            || self.has_connect
            || self.has_watch
    }
}
