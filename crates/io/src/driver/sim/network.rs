//! The world around a simulated driver: connections, listeners, time, and the scripts of peers.
//!
//! All of it is one thread's. A test holds a [`Network`] and plays the peers through
//! [`SimPeer`]s, either between the driver's ticks or, when something else runs the loop, from
//! scripts that the driver lets run before each tick and whenever it would sleep.
//!
//! Their timing would make runs differ; a [`crate::Waker`] used by one still ends an endless wait.

use super::wire::{ACCEPTOR, Arrived, EndId, INITIATOR, Wire};
use super::wire::{Cuts, FaultPlan};
use crate::address::{Address, Peer as PeerName};
use fastrand::Rng;
use rustix::io::Errno;
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// When a simulation begins: not 0, so that times before it exist.
const START_NS: u64 = 1_000_000_000_000;

/// Default address of a driver's listener.
pub(super) const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 80);

/// A script that wants its turn soon gets it after at most so long.
const SOON_NS_MAX: u64 = 20_000;

/// Default length of an endless wait, in real time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections that wait at a listener for being accepted, at most; ended ones stay in the queue, as in a kernel's.
const ACCEPT_QUEUE_MAX: usize = 1024;

/// How many past events are kept, for the report of a failed run.
const TRACE_LEN: usize = 64;

/// When a script wants to run again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// A moment later, whatever happens meanwhile.
    Soon,
    /// At this time, or as soon after it as the driver gets to it.
    At(u64),
    /// Never.
    Done,
}

/// Result of a [`SimPeer`]'s read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerRead {
    /// So many bytes, at least one, were appended.
    Bytes(usize),
    /// The driver's side sends no more.
    Finished,
    /// Nothing is there yet.
    Nothing,
    /// The connection was reset.
    Failed(Errno),
}

/// A listening address and the connections that wait there.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) address: Address,
    pub(super) waiting: VecDeque<usize>,
}

type Script = Box<dyn FnMut(&Network) -> Turn>;

struct Scripted {
    script: Script,
    due_ns: u64,
    is_done: bool,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
struct Trace {
    at_ns: u64,
    wire: usize,
    what: &'static str,
    count: u64,
}

pub(super) struct State {
    pub(super) seed: u64,
    pub(super) now_ns: u64,
    pub(super) rng: Rng,
    pub(super) plan: FaultPlan,
    pub(super) wires: Vec<Wire>,
    pub(super) listening: Vec<Listening>,
    /// Addresses that never respond to a connection attempt.
    pub(super) silent: Vec<Address>,
    /// How long other threads have to end an endless wait, in real time.
    pub(super) patience: Duration,
    /// Ticks left until the simulation counts as running in circles.
    pub(super) ticks_left: u64,
    trace: VecDeque<Trace>,
}

impl State {
    /// A coin that shows heads this often.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }

    pub(super) fn wire(&mut self, end: EndId) -> &mut Wire {
        &mut self.wires[end.wire]
    }

    /// A new connection that is not accepted yet; its number.
    pub(super) fn new_wire(&mut self, to: &Address) -> usize {
        let wire = self.wires.len();
        let destination = to.inet().map_or(PeerName::Unix, PeerName::Inet);
        let name = if destination == PeerName::Unix {
            PeerName::Unix
        } else {
            // Ports repeat after 60,000 connections, as real ones do.
            let port = 5_000 + u16::try_from(wire % 60_000).unwrap_or(0);
            PeerName::Inet(SocketAddr::new(DEFAULT_ADDRESS.ip(), port))
        };
        let window_bytes = self.plan.window_bytes;
        self.wires.push(Wire::new(name, destination, window_bytes));
        wire
    }

    /// The listener whose queue a connection to `address` joins.
    pub(super) fn listening_at(&mut self, address: &Address) -> Option<&mut Listening> {
        self.listening
            .iter_mut()
            .find(|listening| listening.address == *address)
    }

    /// Nothing accepts there any more; waiting connections are reset.
    pub(super) fn stop_listening_at(&mut self, address: &Address) {
        let Some(index) = self
            .listening
            .iter()
            .position(|listening| listening.address == *address)
        else {
            return;
        };
        for wire in self.listening.remove(index).waiting {
            self.wires[wire].reset(ACCEPTOR, true);
        }
    }

    pub(super) fn note(&mut self, wire: usize, what: &'static str, count: u64) {
        if self.trace.len() == TRACE_LEN {
            self.trace.pop_front();
        }
        self.trace.push_back(Trace {
            at_ns: self.now_ns - START_NS,
            wire,
            what,
            count,
        });
    }
}

impl Drop for State {
    /// Whatever made a test fail: this is how it is made to fail again.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut text = format!(
            "simulation with seed {} failed after {} ns; {:?}; its last events:\n",
            self.seed,
            self.now_ns - START_NS,
            self.plan
        );
        for trace in &self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  {:>15} ns  connection {:<4} {} {}",
                trace.at_ns, trace.wire, trace.what, trace.count
            );
        }
        eprint!("{text}");
    }
}

/// A handle on one simulated network.
#[derive(Clone)]
pub struct Network {
    state: Rc<RefCell<State>>,
    /// Apart from the state: scripts own peers, and peers own a part of the state.
    scripts: Rc<RefCell<Vec<Scripted>>>,
}

impl fmt::Debug for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Network {
    /// An empty network. All that is left to chance comes from `seed`.
    #[must_use]
    pub fn new(seed: u64, plan: FaultPlan) -> Self {
        let state = State {
            seed,
            now_ns: START_NS,
            rng: Rng::with_seed(seed),
            plan,
            wires: Vec::new(),
            listening: Vec::new(),
            silent: Vec::new(),
            patience: PATIENCE,
            ticks_left: u64::MAX,
            trace: VecDeque::with_capacity(TRACE_LEN),
        };
        Self {
            state: Rc::new(RefCell::new(state)),
            scripts: Rc::default(),
        }
    }

    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// The network's settings.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.state().seed
    }

    /// The virtual time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// From here on other things go wrong.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state().plan = plan;
    }

    /// Changes what goes wrong.
    pub fn with_plan(&self, change: impl FnOnce(&mut FaultPlan)) {
        change(&mut self.state().plan);
    }

    /// How long, in real time, a driver waits for another thread when nothing can happen here any
    /// more; after that the simulation counts as stuck and its tick fails. 20 s unless set.
    pub fn set_patience(&self, patience: Duration) {
        self.state().patience = patience;
    }

    /// After so many ticks of all drivers together the next one fails: for a test that must detect an endless busy
    /// loop. No limit unless set.
    pub fn set_tick_limit(&self, ticks: u64) {
        self.state().ticks_left = ticks;
    }

    /// A number below `end`, from the network's own chances.
    #[must_use]
    pub fn random_below(&self, end: u64) -> u64 {
        self.state().rng.u64(0..end.max(1))
    }

    /// Lets `script` run from the next tick on, until it is done. It must not own a handle on the
    /// network, which it is given anyway, or neither is ever dropped.
    pub fn spawn(&self, script: impl FnMut(&Self) -> Turn + 'static) {
        self.scripts.borrow_mut().push(Scripted {
            script: Box::new(script),
            due_ns: self.now_ns(),
            is_done: false,
        });
    }

    /// Runs the scripts that are due, each once, in an order left to chance.
    pub fn run_scripts(&self) {
        let mut scripts = self.scripts.take();
        if scripts.is_empty() {
            return;
        }
        let first = self.random_below(scripts.len() as u64);
        scripts.rotate_left(usize::try_from(first).unwrap_or(0));
        let now_ns = self.now_ns();
        for scripted in &mut scripts {
            if scripted.due_ns > now_ns {
                continue;
            }
            match (scripted.script)(self) {
                Turn::Soon => {
                    scripted.due_ns = now_ns + 1 + self.random_below(SOON_NS_MAX);
                }
                Turn::At(due_ns) => scripted.due_ns = due_ns.max(now_ns + 1),
                Turn::Done => scripted.is_done = true,
            }
        }
        scripts.retain(|scripted| !scripted.is_done);
        // Those that were added meanwhile come last.
        let mut place = self.scripts.borrow_mut();
        scripts.append(&mut place);
        *place = scripts;
    }

    /// Scripts that are not done.
    #[must_use]
    pub fn script_count(&self) -> usize {
        self.scripts.borrow().len()
    }

    pub(super) fn next_script_ns(&self) -> Option<u64> {
        let scripts = self.scripts.borrow();
        scripts.iter().map(|scripted| scripted.due_ns).min()
    }

    /// Connects to the first listener there is.
    pub fn connect(&self) -> Result<SimPeer, Errno> {
        let first = self.state().listening.first().map(|l| l.address.clone());
        self.connect_to(&first.ok_or(Errno::CONNREFUSED)?)
    }

    /// Connects to a listener; the connection waits there to be accepted. With [`ACCEPT_QUEUE_MAX`] of them the next is
    /// refused with `EAGAIN`: a kernel drops its first packet, and the peer tries again.
    pub fn connect_to(&self, address: &Address) -> Result<SimPeer, Errno> {
        let mut state = self.state();
        match state.listening_at(address) {
            None => return Err(refusal(address)),
            Some(listening) if listening.waiting.len() >= ACCEPT_QUEUE_MAX => {
                return Err(Errno::AGAIN);
            }
            Some(_) => {}
        }
        let wire = state.new_wire(address);
        if let Some(listening) = state.listening_at(address) {
            listening.waiting.push_back(wire);
        }
        state.note(wire, "connects", 0);
        drop(state);
        Ok(self.peer(wire, INITIATOR))
    }

    /// Lets the test accept what the driver connects to `address`. False: there is a listener already.
    pub fn listen(&self, address: &Address) -> bool {
        let mut state = self.state();
        let is_free = state.listening_at(address).is_none();
        if is_free {
            state.listening.push(Listening {
                address: address.clone(),
                waiting: VecDeque::new(),
            });
        }
        is_free
    }

    /// From here on what a driver connects to `address` gets no response at all, as behind a firewall that
    /// drops.
    pub fn silence(&self, address: &Address) {
        self.state().silent.push(address.clone());
    }

    /// The next connection that waits at an address of [`Self::listen`].
    pub fn accept(&self, address: &Address) -> Option<SimPeer> {
        let mut state = self.state();
        let wire = state.listening_at(address)?.waiting.pop_front()?;
        state.wires[wire].is_accepted = true;
        drop(state);
        Some(self.peer(wire, ACCEPTOR))
    }

    fn peer(&self, wire: usize, end: usize) -> SimPeer {
        SimPeer {
            state: Rc::clone(&self.state),
            end: EndId { wire, end },
        }
    }
}

/// Result of connecting to an address without a listener.
pub(super) fn refusal(address: &Address) -> Errno {
    match address {
        Address::Inet(_) => Errno::CONNREFUSED,
        Address::Unix(_) => Errno::NOENT,
    }
}

/// A test's end of a connection. Dropping it closes it as the kernel closes a socket: with a FIN
/// when all was read, else with a reset.
pub struct SimPeer {
    state: Rc<RefCell<State>>,
    end: EndId,
}

impl fmt::Debug for SimPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SimPeer")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl SimPeer {
    /// Which connection of the network this is, from 0; as in the report of a failed run.
    #[must_use]
    pub fn number(&self) -> usize {
        self.end.wire
    }

    /// The name under which the driver's side accepts this connection.
    #[must_use]
    pub fn name(&self) -> PeerName {
        self.state.borrow_mut().wire(self.end).name
    }

    /// Whether the connection was taken from the listener's queue.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.state.borrow_mut().wire(self.end).is_accepted
    }

    /// Whether a fault of the plan broke the connection: a reset, or that no descriptor was left for it.
    #[must_use]
    pub fn is_reset_by_network(&self) -> bool {
        self.state.borrow_mut().wire(self.end).is_reset_by_network
    }

    /// Where the driver's receives of this connection end.
    pub fn set_cuts(&self, cuts: Cuts) {
        self.state.borrow_mut().wire(self.end).cuts = cuts;
    }

    /// How many bytes may be on their way to this peer, unread by it.
    pub fn set_receive_window(&self, window_bytes: usize) {
        let sender = self.end.other().end;
        let mut state = self.state.borrow_mut();
        state.wire(self.end).set_window(sender, window_bytes);
    }

    /// How many bytes this peer could write now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.state.borrow_mut().wire(self.end).room(self.end.end)
    }

    /// Bytes written and not received by the driver's side yet.
    #[must_use]
    pub fn unreceived(&self) -> usize {
        let mut state = self.state.borrow_mut();
        state.wire(self.end).waiting(self.end.other().end)
    }

    /// Bytes written that the driver's side has received, all in all.
    #[must_use]
    pub fn received(&self) -> u64 {
        let reader = self.end.other().end;
        self.state.borrow_mut().wire(self.end).read_bytes(reader)
    }

    /// Writes as many of `bytes` as there is room for.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut state = self.state.borrow_mut();
        let count = state.wire(self.end).write(self.end.end, bytes)?;
        state.note(self.end.wire, "peer wrote", count as u64);
        Ok(count)
    }

    /// Appends at most `count_max` of the bytes that arrived to `into`.
    pub fn read(&mut self, into: &mut Vec<u8>, count_max: usize) -> PeerRead {
        let mut state = self.state.borrow_mut();
        match state.wire(self.end).read(self.end.end, into, count_max) {
            Arrived::Bytes(count) => {
                state.note(self.end.wire, "peer read", count as u64);
                PeerRead::Bytes(count)
            }
            Arrived::Finished => PeerRead::Finished,
            Arrived::Nothing => PeerRead::Nothing,
            Arrived::Failed(error) => PeerRead::Failed(error),
        }
    }

    /// Sends a FIN behind what was written; reading goes on.
    pub fn finish(&mut self) {
        let mut state = self.state.borrow_mut();
        state.wire(self.end).finish(self.end.end);
        state.note(self.end.wire, "peer finished", 0);
    }

    /// Breaks the connection off. The plan's chances decide whether the driver's side still gets the bytes that arrived
    /// before.
    pub fn reset(self) {
        let mut state = self.state.borrow_mut();
        let probability = state.plan.resets_lose_input;
        let loses_input = state.chance(probability);
        state.wire(self.end).reset(self.end.end, loses_input);
        state.note(self.end.wire, "peer reset", 0);
    }
}

impl Drop for SimPeer {
    fn drop(&mut self) {
        // A test that fails while it uses the network reports only that failure.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.wire(self.end).close(self.end.end);
            state.note(self.end.wire, "peer closed", 0);
        }
    }
}
