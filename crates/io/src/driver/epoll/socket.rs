//! What the epoll driver knows about one socket.
//!
//! An idle socket owns no buffer; a blocked one owns those its sender gave.

use super::WATCHED;
use crate::driver::buffer_queue::BufferQueue;
use crate::driver::receiving::Receiving;
use crate::driver::standing::Standing;
use crate::timer_wheel::TimerId;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Where a socket is in its life.
///
/// ```text
/// Connecting -> Open -> Sending -> Lingering -> gone      (close_after_send)
///        \________\__-> Failing -> gone                   (reported in the next tick)
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
    /// A call failed outside the socket's own event; the owner learns of it in the next tick.
    Failing(Errno),
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) stage: Stage,
    pub(super) receiving: Receiving,
    pub(super) standing: Standing,
    /// What the kernel said and nobody has acted on: it says everything once.
    pub(super) ready: EventFlags,
    /// Stands among those who wait for a turn.
    pub(super) is_waiting: bool,
    /// Epoll watches for room to send, too.
    pub(super) watches_room: bool,
    pub(super) queue: BufferQueue,
    /// A FIN was sent and receiving goes on: that both sides have finished is no failure.
    pub(super) is_send_finished: bool,
    /// How much more is discarded before the socket closes anyway.
    pub(super) discard_bytes: u32,
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
            ready: EventFlags::empty(),
            is_waiting: false,
            watches_room: false,
            queue: BufferQueue::default(),
            is_send_finished: false,
            discard_bytes: 0,
            deadline: None,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// What epoll watches it for.
    pub(super) fn watched(&self) -> EventFlags {
        match self.watches_room {
            true => WATCHED.union(EventFlags::OUT),
            false => WATCHED,
        }
    }

    /// Whether a turn would change anything.
    pub(super) fn wants_turn(&self) -> bool {
        let wanted = match self.stage {
            // Reported in a turn of another kind.
            Stage::Failing(_) => EventFlags::empty(),
            Stage::Open if self.receiving != Receiving::On => {
                EventFlags::OUT | EventFlags::ERR | EventFlags::HUP
            }
            _ => EventFlags::all(),
        };
        self.ready.intersects(wanted)
    }
}
