//! Random operations on the simulator, with faults, against a model that knows which request may get which connection.

use crate::pond::{MS, Pond, Seen};
use crate::world::{Peer, Simulated, SimulatedPeer, SimulatedUpstream, Upstream, World};
use millpond_io::connection_pool::{AcquireError, Acquired, Lease, PoolConfig, PoolKey, WaiterId};
use millpond_io::driver::sim::FaultPlan;
use millpond_io::{Driver, SocketId};
use proptest::prelude::*;
use std::collections::VecDeque;

const KEYS: usize = 3;
const KEY_MAX: usize = 3;
const ALL_MAX: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Ask { key: usize, wait_ms: u64 },
    GiveBack { which: usize },
    Discard { which: usize },
    Cancel { which: usize },
    PeerCloses { which: usize },
    PeerWrites { which: usize },
    PeerResets { which: usize },
    Turn { count: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..64_usize;
    prop_oneof![
        6 => (0..KEYS, 1..200_u64).prop_map(|(key, wait_ms)| Step::Ask { key, wait_ms }),
        4 => which.clone().prop_map(|which| Step::GiveBack { which }),
        1 => which.clone().prop_map(|which| Step::Discard { which }),
        1 => which.clone().prop_map(|which| Step::Cancel { which }),
        1 => which.clone().prop_map(|which| Step::PeerCloses { which }),
        1 => which.clone().prop_map(|which| Step::PeerWrites { which }),
        1 => which.prop_map(|which| Step::PeerResets { which }),
        5 => (1..8_usize).prop_map(|count| Step::Turn { count }),
    ]
}

/// Invariants.
struct Model {
    /// Given back and not leased again, oldest first; some may be gone by now.
    parked: Vec<Vec<SocketId>>,
    /// Waiting requests, in order.
    waiting: Vec<VecDeque<(u64, WaiterId)>>,
    leases: Vec<(usize, Lease)>,
    /// Leased connections whose peer has sent its FIN.
    finished: Vec<SocketId>,
    next_token: u64,
}

struct Scene<'w> {
    pond: Pond<'w, Simulated>,
    upstreams: Vec<SimulatedUpstream>,
    keys: Vec<PoolKey>,
    peers: Vec<SimulatedPeer>,
    model: Model,
}

impl<'w> Scene<'w> {
    fn new(world: &'w Simulated) -> Self {
        let config = PoolConfig {
            connections_max: ALL_MAX,
            idle_max_ns: 100 * MS,
            uses_max: 5,
            ..PoolConfig::default()
        };
        let mut pond = Pond::new(world, config);
        let upstreams: Vec<_> = (0..KEYS).map(|_| world.listen()).collect();
        let keys = upstreams
            .iter()
            .map(|upstream| pond.key(upstream.address(), KEY_MAX))
            .collect();
        Self {
            pond,
            upstreams,
            keys,
            peers: Vec::new(),
            model: Model {
                parked: vec![Vec::new(); KEYS],
                waiting: vec![VecDeque::new(); KEYS],
                leases: Vec::new(),
                finished: Vec::new(),
                next_token: 1,
            },
        }
    }

    /// A lease of something that was parked is the newest of what still lives.
    fn check_reuse(&mut self, key: usize, lease: Lease) {
        if lease.uses == 0 {
            // It connected when no request waited any more, and was parked unused: the model never saw it.
            return;
        }
        let parked = &mut self.model.parked[key];
        let driver = &self.pond.driver;
        parked.retain(|socket| *socket == lease.socket || driver.peer(*socket).is_some());
        assert_eq!(parked.pop(), Some(lease.socket), "the newest first");
    }

    /// Results from the pool, in the order of the requests.
    fn take_outcomes(&mut self) {
        for (token, result) in std::mem::take(&mut self.pond.outcomes) {
            let key = (token % KEYS as u64) as usize;
            let waiting = &mut self.model.waiting[key];
            let place = waiting.iter().position(|(of, _)| *of == token).unwrap();
            waiting.remove(place);
            match result {
                Ok(lease) => {
                    assert_eq!(place, 0, "who asked first is served first");
                    assert_eq!(lease.key, self.keys[key]);
                    self.model.leases.push((key, lease));
                }
                Err(AcquireError::TimedOut { .. }) => {}
                Err(AcquireError::Connect(_)) => assert_eq!(place, 0),
                Err(error) => panic!("{error:?}"),
            }
        }
        // A lease whose connection failed has ended.
        for seen in std::mem::take(&mut self.pond.seen) {
            match seen {
                Seen::Failed(socket, _) => {
                    self.model
                        .leases
                        .retain(|(_, lease)| lease.socket != socket);
                }
                Seen::Finished(socket) => self.model.finished.push(socket),
            }
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Ask { key, wait_ms } => self.ask(key, wait_ms),
            Step::GiveBack { which } => {
                if let Some((key, lease)) = self.a_lease(which) {
                    if self.model.finished.contains(&lease.socket) {
                        // Only a holder that ignores the failure gives such a one back.
                        return self.pond.discard(lease);
                    }
                    self.pond.give_back(lease);
                    self.model.parked[key].push(lease.socket);
                }
            }
            Step::Discard { which } => {
                if let Some((_, lease)) = self.a_lease(which) {
                    self.pond.discard(lease);
                }
            }
            Step::Cancel { which } => {
                let waiting = &mut self.model.waiting[which % KEYS];
                if !waiting.is_empty() {
                    let (_, waiter) = waiting.remove(which % waiting.len()).unwrap();
                    self.pond.act(|pool, shard| pool.cancel(shard, waiter));
                }
            }
            Step::PeerCloses { which } => drop(self.a_peer(which)),
            Step::PeerResets { which } => {
                if let Some(peer) = self.a_peer(which) {
                    peer.reset();
                }
            }
            Step::PeerWrites { which } => {
                if !self.peers.is_empty() {
                    let index = which % self.peers.len();
                    self.peers[index].try_write(b"x");
                }
            }
            Step::Turn { count } => {
                for _ in 0..count {
                    self.pond.turn();
                    self.take_outcomes();
                }
            }
        }
        for upstream in &self.upstreams {
            while let Some(peer) = upstream.accept() {
                self.peers.push(peer);
            }
        }
        self.take_outcomes();
        // A connection returned and passed to a waiting request is leased, not parked.
        for (_, lease) in &self.model.leases {
            for parked in &mut self.model.parked {
                parked.retain(|socket| *socket != lease.socket);
            }
        }
    }

    fn ask(&mut self, key: usize, wait_ms: u64) {
        let token = self.model.next_token * KEYS as u64 + key as u64;
        self.model.next_token += 1;
        let has_waiters = !self.model.waiting[key].is_empty();
        match self.pond.ask(self.keys[key], token, wait_ms * MS) {
            Acquired::Lease(lease) => {
                assert!(!has_waiters, "nobody passes those who wait");
                assert!(lease.is_reused);
                self.check_reuse(key, lease);
                self.model.leases.push((key, lease));
            }
            Acquired::Waiting(waiter) => self.model.waiting[key].push_back((token, waiter)),
            Acquired::Failed(error) => panic!("{error:?}"),
        }
    }

    fn a_lease(&mut self, which: usize) -> Option<(usize, Lease)> {
        let leases = &mut self.model.leases;
        (!leases.is_empty()).then(|| leases.swap_remove(which % leases.len()))
    }

    fn a_peer(&mut self, which: usize) -> Option<SimulatedPeer> {
        let peers = &mut self.peers;
        (!peers.is_empty()).then(|| peers.swap_remove(which % peers.len()))
    }

    fn end(mut self) {
        while let Some((_, lease)) = self.a_lease(0) {
            self.pond.discard(lease);
            self.take_outcomes();
        }
        for waiting in std::mem::take(&mut self.model.waiting) {
            for (_, waiter) in waiting {
                self.pond.act(|pool, shard| pool.cancel(shard, waiter));
            }
        }
        self.pond.outcomes.clear();
        let keys = self.keys.clone();
        self.pond.end(&keys);
    }
}

fn plan(seed: u64) -> FaultPlan {
    FaultPlan {
        // Written bytes must arrive whole for the scene to know which side closed.
        window_bytes: 64 << 10,
        descriptors_max: usize::MAX,
        ..FaultPlan::drawn(seed)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Goal: whatever happens in whatever order, both caps hold and every count is right after each operation; the
    /// newest connection is used first; requests are served in order; no dirty connection is leased; and in the end
    /// nothing is left.
    #[test]
    fn any_order_of_events_keeps_the_rules(
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let world = Simulated::with_plan(seed, plan(seed));
        let mut scene = Scene::new(&world);
        for step in &steps {
            scene.take(step);
        }
        scene.end();
    }
}
