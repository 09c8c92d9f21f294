//! A pool with its driver, timers and memory, and its results so far.

use crate::world::{Peer, Upstream, World};
use millpond_io::connection_pool::{
    AcquireError, Acquired, ConnectionPool, EventOwner, Lease, PoolConfig, PoolKey, Target,
    WaiterId,
};
use millpond_io::{
    Address, Driver, Errno, Event, Resolver, ShardContext, ShardPools, SocketId, TimerWheel,
    monotonic_ns,
};
use millpond_mempool::PoolMode;

pub(crate) const MS: u64 = 1_000_000;
/// A deadline that no scene meets.
pub(crate) const LATE_NS: u64 = 600_000 * MS;
/// Only a test that hangs meets it.
pub(crate) const WATCHDOG_NS: u64 = 60_000 * MS;

/// Deadlines that no scene waits for are far away.
pub(crate) fn patient() -> PoolConfig {
    PoolConfig {
        idle_max_ns: LATE_NS,
        connect_max_ns: LATE_NS,
        tls_max_ns: LATE_NS,
        resolve_max_ns: LATE_NS,
        ..PoolConfig::default()
    }
}

/// Event of a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Seen {
    Finished(SocketId),
    Failed(SocketId, Errno),
}

pub(crate) struct Pond<'w, W: World> {
    world: &'w W,
    pub(crate) driver: W::Driver,
    pub(crate) timers: TimerWheel,
    pub(crate) pool: ConnectionPool,
    pools: ShardPools,
    pub(crate) outcomes: Vec<(u64, Result<Lease, AcquireError>)>,
    pub(crate) seen: Vec<Seen>,
}

impl<'w, W: World> Pond<'w, W> {
    pub(crate) fn new(world: &'w W, config: PoolConfig) -> Self {
        Self::with_driver(world, world.driver(), config, None)
    }

    pub(crate) fn resolving(world: &'w W, config: PoolConfig, resolver: &Resolver) -> Self {
        let driver = world.driver();
        Self::with_driver(world, driver, config, Some(resolver))
    }

    fn with_driver(
        world: &'w W,
        driver: W::Driver,
        config: PoolConfig,
        resolver: Option<&Resolver>,
    ) -> Self {
        let client = resolver.map(|resolver| resolver.client(driver.waker()));
        Self {
            world,
            timers: TimerWheel::new(driver.clock_ns()),
            driver,
            pool: ConnectionPool::new(config, PoolMode::On, client),
            pools: ShardPools::new(PoolMode::On),
            outcomes: Vec::new(),
            seen: Vec::new(),
        }
    }

    pub(crate) fn key(&mut self, address: Address, connections_max: usize) -> PoolKey {
        let target = Target {
            connections_max,
            ..Target::at(address)
        };
        self.pool.add_key(target).unwrap()
    }

    /// Does something with the pool, and checks it afterwards.
    pub(crate) fn act<R>(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool, &mut ShardContext<'_, W::Driver>) -> R,
    ) -> R {
        let now_ns = self.driver.clock_ns();
        let mut context = ShardContext {
            driver: &mut self.driver,
            timers: &mut self.timers,
            pools: &mut self.pools,
            now_ns,
            shard_index: 0,
        };
        let result = act(&mut self.pool, &mut context);
        self.collect();
        result
    }

    fn collect(&mut self) {
        self.pool.verify();
        while let Some(outcome) = self.pool.next_outcome() {
            self.outcomes.push((outcome.token, outcome.result));
        }
    }

    pub(crate) fn ask(&mut self, key: PoolKey, token: u64, wait_ns: u64) -> Acquired {
        self.act(|pool, shard| {
            let deadline_ns = shard.now_ns + wait_ns;
            pool.acquire(shard, key, token, deadline_ns, false)
        })
    }

    /// Asks, and expects to wait.
    pub(crate) fn wait_for(&mut self, key: PoolKey, token: u64, wait_ns: u64) -> WaiterId {
        match self.ask(key, token, wait_ns) {
            Acquired::Waiting(waiter) => waiter,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    /// Asks, and expects a parked connection.
    pub(crate) fn hit(&mut self, key: PoolKey) -> Lease {
        match self.ask(key, 0, LATE_NS) {
            Acquired::Lease(lease) => {
                assert!(lease.is_reused);
                lease
            }
            other => panic!("expected a parked connection: {other:?}"),
        }
    }

    /// Asks, waits, and accepts at the other end.
    pub(crate) fn open(
        &mut self,
        key: PoolKey,
        upstream: &W::Upstream,
    ) -> (Lease, <W::Upstream as Upstream>::Peer) {
        self.wait_for(key, u64::MAX, LATE_NS);
        let lease = self.outcome_of(u64::MAX).unwrap();
        assert!(!lease.is_reused);
        let mut peer = None;
        self.run_until("accepted", |_| {
            peer = upstream.accept();
            peer.is_some()
        });
        (lease, peer.unwrap())
    }

    pub(crate) fn give_back(&mut self, lease: Lease) {
        self.act(|pool, shard| pool.give_back(shard, lease.socket));
    }

    pub(crate) fn discard(&mut self, lease: Lease) {
        self.act(|pool, shard| pool.discard(shard, lease.socket));
    }

    /// Result of a wait, as soon as it is known.
    pub(crate) fn outcome_of(&mut self, token: u64) -> Result<Lease, AcquireError> {
        let mut found = None;
        self.run_until("an outcome", |pond| {
            let place = pond.outcomes.iter().position(|(of, _)| *of == token);
            found = place.map(|place| pond.outcomes.remove(place).1);
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let watchdog_ns = monotonic_ns() + WATCHDOG_NS;
        while !is_so(self) {
            assert!(monotonic_ns() < watchdog_ns, "never: {what}");
            self.turn();
        }
    }

    /// Until the other side sees the end.
    pub(crate) fn run_until_closed(&mut self, peer: &mut impl Peer) {
        self.run_until("closed", |_| peer.is_closed());
    }

    /// Lets what is on its way arrive.
    pub(crate) fn settle(&mut self) {
        let until_ns = self.world.now_ns() + 20 * MS;
        while self.world.now_ns() < until_ns {
            self.turn();
        }
    }

    /// One tick of a shard.
    pub(crate) fn turn(&mut self) {
        let look_ns = self.world.now_ns() + MS;
        let timer_ns = self.timers.next_deadline_ns().unwrap_or(u64::MAX);
        let Self {
            driver,
            timers,
            pools,
            pool,
            seen,
            ..
        } = self;
        let handler = |driver: &mut W::Driver, pools: &mut ShardPools, event: Event<'_>| {
            let now_ns = driver.now_ns();
            let mut context = ShardContext {
                driver,
                timers,
                pools,
                now_ns,
                shard_index: 0,
            };
            if matches!(event, Event::Woken) {
                return pool.on_wake(&mut context);
            }
            match (pool.event(&mut context, &event), &event) {
                (EventOwner::Leased, Event::PeerFinished { socket }) => {
                    seen.push(Seen::Finished(*socket));
                }
                (EventOwner::Leased, Event::Failed { socket, error }) => {
                    seen.push(Seen::Failed(*socket, *error));
                }
                (EventOwner::NotOurs, event) => panic!("an event of nobody's: {event:?}"),
                _ => {}
            }
        };
        driver
            .tick(Some(look_ns.min(timer_ns)), pools, handler)
            .unwrap();
        let now_ns = self.driver.now_ns();
        while let Some((user, _)) = self.timers.pop_expired(now_ns) {
            assert!(self.act(|pool, shard| pool.timer_expired(shard, user)));
        }
        self.collect();
    }

    /// Everything was given back: nothing of it is left when the keys go.
    pub(crate) fn end(mut self, keys: &[PoolKey]) {
        for &key in keys {
            self.act(|pool, shard| pool.remove_key(shard, key));
        }
        assert_eq!(self.pool.connection_count(), 0);
        self.run_until("closed", |pond| pond.driver.socket_count() == 0);
        assert_eq!(self.timers.count(), 0);
        assert!(self.outcomes.is_empty(), "{:?}", self.outcomes);
    }
}
