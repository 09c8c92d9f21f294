//! What the simulated driver knows about one of its sockets.

use super::wire::EndId;
use crate::driver::receiving::Receiving;
use crate::timer_wheel::TimerId;
use millpond_mempool::Buffer;
use rustix::io::Errno;
use std::collections::VecDeque;

/// Where a socket is in its life; the stages of the epoll driver, and one more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Asked for; how it ends is known to the network already.
    Connecting(Result<(), Errno>),
    /// Asked for where nobody ever answers.
    Unanswered,
    /// Bytes flow.
    Open,
    /// Its owner left; the queue still goes out, arriving bytes are discarded.
    Sending,
    /// Everything and a FIN went out; arriving bytes are discarded until the peer's FIN.
    Lingering,
    /// It failed outside its own event; the owner learns of it in the next tick.
    Failing(Errno),
    /// Closed, but its slot is not free before this tick.
    Gone { until_tick: u64 },
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) end: EndId,
    pub(super) stage: Stage,
    pub(super) receiving: Receiving,
    /// What waits for room or for the next tick, oldest first.
    pub(super) queue: VecDeque<Buffer>,
    /// The queue was given in this tick and counts as sent; whether there is room shows later.
    pub(super) is_late: bool,
    /// There was no room for it, which its owner does not know yet.
    pub(super) owes_blocked: bool,
    /// Its owner closed it while bytes that counted as sent were in the queue: no lingering.
    pub(super) is_plain_close: bool,
    /// How much more is discarded before the socket closes anyway.
    pub(super) discard_bytes: u32,
    /// Ends `Sending` and `Lingering`.
    pub(super) deadline: Option<TimerId>,
}

impl Socket {
    /// Bytes are queued of which the owner was told that they are as good as sent.
    pub(super) fn owes_bytes(&self) -> bool {
        !self.queue.is_empty() && (self.is_late || self.owes_blocked)
    }

    pub(super) fn new(end: EndId, stage: Stage) -> Self {
        Self {
            end,
            stage,
            receiving: Receiving::On,
            queue: VecDeque::new(),
            is_late: false,
            owes_blocked: false,
            is_plain_close: false,
            discard_bytes: 0,
            deadline: None,
        }
    }
}
