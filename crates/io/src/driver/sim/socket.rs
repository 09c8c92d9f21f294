//! What the simulated driver knows about one of its sockets.

use super::wire::EndId;
use crate::driver::lifecycle::{Life, Stage};
use crate::driver::socket_count::Opener;
use crate::scheduler::Usage;
use millpond_mempool::Buffer;
use rustix::io::Errno;
use std::collections::VecDeque;

/// How the connection attempt of a socket ends, which the network knows already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Attempt {
    /// With this outcome, in the next tick.
    Ends(Result<(), Errno>),
    /// Never: where nobody ever answers.
    Unanswered,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) end: EndId,
    pub(super) life: Life,
    pub(super) attempt: Attempt,
    /// Of a closed one: its slot is not free before this tick.
    pub(super) until_tick: u64,
    pub(super) usage: Usage,
    /// Stands in the queue of those that wait for a later tick.
    pub(super) is_waiting: bool,
    /// What waits for room or for the next tick, oldest first.
    pub(super) queue: VecDeque<Buffer>,
    /// The queue was given in this tick and counts as sent; whether there is room shows later.
    pub(super) is_late: bool,
    /// There was no room for it, which its owner does not know yet.
    pub(super) owes_blocked: bool,
}

impl Socket {
    /// Bytes are queued of which the owner was told that they are as good as sent.
    pub(super) fn owes_bytes(&self) -> bool {
        !self.queue.is_empty() && (self.is_late || self.owes_blocked)
    }

    pub(super) fn new(end: EndId, stage: Stage, attempt: Attempt) -> Self {
        Self {
            end,
            life: Life::new(stage),
            attempt,
            until_tick: 0,
            usage: match end.opener() {
                Opener::Us => Usage::OURS,
                Opener::Peer => Usage::NEW,
            },
            is_waiting: false,
            queue: VecDeque::new(),
            is_late: false,
            owes_blocked: false,
        }
    }
}
