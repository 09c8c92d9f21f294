//! What the epoll driver knows about one socket, and the bytes it keeps for a blocked one.
//!
//! An idle socket owns no buffer; a blocked one owns those its sender gave, linked in order.

use crate::timer_wheel::TimerId;
use millpond_mempool::{Buffer, Handle, PoolError, Slab};
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

/// Whether bytes are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Receiving {
    On,
    Paused,
    /// The peer's FIN was reported.
    Finished,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    pub(super) stage: Stage,
    pub(super) receiving: Receiving,
    /// What epoll watches for; `None`: nothing, the socket is not registered.
    pub(super) watched: Option<EventFlags>,
    pub(super) queue: SendQueue,
    /// How much more is discarded before the socket closes anyway.
    pub(super) discard_bytes: u32,
    /// Ends `Sending` and `Lingering`.
    pub(super) deadline: Option<TimerId>,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, stage: Stage) -> Self {
        Self {
            fd,
            stage,
            receiving: Receiving::On,
            watched: None,
            queue: SendQueue::default(),
            discard_bytes: 0,
            deadline: None,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A buffer waiting for a blocked socket.
#[derive(Debug)]
pub(super) struct QueuedSend {
    data: Buffer,
    next: Option<Handle<QueuedSend>>,
}

/// Buffers of one socket, oldest first; they live in the driver's slab. Empty unless blocked.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    first: Option<Handle<QueuedSend>>,
    last: Option<Handle<QueuedSend>>,
}

impl SendQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn push(
        &mut self,
        slab: &mut Slab<QueuedSend>,
        data: Buffer,
    ) -> Result<(), PoolError> {
        let added = slab.insert(QueuedSend { data, next: None })?;
        match self.last.and_then(|last| slab.get_mut(last)) {
            Some(last) => last.next = Some(added),
            None => self.first = Some(added),
        }
        self.last = Some(added);
        Ok(())
    }

    /// The oldest bytes.
    pub(super) fn front<'a>(&self, slab: &'a Slab<QueuedSend>) -> Option<&'a [u8]> {
        self.first
            .and_then(|first| slab.get(first))
            .map(|queued| queued.data.as_slice())
    }

    /// Forgets the first `count` bytes of [`Self::front`]; its buffer goes home when empty.
    pub(super) fn consume_front(&mut self, slab: &mut Slab<QueuedSend>, count: usize) {
        let Some(first) = self.first else { return };
        let Some(queued) = slab.get_mut(first) else {
            return;
        };
        queued.data.consume_front(count);
        if queued.data.is_empty() {
            self.pop(slab);
        }
    }

    pub(super) fn clear(&mut self, slab: &mut Slab<QueuedSend>) {
        while !self.is_empty() {
            self.pop(slab);
        }
    }

    fn pop(&mut self, slab: &mut Slab<QueuedSend>) {
        self.first = self
            .first
            .and_then(|first| slab.remove(first))
            .and_then(|gone| gone.next);
        if self.first.is_none() {
            self.last = None;
        }
    }
}
