//! The listener: taking connections, and resting when descriptors run out.
//!
//! How many in a tick, and what happens when they run out, is decided where all drivers have it decided
//! (`driver::accepting`).

use super::faults::FaultPlan;
use super::network::Listening;
use super::socket::{Attempt, Socket};
use super::wire::{ACCEPTOR, EndId};
use super::{SimDriver, SocketId, handle_of, id_of};
use crate::address::Address;
use crate::driver::DriverCounters;
use crate::driver::accepting::{AcceptState, Acceptor, RETRY_NS, RETRY_TIMER_USER};
use crate::driver::lifecycle::{Stage, end_late, pop_oldest_closing};
use crate::driver::socket_count::{Opener, SocketCount};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::accept::Accepted;
use crate::scheduler::Scheduler;
use crate::timer_wheel::TimerId;
use rustix::io::Errno;
use std::collections::VecDeque;

/// The listener's state.
pub(super) struct Accepting {
    address: Address,
    /// Holds a real address, if it was given one, so that nobody else is given it.
    _listener: Option<Listener>,
    retry: TimerId,
    has_spare: bool,
    /// A connection was taken with the spare descriptor and is no socket yet.
    is_spare_used: bool,
    state: AcceptState<usize>,
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
            has_spare: true,
            is_spare_used: false,
            state: AcceptState::default(),
        });
        Ok(())
    }

    pub(super) fn stop_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.state.is_last_round = true;
        }
    }

    pub(super) fn takes_last_connections(&self) -> bool {
        self.accepting
            .as_ref()
            .is_some_and(|accepting| accepting.state.is_last_round)
    }

    pub(super) fn can_accept(&self) -> bool {
        self.accepting.as_ref().is_some_and(|accepting| {
            let mut state = self.network.state();
            let listening = state.listening_at(&accepting.address);
            accepting.state.has_pending()
                || !accepting.state.is_paused && listening.is_some_and(|l| !l.waiting.is_empty())
        })
    }

    pub(super) fn resume_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.state.is_paused = false;
            self.deadlines.clear(accepting.retry);
        }
    }

    /// The connection taken with the spare descriptor is a socket now, or gone.
    fn spare_use_ends(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.is_spare_used = false;
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

impl Acceptor for SimDriver {
    type Connection = usize;

    fn accept_state(&mut self) -> Option<&mut AcceptState<usize>> {
        self.accepting
            .as_mut()
            .map(|accepting| &mut accepting.state)
    }

    fn socket_count(&self) -> SocketCount {
        self.socket_count
    }

    fn counters_mut(&mut self) -> &mut DriverCounters {
        &mut self.counters
    }

    fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    fn accept_next(&mut self) -> Accepted<usize> {
        let Some(accepting) = &mut self.accepting else {
            return Accepted::NoneWaiting;
        };
        self.counters.accepts += 1;
        let mut state = self.network.state();
        let state = &mut *state;
        let descriptors_max = state.plan.descriptors_max;
        if accepting.has_spare && self.sockets.len() >= descriptors_max {
            return Accepted::Exhausted(Errno::MFILE);
        }
        if state.chance(state.plan.accept_failures) {
            return Accepted::Exhausted(FaultPlan::accept_error(&mut state.rng));
        }
        let Some(wire) = state
            .listening_at(&accepting.address)
            .and_then(|listening| listening.waiting.pop_front())
        else {
            return Accepted::NoneWaiting;
        };
        // A connection that was reset while it waited is sometimes taken, sometimes not even that.
        if state.wires[wire].error(ACCEPTOR).is_some() && state.rng.bool() {
            state.wires[wire].close(ACCEPTOR);
            return Accepted::PeerGone;
        }
        accepting.is_spare_used = !accepting.has_spare;
        Accepted::Connection(wire)
    }

    fn take_in(&mut self, wire: usize) -> Result<SocketId, Errno> {
        self.spare_use_ends();
        let end = EndId {
            wire,
            end: ACCEPTOR,
        };
        let mut state = self.network.state();
        match self
            .sockets
            .insert(Socket::new(end, Stage::Open, Attempt::Ends(Ok(()))))
        {
            Ok(handle) => {
                self.socket_count.opened(Opener::Peer);
                state.wires[wire].is_accepted = true;
                state.note(wire, "accepted", 0);
                Ok(id_of(handle))
            }
            Err(_) => {
                state.wires[wire].reset(ACCEPTOR, true);
                Err(Errno::NOMEM)
            }
        }
    }

    fn refuse(&mut self, wire: usize) {
        self.spare_use_ends();
        let mut state = self.network.state();
        state.wires[wire].reset(ACCEPTOR, true);
        state.wires[wire].is_reset_by_network = true;
        state.note(wire, "refused", 0);
    }

    fn release_spare(&mut self) -> bool {
        let accepting = self.accepting.as_mut();
        accepting.is_some_and(|accepting| std::mem::take(&mut accepting.has_spare))
    }

    fn restore_spare(&mut self) -> bool {
        let descriptors_max = self.network.state().plan.descriptors_max;
        let Some(accepting) = &mut self.accepting else {
            return false;
        };
        let held = self.sockets.len() + usize::from(accepting.is_spare_used);
        accepting.has_spare |= held <= descriptors_max;
        accepting.has_spare
    }

    fn close_oldest_closing(&mut self) -> bool {
        if !self.gone.is_empty() {
            return true;
        }
        let Some(id) = pop_oldest_closing(self) else {
            return false;
        };
        if let Some(socket) = self.sockets.get(handle_of(id)) {
            self.network.state().wire(socket.end).is_reset_by_network = true;
        }
        end_late(self, id);
        true
    }

    fn pause_accepting(&mut self) {
        if let Some(accepting) = &mut self.accepting {
            accepting.state.is_paused = true;
            self.deadlines.set(accepting.retry, self.now_ns + RETRY_NS);
        }
    }
}
