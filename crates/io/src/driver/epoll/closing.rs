//! Lingering close: the answer reaches a peer that is still sending.
//!
//! Closing a TCP socket with unread bytes sends a reset, and a reset destroys what the peer has

use super::receiving::left_after;
use super::sending::Flushed;
use super::socket::Socket;
use super::{EpollDriver, READABLE, SocketId, handle_of};
use crate::driver::lifecycle::{Closing, Life, SocketDriver, Stage, Step, perform};
use crate::op::close::{drop_unsent, finish_sending};
use crate::op::receive::{Received, receive_now};
use crate::scheduler::Work;
use crate::timer_wheel::TimerWheel;
use millpond_mempool::Lease;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

impl EpollDriver {
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
        match self.socket(id).map(|socket| socket.life.stage()) {
            Some(Stage::Sending) => {}
            Some(_) => return true,
            None => return false,
        }
        let flushed = self.flush(id);
        let Some(socket) = self.socket(id) else {
            return false;
        };
        let step = match flushed {
            Flushed::All { .. } => socket.life.queue_sent(),
            Flushed::Failed(_) => Step::Close,
            Flushed::Some { sent_any: true } => socket.life.queue_moved(),
            Flushed::Some { sent_any: false } => Step::Nothing,
        };
        perform(self, id, step);
        self.is_alive(id)
    }

    fn discard(&mut self, id: SocketId, flags: EventFlags, buffer: &mut Lease) {
        let turn_bytes = self.turn_bytes;
        let Self {
            sockets, counters, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if !socket.life.discards() {
            // Hung up for good, or a FIN that is no news: only the queue keeps it alive.
            let step = socket.life.peer_finished();
            return perform(self, id, step);
        }
        let received = receive_now(socket.fd(), buffer, turn_bytes);
        socket.ready = left_after(received, flags, turn_bytes);
        let step = match received {
            Received::Bytes(count) => {
                counters.receives += 1;
                counters.received_bytes += count as u64;
                socket.life.discarded(count)
            }
            Received::Finished => socket.life.peer_finished(),
            Received::NotReady => Step::Nothing,
            Received::Failed(_) => Step::Close,
        };
        perform(self, id, step);
        if matches!(received, Received::Bytes(_)) {
            self.look_again(id);
        }
    }

    /// Puts the close of a socket off.
    pub(super) fn close_later(&mut self, socket: Socket) {
        // It fails if epoll does not know the descriptor; then it reports nothing either.
        let _ = epoll::delete(&self.epoll, socket.fd());
        let opener = socket.opener();
        self.close_queue.push((socket.into_fd(), opener));
    }

    /// Closes as many of those that wait as the tick admits: one at least.
    #[inline]
    pub(super) fn close_waiting(&mut self) {
        while !self.close_queue.is_empty() && self.scheduler.admits(Work::Close) {
            self.close_first_waiting();
        }
    }

    /// Closes the first of those that are only to be closed; false if there is none.
    pub(super) fn close_first_waiting(&mut self) -> bool {
        let Some((fd, opener)) = self.close_queue.pop() else {
            return false;
        };
        drop(fd);
        self.socket_count.closed(opener);
        self.descriptor_freed();
        true
    }
}

impl SocketDriver for EpollDriver {
    fn life(&mut self, id: SocketId) -> Option<&mut Life> {
        self.socket(id).map(|socket| &mut socket.life)
    }

    fn closing_mut(&mut self) -> &mut Closing {
        &mut self.closing
    }

    fn deadlines_mut(&mut self) -> &mut TimerWheel {
        &mut self.deadlines
    }

    fn tick_ns(&self) -> u64 {
        self.now_ns
    }

    fn has_queue(&mut self, id: SocketId) -> bool {
        self.socket(id)
            .is_some_and(|socket| !socket.queue.is_empty())
    }

    fn send_fin(&mut self, id: SocketId) -> Result<(), Errno> {
        let Some(socket) = self.socket(id) else {
            return Ok(());
        };
        finish_sending(socket.fd())?;
        self.watch_room(id, false);
        Ok(())
    }

    fn receive_to_discard(&mut self, id: SocketId) {
        self.look_again(id);
    }

    fn remove(&mut self, id: SocketId) {
        self.close_socket(id);
    }

    fn reset_now(&mut self, id: SocketId) {
        if let Some(socket) = self.socket(id) {
            drop_unsent(socket.fd());
        }
        self.close_socket(id);
    }

    fn report_failure_later(&mut self, id: SocketId) {
        let Self {
            sockets,
            queued_sends,
            failing,
            ..
        } = self;
        if let Some(socket) = sockets.get_mut(handle_of(id)) {
            socket.queue.clear(queued_sends);
            failing.push_back(id);
        }
    }

    fn accept_again(&mut self) {
        self.resume_accepting();
    }
}
