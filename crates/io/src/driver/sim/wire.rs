//! One simulated connection: two ends, and the bytes between them.
//!
//! TCP as its users see it: bytes in order, a FIN in each direction, and resets, in the worst
//! form that the protocol allows: a reset destroys what its receiver has sent and not got through,
//! and closing with unread input, or being written to after closing, is a reset.

use std::collections::VecDeque;

use fastrand::Rng;
use rustix::io::Errno;

use crate::address::{Address, Peer as PeerName};
use crate::driver::DriverCounters;
use crate::driver::accepting::{AcceptState, Acceptor, RETRY_NS, RETRY_TIMER_USER};
use crate::driver::lifecycle::{Stage, end_late, pop_oldest_closing};
use crate::driver::socket_count::{Opener, SocketCount};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::Accepted;
use crate::scheduler::Scheduler;
use crate::timer_wheel::TimerId;

use super::network::Listening;
use super::{Attempt, SimDriver, Socket, SocketId, handle_of, id_of};

/// The end that connected; [`ACCEPTOR`] is the other one.
pub(super) const INITIATOR: usize = 0;
pub(super) const ACCEPTOR: usize = 1;

/// One end of one connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct EndId {
    pub(super) wire: usize,
    pub(super) end: usize,
}

impl EndId {
    pub(super) fn opener(self) -> Opener {
        match self.end {
            INITIATOR => Opener::Us,
            _ => Opener::Peer,
        }
    }

    pub(super) const fn other(self) -> Self {
        Self {
            wire: self.wire,
            end: 1 - self.end,
        }
    }
}

/// Bytes on their way from one end to the other.
#[derive(Debug)]
struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// The FIN comes after the last byte.
    is_finished: bool,
    read_bytes: u64,
}

#[derive(Debug, Default)]
struct End {
    is_closed: bool,
    /// The connection was reset under this end.
    error: Option<Errno>,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arrived {
    Bytes(usize),
    Finished,
    Nothing,
    Failed(Errno),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Wire {
    /// Bytes written by each end.
    pipes: [Pipe; 2],
    ends: [End; 2],
    /// The initiator's name, for the acceptor.
    pub(super) name: PeerName,
    /// The listener's, for the acceptor.
    pub(super) destination: PeerName,
    /// Where receives of the driver end.
    pub(super) cuts: Cuts,
    /// The acceptor took it.
    pub(super) is_accepted: bool,
    /// A fault of the plan, not an end, broke it.
    pub(super) is_reset_by_network: bool,
}

impl Wire {
    pub(super) fn new(name: PeerName, destination: PeerName, window_bytes: usize) -> Self {
        let pipe = || Pipe {
            bytes: VecDeque::new(),
            capacity: window_bytes,
            is_finished: false,
            read_bytes: 0,
        };
        Self {
            pipes: [pipe(), pipe()],
            ends: [End::default(), End::default()],
            name,
            destination,
            cuts: Cuts::default(),
            is_accepted: false,
            is_reset_by_network: false,
        }
    }

    /// How many bytes `end` could write now.
    pub(super) fn room(&self, end: usize) -> usize {
        let pipe = &self.pipes[end];
        pipe.capacity.saturating_sub(pipe.bytes.len())
    }

    /// How many bytes wait for `end`.
    pub(super) fn waiting(&self, end: usize) -> usize {
        self.pipes[1 - end].bytes.len()
    }

    /// How many bytes `end` has read.
    pub(super) fn read_bytes(&self, end: usize) -> u64 {
        self.pipes[1 - end].read_bytes
    }

    /// No byte comes after those that wait for `end`.
    pub(super) fn is_finished(&self, end: usize) -> bool {
        self.pipes[1 - end].is_finished
    }

    pub(super) fn error(&self, end: usize) -> Option<Errno> {
        self.ends[end].error
    }

    pub(super) fn set_window(&mut self, end: usize, window_bytes: usize) {
        self.pipes[end].capacity = window_bytes;
    }

    /// Takes as many of `bytes` as there is room for.
    pub(super) fn write(&mut self, end: usize, bytes: &[u8]) -> Result<usize, Errno> {
        if let Some(error) = self.ends[end].error {
            return Err(error);
        }
        if self.pipes[end].is_finished {
            return Err(Errno::PIPE);
        }
        if self.ends[1 - end].is_closed {
            // The kernel takes them; the peer responds with a reset.
            self.break_under(end, true);
            return Ok(bytes.len());
        }
        let count = bytes.len().min(self.room(end));
        self.pipes[end].bytes.extend(&bytes[..count]);
        Ok(count)
    }

    /// Moves at most `count_max` bytes that wait for `end` to `into`.
    pub(super) fn read(&mut self, end: usize, into: &mut Vec<u8>, count_max: usize) -> Arrived {
        let error = self.ends[end].error;
        let pipe = &mut self.pipes[1 - end];
        let count = pipe.bytes.len().min(count_max);
        if count > 0 {
            into.extend(pipe.bytes.drain(..count));
            pipe.read_bytes += count as u64;
            return Arrived::Bytes(count);
        }
        match error {
            Some(error) => Arrived::Failed(error),
            None if pipe.is_finished && pipe.bytes.is_empty() => Arrived::Finished,
            None => Arrived::Nothing,
        }
    }

    /// `end` writes nothing more.
    pub(super) fn finish(&mut self, end: usize) {
        self.pipes[end].is_finished = true;
    }

    /// `end` is gone. True when that was a reset, because bytes waited for it.
    pub(super) fn close(&mut self, end: usize) -> bool {
        if self.ends[end].is_closed {
            return false;
        }
        self.ends[end].is_closed = true;
        self.pipes[end].is_finished = true;
        let is_reset = self.waiting(end) > 0;
        if is_reset {
            self.break_under(1 - end, true);
        }
        is_reset
    }

    /// `end` breaks the connection off; `loses_input` decides about bytes that the other end has
    /// not read yet.
    pub(super) fn reset(&mut self, end: usize, loses_input: bool) {
        self.ends[end].is_closed = true;
        self.break_under(1 - end, loses_input);
    }

    /// Neither end did it.
    pub(super) fn reset_by_network(&mut self, loses_input: bool) {
        self.is_reset_by_network = true;
        self.break_under(INITIATOR, loses_input);
        self.break_under(ACCEPTOR, loses_input);
    }

    /// `end` learns that the connection is reset.
    fn break_under(&mut self, end: usize, loses_input: bool) {
        self.ends[end].error.get_or_insert(Errno::CONNRESET);
        self.pipes[end].bytes.clear();
        if loses_input {
            self.pipes[1 - end].bytes.clear();
        }
    }
}

// Faults of a simulated network, and their frequency.
//
// Every probability is between 0 and 1 and is drawn for anew at each chance. A plan with all of
// them at 0 is a well-behaved kernel on a calm day.

/// The error of accept(2) when it cannot take a connection.
const ACCEPT_ERRORS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];

/// Bytes on their way in one direction, by default: about what loopback holds.
const WINDOW_BYTES: usize = 256 << 10;

/// Frequency of each fault of the driver. Peers follow their scripts.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// A receive delivers only a part of what arrived, one byte at the least.
    pub split_receives: f64,
    /// A send takes only a part of its bytes, perhaps none; the rest drains in later ticks.
    pub short_sends: f64,
    /// A send counts as done and is made when the next tick begins, as with a ring.
    pub late_sends: f64,
    /// Something ready is not reported in this tick.
    pub delays: f64,
    /// A socket that was just reported is reported again in the same tick if it is ready again.
    pub bursts: f64,
    /// Completions of different sockets come in any order instead of by slot.
    pub reorders: bool,
    /// A wait ends early, with nothing to report.
    pub spurious_wakes: f64,
    /// No buffer is free for a receive; it is made later.
    pub buffers_missing: f64,
    /// The connection is reset by the network, each time its socket is checked.
    pub resets: f64,
    /// Bytes that arrived before a reset are lost with it.
    pub resets_lose_input: f64,
    /// A waiting connection cannot be taken, for lack of descriptors or kernel memory.
    pub accept_failures: f64,
    /// A connection asked for is refused or times out.
    pub connect_failures: f64,
    /// A closed socket's slot stays taken for some ticks, as with operations still in flight.
    pub delayed_closes: f64,
    /// Sockets alive at most: one more is `EMFILE`.
    pub descriptors_max: usize,
    /// Bytes that one direction of a new connection holds.
    pub window_bytes: usize,
    /// The longest that one tick takes.
    pub tick_ns_max: u64,
}

impl FaultPlan {
    /// No fault at all.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            split_receives: 0.0,
            short_sends: 0.0,
            late_sends: 0.0,
            delays: 0.0,
            bursts: 0.0,
            reorders: false,
            spurious_wakes: 0.0,
            buffers_missing: 0.0,
            resets: 0.0,
            resets_lose_input: 0.0,
            accept_failures: 0.0,
            connect_failures: 0.0,
            delayed_closes: 0.0,
            descriptors_max: usize::MAX,
            window_bytes: WINDOW_BYTES,
            tick_ns_max: 1_000,
        }
    }

    /// A plan of its own for each seed: about half of the faults, each rare, frequent or nearly
    /// always. A bug that needs one fault to be frequent and another absent is found that way,
    /// which a fixed mixture of all would hide.
    ///
    /// Resets are not among them: the plan decides whether the oracle allows them.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        // Not the stream that a network with the same seed draws from.
        let mut rng = Rng::with_seed(seed ^ 0x5bd1_e995_7f4a_7c15);
        let mut often = |most: f64| match rng.u8(0..6) {
            0 => most,
            1 => most * 0.5,
            2 => most * 0.05,
            _ => 0.0,
        };
        Self {
            split_receives: often(1.0),
            short_sends: often(0.9),
            late_sends: often(1.0),
            delays: often(0.9),
            bursts: often(0.9),
            spurious_wakes: often(0.9),
            buffers_missing: often(0.8),
            resets_lose_input: often(1.0),
            accept_failures: often(0.8),
            connect_failures: often(0.5),
            delayed_closes: often(1.0),
            reorders: rng.bool(),
            window_bytes: [64, 1 << 10, 16 << 10, WINDOW_BYTES][rng.usize(0..4)],
            tick_ns_max: [1, 1_000, 100_000][rng.usize(0..3)],
            ..Self::none()
        }
    }

    pub(super) fn accept_error(rng: &mut Rng) -> Errno {
        ACCEPT_ERRORS[rng.usize(0..ACCEPT_ERRORS.len())]
    }

    pub(super) fn connect_error(rng: &mut Rng) -> Errno {
        if rng.bool() {
            Errno::CONNREFUSED
        } else {
            Errno::TIMEDOUT
        }
    }
}

/// Where the driver's receives of one connection end, for tests that set it exactly.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Cuts {
    /// Wherever the plan's chances put them.
    #[default]
    ByChance,
    /// After every byte.
    EveryByte,
    /// After so many bytes from the connection's start, in rising order; not elsewhere.
    At(Vec<u64>),
}

impl Cuts {
    /// How many of `available` bytes the receive delivers that begins `offset` bytes into the
    /// connection.
    pub(super) fn take(
        &self,
        offset: u64,
        available: usize,
        plan: &FaultPlan,
        rng: &mut Rng,
    ) -> usize {
        match self {
            Self::EveryByte => 1,
            Self::At(offsets) => match offsets.iter().find(|&&cut| cut > offset) {
                Some(&cut) => available.min(usize::try_from(cut - offset).unwrap_or(usize::MAX)),
                None => available,
            },
            Self::ByChance if rng.f64() < plan.split_receives => part_of(available, rng),
            Self::ByChance => available,
        }
    }
}

/// From one byte to all of them; small parts as often as large ones.
fn part_of(available: usize, rng: &mut Rng) -> usize {
    let most = match rng.u8(0..3) {
        0 => 1,
        1 => 16,
        _ => available,
    };
    rng.usize(1..=available.min(most))
}

// The listener: taking connections, and resting when descriptors run out.
//
// How many in a tick, and what happens when they run out, is decided where all drivers have it decided
// (`driver::accepting`).

/// The listener's state.
pub(super) struct Accepting {
    address: Address,
    /// Holds a real address, if it was given one, so that no other process gets it.
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

#[cfg(test)]
#[path = "tests/wire.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/faults.rs"]
mod faults_tests;
