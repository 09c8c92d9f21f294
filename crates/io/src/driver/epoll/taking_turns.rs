//! The turns of those of whom the kernel has said already that they are ready: who had more than a turn
//! holds, and who was put off behind regulars; see `standing`.
//!
//! Each kind is served in the order in which it came, and goes to the end of its queue: sixteen that
//! sent heads without end once had all turns among the first six of them, and ten met the deadline of
//! their heads.

use super::socket::Socket;
use super::{EVENTS_PER_WAIT, EpollDriver, Event, IsTurn, SocketId};
use crate::driver::handle_of;
use crate::driver::standing::{Standing, Turn};
use crate::driver::turn::TURN_OF_OTHERS_BYTES;
use crate::pools::ShardPools;
use millpond_mempool::Lease;
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;

/// Both kinds; may hold dead ids, and such that want nothing any more.
pub(super) struct Waiting {
    /// Regulars and sockets of our own making, who go on in the next tick.
    first: VecDeque<SocketId>,
    others: VecDeque<SocketId>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            first: VecDeque::with_capacity(256),
            others: VecDeque::with_capacity(256),
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.first.len() + self.others.len()
    }

    #[inline]
    pub(super) fn first_count(&self) -> usize {
        self.first.len()
    }

    fn push(&mut self, id: SocketId, standing: Standing) {
        match standing {
            Standing::Regular | Standing::AskingAgain { .. } | Standing::Ours => {
                self.first.push_back(id);
            }
            _ => self.others.push_back(id),
        }
    }
}

impl EpollDriver {
    /// Behind the regulars.
    #[inline(never)]
    pub(super) fn put_off(&mut self, id: SocketId, flags: EventFlags) {
        self.counters.put_off += 1;
        self.keep(id, flags);
    }

    /// Remembers what the kernel said for a later tick.
    #[cold]
    pub(super) fn keep(&mut self, id: SocketId, flags: EventFlags) {
        if let Some(socket) = self.socket(id) {
            socket.ready = socket.ready.union(flags);
            self.look_again(id);
        }
    }

    /// Has a socket wait for a turn if there is something left to do for it.
    #[cold]
    pub(super) fn look_again(&mut self, id: SocketId) {
        let Self {
            sockets, waiting, ..
        } = self;
        if let Some(socket) = sockets.get_mut(handle_of(id))
            && socket.wants_turn()
            && !socket.is_waiting
        {
            socket.is_waiting = true;
            waiting.push(id, socket.standing);
        }
    }

    /// Those who go first, and of whom something was left after the tick before.
    #[inline(never)]
    pub(super) fn go_on<H>(
        &mut self,
        count: usize,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        for _ in 0..count {
            let Some(id) = self.waiting.first.pop_front() else {
                return;
            };
            if let Some(flags) = self.leaves_queue(id) {
                self.handle_socket(id, flags, IsTurn::No, buffer, pools, handler);
            }
        }
    }

    /// As many of the others as have their turn in this tick.
    #[inline(never)]
    pub(super) fn give_turns<H>(
        &mut self,
        turn: &mut Turn,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if self.regulars.are_about() {
            self.turn_bytes = self.turn_bytes.min(TURN_OF_OTHERS_BYTES);
        }
        // Who goes to the end of the queue meanwhile has had its turn.
        for _ in 0..self.waiting.others.len().min(EVENTS_PER_WAIT) {
            let Some(&id) = self.waiting.others.front() else {
                return;
            };
            let socket = self.sockets.get(handle_of(id));
            let wants_turn = socket.is_some_and(Socket::wants_turn);
            if wants_turn && !turn.goes_on() {
                return;
            }
            self.waiting.others.pop_front();
            if let Some(flags) = self.leaves_queue(id) {
                self.handle_socket(id, flags, IsTurn::Yes, buffer, pools, handler);
            }
        }
    }

    /// What it still wants its turn for.
    fn leaves_queue(&mut self, id: SocketId) -> Option<EventFlags> {
        let socket = self.socket(id)?;
        socket.is_waiting = false;
        let flags = socket.ready;
        socket.wants_turn().then(|| {
            socket.ready = EventFlags::empty();
            flags
        })
    }
}
