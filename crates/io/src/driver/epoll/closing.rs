//! Lingering close: the answer reaches a peer that is still sending.
//!
//! Closing a TCP socket with unread bytes sends a reset, and a reset destroys what the peer has
//! not read yet, often the very answer that says why. So the socket sends its queue, then a FIN,
//! and discards what arrives until the peer's FIN, within the bounds of `linger`.

use super::receiving::left_after;
use super::sending::Flushed;
use super::socket::{Socket, Stage};
use super::{EpollDriver, READABLE, SocketId, handle_of};
use crate::driver::accept_limits::RETRY_TIMER_USER;
use crate::driver::linger::{CLOSED_LATE_PER_TICK_MAX, DISCARD_BYTES_MAX, LINGER_NS, STALL_NS};
use crate::driver::receiving::Receiving;
use crate::op::close::{drop_unsent, finish_sending};
use crate::op::receive::{Received, receive_now};
use millpond_mempool::Lease;
use rustix::event::epoll::{self, EventFlags};

impl EpollDriver {
    pub(super) fn start_closing(&mut self, id: SocketId) {
        let Self { sockets, .. } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        match socket.stage {
            Stage::Sending | Stage::Lingering => return,
            Stage::Connecting | Stage::Failing(_) => return self.remove(id),
            Stage::Open => {}
        }
        socket.stage = Stage::Sending;
        socket.discard_bytes = DISCARD_BYTES_MAX;
        let has_queue = !socket.queue.is_empty();
        let deadline = self.deadlines.create(id.to_bits());
        socket.deadline = Some(deadline);
        self.closing_count += 1;
        if !has_queue {
            return self.start_lingering(id);
        }
        self.deadlines.set(deadline, self.now_ns + STALL_NS);
        // What arrives is discarded from here on, so that the peer can go on to read.
        self.look_again(id);
    }

    /// The queue is out: send a FIN and wait for the peer's.
    fn start_lingering(&mut self, id: SocketId) {
        let Some(socket) = self.socket(id) else {
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
        self.watch_room(id, false);
        self.look_again(id);
    }

    /// A closing socket is ready for something.
    pub(super) fn advance_closing(&mut self, id: SocketId, flags: EventFlags, buffer: &mut Lease) {
        if flags.contains(EventFlags::OUT) && !self.flush_closing(id) {
            return;
        }
        if flags.intersects(READABLE) {
            self.discard(id, flags, buffer);
        }
    }

    /// Sends on; false when the socket is gone.
    fn flush_closing(&mut self, id: SocketId) -> bool {
        let deadline = match self.socket(id) {
            Some(socket) if socket.stage == Stage::Sending => socket.deadline,
            Some(_) => return true,
            None => return false,
        };
        match self.flush(id) {
            Flushed::All { .. } => self.start_lingering(id),
            Flushed::Failed(_) => self.remove(id),
            Flushed::Some { sent_any: true } => {
                if let Some(deadline) = deadline {
                    self.deadlines.set(deadline, self.now_ns + STALL_NS);
                }
            }
            Flushed::Some { sent_any: false } => {}
        }
        self.is_alive(id)
    }

    fn discard(&mut self, id: SocketId, flags: EventFlags, buffer: &mut Lease) {
        let turn_bytes = self.turn_bytes;
        let Some(socket) = self.socket(id) else {
            return;
        };
        if socket.receiving == Receiving::Finished {
            // Hung up for good, or a FIN that is no news: only the queue keeps it alive.
            if socket.stage == Stage::Lingering {
                self.remove(id);
            }
            return;
        }
        let received = receive_now(socket.fd(), buffer, turn_bytes);
        socket.ready = left_after(received, flags, turn_bytes);
        let stage = socket.stage;
        match received {
            Received::Bytes(count) => {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                let left = socket.discard_bytes.saturating_sub(count);
                socket.discard_bytes = left;
                self.counters.receives += 1;
                self.counters.received_bytes += u64::from(count);
                if left == 0 {
                    return self.remove(id);
                }
                self.look_again(id);
            }
            Received::Finished if stage == Stage::Sending => {
                socket.receiving = Receiving::Finished;
            }
            Received::NotReady => {}
            Received::Finished | Received::Failed(_) => self.remove(id),
        }
    }

    /// Closes a socket with a reset, for its owner or because its queue does not move.
    pub(super) fn reset_now(&mut self, id: SocketId) {
        if let Some(socket) = self.socket(id) {
            drop_unsent(socket.fd());
        }
        self.remove(id);
    }

    /// Puts the close of a socket off until its turn.
    pub(super) fn depart(&mut self, socket: Socket) {
        // It fails if epoll does not know the descriptor; then it reports nothing either.
        let _ = epoll::delete(&self.epoll, socket.fd());
        self.departures.push(socket.into_fd());
    }

    /// Closes those whose turn it is.
    #[inline]
    pub(super) fn close_departing(&mut self) {
        for _ in 0..self.departures.begin_tick(self.regulars) {
            drop(self.departures.pop());
            self.descriptor_freed();
        }
    }

    /// The time it had to close is over. After our FIN the peer may still be reading what was sent.
    fn give_up(&mut self, id: SocketId) {
        match self.sockets.get(handle_of(id)).map(|socket| socket.stage) {
            Some(Stage::Sending) => self.reset_now(id),
            _ => self.remove(id),
        }
    }

    /// Ends what took too long; wakes the listener that rested.
    #[inline]
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
