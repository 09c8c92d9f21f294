//! A flood of connections that come and go beside one client that is served, with few places, and with
//! fewer descriptors than places.

use crate::stage::{MILLISECOND_NS, Stage};
use fastrand::Rng;
use millpond_http::{LimitValues, Limits};
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimPeer, Turn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const REQUESTS: usize = 60;
const CONNECTIONS_MAX: usize = 20;
/// Connections of the flood that are alive together, at most: more than there are places.
const FLOOD_MAX: usize = 60;
const GET: &[u8] = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";

/// One turn of the flood: some come, with all, a part or nothing of a request, and some go, most by a reset.
fn flood(network: &Network, peers: &mut Vec<SimPeer>, rng: &mut Rng) {
    for _ in 0..rng.usize(0..12) {
        // A full queue of the listener refuses, as a kernel's does.
        let Ok(mut peer) = network.connect() else {
            break;
        };
        let _ = peer.write(&GET[..[0, 7, GET.len()][rng.usize(0..3)]]);
        match rng.u8(0..3) {
            0 => peer.reset(),
            1 => drop(peer),
            _ => peers.push(peer),
        }
    }
    while peers.len() > FLOOD_MAX || (!peers.is_empty() && rng.bool()) {
        let peer = peers.swap_remove(rng.usize(0..peers.len()));
        match rng.u8(0..4) {
            0 => drop(peer),
            _ => peer.reset(),
        }
    }
}

/// Bytes that the established client has seen.
#[derive(Default)]
struct Served {
    answers: Cell<usize>,
    connections: Cell<usize>,
}

/// Asks, waits for the response and asks again after a while; on a new connection where the last one ended.
struct Asker {
    peer: Option<SimPeer>,
    received: Vec<u8>,
    has_asked: bool,
    /// When it asks next.
    due_ns: u64,
}

impl Asker {
    /// Whether it has all responses.
    fn act(&mut self, network: &Network, served: &Served) -> bool {
        if self.peer.is_none() {
            self.peer = network.connect().ok();
            self.has_asked = false;
            self.received.clear();
            served.connections.set(served.connections.get() + 1);
        }
        let Some(peer) = &mut self.peer else {
            return false;
        };
        if !self.has_asked && network.now_ns() >= self.due_ns {
            self.has_asked = peer.write(GET).is_ok();
        }
        match peer.read(&mut self.received, usize::MAX) {
            PeerRead::Finished | PeerRead::Failed(_) => self.peer = None,
            _ if self.received.ends_with(b"GET /hello\n") => {
                assert!(self.received.starts_with(b"HTTP/1.1 200 "));
                self.received.clear();
                self.has_asked = false;
                self.due_ns = network.now_ns() + MILLISECOND_NS / 4;
                served.answers.set(served.answers.get() + 1);
            }
            _ => {}
        }
        served.answers.get() == REQUESTS
    }
}

/// Plays a flood with so many descriptors; how many connections the client that is served needed besides its first.
fn play(seed: u64, descriptors_max: usize) -> usize {
    let limits = LimitValues {
        connections_max: CONNECTIONS_MAX,
        ..LimitValues::default()
    };
    let limits: Limits = limits.checked().unwrap();
    let plan = FaultPlan {
        descriptors_max,
        accept_failures: 0.0,
        ..FaultPlan::drawn(seed)
    };
    let mut stage = Stage::new(seed, plan, limits);
    let served = Rc::new(Served::default());
    let is_done = Rc::new(Cell::new(false));
    let mut rng = Rng::with_seed(seed);
    let peers = RefCell::new(Vec::new());
    let (is_over, flood_rng) = (Rc::clone(&is_done), RefCell::new(rng.fork()));
    let begun_ns = stage.network.now_ns() + rng.u64(0..MILLISECOND_NS);
    stage.network.spawn(move |network| {
        if is_over.get() {
            peers.borrow_mut().clear();
            return Turn::Done;
        }
        if network.now_ns() >= begun_ns {
            flood(
                network,
                &mut peers.borrow_mut(),
                &mut flood_rng.borrow_mut(),
            );
        }
        Turn::At(network.now_ns() + MILLISECOND_NS / 10)
    });
    let mut asker = Asker {
        peer: stage.network.connect().ok(),
        received: Vec::new(),
        has_asked: false,
        due_ns: 0,
    };
    let (seen, stop) = (Rc::clone(&served), stage.stop_handle());
    stage.network.spawn(move |network| {
        if !asker.act(network, &seen) {
            return Turn::Soon;
        }
        is_done.set(true);
        stop.request_stop();
        Turn::Done
    });
    stage.play();
    let peak = usize::try_from(stage.sockets_peak()).unwrap();
    let most = limits.sockets_max().min(descriptors_max);
    assert!(peak <= most, "seed {seed}: {peak} sockets, {most} allowed");
    assert!(
        peak > CONNECTIONS_MAX / 2,
        "seed {seed}: only {peak} sockets, no flood"
    );
    assert_eq!(served.answers.get(), REQUESTS, "seed {seed}");
    served.connections.get()
}

/// A loop of connect and reset had a server hold 20,000 descriptors.
///
/// Goal: whatever comes, no more sockets are held than the limit says, and a client that is served goes on on
/// the connection that it has.
#[test]
fn a_flood_holds_no_more_sockets_than_allowed() {
    for seed in 0..40 {
        assert_eq!(play(seed, usize::MAX), 0, "seed {seed}");
    }
}

/// Goal: with fewer descriptors than places the flood is refused, and the established client gets its responses,
/// perhaps on another connection: a server without descriptors closes what is idle.
#[test]
fn a_flood_without_descriptors_does_not_stop_the_service() {
    for seed in 0..40 {
        play(seed, CONNECTIONS_MAX - 4);
    }
}
