//! The listener of the epoll driver: watched, or not while nothing can be taken.
//!
//! A listener whose connections cannot be accepted would stay ready and keep the shard busy. So it is not watched while
//! accepting pauses: until a socket of this shard closes, or for [`RETRY_NS`], since other shards free descriptors too.

use millpond_mempool::Lease;
use rustix::event::epoll;
use rustix::event::epoll::{EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use crate::driver::DriverCounters;
use crate::driver::accepting::{
    AcceptState, Acceptor, RETRY_NS, RETRY_TIMER_USER, SpareDescriptor,
};
use crate::driver::lifecycle::{
    CloseStep, Closing, Life, SocketDriver, Stage, end_oldest_closing, perform,
};
use crate::driver::socket_count::SocketCount;
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::{Accepted, accept_now};
use crate::op::{Received, receive_now};
use crate::op::{drop_unsent, finish_sending};
use crate::scheduler::{Scheduler, Usage, Work};
use crate::timer_wheel::{TimerId, TimerWheel};

use super::receiving::Flushed;
use super::receiving::left_after;
use super::{EpollDriver, LISTENER_TOKEN, READABLE, Socket, SocketId, handle_of};

/// The listener's state.
pub(super) struct Accepting {
    listener: Listener,
    retry: TimerId,
    spare: SpareDescriptor,
    state: AcceptState<OwnedFd>,
}

impl EpollDriver {
    pub(super) fn start_accepting(&mut self, listener: Listener) -> Result<(), IoError> {
        if self.accepting.is_some() {
            return Err(IoError::AlreadyListening);
        }
        self.counters.controls += 1;
        let data = EventData::new_u64(LISTENER_TOKEN);
        // Exclusive matters for a unix listener, whose queue all shards share: only one shard wakes.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, listener.fd(), data, flags)
            .map_err(IoError::system("epoll_ctl"))?;
        let retry = self.deadlines.create(RETRY_TIMER_USER);
        self.accepting = Some(Accepting {
            listener,
            retry,
            spare: SpareDescriptor::new(),
            state: AcceptState::default(),
        });
        Ok(())
    }

    pub(super) fn stop_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.state.is_last_round = true;
        }
    }

    /// Lets go of the listener. Others may hold its socket open, so closing would not end the watch.
    pub(super) fn finish_accepting(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.deadlines.remove(accepting.retry);
            if !accepting.state.is_paused {
                self.counters.controls += 1;
                let _ = epoll::delete(&self.epoll, accepting.listener.fd());
            }
        }
    }

    pub(super) fn takes_last_connections(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.state.is_last_round)
    }

    /// A connection was accepted with the spare descriptor: the next tick decides about it.
    pub(super) fn has_pending_connection(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.state.has_pending())
    }

    pub(super) fn resume_accepting(&mut self) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        if !accepting.state.is_paused {
            return;
        }
        self.counters.controls += 1;
        let data = EventData::new_u64(LISTENER_TOKEN);
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        match epoll::add(&self.epoll, accepting.listener.fd(), data, flags) {
            // It is watched still where the watch could not be removed.
            Ok(()) | Err(Errno::EXIST) => {
                accepting.state.is_paused = false;
                self.deadlines.clear(accepting.retry);
            }
            // Short of kernel memory still: rest once more.
            Err(_) => self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS),
        }
    }

    /// A descriptor of ours was closed: a connection that waits may come in.
    #[inline]
    pub(super) fn descriptor_freed(&mut self) {
        if self
            .accepting
            .as_ref()
            .is_some_and(|accepting| accepting.state.is_paused)
        {
            self.resume_accepting();
        }
    }
}

impl Acceptor for EpollDriver {
    type Connection = OwnedFd;

    #[inline]
    fn accept_state(&mut self) -> Option<&mut AcceptState<OwnedFd>> {
        self.accepting
            .as_mut()
            .map(|accepting| &mut accepting.state)
    }

    #[inline]
    fn socket_count(&self) -> SocketCount {
        self.socket_count
    }

    fn counters_mut(&mut self) -> &mut DriverCounters {
        &mut self.counters
    }

    fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    fn accept_next(&mut self) -> Accepted<OwnedFd> {
        let Some(accepting) = &self.accepting else {
            return Accepted::NoneWaiting;
        };
        self.counters.accepts += 1;
        accept_now(accepting.listener.fd())
    }

    fn take_in(&mut self, connection: OwnedFd) -> Result<SocketId, Errno> {
        self.register(Socket::new(connection, Stage::Open, Usage::NEW))
    }

    fn refuse(&mut self, connection: OwnedFd) {
        drop_unsent(connection.as_fd());
    }

    fn release_spare(&mut self) -> bool {
        let accepting = self.accepting.as_mut();
        accepting.is_some_and(|accepting| accepting.spare.release())
    }

    fn restore_spare(&mut self) -> bool {
        let accepting = self.accepting.as_mut();
        accepting.is_some_and(|accepting| accepting.spare.restore())
    }

    fn close_oldest_closing(&mut self) -> bool {
        self.close_first_waiting() || end_oldest_closing(self)
    }

    fn pause_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting
            && !accepting.state.is_paused
        {
            accepting.state.is_paused = true;
            self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS);
            self.counters.controls += 1;
            // An exclusive watch cannot be changed, only removed. Linux has no failure for one that exists; where a
            // filter of system calls has, the listener stays ready and keeps the shard awake until it resumes.
            let _ = epoll::delete(&self.epoll, accepting.listener.fd());
        }
    }
}

// Lingering close: the response reaches a peer that is still sending.
//
// Closing a TCP socket with unread bytes sends a reset, and a reset destroys what the peer has

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
            Flushed::Failed(_) => CloseStep::Close,
            Flushed::Some { sent_any: true } => socket.life.queue_moved(),
            Flushed::Some { sent_any: false } => CloseStep::Nothing,
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
            Received::NotReady => CloseStep::Nothing,
            Received::Failed(_) => CloseStep::Close,
        };
        perform(self, id, step);
        if matches!(received, Received::Bytes(_)) {
            self.look_again(id);
        }
    }

    /// Puts the close of a socket off.
    pub(super) fn close_later(&mut self, socket: Socket) {
        // It fails if epoll does not watch the descriptor; then it reports nothing either.
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

#[cfg(test)]
#[path = "tests/accepting.rs"]
mod tests;
