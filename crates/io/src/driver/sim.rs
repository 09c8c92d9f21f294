//! No kernel at all: a network in memory with seeded faults and virtual time.
//!
//! Rare events happen here on demand and as often as a test wants: receives split at any byte, sends that take one
//! byte, resets in the middle of anything, no descriptors, no buffers, peers that never read, completions of sockets in
//! any order, waits that end for nothing. One seed is one run, to the nanosecond; a run that fails prints its seed and
//! its last events. It never sleeps: when there is nothing to do, the clock jumps.
//!
//! ```text
//! sim.rs      the Driver methods, sockets coming and going; receives and sends in pieces; lingering close
//! network.rs  the world: time, connections, the peers' API and scripts
//! wire.rs     one connection: bytes, FINs, resets; what goes wrong how often; the listener, out of descriptors
//! ticking.rs  one tick: jump in time, pick what is reported, dispatch
//! ```
//!
//! ```
//! use millpond_io::driver::sim::{FaultPlan, Network, PeerRead};
//! use millpond_io::{Driver, Event, ShardPools};
//! use millpond_mempool::PoolMode;
//!
//! let network = Network::new(1, FaultPlan::none());
//! let mut driver = network.driver(PoolMode::On)?;
//! driver.listen_at(&"127.0.0.1:80".parse()?)?;
//! let mut peer = network.connect().unwrap();
//! peer.write(b"ping").unwrap();
//! let mut pools = ShardPools::new(PoolMode::On);
//! let mut received = Vec::new();
//! while received != b"ping" {
//!     driver.tick(None, &mut pools, |_, _, event| {
//!         if let Event::Received { bytes, .. } = event {
//!             received.extend_from_slice(bytes);
//!         }
//!     })?;
//! }
//! assert_eq!(peer.read(&mut Vec::new(), 100), PeerRead::Nothing);
//! # Ok::<(), millpond_io::IoError>(())
//! ```

mod wire;
mod network;
mod ticking;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::{fmt, mem};

use millpond_mempool::{Buffer, Handle, Lease, PoolMode, PoolStats, Slab};
use rustix::io::Errno;
use wire::Arrived;

use crate::address::{Address, Peer};
use crate::driver::lifecycle::{
    CloseStep, Closing, Life, Receiving, SocketDriver, Stage, fail_later, leave, perform,
    shorten_lingering,
};
use crate::driver::socket_count::{Opener, SocketCount};
use crate::error::IoError;
use crate::listener::Listener;
use crate::pools::ShardPools;
use crate::scheduler::{Scheduler, Usage};
use crate::timer_wheel::TimerWheel;
use crate::waker::{WakeReceiver, Waker};

use self::network::{DEFAULT_ADDRESS, refusal};
use self::wire::Accepting;
use self::wire::{EndId, INITIATOR, Wire};
use super::{Driver, DriverCounters, Event, SendOutcome, SocketId, handle_of, id_of};

pub use network::{Network, PeerRead, SimPeer, Turn};
pub use wire::{Cuts, FaultPlan};

/// Ticks that a closed socket's slot stays taken at most.
const GONE_TICKS_MAX: u64 = 8;

/// Sockets of one shard in a [`Network`].
pub struct SimDriver {
    network: Network,
    wake: WakeReceiver,
    accepting: Option<Accepting>,
    sockets: Slab<Socket>,
    /// Sockets in `Stage::Closed` whose slot is not free yet.
    gone: Vec<SocketId>,
    /// Deadlines of closing sockets and of the resting listener.
    deadlines: TimerWheel,
    closing: Closing,
    socket_count: SocketCount,
    scheduler: Scheduler,
    /// Sockets that wait for the budget of a later tick, oldest first; may hold stale ids. Bound: each socket is in it
    /// once.
    waiting: VecDeque<SocketId>,
    now_ns: u64,
    /// Bytes between a connection and a buffer.
    scratch: Vec<u8>,
    counters: DriverCounters,
}

impl fmt::Debug for SimDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SimDriver")
            .field("now_ns", &self.now_ns)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// A driver without sockets in this network.
    pub fn driver(&self, mode: PoolMode) -> Result<SimDriver, IoError> {
        let now_ns = self.now_ns();
        Ok(SimDriver {
            network: self.clone(),
            wake: WakeReceiver::new()?,
            accepting: None,
            sockets: Slab::new("io_sockets", mode),
            gone: Vec::new(),
            deadlines: TimerWheel::new(now_ns),
            closing: Closing::default(),
            socket_count: SocketCount::default(),
            scheduler: Scheduler::default(),
            waiting: VecDeque::new(),
            now_ns,
            scratch: Vec::new(),
            counters: DriverCounters::default(),
        })
    }
}

impl SimDriver {
    /// Listens where [`Network::connect`] finds it.
    pub fn listen_anywhere(&mut self) -> Result<(), IoError> {
        self.listen_at(&DEFAULT_ADDRESS.into())
    }

    /// A socket that is there for its owner or still closing.
    fn socket(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets
            .get_mut(handle_of(id))
            .filter(|socket| socket.life.stage() != Stage::Closed)
    }

    fn stage(&mut self, id: SocketId) -> Option<Stage> {
        self.socket(id).map(|socket| socket.life.stage())
    }

    fn fail_later(&mut self, id: SocketId, error: Errno) {
        fail_later(self, id, error);
    }

    /// Closes a socket and forgets all about it, now or, for its slot, some ticks later.
    fn close_socket(&mut self, id: SocketId) {
        self.remove_with(id, Wire::close);
    }

    /// As [`Self::close_socket`]; `close`: whether it was by a reset.
    fn remove_with(&mut self, id: SocketId, close: fn(&mut Wire, usize) -> bool) {
        let until_tick = {
            let mut state = self.network.state();
            let probability = state.plan.delayed_closes;
            let is_delayed = state.chance(probability);
            let ticks = state.rng.u64(1..=GONE_TICKS_MAX);
            is_delayed.then_some(self.counters.ticks + ticks)
        };
        let Self {
            sockets,
            closing,
            deadlines,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if !socket.life.close(closing, deadlines) {
            return;
        }
        let end = socket.end;
        socket.queue.clear();
        match until_tick {
            Some(until_tick) => {
                socket.until_tick = until_tick;
                self.gone.push(id);
            }
            None => {
                self.sockets.remove(handle_of(id));
                self.socket_count.closed(end.opener());
            }
        }
        self.counters.closes += 1;
        let mut state = self.network.state();
        let is_reset = close(state.wire(end), end.end);
        state.note(end.wire, "closed, by a reset:", u64::from(is_reset));
        drop(state);
        self.resume_accepting();
    }

    /// Closes a socket and reports the reason to its owner.
    fn remove_failed<H>(
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

    /// Where a connection attempt leads.
    fn start_connecting(&mut self, to: &Address) -> Attempt {
        let mut state = self.network.state();
        let state = &mut *state;
        let wire = state.new_wire(to);
        state.note(wire, "driver connects", 0);
        if state.chance(state.plan.connect_failures) {
            return Attempt::Ends(Err(FaultPlan::connect_error(&mut state.rng)));
        }
        if state.silent.contains(to) {
            return Attempt::Unanswered;
        }
        match state.listening_at(to) {
            Some(listening) => {
                listening.waiting.push_back(wire);
                Attempt::Ends(Ok(()))
            }
            None => Attempt::Ends(Err(refusal(to))),
        }
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "simulator"
    }

    /// Takes the listener's address; the real socket only holds it: connections come from the
    /// network in memory alone.
    fn listen(&mut self, listener: Listener) -> Result<(), IoError> {
        let address = listener.local_address().clone();
        self.listen_in_memory(&address, Some(listener))
    }

    fn set_accepted_max(&mut self, count: usize) {
        self.socket_count.set_accepted_max(count);
    }

    fn stop_listening(&mut self) {
        self.stop_accepting();
    }

    fn peer(&self, socket: SocketId) -> Option<Peer> {
        let socket = self.sockets.get(handle_of(socket))?;
        if socket.life.stage() == Stage::Closed {
            return None;
        }
        Some(self.network.state().wire(socket.end).name)
    }

    fn destination(&self, socket: SocketId) -> Option<Peer> {
        let socket = self.sockets.get(handle_of(socket))?;
        Some(self.network.state().wire(socket.end).destination)
    }

    fn connect_from(&mut self, to: &Address, _source: Option<IpAddr>) -> Result<SocketId, IoError> {
        self.counters.connects += 1;
        let count_max = self.network.state().plan.descriptors_max;
        if self.sockets.len() >= count_max {
            return Err(IoError::DescriptorsExhausted {
                address: to.clone(),
            });
        }
        let attempt = self.start_connecting(to);
        let end = EndId {
            wire: self.network.state().wires.len() - 1,
            end: INITIATOR,
        };
        let socket = Socket::new(end, Stage::Connecting, attempt);
        let handle = self.sockets.insert(socket).map_err(|_| IoError::System {
            call: "connect",
            error: Errno::NOMEM,
        })?;
        self.socket_count.opened(Opener::Us);
        Ok(id_of(handle))
    }

    fn send(&mut self, socket: SocketId, mut data: Buffer) -> SendOutcome {
        self.send_or_queue(socket, &mut data)
    }

    fn send_from(&mut self, socket: SocketId, data: &mut Buffer) -> SendOutcome {
        self.send_or_queue(socket, data)
    }

    /// As epoll or as a ring, whichever the plan resembles.
    fn sends_at_once(&self) -> bool {
        let state = self.network.state();
        state.plan.late_sends == 0.0 && state.plan.bursts == 0.0
    }

    fn pause_receive(&mut self, socket: SocketId) {
        if let Some(socket) = self.socket(socket) {
            socket.life.pause();
        }
    }

    fn finish_send(&mut self, socket: SocketId) -> SendOutcome {
        let Some(state) = self.socket(socket) else {
            return SendOutcome::Done;
        };
        if state.is_late && state.life.stage() == Stage::Open {
            // As a ring does, which sends at once what was to be handed over with the next wait.
            self.send_late(socket);
        }
        let Some(state) = self.socket(socket) else {
            return SendOutcome::Done;
        };
        let (end, stage) = (state.end, state.life.stage());
        if matches!(stage, Stage::Connecting) || !state.queue.is_empty() {
            return SendOutcome::Blocked;
        }
        if stage == Stage::Open {
            self.network.state().wire(end).finish(end.end);
        }
        SendOutcome::Done
    }

    fn has_peer_finished(&self, socket: SocketId) -> bool {
        let end = self.sockets.get(handle_of(socket)).map(|socket| socket.end);
        end.is_some_and(|end| self.network.state().wire(end).is_finished(end.end))
    }

    fn resume_receive(&mut self, socket: SocketId) {
        if let Some(socket) = self.socket(socket) {
            socket.life.resume();
        }
    }

    fn deprioritize(&mut self, socket: SocketId) {
        if let Some(socket) = self.socket(socket) {
            socket.usage.demote_for_pipelining();
        }
    }

    fn has_events_left(&mut self) -> bool {
        self.is_behind()
    }

    fn close(&mut self, socket: SocketId) {
        self.close_now(socket);
    }

    fn reset(&mut self, socket: SocketId) {
        self.reset_now(socket);
    }

    fn close_after_send(&mut self, socket: SocketId) {
        leave(self, socket);
    }

    fn socket_count(&self) -> usize {
        self.sockets.len() - self.gone.len()
    }

    fn shorten_lingering(&mut self, allowed_ns: u64) {
        shorten_lingering(self, allowed_ns);
    }

    fn closing_count(&self) -> usize {
        self.closing.count
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn clock_ns(&self) -> u64 {
        self.network.now_ns()
    }

    fn tick<H>(
        &mut self,
        deadline_ns: Option<u64>,
        pools: &mut ShardPools,
        handler: H,
    ) -> Result<(), IoError>
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.tick_once(deadline_ns, pools, handler)
    }

    fn counters(&self) -> DriverCounters {
        self.socket_count.shown_in(self.counters)
    }

    fn trim_pools(&mut self) -> usize {
        self.sockets.trim()
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.sockets.stats());
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        self.end_accepting();
        let mut state = self.network.state();
        for (_, socket) in self.sockets.iter() {
            state.wire(socket.end).close(socket.end.end);
        }
    }
}

// State of one socket in the simulated driver.

/// Result of a socket's connection attempt, which the network knows already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Attempt {
    /// With this outcome, in the next tick.
    Ends(Result<(), Errno>),
    /// Never: no listener ever responds.
    Unanswered,
}

/// One socket.
#[derive(Debug)]
struct Socket {
    end: EndId,
    life: Life,
    attempt: Attempt,
    /// Of a closed one: its slot is not free before this tick.
    until_tick: u64,
    usage: Usage,
    /// It is in the queue for a later tick.
    is_waiting: bool,
    /// Bytes that wait for room or for the next tick, oldest first.
    queue: VecDeque<Buffer>,
    /// The queue was given in this tick and counts as sent; a lack of room is found later.
    is_late: bool,
    /// There was no room for it, which is not reported yet.
    owes_blocked: bool,
}

impl Socket {
    /// Bytes are queued that were reported as sent.
    fn owes_bytes(&self) -> bool {
        !self.queue.is_empty() && (self.is_late || self.owes_blocked)
    }

    fn new(end: EndId, stage: Stage, attempt: Attempt) -> Self {
        Self {
            end,
            life: Life::new(stage),
            attempt,
            until_tick: 0,
            usage: match end.opener() {
                Opener::Us => Usage::OURS,
                Opener::Peer => Usage::NEW,
            },
            is_waiting: false,
            queue: VecDeque::new(),
            is_late: false,
            owes_blocked: false,
        }
    }
}

// Bytes in and out of one socket, in the pieces that the plan's chances make of them.

/// Result of a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flushed {
    /// Nothing is queued any more.
    All,
    /// There is no room.
    Some {
        sent_any: bool,
    },
    Failed(Errno),
}

impl SimDriver {
    /// Leaves `data` its room when all of it was taken at once.
    fn send_or_queue(&mut self, id: SocketId, data: &mut Buffer) -> SendOutcome {
        let Some(socket) = self.socket(id) else {
            data.release();
            return SendOutcome::Done;
        };
        socket.usage.sent();
        let end = socket.end;
        match socket.life.stage() {
            Stage::Open if socket.queue.is_empty() => {}
            Stage::Open if socket.is_late => {
                socket.queue.push_back(mem::take(data));
                return SendOutcome::Done;
            }
            Stage::Open | Stage::Connecting => {
                socket.queue.push_back(mem::take(data));
                socket.owes_blocked = false;
                return SendOutcome::Blocked;
            }
            Stage::Failing(_) | Stage::Sending | Stage::Lingering | Stage::Closed => {
                data.release();
                return SendOutcome::Done;
            }
        }
        if self.is_send_late() {
            if let Some(socket) = self.socket(id) {
                socket.queue.push_back(mem::take(data));
                socket.is_late = true;
            }
            return SendOutcome::Done;
        }
        self.counters.sends += 1;
        match self.write(end, data) {
            Ok(sent) if sent == data.len() => {
                data.clear();
                SendOutcome::Done
            }
            Ok(sent) => {
                self.counters.sends_blocked += 1;
                data.consume_front(sent);
                if let Some(socket) = self.socket(id) {
                    socket.queue.push_back(mem::take(data));
                }
                SendOutcome::Blocked
            }
            Err(error) => {
                data.release();
                self.fail_later(id, error);
                SendOutcome::Blocked
            }
        }
    }

    fn is_send_late(&self) -> bool {
        let mut state = self.network.state();
        let probability = state.plan.late_sends;
        state.chance(probability)
    }

    /// Makes the send of one socket that was put off.
    fn send_late(&mut self, id: SocketId) {
        let flushed = self.flush(id);
        let Some(socket) = self.socket(id) else {
            return;
        };
        socket.is_late = false;
        match flushed {
            Flushed::All => {}
            Flushed::Some { .. } => {
                socket.owes_blocked = socket.life.stage() == Stage::Open;
                self.counters.sends_blocked += 1;
            }
            Flushed::Failed(error) => self.fail_later(id, error),
        }
    }

    /// Makes the sends that were put off to this tick.
    fn make_late_sends(&mut self) {
        let late =
            |(handle, socket): (Handle<Socket>, &Socket)| socket.is_late.then(|| id_of(handle));
        let ids: Vec<SocketId> = self.sockets.iter().filter_map(late).collect();
        for id in ids {
            if let Some(socket) = self.socket(id)
                && socket.life.stage() == Stage::Sending
            {
                // After the last byte the closing state decides.
                socket.is_late = false;
                continue;
            }
            self.send_late(id);
        }
    }

    /// Hands over as many of `bytes` as there is room for and the plan's chances let through.
    fn write(&mut self, end: wire::EndId, bytes: &[u8]) -> Result<usize, Errno> {
        let mut state = self.network.state();
        let state = &mut *state;
        let is_short = !bytes.is_empty() && state.chance(state.plan.short_sends);
        let tried = if is_short {
            state.rng.usize(0..bytes.len())
        } else {
            bytes.len()
        };
        let sent = state.wire(end).write(end.end, &bytes[..tried])?;
        state.note(end.wire, "sent", sent as u64);
        self.counters.sent_bytes += sent as u64;
        Ok(sent)
    }

    /// Sends what is queued until there is no room.
    fn flush(&mut self, id: SocketId) -> Flushed {
        let mut sent_any = false;
        loop {
            let Some(socket) = self.socket(id) else {
                return Flushed::All;
            };
            let end = socket.end;
            let Some(mut data) = socket.queue.pop_front() else {
                return Flushed::All;
            };
            self.counters.sends += 1;
            let sent = match self.write(end, &data) {
                Ok(sent) => sent,
                Err(error) => return Flushed::Failed(error),
            };
            sent_any |= sent > 0;
            if sent < data.len() {
                data.consume_front(sent);
                if let Some(socket) = self.socket(id) {
                    socket.queue.push_front(data);
                }
                return Flushed::Some { sent_any };
            }
        }
    }

    /// A blocked socket takes bytes again.
    fn flush_open<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        match self.flush(id) {
            Flushed::Some { .. } => {}
            // Not at once: the reason for it may have arrived.
            Flushed::Failed(error) => self.fail_later(id, error),
            Flushed::All => handler(self, pools, Event::SendDrained { socket: id }),
        }
    }

    /// One receive of an open socket that has an event.
    fn receive_open<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let network = self.network.clone();
        let Some((end, receiving)) = self
            .socket(id)
            .map(|socket| (socket.end, socket.life.receiving()))
        else {
            return;
        };
        if receiving != Receiving::On {
            // A pause hides bytes and the FIN, not a reset.
            let error = network.state().wire(end).error(end.end);
            if let Some(error) = error {
                self.remove_failed(id, error, pools, handler);
            }
            return;
        }
        let Some(mut buffer) = self.free_buffer(pools) else {
            return;
        };
        self.counters.receives += 1;
        match self.fill(end, &mut buffer) {
            Arrived::Bytes(count) => {
                self.counters.received_bytes += count as u64;
                if let Some(socket) = self.socket(id) {
                    socket.usage.received(count);
                }
                let bytes = &buffer[..];
                handler(self, pools, Event::Received { socket: id, bytes });
            }
            Arrived::Finished => {
                if let Some(socket) = self.socket(id) {
                    let step = socket.life.peer_finished();
                    perform(self, id, step);
                }
                handler(self, pools, Event::PeerFinished { socket: id });
            }
            Arrived::Nothing => {}
            Arrived::Failed(error) => self.remove_failed(id, error, pools, handler),
        }
    }

    /// A receive buffer, unless memory or the plan refuses it.
    fn free_buffer(&mut self, pools: &mut ShardPools) -> Option<Lease> {
        let mut state = self.network.state();
        let probability = state.plan.buffers_missing;
        if state.chance(probability) {
            return None;
        }
        pools.io_buffers.lease().ok()
    }

    /// Moves one piece of what arrived into `buffer`.
    fn fill(&mut self, end: wire::EndId, buffer: &mut Lease) -> Arrived {
        let mut state = self.network.state();
        let state = &mut *state;
        let wire = &mut state.wires[end.wire];
        let available = wire.waiting(end.end).min(buffer.capacity());
        let count = match available {
            0 => 0,
            _ => {
                let offset = wire.read_bytes(end.end);
                wire.cuts
                    .take(offset, available, &state.plan, &mut state.rng)
            }
        };
        self.scratch.clear();
        let arrived = wire.read(end.end, &mut self.scratch, count);
        state.note(end.wire, "received", count as u64);
        let scratch = &self.scratch;
        let filled = buffer.fill_from(|room| -> Result<&mut [u8], std::convert::Infallible> {
            Ok(room[..scratch.len()].write_copy_of_slice(scratch))
        });
        debug_assert!(filled.is_ok_and(|bytes| bytes.len() == count));
        arrived
    }
}

// Closing: the steps of a socket's life in the network in memory.

/// How much one check discards at most.
const DISCARD_STEP_BYTES: usize = 64 << 10;

impl SimDriver {
    /// Closes, once the bytes are out that counted as sent.
    fn close_now(&mut self, id: SocketId) {
        match self.socket(id) {
            Some(socket) if socket.life.stage() == Stage::Open && socket.owes_bytes() => {
                socket.life.close_without_lingering();
                leave(self, id);
            }
            _ => self.remove(id),
        }
    }

    /// A closing socket can send or has something to throw away.
    fn advance_closing(&mut self, id: SocketId) {
        if self.stage(id) == Some(Stage::Sending) {
            let flushed = self.flush(id);
            let Some(socket) = self.socket(id) else {
                return;
            };
            let step = match flushed {
                Flushed::All => socket.life.queue_sent(),
                Flushed::Failed(_) => CloseStep::Close,
                Flushed::Some { sent_any: true } => socket.life.queue_moved(),
                Flushed::Some { sent_any: false } => CloseStep::Nothing,
            };
            perform(self, id, step);
        }
        if self.socket(id).is_some_and(|socket| socket.life.discards()) {
            self.discard(id);
        }
    }

    fn discard(&mut self, id: SocketId) {
        let Some(end) = self.socket(id).map(|socket| socket.end) else {
            return;
        };
        let mut thrown_away = Vec::new();
        let arrived =
            self.network
                .state()
                .wire(end)
                .read(end.end, &mut thrown_away, DISCARD_STEP_BYTES);
        if let Arrived::Bytes(count) = arrived {
            self.counters.receives += 1;
            self.counters.received_bytes += count as u64;
        }
        let Some(socket) = self.socket(id) else {
            return;
        };
        let step = match arrived {
            Arrived::Bytes(count) => socket.life.discarded(count),
            Arrived::Finished => socket.life.peer_finished(),
            Arrived::Nothing => CloseStep::Nothing,
            Arrived::Failed(_) => CloseStep::Close,
        };
        perform(self, id, step);
    }
}

impl SocketDriver for SimDriver {
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
        if let Some(end) = self.socket(id).map(|socket| socket.end) {
            self.network.state().wire(end).finish(end.end);
        }
        Ok(())
    }

    /// Each tick checks for received bytes.
    fn receive_to_discard(&mut self, _id: SocketId) {}

    fn remove(&mut self, id: SocketId) {
        self.close_socket(id);
    }

    fn reset_now(&mut self, id: SocketId) {
        self.remove_with(id, |wire, end| {
            wire.reset(end, true);
            true
        });
    }

    fn report_failure_later(&mut self, id: SocketId) {
        if let Some(socket) = self.socket(id) {
            socket.queue.clear();
        }
    }

    fn accept_again(&mut self) {
        self.resume_accepting();
    }
}
