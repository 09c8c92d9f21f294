//! What the epoll driver knows about one socket.
//!
//! An idle socket owns no buffer; a blocked one owns those its sender gave.

use super::WATCHED;
use crate::driver::buffer_queue::BufferQueue;
use crate::driver::lifecycle::{Life, Receiving, Stage};
use crate::driver::socket_count::Opener;
use crate::scheduler::Usage;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) life: Life,
    pub(super) usage: Usage,
    /// What the kernel said and nobody has acted on: it says everything once.
    pub(super) ready: EventFlags,
    /// Stands among those who wait for a turn.
    pub(super) is_waiting: bool,
    /// Epoll watches for room to send, too.
    pub(super) watches_room: bool,
    pub(super) queue: BufferQueue,
    /// A FIN was sent and receiving goes on: that both sides have finished is no failure.
    pub(super) is_send_finished: bool,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, stage: Stage, usage: Usage) -> Self {
        Self {
            fd,
            life: Life::new(stage),
            usage,
            ready: EventFlags::empty(),
            is_waiting: false,
            watches_room: false,
            queue: BufferQueue::default(),
            is_send_finished: false,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn opener(&self) -> Opener {
        match self.usage {
            Usage::OURS => Opener::Us,
            _ => Opener::Peer,
        }
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
        let wanted = match self.life.stage() {
            // Reported in a turn of another kind.
            Stage::Failing(_) => EventFlags::empty(),
            Stage::Open if self.life.receiving() != Receiving::On => {
                EventFlags::OUT | EventFlags::ERR | EventFlags::HUP
            }
            _ => EventFlags::all(),
        };
        self.ready.intersects(wanted)
    }
}
