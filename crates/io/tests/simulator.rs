//! The simulated driver under a shard: that it is repeatable, that its faults happen, and that
//! none of them breaks what the contract of `Driver` promises.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::driver::sim::{Cuts, FaultPlan, Network, PeerRead, SimDriver, SimPeer, Turn};
use millpond_io::{
    Driver, Errno, Event, IoError, Protocol, SendOutcome, Shard, ShardConfig, ShardContext,
    ShardPools, SocketId,
};
use millpond_mempool::{Buffer, PoolMode};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;

/// Seeds of the tests that try many.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("MILLPOND_SIM_SEEDS").map_or(40, |text| text.parse().unwrap());
    let from = std::env::var("MILLPOND_SIM_FROM").map_or(0, |text| text.parse().unwrap());
    from..from + count
}

/// State of one connection, checked at every event.
#[derive(Default)]
struct Known {
    is_blocked: bool,
    is_paused: bool,
    is_finished: bool,
}

/// Echoes; checks that events keep to the contract. Pauses now and then.
struct Echo {
    known: BTreeMap<u64, Known>,
    journal: Vec<(u64, u64, &'static str, usize)>,
    is_stopping: bool,
    rng: fastrand::Rng,
}

impl Echo {
    fn new(seed: u64) -> Self {
        Self {
            known: BTreeMap::new(),
            journal: Vec::new(),
            is_stopping: false,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn received<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        bytes: &[u8],
    ) {
        let known = self.known.get_mut(&socket.to_bits()).expect("a dead id");
        assert!(!bytes.is_empty() && !known.is_paused && !known.is_finished);
        let mut data = Buffer::new();
        data.extend_from_slice(&shard.pools.blocks, bytes).unwrap();
        if shard.driver.send(socket, data) == SendOutcome::Blocked {
            known.is_blocked = true;
            if self.rng.bool() {
                known.is_paused = true;
                shard.driver.pause_receive(socket);
            }
        }
    }

    fn drained<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let known = self.known.get_mut(&socket.to_bits()).expect("a dead id");
        assert!(std::mem::take(&mut known.is_blocked), "nothing was blocked");
        if std::mem::take(&mut known.is_paused) {
            shard.driver.resume_receive(socket);
        }
        if known.is_finished {
            self.leave(shard, socket);
        }
    }

    fn leave<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        self.known.remove(&socket.to_bits());
        if self.rng.bool() {
            shard.driver.close(socket);
        } else {
            shard.driver.close_after_send(socket);
        }
    }
}

impl<D: Driver> Protocol<D> for Echo {
    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        let (socket, what, count) = match &event {
            Event::Accepted { socket, .. } => (socket.to_bits(), "accepted", 0),
            Event::Received { socket, bytes } => (socket.to_bits(), "received", bytes.len()),
            Event::PeerFinished { socket } => (socket.to_bits(), "finished", 0),
            Event::Failed { socket, .. } => (socket.to_bits(), "failed", 0),
            Event::SendBlocked { socket } => (socket.to_bits(), "blocked", 0),
            Event::SendDrained { socket } => (socket.to_bits(), "drained", 0),
            Event::AcceptFailed { .. } => (0, "accept failed", 0),
            Event::Woken => (0, "woken", 0),
            other => panic!("{other:?}"),
        };
        self.journal.push((shard.now_ns, socket, what, count));
        match event {
            Event::Accepted { socket, .. } => {
                let before = self.known.insert(socket.to_bits(), Known::default());
                assert!(before.is_none(), "an id was given twice");
            }
            Event::Received { socket, bytes } => self.received(shard, socket, bytes),
            Event::SendBlocked { socket } => {
                let known = self.known.get_mut(&socket.to_bits()).expect("a dead id");
                assert!(!known.is_blocked, "told already");
                known.is_blocked = true;
            }
            Event::SendDrained { socket } => self.drained(shard, socket),
            Event::PeerFinished { socket } => {
                let known = self.known.get_mut(&socket.to_bits()).expect("a dead id");
                assert!(!known.is_finished && !known.is_paused);
                known.is_finished = true;
                if !known.is_blocked {
                    self.leave(shard, socket);
                }
            }
            Event::Failed { socket, .. } => {
                self.known.remove(&socket.to_bits()).expect("a dead id");
            }
            _ => {}
        }
    }

    fn stop_requested(&mut self, shard: &mut ShardContext<'_, D>) {
        self.is_stopping = true;
        shard.driver.stop_listening();
    }

    fn finished(&self) -> bool {
        self.is_stopping && self.known.is_empty()
    }
}

/// A peer that sends `message` in pieces, reads at its own pace, and finishes.
struct Talker {
    peer: Option<SimPeer>,
    message: Vec<u8>,
    sent: usize,
    answer: Vec<u8>,
    rng: fastrand::Rng,
    resets_at: Option<usize>,
}

/// How a talker's life went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Well,
    Reset,
    ResetByNetwork,
}

impl Talker {
    fn new(network: &Network, rng: &mut fastrand::Rng) -> Self {
        let len = [0, 1, 100, 1_000, 10_000][rng.usize(0..5)];
        let message: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        let peer = network.connect().unwrap();
        if rng.bool() {
            peer.set_receive_window(1 + rng.usize(0..1_000));
        }
        Self {
            peer: Some(peer),
            sent: 0,
            answer: Vec::new(),
            resets_at: (rng.u8(0..8) == 0).then(|| rng.usize(0..=len)),
            message,
            rng: rng.fork(),
        }
    }

    /// One turn; the end, if this was it.
    fn act(&mut self) -> Option<Ended> {
        let peer = self.peer.as_mut().unwrap();
        let before = self.answer.len();
        let count_max = 1 + self.rng.usize(0..8_000);
        let read = peer.read(&mut self.answer, count_max);
        assert!(self.answer[before..] == self.message[before..self.answer.len()]);
        match read {
            PeerRead::Finished => {
                assert_eq!(self.answer.len(), self.message.len(), "cut short");
                return Some(Ended::Well);
            }
            PeerRead::Failed(error) => {
                assert_eq!(error, Errno::CONNRESET);
                assert!(
                    peer.is_reset_by_network(),
                    "the driver reset {}",
                    peer.number()
                );
                return Some(Ended::ResetByNetwork);
            }
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
        }
        if self.sent < self.message.len() {
            let most = self.message.len() - self.sent;
            let count = 1 + self.rng.usize(0..most.min(3_000));
            let piece = &self.message[self.sent..self.sent + count];
            if let Ok(count) = peer.write(piece) {
                self.sent += count;
            }
        }
        if self.resets_at.is_some_and(|at| self.sent >= at) {
            self.peer.take().unwrap().reset();
            return Some(Ended::Reset);
        }
        if self.sent == self.message.len() {
            peer.finish();
        }
        None
    }
}

struct Ran {
    journal: Vec<(u64, u64, &'static str, usize)>,
    ends: Vec<Ended>,
    end_ns: u64,
    counters: millpond_io::DriverCounters,
}

/// One run of a shard with talkers, from its seed alone.
fn run(seed: u64, plan: FaultPlan, talkers: usize) -> Ran {
    let network = Network::new(seed, plan);
    let mut driver = network.driver(PoolMode::On).unwrap();
    driver.listen_anywhere().unwrap();
    let config = ShardConfig {
        index: 0,
        cpu: None,
        pool_mode: PoolMode::On,
    };
    let mut shard = Shard::new(config, driver);
    let ends = Rc::new(RefCell::new(Vec::new()));
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..talkers {
        let mut talker = Talker::new(&network, &mut rng);
        let (ends, stop) = (Rc::clone(&ends), shard.stop_handle());
        network.spawn(move |_| match talker.act() {
            None => Turn::Soon,
            Some(end) => {
                ends.borrow_mut().push(end);
                if ends.borrow().len() == talkers {
                    stop.request_stop();
                }
                Turn::Done
            }
        });
    }
    let mut echo = Echo::new(seed);
    let report = shard.run(&mut echo).unwrap();
    assert_eq!(shard.driver().socket_count(), 0);
    shard.visit_pool_stats(&mut |stats| {
        // A slot may still be held by a delayed close.
        if stats.name != "io_sockets" {
            assert_eq!((stats.live_objects, stats.live_bytes), (0, 0), "{stats:?}");
        }
        assert!(stats.identity_holds());
    });
    Ran {
        journal: echo.journal,
        ends: ends.take(),
        end_ns: network.now_ns(),
        counters: report.driver,
    }
}

/// Goal: under every mixture of faults each peer gets its own bytes back, in order and whole,
/// unless it or the network reset the connection; events keep to the contract; nothing is leaked.
#[test]
fn every_peer_gets_its_echo_whatever_goes_wrong() {
    for seed in seeds() {
        let mut plan = FaultPlan::drawn(seed);
        if seed % 4 == 0 {
            plan.resets = 0.002;
        }
        if seed % 5 == 0 {
            plan.descriptors_max = 3;
        }
        let ran = run(seed, plan, 12);
        assert_eq!(ran.ends.len(), 12);
    }
}

/// Goal: one seed is one run, event for event and nanosecond for nanosecond; another is another.
#[test]
fn a_seed_is_a_run() {
    let plan = FaultPlan {
        resets: 0.001,
        descriptors_max: 4,
        ..FaultPlan::drawn(3)
    };
    let (one, same) = (run(9, plan.clone(), 8), run(9, plan.clone(), 8));
    assert_eq!(one.journal, same.journal);
    assert_eq!((one.end_ns, one.counters), (same.end_ns, same.counters));
    assert_eq!(one.ends, same.ends);
    assert_ne!(one.journal, run(10, plan, 8).journal);
}

/// Goal: each fault that a plan asks for is seen, by its trace in the driver's counters or in how
/// connections end; a plan without faults shows none.
#[test]
fn faults_happen_when_asked_for() {
    let calm = run(1, FaultPlan::none(), 20);
    let seen = |ran: &Ran, what| ran.journal.iter().filter(|entry| entry.2 == what).count();
    assert_eq!(seen(&calm, "accept failed"), 0);
    assert!(!calm.ends.contains(&Ended::ResetByNetwork));

    let with = |change: fn(&mut FaultPlan)| {
        let mut plan = FaultPlan::none();
        change(&mut plan);
        run(1, plan, 20)
    };
    let split = with(|plan| plan.split_receives = 1.0);
    assert!(seen(&split, "received") > 3 * seen(&calm, "received"));
    let short = with(|plan| plan.short_sends = 0.9);
    assert!(short.counters.sends_blocked > calm.counters.sends_blocked);
    assert!(seen(&with(|plan| plan.accept_failures = 0.5), "accept failed") > 5);
    assert!(seen(&with(|plan| plan.descriptors_max = 2), "accept failed") > 5);
    let late = with(|plan| plan.late_sends = 1.0);
    assert_eq!(seen(&calm, "blocked"), 0);
    assert!(seen(&late, "blocked") > 0);
    let reset = with(|plan| plan.resets = 0.05);
    assert!(reset.ends.contains(&Ended::ResetByNetwork));
    let delayed = with(|plan| plan.delays = 0.9);
    assert!(delayed.counters.ticks > calm.counters.ticks);
    let starved = with(|plan| plan.buffers_missing = 0.9);
    assert!(starved.counters.ticks > calm.counters.ticks);
    // Bursts put more than one receive of a connection into one moment.
    let twice = |ran: &Ran| {
        let pairs = ran.journal.windows(2);
        let same = |pair: &&[(u64, u64, &str, usize)]| {
            pair[0].2 == "received"
                && pair[1].2 == "received"
                && pair[0].1 == pair[1].1
                && pair[0].0 == pair[1].0
        };
        pairs.filter(same).count()
    };
    let bursts = with(|plan| (plan.bursts, plan.split_receives) = (0.9, 1.0));
    assert_eq!(twice(&split), 0);
    assert!(twice(&bursts) > 10);
}

/// Goal: time is virtual: a timeout of an hour costs nothing, and a peer's script runs exactly
/// when it asked to.
#[test]
fn an_hour_passes_at_once() {
    let network = Network::new(1, FaultPlan::none());
    let mut driver = network.driver(PoolMode::On).unwrap();
    driver.listen_anywhere().unwrap();
    let start_ns = network.now_ns();
    let peer = RefCell::new(Some(network.connect().unwrap()));
    network.spawn(move |network| {
        let due_ns = start_ns + 1_800 * SECOND_NS;
        if network.now_ns() < due_ns {
            return Turn::At(due_ns);
        }
        assert_eq!(network.now_ns(), due_ns);
        drop(peer.take());
        Turn::Done
    });
    let mut pools = ShardPools::new(PoolMode::On);
    let mut seen = Vec::new();
    let deadline_ns = start_ns + 3_600 * SECOND_NS;
    while driver.now_ns() < deadline_ns {
        driver
            .tick(Some(deadline_ns), &mut pools, |driver, _, event| {
                seen.push((driver.now_ns(), format!("{event:?}")));
            })
            .unwrap();
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].1.starts_with("Accepted"), "{seen:?}");
    assert!(seen[1].1.starts_with("PeerFinished"), "{seen:?}");
    assert_eq!(seen[1].0, start_ns + 1_800 * SECOND_NS);
    assert_eq!(driver.clock_ns(), deadline_ns);
}

/// Goal: a scripted cut is where the driver's receives end.
#[test]
fn cuts_fall_where_they_are_asked_for() {
    let network = Network::new(1, FaultPlan::none());
    let mut driver = network.driver(PoolMode::On).unwrap();
    driver.listen_anywhere().unwrap();
    let mut peer = network.connect().unwrap();
    peer.set_cuts(Cuts::At(vec![2, 3]));
    peer.write(b"abcdef").unwrap();
    peer.finish();
    let mut pools = ShardPools::new(PoolMode::On);
    let mut pieces = Vec::new();
    let mut is_finished = false;
    while !is_finished {
        let handler = |_: &mut SimDriver, _: &mut _, event: Event<'_>| match event {
            Event::Received { bytes, .. } => pieces.push(bytes.to_vec()),
            Event::PeerFinished { .. } => is_finished = true,
            _ => {}
        };
        driver.tick(None, &mut pools, handler).unwrap();
    }
    assert_eq!(pieces, [&b"ab"[..], b"c", b"def"]);
}

/// Goal: connecting ends by the plan and the listeners: accepted by a test's listener, refused without one, out of
/// descriptors at once.
#[test]
fn the_driver_connects_to_peers_of_the_test() {
    let network = Network::new(1, FaultPlan::none());
    let mut driver = network.driver(PoolMode::On).unwrap();
    let upstream = "10.0.0.1:80".parse().unwrap();
    assert!(network.listen(&upstream));
    assert!(!network.listen(&upstream));
    let socket = driver.connect(&upstream).unwrap();
    let refused = driver.connect(&"10.0.0.2:80".parse().unwrap()).unwrap();
    network.with_plan(|plan| plan.descriptors_max = 2);
    assert!(matches!(
        driver.connect(&upstream),
        Err(IoError::DescriptorsExhausted { .. })
    ));
    let mut pools = ShardPools::new(PoolMode::On);
    let mut seen = Vec::new();
    let mut tick = |driver: &mut SimDriver, seen: &mut Vec<String>| {
        let note = |_: &mut SimDriver, _: &mut _, event: Event<'_>| {
            seen.push(format!("{event:?}"));
        };
        driver.tick(Some(0), &mut pools, note).unwrap();
    };
    tick(&mut driver, &mut seen);
    let expected = [
        format!("{:?}", Event::Connected { socket }),
        format!(
            "{:?}",
            Event::Failed {
                socket: refused,
                error: Errno::CONNREFUSED
            }
        ),
    ];
    assert_eq!(seen, expected);
    let mut peer = network.accept(&upstream).unwrap();
    peer.write(b"hello").unwrap();
    tick(&mut driver, &mut seen);
    assert!(seen[2].starts_with("Received"), "{seen:?}");
}

/// Goal: a loop that waits for nothing gets an error instead of hanging.
#[test]
fn a_stuck_simulation_ends() {
    let network = Network::new(1, FaultPlan::none());
    network.set_patience(std::time::Duration::from_millis(1));
    let mut driver = network.driver(PoolMode::On).unwrap();
    let mut pools = ShardPools::new(PoolMode::On);
    let error = driver.tick(None, &mut pools, |_, _, _| {}).unwrap_err();
    assert!(matches!(
        error,
        IoError::System {
            error: Errno::DEADLK,
            ..
        }
    ));
}
