//! The listener of the ring driver: one poll that reports waiting connections, and system calls that accept them, as
//! many as the scheduler allows.
//!
//! An accept in the ring would take connections as fast as they come, ignoring the cap on sockets, and before the shard
//! has time for them; each would hold a descriptor.

#![allow(unsafe_code)]

use io_uring::{cqueue, opcode, squeue, types};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::driver::accepting::{
    AcceptState, Acceptor, RETRY_NS, RETRY_TIMER_USER, SpareDescriptor, accept_waiting,
};
use crate::driver::lifecycle::{
    Closing, Life, SocketDriver, Stage, end_oldest_closing, leave, perform,
};
use crate::driver::socket_count::{Opener, SocketCount};
use crate::driver::{DriverCounters, SocketId};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::{Accepted, accept_now};
use crate::op::{drop_unsent, finish_sending, reset};
use crate::pools::ShardPools;
use crate::scheduler::{Scheduler, Usage, Work};
use crate::timer_wheel::{TimerId, TimerWheel};

use super::ring::{Operation, is_slot_nameable};
use super::{Event, SendOperation, SendOutcome, Socket, UringDriver, handle_of, id_of};

/// The listener's state.
pub(super) struct Accepting {
    listener: Listener,
    retry: TimerId,
    spare: SpareDescriptor,
    state: AcceptState<OwnedFd>,
    /// The kernel watches the listener.
    has_operation: bool,
    /// It reported waiting connections, and not all were accepted yet.
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
        // One-shot, so that the listener reports nothing while accepting pauses. Exclusive matters for a unix listener,
        // whose queue all shards share: only one shard wakes.
        let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE).cast_unsigned();
        let listener = types::Fd(accepting.listener.fd().as_raw_fd());
        let entry = opcode::PollAdd::new(listener, events)
            .build()
            .user_data(Operation::Accept.alone());
        self.counters.controls += 1;
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(&entry) };
    }

    /// The kernel reports waiting connections, or ends its watch.
    pub(super) fn accept_completed(&mut self, completion: &cqueue::Entry) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        accepting.has_operation = false;
        // For a failure other than the end of the watch the first accept gives the reason.
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

    /// Listening has ended: takes waiting connections, and closes the listener once the kernel has let
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

// Closing: at once, or lingering so that the response reaches a peer that is still sending; and abandoned sockets that
// only the kernel still uses.
//
// A descriptor closed under an operation stays open in the kernel and sends no FIN. So a socket
// with operations is shut down, which the peer sees, and they are cancelled; it keeps slot,
// descriptor and queue as [`Stage::Closed`] until the last one has come back, and then until the
// budget of a tick has room for the close.

impl UringDriver {
    /// Closes a socket for its owner.
    pub(super) fn close_now(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.life.stage() == Stage::Open
            && socket.send == SendOperation::Due
            && self.send_due_directly(id) == SendOutcome::Blocked
        {
            // These bytes were reported as done: they still go out.
            if let Some(socket) = self.known(id)
                && socket.life.stage() == Stage::Open
            {
                return self.start_closing(id);
            }
        }
        if let Some(position) = self.found_blocked.iter().position(|found| *found == id) {
            // The same, found in this tick and not reported yet.
            self.found_blocked.swap_remove(position);
            return self.start_closing(id);
        }
        self.remove(id);
    }

    /// Forgets a socket but for its descriptor: the caller must release it.
    pub(super) fn abandon(&mut self, id: SocketId) {
        let Self {
            sockets,
            queued,
            deadlines,
            closing,
            scheduler,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if !socket.life.close(closing, deadlines) {
            return;
        }
        socket.held.clear(queued);
        self.alive_count -= 1;
        self.counters.closes += 1;
        if !socket.is_in_flight() {
            return;
        }
        self.counters.abandoned += 1;
        // A peer whose close waits treats that as EOF: a shutdown takes as long as a close. A watch or a receive ends
        // when it is cancelled; a send may not.
        let must_shut_down = socket.send == SendOperation::Queued || socket.has_connect;
        if must_shut_down || scheduler.admits_end(socket.usage, Work::Close) {
            // Fails if the connection is gone already; then no FIN is needed.
            let _ = shutdown(socket.fd(), Shutdown::Both);
        }
        // Each by its user data, which the kernel finds at once. To cancel all of a descriptor it would search every
        // operation of the ring: among 10,000 sockets that took 300 us, and closing 64 of them delayed all others by 20
        // ms.
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

    /// Lets go of an abandoned socket, in a later tick where the budget of this one is spent.
    pub(super) fn release_in_turn(&mut self, id: SocketId) {
        let is_needed = self.close_queue.is_full() || self.needs_descriptors();
        let Self {
            sockets,
            queued,
            scheduler,
            close_queue,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.is_in_flight() {
            return;
        }
        let is_at_once =
            is_needed || close_queue.is_empty() && scheduler.admits_end(socket.usage, Work::Close);
        if is_at_once {
            self.release_if_idle(id);
        } else {
            socket.queue.clear(queued);
            close_queue.push(id);
        }
    }

    /// Releases as many of those that wait as the tick admits: one at least.
    #[inline]
    pub(super) fn release_waiting(&mut self) {
        while !self.close_queue.is_empty() && self.scheduler.admits(Work::Close) {
            self.release_first_waiting();
        }
    }

    /// Releases the first of those that are only to be closed; false if there is none.
    pub(super) fn release_first_waiting(&mut self) -> bool {
        // Stale ids are skipped and use no budget.
        while let Some(id) = self.close_queue.pop() {
            if self.release_if_idle(id) {
                return true;
            }
        }
        false
    }

    /// Releases an abandoned socket once the kernel has no operation on it; returns whether it did.
    pub(super) fn release_if_idle(&mut self, id: SocketId) -> bool {
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return false;
        };
        let is_held = socket.is_in_flight() || socket.send == SendOperation::HandedOver;
        if socket.life.stage() != Stage::Closed || is_held {
            return false;
        }
        socket.queue.clear(queued);
        self.socket_count.closed(socket.opener());
        self.sockets.remove(handle_of(id));
        self.resume_accepting();
        true
    }

    /// The kernel reports that a socket failed. When many connections reset at once they are all reported together, and
    /// each is a close.
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
        if self.scheduler.admits_end(socket.usage, Work::End) {
            return self.remove_failed(id, error, pools, handler);
        }
        self.counters.deferred += 1;
        self.fail_later(id, error);
    }

    /// Closes a socket and reports the reason to its owner.
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
        if socket.send == SendOperation::Due {
            let _ = self.send_due_directly(id);
        }
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        socket.held.clear(queued);
        if std::mem::take(&mut socket.has_held_finish) {
            let step = socket.life.peer_finished();
            perform(self, id, step);
        }
        leave(self, id);
    }
}

impl SocketDriver for UringDriver {
    fn life(&mut self, id: SocketId) -> Option<&mut Life> {
        let socket = self.sockets.get_mut(handle_of(id));
        socket.map(|socket| &mut socket.life)
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
        let socket = self.sockets.get(handle_of(id));
        socket.is_some_and(|socket| !socket.queue.is_empty())
    }

    fn send_fin(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.sockets.get(handle_of(id));
        socket.map_or(Ok(()), |socket| finish_sending(socket.fd()))
    }

    fn receive_to_discard(&mut self, id: SocketId) {
        self.arm_receive(id);
    }

    /// Forgets a socket; the kernel may need it a little longer.
    fn remove(&mut self, id: SocketId) {
        self.abandon(id);
        self.release_in_turn(id);
    }

    fn reset_now(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get(handle_of(id))
            && socket.life.stage() != Stage::Closed
        {
            reset(socket.fd());
        }
        self.remove(id);
    }

    fn report_failure_later(&mut self, id: SocketId) {
        self.failing.push_back(id);
    }

    fn accept_again(&mut self) {
        self.resume_accepting();
    }
}
