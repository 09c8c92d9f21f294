//! The listener of the epoll driver: watched, or not while nothing can be taken.
//!
//! A listener whose connections cannot be taken would be ready for ever and keep the shard busy
//! for nothing. So it is not watched while accepting pauses: until a socket of this shard closes, or
//! for [`RETRY_NS`], since other shards free descriptors too.

use super::socket::Socket;
use super::{EpollDriver, LISTENER_TOKEN, SocketId};
use crate::driver::DriverCounters;
use crate::driver::accepting::{
    AcceptState, Acceptor, RETRY_NS, RETRY_TIMER_USER, SpareDescriptor,
};
use crate::driver::lifecycle::{Stage, end_oldest_closing};
use crate::driver::socket_count::SocketCount;
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::accept::{Accepted, accept_now};
use crate::op::close::drop_unsent;
use crate::scheduler::{Scheduler, Usage};
use crate::timer_wheel::TimerId;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

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
        // Exclusive matters for a unix listener, whose queue all shards share: one wakes.
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

    /// A connection was taken with the spare descriptor: what becomes of it is decided in the next tick.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::ListenOptions;
    use millpond_mempool::PoolMode;

    /// A watch that could not be removed made every later attempt to add it fail, and nothing was accepted again.
    ///
    /// Goal: accepting goes on after a pause in which the listener stayed watched.
    #[test]
    fn a_listener_that_stayed_watched_is_accepted_from_again() {
        let mut driver = EpollDriver::new(PoolMode::On).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        driver
            .start_accepting(Listener::bind(&address, ListenOptions::default()).unwrap())
            .unwrap();
        let is_paused = |driver: &mut EpollDriver| driver.accept_state().unwrap().is_paused;
        driver.accept_state().unwrap().is_paused = true;
        driver.resume_accepting();
        assert!(!is_paused(&mut driver));
        driver.pause_accepting();
        assert!(is_paused(&mut driver));
        driver.resume_accepting();
        assert!(!is_paused(&mut driver));
    }
}
