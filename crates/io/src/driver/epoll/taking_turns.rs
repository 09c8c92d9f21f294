//! Sockets of which the kernel has said already that they are ready, and of which something is left for a
//! later tick: they had more than one receive holds, or the tick's budget was spent (see `scheduler`).
//!
//! Each kind is served in the order in which it came, and goes to the end of its queue: sixteen that
//! sent heads without end once had all turns among the first six of them, and ten met the deadline of
//! their heads.

use super::socket::Socket;
use super::{EVENTS_PER_WAIT, EpollDriver, Event, IsTurn, SocketId};
use crate::driver::handle_of;
use crate::pools::ShardPools;
use crate::scheduler::{RECEIVE_BYTES_OF_OTHERS, Scheduler, Usage, Work};
use millpond_mempool::Lease;
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;

/// All kinds; may hold dead ids, and such that want nothing any more. Bound: a socket stands in one of them
/// once, and what is left of a closed one is passed over when its turn comes.
pub(super) struct Waiting {
    /// Prompt sockets and those of our own making, which go on in the next tick.
    first: VecDeque<SocketId>,
    others: VecDeque<SocketId>,
    bulk: VecDeque<SocketId>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        let queue = || VecDeque::with_capacity(256);
        Self {
            first: queue(),
            others: queue(),
            bulk: queue(),
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.first.len() + self.others.len() + self.bulk.len()
    }

    #[inline]
    pub(super) fn first_count(&self) -> usize {
        self.first.len()
    }

    fn push(&mut self, id: SocketId, usage: Usage) {
        match usage.is_prompt() {
            true => self.first.push_back(id),
            false => self.queue_of(usage.work()).push_back(id),
        }
    }

    fn queue_of(&mut self, work: Work) -> &mut VecDeque<SocketId> {
        match work {
            Work::Bulk => &mut self.bulk,
            _ => &mut self.others,
        }
    }

    /// Whether a socket that is not prompt is handled as it comes: none of its kind waits, and the tick's
    /// budget is not spent.
    pub(super) fn admits_next(&mut self, usage: Usage, scheduler: &mut Scheduler) -> bool {
        let work = usage.work();
        self.queue_of(work).is_empty() && scheduler.admits(work)
    }
}

impl EpollDriver {
    /// To a later tick.
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
            waiting.push(id, socket.usage);
        }
    }

    /// Those that go first, and of which something was left after the tick before.
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

    /// As many of the others as the tick's budget admits.
    #[inline(never)]
    pub(super) fn give_turns<H>(
        &mut self,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.turn_bytes = self.turn_bytes_of_others();
        for work in [Work::Receive, Work::Bulk] {
            // What goes to the end of the queue meanwhile has had its turn.
            for _ in 0..self.waiting.queue_of(work).len().min(EVENTS_PER_WAIT) {
                let Some(&id) = self.waiting.queue_of(work).front() else {
                    break;
                };
                let socket = self.sockets.get(handle_of(id));
                let wants_turn = socket.is_some_and(Socket::wants_turn);
                if wants_turn && !self.scheduler.admits(work) {
                    break;
                }
                self.waiting.queue_of(work).pop_front();
                if let Some(flags) = self.leaves_queue(id) {
                    self.handle_socket(id, flags, IsTurn::Yes, buffer, pools, handler);
                }
            }
        }
    }

    /// How much a socket may receive that is not prompt.
    pub(super) fn turn_bytes_of_others(&self) -> usize {
        match self.scheduler.is_protecting() {
            true => self.turn_bytes.min(RECEIVE_BYTES_OF_OTHERS),
            false => self.turn_bytes,
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
