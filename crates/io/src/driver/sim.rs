//! No kernel at all: a network in memory with seeded faults and virtual time.
//!
//! What a test wants to see happens here on purpose and as often as it likes: receives split at
//! any byte, sends that take one byte, resets in the middle of anything, no descriptors, no
//! buffers, peers that never read, completions of sockets in any order, waits that end for
//! nothing. One seed is one run, to the nanosecond; a run that fails prints its seed and its last
//! events. Nothing ever sleeps: when there is nothing to do, the clock jumps.
//!
//! ```text
//! sim.rs        the Driver methods, sockets coming and going
//! network.rs    the world: time, connections, the peers' API and scripts
//! wire.rs       one connection: bytes, FINs, resets
//! faults.rs     what goes wrong how often
//! ticking.rs    one tick: jump in time, pick what is reported, dispatch
//! moving.rs     receives and sends in pieces
//! accepting.rs  the listener; out of descriptors
//! closing.rs    lingering close
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
//!
//! Absent on purpose: speed, and threads: a network and all its drivers are one thread's.

mod faults;
mod wire;
mod network;
mod socket;
mod ticking;
mod accepting;
mod moving;
mod closing;

pub use faults::{Cuts, FaultPlan};
pub use network::{Network, PeerRead, SimPeer, Turn};

use self::accepting::Accepting;
use self::network::{DEFAULT_ADDRESS, refusal};
use self::socket::{Attempt, Socket};
use self::wire::{EndId, INITIATOR, Wire};
use super::{Driver, DriverCounters, Event, SendOutcome, SocketId, handle_of, id_of};
use crate::address::{Address, Peer};
use crate::driver::lifecycle::{
    Closing, SocketDriver, Stage, fail_later, leave, shorten_lingering,
};
use crate::driver::socket_count::{Opener, SocketCount};
use crate::error::IoError;
use crate::listener::Listener;
use crate::pools::ShardPools;
use crate::scheduler::Scheduler;
use crate::timer_wheel::TimerWheel;
use crate::waker::{WakeReceiver, Waker};
use millpond_mempool::{Buffer, PoolMode, PoolStats, Slab};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;

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
    /// Sockets that wait for the budget of a later tick, oldest first; may hold dead ids. Bound: each
    /// socket stands in it once.
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

    /// As [`Self::close_socket`]; `close` says whether it was by a reset.
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

    /// Closes a socket and tells its owner why.
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

    fn put_behind(&mut self, socket: SocketId) {
        if let Some(socket) = self.socket(socket) {
            socket.usage.brought_many();
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
