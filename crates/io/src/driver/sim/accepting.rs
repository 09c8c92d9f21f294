//! The listener: taking connections, and resting when descriptors run out.
//!
//! Like the epoll driver's, whose bounds it shares: some connections per tick, and after
//! a failure a rest until a socket closes or [`RETRY_NS`] have passed.

use super::network::Listening;
use super::socket::{Socket, Stage};
use super::wire::{ACCEPTOR, EndId};
use super::{Event, SimDriver, id_of};
use crate::address::Address;
use crate::driver::accept_limits::{ACCEPTS_PER_TICK_MAX, RETRY_NS, RETRY_TIMER_USER};
use crate::error::IoError;
use crate::listener::Listener;
use crate::pools::ShardPools;
use crate::timer_wheel::TimerId;
use rustix::io::Errno;
use std::collections::VecDeque;

/// The listener's state.
pub(super) struct Accepting {
    address: Address,
    /// Holds a real address, if it was given one, so that nobody else is given it.
    _listener: Option<Listener>,
    retry: TimerId,
    is_paused: bool,
    /// Stop was asked for: one last round in the next tick.
    is_last_round: bool,
}

impl SimDriver {
    /// Listens without any real socket.
    pub fn listen_at(&mut self, address: &Address) -> Result<(), IoError> {
        self.listen_in_memory(address, None)
    }

    pub(super) fn listen_in_memory(
        &mut self,
        address: &Address,
        listener: Option<Listener>,
    ) -> Result<(), IoError> {
        if self.accepting.is_some() {
            return Err(IoError::AlreadyListening);
        }
        let mut state = self.network.state();
        if state.listening_at(address).is_some() {
            return Err(IoError::AddressTaken {
                address: address.clone(),
            });
        }
        state.listening.push(Listening {
            address: address.clone(),
            waiting: VecDeque::new(),
        });
        drop(state);
        let retry = self.deadlines.create(RETRY_TIMER_USER);
        self.accepting = Some(Accepting {
            address: address.clone(),
            _listener: listener,
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

    pub(super) fn takes_last_connections(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.is_last_round)
    }

    pub(super) fn can_accept(&self) -> bool {
        self.accepting.as_ref().is_some_and(|accepting| {
            let mut state = self.network.state();
            let listening = state.listening_at(&accepting.address);
            !accepting.is_paused && listening.is_some_and(|l| !l.waiting.is_empty())
        })
    }

    pub(super) fn accept_waiting<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let count_max = if self.takes_last_connections() {
            usize::MAX
        } else {
            ACCEPTS_PER_TICK_MAX
        };
        for _ in 0..count_max {
            if !self.can_accept() {
                return;
            }
            self.counters.accepts += 1;
            match self.accept_one() {
                Ok(Some(id)) => {
                    self.counters.accepted += 1;
                    handler(self, pools, Event::Accepted { socket: id });
                }
                Ok(None) => {}
                Err(error) => {
                    self.pause_accepting();
                    self.counters.accept_failures += 1;
                    handler(self, pools, Event::AcceptFailed { error });
                    return;
                }
            }
        }
    }

    /// Takes the next connection; `None` when it died while it waited.
    fn accept_one(&mut self) -> Result<Option<super::SocketId>, Errno> {
        let Some(accepting) = &self.accepting else {
            return Ok(None);
        };
        let mut state = self.network.state();
        let state = &mut *state;
        let is_full = self.sockets.len() >= state.plan.descriptors_max;
        if is_full {
            return Err(Errno::MFILE);
        }
        if state.chance(state.plan.accept_failures) {
            return Err(super::faults::FaultPlan::accept_error(&mut state.rng));
        }
        let Some(wire) = state
            .listening_at(&accepting.address)
            .and_then(|listening| listening.waiting.pop_front())
        else {
            return Ok(None);
        };
        let end = EndId {
            wire,
            end: ACCEPTOR,
        };
        // A connection that was reset while it waited is sometimes taken, sometimes not even that.
        if state.wires[wire].error(ACCEPTOR).is_some() && state.rng.bool() {
            state.wires[wire].close(ACCEPTOR);
            return Ok(None);
        }
        match self.sockets.insert(Socket::new(end, Stage::Open)) {
            Ok(handle) => {
                state.wires[wire].is_accepted = true;
                state.note(wire, "accepted", 0);
                Ok(Some(id_of(handle)))
            }
            Err(_) => {
                state.wires[wire].reset(ACCEPTOR, true);
                Err(Errno::NOMEM)
            }
        }
    }

    fn pause_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.is_paused = true;
            self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS);
        }
    }

    pub(super) fn resume_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.is_paused = false;
            self.deadlines.clear(accepting.retry);
        }
    }

    /// The last connections were taken, or the driver ends.
    pub(super) fn end_accepting(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.deadlines.remove(accepting.retry);
            let mut state = self.network.state();
            state.stop_listening_at(&accepting.address);
        }
    }
}
