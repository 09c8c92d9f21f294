//! A server for tests that call it themselves, event by event.

use super::{HEARTBEAT_TIMER, Server, ServerParts};
use crate::body_budget::BodyBudget;
use crate::limits::Limits;
use crate::metrics::Snapshots;
use crate::plaintext::Plaintext;
use crate::service::Service;
use millpond_io::{EpollDriver, Event, Protocol, ShardContext, ShardPools, TimerWheel};
use millpond_mempool::{PoolMode, PoolStats};
use std::sync::Arc;

pub(super) const CHUNK_BYTES: u64 = 64 << 10;

/// A server whose events and beats come from a test, over a driver that is never ticked. The
/// sockets do not exist, which a driver takes as closed in the meantime.
pub(super) struct TestServer<S = Plaintext> {
    pub(super) server: Server<S>,
    driver: EpollDriver,
    timers: TimerWheel,
    pools: ShardPools,
    now_ns: u64,
}

impl TestServer {
    pub(super) fn new() -> Self {
        Self::with(Plaintext, u64::MAX)
    }
}

impl<S: Service> TestServer<S> {
    /// One of this service, with so much memory for large bodies.
    pub(super) fn with(service: S, bodies_bytes_max: u64) -> Self {
        let pool_mode = PoolMode::On;
        let pools = ShardPools::new(pool_mode);
        let parts = ServerParts {
            limits: Limits::default(),
            pool_mode,
            blocks: pools.blocks.clone(),
            bodies: BodyBudget::new(bodies_bytes_max, Limits::default().contended_grace_ns),
            snapshots: Arc::new(Snapshots::new(1)),
            build_labels: Arc::new([]),
            is_handing_over: Arc::default(),
            access_log: None,
            metrics_access: crate::metrics::MetricsAccess::default(),
            scrape: None,
        };
        let mut bench = Self {
            server: Server::new(service, parts),
            driver: EpollDriver::new(pool_mode).unwrap(),
            timers: TimerWheel::new(0),
            pools,
            now_ns: 0,
        };
        bench.act(|server, shard| server.started(shard).unwrap());
        bench
    }

    pub(super) fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Server<S>, &mut ShardContext<'_, EpollDriver>) -> T,
    ) -> T {
        let mut shard = ShardContext {
            driver: &mut self.driver,
            timers: &mut self.timers,
            pools: &mut self.pools,
            now_ns: self.now_ns,
            shard_index: 0,
        };
        act(&mut self.server, &mut shard)
    }

    pub(super) fn event(&mut self, event: Event<'_>) {
        self.act(|server, shard| server.event(shard, event));
    }

    /// Lets so much time pass, and nothing happen.
    pub(super) fn wait(&mut self, time_ns: u64) {
        self.now_ns += time_ns;
    }

    /// Ends a tick, then lets time pass until the beat, and does what the shard would in the ticks after
    /// it; `false` when none is to come.
    pub(super) fn beat(&mut self) -> bool {
        self.act(Server::tick_ended);
        let Some(due_ns) = self.timers.next_deadline_ns() else {
            return false;
        };
        self.now_ns = due_ns;
        let Some((user, _)) = self.timers.pop_expired(due_ns) else {
            return true;
        };
        assert_eq!(user, HEARTBEAT_TIMER);
        self.act(|server, shard| server.timer_expired(shard, user));
        while self.pools.blocks.go_on_trimming() {}
        self.act(Server::publish);
        true
    }

    /// Ends a tick, then lets time pass until the next timer of any kind and does what the shard would;
    /// `false` when none is to come.
    pub(super) fn expire(&mut self) -> bool {
        self.act(Server::tick_ended);
        let Some(due_ns) = self.timers.next_deadline_ns() else {
            return false;
        };
        self.now_ns = self.now_ns.max(due_ns);
        while let Some((user, _)) = self.timers.pop_expired(self.now_ns) {
            self.act(|server, shard| server.timer_expired(shard, user));
        }
        while self.pools.blocks.go_on_trimming() {}
        self.act(Server::publish);
        true
    }

    pub(super) fn pool(&self, name: &str) -> PoolStats {
        let snapshot = self.server.snapshots.lock(0);
        let mut found = snapshot.pools.iter().filter(|pool| pool.name == name);
        *found.next().unwrap()
    }

    pub(super) fn chunk_count(&self, name: &str) -> u64 {
        self.pool(name).reserved_bytes / CHUNK_BYTES
    }
}
