//! The listener: one submission that keeps accepting, and a rest when descriptors run out.
//!
//! The kernel ends the submission when it cannot give out a descriptor. It is made again as soon as
//! a socket of this shard closes, or after [`RETRY_NS`], since other shards free descriptors too.
#![allow(unsafe_code)]

use super::operation::{Operation, is_slot_nameable};
use super::probe::{accept_on_entry, accept_once_entry};
use super::socket::{Socket, Stage};
use super::{Event, UringDriver, id_of};
use crate::driver::accept_limits::{ACCEPTS_AT_STOP_MAX, RETRY_NS, RETRY_TIMER_USER};
use crate::driver::features::DriverFeature;
use crate::driver::standing::{Standing, Turn};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::accept::{Accepted, accept_now, is_about_one_peer};
use crate::pools::ShardPools;
use crate::timer_wheel::TimerId;
use io_uring::cqueue;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// The listener's state.
pub(super) struct Accepting {
    listener: Listener,
    retry: TimerId,
    /// The kernel accepts.
    has_operation: bool,
    /// A connection waits and cannot be taken.
    is_paused: bool,
    /// Stop was asked for: one last round in this tick or the next.
    is_last_round: bool,
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
            has_operation: false,
            is_paused: false,
            is_last_round: false,
        });
        self.arm_accept();
        Ok(())
    }

    pub(super) fn stop_accepting(&mut self) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        if std::mem::replace(&mut accepting.is_last_round, true) {
            return;
        }
        if accepting.has_operation {
            self.cancel(Operation::Accept.alone());
        }
    }

    pub(super) fn takes_last_connections(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.is_last_round)
    }

    fn arm_accept(&mut self) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        if accepting.has_operation || accepting.is_paused || accepting.is_last_round {
            return;
        }
        accepting.has_operation = true;
        let listener = accepting.listener.fd().as_raw_fd();
        let entry = match self.features.has(DriverFeature::MultishotAccept) {
            true => accept_on_entry(listener),
            false => accept_once_entry(listener),
        };
        self.counters.accepts += 1;
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(&entry.user_data(Operation::Accept.alone())) };
    }

    /// The kernel accepted, or says why not.
    pub(super) fn accept_completed<H>(
        &mut self,
        completion: &cqueue::Entry,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let result = completion.result();
        if !cqueue::more(completion.flags())
            && let Some(accepting) = &mut self.accepting
        {
            accepting.has_operation = false;
        }
        if result >= 0 {
            // SAFETY: a successful accept hands out a new descriptor, which nobody else knows.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            if self.regulars.are_about() {
                self.counters.put_off += 1;
                self.accepted.push_back(fd);
            } else {
                self.take_in(fd, pools, handler);
            }
        } else {
            let error = Errno::from_raw_os_error(-result);
            if error != Errno::CANCELED && !is_about_one_peer(error) && error != Errno::AGAIN {
                self.accept_refused(error, pools, handler);
            }
        }
        self.arm_accept();
    }

    /// Takes in as many as have their turn; when listening ends, all.
    pub(super) fn take_in_accepted<H>(
        &mut self,
        turn: &mut Turn,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        while !self.accepted.is_empty() && (turn.lets_in() || self.takes_last_connections()) {
            if let Some(fd) = self.accepted.pop_front() {
                self.take_in(fd, pools, handler);
            }
        }
    }

    /// Makes a socket of an accepted descriptor, unless it came after listening ended.
    fn take_in<H>(&mut self, fd: OwnedFd, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if self.accepting.is_none() {
            return;
        }
        let inserted = self
            .sockets
            .insert(Socket::new(fd, Stage::Open, Standing::Unknown));
        let handle = match inserted {
            Ok(handle) if is_slot_nameable(handle.index()) => handle,
            Ok(handle) => {
                self.sockets.remove(handle);
                return self.accept_refused(Errno::NOMEM, pools, handler);
            }
            Err(_) => return self.accept_refused(Errno::NOMEM, pools, handler),
        };
        let socket = id_of(handle);
        self.alive_count += 1;
        self.counters.accepted += 1;
        handler(self, pools, Event::Accepted { socket });
        self.arm_receive(socket);
    }

    fn accept_refused<H>(&mut self, error: Errno, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if let Some(accepting) = &mut self.accepting
            && !accepting.is_paused
        {
            accepting.is_paused = true;
            self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS);
        }
        self.counters.accept_failures += 1;
        handler(self, pools, Event::AcceptFailed { error });
    }

    pub(super) fn resume_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting
            && accepting.is_paused
        {
            accepting.is_paused = false;
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
        for _ in 0..ACCEPTS_AT_STOP_MAX {
            let Some(accepting) = &self.accepting else {
                return;
            };
            self.counters.accepts += 1;
            match accept_now(accepting.listener.fd()) {
                Accepted::Connection(fd) => self.take_in(fd, pools, handler),
                Accepted::PeerGone => {}
                Accepted::NoneWaiting => break,
                Accepted::Exhausted(error) => {
                    self.accept_refused(error, pools, handler);
                    break;
                }
            }
        }
        if let Some(accepting) = &self.accepting
            && !accepting.has_operation
        {
            self.deadlines.remove(accepting.retry);
            self.accepting = None;
        }
    }
}
