//! Closing: at once, or lingering so that the answer reaches a peer that is still sending; and
//! sockets that only the kernel knows any more.
//!
//! A descriptor closed under an operation stays open in the kernel and sends no FIN. So a socket
//! with operations is shut down, which the peer sees, and they are cancelled; it keeps slot,
//! descriptor and queue as [`Stage::Abandoned`] until the last one has come back, and behind that
//! for its turn (see `departures`).
#![allow(unsafe_code)]

use super::operation::Operation;
use super::socket::{SendOperation, Stage};
use super::{Event, SendOutcome, SocketId, UringDriver, handle_of};
use crate::driver::accept_limits::RETRY_TIMER_USER;
use crate::driver::linger::{CLOSED_LATE_PER_TICK_MAX, DISCARD_BYTES_MAX, LINGER_NS, STALL_NS};
use crate::driver::receiving::Receiving;
use crate::op::close::{drop_unsent, finish_sending};
use crate::pools::ShardPools;
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

impl UringDriver {
    /// Closes a socket for its owner.
    pub(super) fn close_now(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.stage == Stage::Open
            && socket.send == SendOperation::Due
            && self.send_due_directly(id) == SendOutcome::Blocked
        {
            // Its owner was told that these bytes are done: they still go out.
            if let Some(socket) = self.known(id)
                && socket.stage == Stage::Open
            {
                return self.start_closing(id);
            }
        }
        if let Some(position) = self.found_blocked.iter().position(|found| *found == id) {
            // The same, found out in this very tick and not told yet.
            self.found_blocked.swap_remove(position);
            return self.start_closing(id);
        }
        self.remove(id);
    }

    /// Forgets a socket; the kernel may need it a little longer.
    pub(super) fn remove(&mut self, id: SocketId) {
        self.abandon(id);
        self.release_in_turn(id);
    }

    /// Forgets a socket but for its descriptor: somebody has to release it.
    pub(super) fn abandon(&mut self, id: SocketId) {
        let Self {
            sockets,
            queued,
            deadlines,
            regulars,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        let stage = std::mem::replace(&mut socket.stage, Stage::Abandoned);
        if stage == Stage::Abandoned {
            return;
        }
        if let Some(deadline) = socket.deadline.take() {
            deadlines.remove(deadline);
        }
        socket.held.clear(queued);
        if matches!(stage, Stage::Sending | Stage::Lingering) {
            self.closing_count -= 1;
        }
        self.alive_count -= 1;
        self.counters.closes += 1;
        if !socket.is_in_flight() {
            return;
        }
        self.counters.abandoned += 1;
        // Who waits for a turn to be closed sees that as his end: to be shut down takes as long. But
        // what is only watched or received from ends by being cancelled, and a send may not.
        let is_at_once = regulars.leaves_at_once(socket.standing);
        if is_at_once || socket.send == SendOperation::Queued || socket.has_connect {
            // Fails if the connection is gone already; then nobody needs a FIN.
            let _ = shutdown(socket.fd(), Shutdown::Both);
        }
        // Each by its name, which the kernel finds at once. To end all of a descriptor it would look
        // at every operation of the ring: among 10,000 sockets that took it 300 us, and closing 64
        // of them kept everybody else waiting for 20 ms.
        let in_flight = [
            (socket.has_receive(), Operation::Receive),
            (socket.send == SendOperation::Queued, Operation::SendQueued),
            (socket.has_connect, Operation::Connect),
            (socket.has_watch, Operation::Watch),
        ];
        for (is_in_flight, operation) in in_flight {
            if is_in_flight {
                self.cancel(operation.on(id));
            }
        }
    }

    /// Cancels one operation, of which nothing is heard but its own end.
    pub(super) fn cancel(&mut self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data)
            .build()
            .flags(self.quiet_flags())
            .user_data(Operation::Cancel.alone());
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(&entry) };
    }

    fn quiet_flags(&self) -> squeue::Flags {
        use crate::driver::features::DriverFeature;
        if self.features.has(DriverFeature::SkipSuccess) {
            squeue::Flags::SKIP_SUCCESS
        } else {
            squeue::Flags::empty()
        }
    }

    /// Lets go of an abandoned socket, when it has its turn.
    pub(super) fn release_in_turn(&mut self, id: SocketId) {
        let Self {
            sockets,
            queued,
            regulars,
            departures,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if regulars.leaves_at_once(socket.standing) {
            self.release_if_idle(id);
        } else if !socket.is_in_flight() {
            socket.queue.clear(queued);
            departures.push(id);
        }
    }

    /// Releases those whose turn it is.
    #[inline]
    pub(super) fn release_departing(&mut self) {
        for _ in 0..self.departures.begin_tick(self.regulars) {
            // Dead ids take nobody's turn.
            while let Some(id) = self.departures.pop() {
                if self.release_if_idle(id) {
                    break;
                }
            }
        }
    }

    /// Lets go of an abandoned socket that the kernel has let go of; says whether it did.
    pub(super) fn release_if_idle(&mut self, id: SocketId) -> bool {
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return false;
        };
        let is_held = socket.is_in_flight() || socket.send == SendOperation::HandedOver;
        if socket.stage != Stage::Abandoned || is_held {
            return false;
        }
        socket.queue.clear(queued);
        self.sockets.remove(handle_of(id));
        self.resume_accepting();
        true
    }

    /// The kernel says that a socket failed. A crowd that resets its connections has that said of all
    /// together, and each is a close: while regulars are about they have their turns.
    pub(super) fn fail_in_turn<H>(
        &mut self,
        id: SocketId,
        error: Errno,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.sockets.get(handle_of(id)) else {
            return;
        };
        if self.regulars.leaves_at_once(socket.standing) {
            return self.remove_failed(id, error, pools, handler);
        }
        self.counters.put_off += 1;
        self.fail_later(id, error);
    }

    /// Closes a socket and tells its owner why.
    pub(super) fn remove_failed<H>(
        &mut self,
        id: SocketId,
        error: Errno,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.remove(id);
        handler(self, pools, Event::Failed { socket: id, error });
    }

    pub(super) fn start_closing(&mut self, id: SocketId) {
        let Some(socket) = self.known(id) else {
            return;
        };
        if socket.stage != Stage::Open {
            return self.remove(id);
        }
        if socket.send == SendOperation::Due {
            let _ = self.send_due_directly(id);
        }
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.stage != Stage::Open {
            return self.remove(id);
        }
        socket.stage = Stage::Sending;
        socket.discard_bytes = DISCARD_BYTES_MAX;
        socket.held.clear(queued);
        if std::mem::take(&mut socket.has_held_finish) {
            socket.receiving = Receiving::Finished;
        }
        let has_queue = !socket.queue.is_empty();
        let deadline = self.deadlines.create(id.to_bits());
        socket.deadline = Some(deadline);
        self.closing_count += 1;
        if !has_queue {
            return self.start_lingering(id);
        }
        self.deadlines.set(deadline, self.now_ns + STALL_NS);
        // What arrives is discarded from here on, so that the peer can go on to read.
        self.arm_receive(id);
    }

    /// The queue is out: send a FIN and wait for the peer's.
    pub(super) fn start_lingering(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        // Who finished before us is only to be closed, which sends our FIN as well.
        let is_over =
            socket.receiving == Receiving::Finished || finish_sending(socket.fd()).is_err();
        if is_over {
            return self.remove(id);
        }
        socket.stage = Stage::Lingering;
        if let Some(deadline) = socket.deadline {
            self.deadlines.set(deadline, self.now_ns + LINGER_NS);
        }
        self.arm_receive(id);
    }

    /// Bytes arrived that nobody wants.
    pub(super) fn discard(&mut self, id: SocketId, count: usize) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        socket.discard_bytes = socket.discard_bytes.saturating_sub(count);
        if socket.discard_bytes == 0 {
            self.remove(id);
        }
    }

    /// Closes a socket with a reset, for its owner or because its queue does not move.
    pub(super) fn reset_now(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get(handle_of(id))
            && socket.stage != Stage::Abandoned
        {
            drop_unsent(socket.fd());
        }
        self.remove(id);
    }

    /// The time it had to close is over. After our FIN the peer may still be reading what was sent.
    fn give_up(&mut self, id: SocketId) {
        match self.sockets.get(handle_of(id)).map(|socket| socket.stage) {
            Some(Stage::Sending) => self.reset_now(id),
            _ => self.remove(id),
        }
    }

    /// Ends what took too long; wakes the listener that rested.
    pub(super) fn expire_deadlines(&mut self) {
        let most = CLOSED_LATE_PER_TICK_MAX.min(self.regulars.ends_per_tick());
        for _ in 0..most {
            let Some((user, _)) = self.deadlines.pop_expired(self.now_ns) else {
                return;
            };
            match user {
                RETRY_TIMER_USER => self.resume_accepting(),
                bits => self.give_up(SocketId::from_bits(bits)),
            }
        }
    }
}
