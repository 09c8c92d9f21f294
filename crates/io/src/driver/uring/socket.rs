//! What the ring driver knows about one socket.
//!
//! An idle socket owns no buffer: the kernel picks one when bytes arrive.

use crate::driver::buffer_queue::BufferQueue;
use crate::driver::receiving::Receiving;
use crate::driver::standing::Standing;
use crate::timer_wheel::TimerId;
use millpond_mempool::Buffer;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

/// Where a socket is in its life.
///
/// ```text
/// Connecting -> Open -> Sending -> Lingering -> Abandoned -> gone   (close_after_send)
///        \________\__-> Failing -> Abandoned -> gone                (reported in the next tick)
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// The handshake runs; what is sent waits.
    Connecting,
    /// Bytes flow.
    Open,
    /// Its owner left; the queue still goes out, arriving bytes are discarded.
    Sending,
    /// Everything and a FIN went out; arriving bytes are discarded until the peer's FIN.
    Lingering,
    /// An operation failed; the owner learns of it in the next tick.
    Failing(Errno),
    /// Nobody knows it any more but the kernel, which still has operations on it and may read from
    /// its queue. It keeps its slot until the last one has come back.
    Abandoned,
}

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
    pub(super) stage: Stage,
    pub(super) receiving: Receiving,
    pub(super) standing: Standing,
    pub(super) receive: ReceiveOperation,
    pub(super) send: SendOperation,
    /// The kernel watches the handshake's end.
    pub(super) has_connect: bool,
    /// The kernel watches for a failure, since nobody receives.
    pub(super) has_watch: bool,
    /// Bytes have arrived before: it is worth asking for more than one message.
    pub(super) is_lasting: bool,
    /// A FIN came during a pause, or was put off, and was not reported yet.
    pub(super) has_held_finish: bool,
    /// A FIN was sent and receiving goes on: that both sides have finished is no failure.
    pub(super) is_send_finished: bool,
    /// How much more is discarded before the socket closes anyway.
    pub(super) discard_bytes: u32,
    /// The bytes of `SendOperation::Due` and `HandedOver`.
    pub(super) sending: Buffer,
    /// What the kernel had no room for.
    pub(super) queue: BufferQueue,
    /// What came during a pause, or was put off.
    pub(super) held: BufferQueue,
    /// Ends `Sending` and `Lingering`.
    pub(super) deadline: Option<TimerId>,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, stage: Stage, standing: Standing) -> Self {
        Self {
            fd,
            stage,
            receiving: Receiving::On,
            standing,
            receive: ReceiveOperation::None,
            send: SendOperation::None,
            has_connect: false,
            has_watch: false,
            is_lasting: false,
            has_held_finish: false,
            is_send_finished: false,
            discard_bytes: 0,
            sending: Buffer::new(),
            queue: BufferQueue::default(),
            held: BufferQueue::default(),
            deadline: None,
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
