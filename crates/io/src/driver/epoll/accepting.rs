//! The listener: taking connections in turns, and waiting when descriptors run out.
//!
//! A listener whose connections cannot be taken would be ready for ever and keep the shard busy
//! for nothing. So it is not watched while the process is out of descriptors: until a socket of
//! this shard closes, or for [`RETRY_NS`], since other shards free descriptors too.

use super::socket::{Socket, Stage};
use super::{EpollDriver, Event, LISTENER_TOKEN};
use crate::driver::accept_limits::{
    ACCEPTS_AT_STOP_MAX, ACCEPTS_PER_TICK_MAX, RETRY_NS, RETRY_TIMER_USER,
};
use crate::driver::standing::{Standing, Turn};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::accept::{Accepted, accept_now};
use crate::pools::ShardPools;
use crate::timer_wheel::TimerId;
use rustix::event::epoll::{self, EventData, EventFlags};

/// The listener's state.
pub(super) struct Accepting {
    listener: Listener,
    retry: TimerId,
    /// Not watched: a connection waits and cannot be taken.
    is_paused: bool,
    /// Stop was asked for: one last round in this tick or the next.
    is_last_round: bool,
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
            is_paused: false,
            is_last_round: false,
        });
        Ok(())
    }

    pub(super) fn stop_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.is_last_round = true;
        }
    }

    /// Lets go of the listener. Others may hold its socket open, so closing would not end the watch.
    pub(super) fn finish_accepting(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.deadlines.remove(accepting.retry);
            if !accepting.is_paused {
                self.counters.controls += 1;
                let _ = epoll::delete(&self.epoll, accepting.listener.fd());
            }
        }
    }

    pub(super) fn takes_last_connections(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.is_last_round)
    }

    pub(super) fn accept_waiting<H>(
        &mut self,
        turn: &mut Turn,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let is_last_round = self.takes_last_connections();
        let count_max = if is_last_round {
            ACCEPTS_AT_STOP_MAX
        } else {
            ACCEPTS_PER_TICK_MAX
        };
        for _ in 0..count_max {
            let Some(accepting) = &self.accepting else {
                return;
            };
            if !turn.lets_in() {
                return;
            }
            self.counters.accepts += 1;
            let exhausted = match accept_now(accepting.listener.fd()) {
                Accepted::NoneWaiting => return,
                Accepted::PeerGone => continue,
                Accepted::Exhausted(error) => error,
                Accepted::Connection(fd) => {
                    let socket = Socket::new(fd, Stage::Open, Standing::Unknown);
                    match self.register(socket) {
                        Ok(socket) => {
                            self.counters.accepted += 1;
                            handler(self, pools, Event::Accepted { socket });
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            self.pause_accepting();
            self.counters.accept_failures += 1;
            handler(self, pools, Event::AcceptFailed { error: exhausted });
            return;
        }
    }

    fn pause_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting
            && !accepting.is_paused
        {
            accepting.is_paused = true;
            self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS);
            self.counters.controls += 1;
            // Cannot fail: it is registered. An exclusive watch cannot be changed, only removed.
            let _ = epoll::delete(&self.epoll, accepting.listener.fd());
        }
    }

    pub(super) fn resume_accepting(&mut self) {
        let Some(accepting) = &mut self.accepting else {
            return;
        };
        if !accepting.is_paused {
            return;
        }
        self.counters.controls += 1;
        let data = EventData::new_u64(LISTENER_TOKEN);
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        match epoll::add(&self.epoll, accepting.listener.fd(), data, flags) {
            Ok(()) => {
                accepting.is_paused = false;
                self.deadlines.clear(accepting.retry);
            }
            // Short of kernel memory still: rest once more.
            Err(_) => self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS),
        }
    }

    /// A descriptor of ours was closed: somebody who waits may come in.
    #[inline]
    pub(super) fn descriptor_freed(&mut self) {
        if self
            .accepting
            .as_ref()
            .is_some_and(|accepting| accepting.is_paused)
        {
            self.resume_accepting();
        }
    }
}
