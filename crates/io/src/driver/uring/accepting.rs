//! The listener of the ring driver: one poll that says when connections wait, and system calls that
//! take them, as many as have their turn.
//!
//! An accept in the ring would take connections as fast as they come, whatever the cap on sockets and
//! before anybody has time for them; a descriptor would be held for each.
#![allow(unsafe_code)]

use super::operation::{Operation, is_slot_nameable};
use super::socket::Socket;
use super::{Event, UringDriver, id_of};
use crate::driver::accepting::{
    AcceptState, Acceptor, RETRY_NS, RETRY_TIMER_USER, SpareDescriptor, accept_waiting,
};
use crate::driver::lifecycle::{Stage, end_oldest_closing};
use crate::driver::socket_count::{Opener, SocketCount};
use crate::driver::{DriverCounters, SocketId};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::accept::{Accepted, accept_now};
use crate::op::close::drop_unsent;
use crate::pools::ShardPools;
use crate::scheduler::{Scheduler, Usage};
use crate::timer_wheel::TimerId;
use io_uring::{cqueue, opcode, types};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;

/// The listener's state.
pub(super) struct Accepting {
    listener: Listener,
    retry: TimerId,
    spare: SpareDescriptor,
    state: AcceptState<OwnedFd>,
    /// The kernel watches the listener.
    has_operation: bool,
    /// It said that connections wait, and not all were taken yet.
    is_ready: bool,
}

impl Accepting {
    pub(super) fn has_operation(&self) -> bool {
        self.has_operation
    }
}

impl UringDriver {
    pub(super) fn start_accepting(&mut self, listener: Listener) -> Result<(), IoError> {
        if self.accepting.is_some() {
            return Err(IoError::AlreadyListening);
        }
        let retry = self.deadlines.create(RETRY_TIMER_USER);
        self.accepting = Some(Accepting {
            listener,
            retry,
            spare: SpareDescriptor::new(),
            state: AcceptState::default(),
            has_operation: false,
            is_ready: false,
        });
        self.arm_accept();
        Ok(())
    }

    pub(super) fn stop_accepting(&mut self) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        if std::mem::replace(&mut accepting.state.is_last_round, true) {
            return;
        }
        if accepting.has_operation {
            self.cancel(Operation::Accept.alone());
        }
    }

    pub(super) fn takes_last_connections(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.state.is_last_round)
    }

    /// Connections wait that may be taken, or one was taken with the spare descriptor.
    pub(super) fn has_waiting_connections(&self) -> bool {
        self.accepting.as_ref().is_some_and(|accepting| {
            accepting.state.has_pending() || accepting.is_ready && !accepting.state.is_paused
        })
    }

    fn arm_accept(&mut self) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        let is_idle = accepting.has_operation || accepting.is_ready;
        if is_idle || accepting.state.is_paused || accepting.state.is_last_round {
            return;
        }
        accepting.has_operation = true;
        // Once, so that nothing is heard of the listener while accepting pauses. Exclusive matters for
        // a unix listener, whose queue all shards share: one wakes.
        let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE).cast_unsigned();
        let listener = types::Fd(accepting.listener.fd().as_raw_fd());
        let entry = opcode::PollAdd::new(listener, events)
            .build()
            .user_data(Operation::Accept.alone());
        self.counters.controls += 1;
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(&entry) };
    }

    /// The kernel says that connections wait, or ends its watch.
    pub(super) fn accept_completed(&mut self, completion: &cqueue::Entry) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        accepting.has_operation = false;
        // Of a failure other than the end of the watch the first accept tells more.
        let error = Errno::from_raw_os_error(-completion.result().min(-1));
        accepting.is_ready |= completion.result() >= 0 || error != Errno::CANCELED;
        self.arm_accept();
    }

    /// Takes in as many as have their turn; when listening ends, all.
    pub(super) fn accept_ready<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if !self.has_waiting_connections() || self.takes_last_connections() {
            return;
        }
        let has_taken_all = accept_waiting(self, pools, handler);
        if let Some(accepting) = &mut self.accepting {
            accepting.is_ready &= !has_taken_all;
        }
        self.arm_accept();
    }

    pub(super) fn resume_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting
            && accepting.state.is_paused
        {
            accepting.state.is_paused = false;
            self.deadlines.clear(accepting.retry);
            self.arm_accept();
        }
    }

    /// Listening has ended: takes those who wait, and closes the listener once the kernel has let
    /// go of it, without which its port would stay taken.
    pub(super) fn finish_accepting<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        accept_waiting(self, pools, handler);
        if let Some(accepting) = &self.accepting
            && !accepting.has_operation
        {
            self.deadlines.remove(accepting.retry);
            self.accepting = None;
        }
    }
}

impl Acceptor for UringDriver {
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
        let socket = Socket::new(connection, Stage::Open, Usage::NEW);
        let handle = self.sockets.insert(socket).map_err(|_| Errno::NOMEM)?;
        if !is_slot_nameable(handle.index()) {
            self.sockets.remove(handle);
            return Err(Errno::NOMEM);
        }
        self.alive_count += 1;
        self.socket_count.opened(Opener::Peer);
        Ok(id_of(handle))
    }

    fn taken_in(&mut self, socket: SocketId) {
        self.arm_receive(socket);
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
        if self.release_first_waiting() {
            return true;
        }
        // The kernel is about to let go of these.
        if self.sockets.len() > self.alive_count {
            return true;
        }
        end_oldest_closing(self)
    }

    fn pause_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting
            && !accepting.state.is_paused
        {
            accepting.state.is_paused = true;
            self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS);
        }
    }
}
