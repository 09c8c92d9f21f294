//! One shard of a server, on a driver of the caller's and on the caller's thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millpond_io::{Driver, IoError, Shard, ShardConfig, ShardReport, StopHandle, Waker};
use millpond_mempool::PoolStats;

use crate::access_log::AccessLog;
use crate::body_budget::BodyBudget;
use crate::counters::HttpCounters;
use crate::metrics::{Scrape, Snapshots};
use crate::server::{Server, ServerParts};
use crate::service::{Service, ShardStart};

use super::ServeConfig;

/// A shard with its server. Make it on the thread that runs it: pools belong to a thread.
pub struct ShardServer<D: Driver, S> {
    shard: Shard<D>,
    server: Server<S>,
}

impl<D: Driver, S> fmt::Debug for ShardServer<D, S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ShardServer")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

/// State shared by the shards of one server.
#[derive(Clone)]
pub(super) struct SharedByShards {
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) bodies: BodyBudget,
    pub(super) build_labels: Arc<[(&'static str, String)]>,
    /// Another process takes the address over: set before the shards are asked to stop.
    pub(super) is_handing_over: Arc<AtomicBool>,
    pub(super) access_log: Option<Arc<AccessLog>>,
    /// Of a server with a separate listener for metrics.
    pub(super) scrape: Option<Arc<Scrape>>,
}

impl<D: Driver, S: Service> ShardServer<D, S> {
    /// The only shard of a server, over `driver`, not bound to a CPU. `config.listen` and `config.driver` are ignored,
    /// since `driver` has them; so is `config.access_log`, because the log's thread needs an owner, which only
    /// [`super::serve`] is.
    pub fn new<E>(
        config: &ServeConfig,
        driver: D,
        make: impl FnOnce(ShardStart) -> Result<S, E>,
    ) -> Result<Self, E> {
        let shared = SharedByShards {
            snapshots: Arc::new(Snapshots::new(1)),
            bodies: BodyBudget::within(&config.limits),
            build_labels: config.labels_for(driver.name(), driver.features()).into(),
            is_handing_over: Arc::default(),
            access_log: None,
            scrape: None,
        };
        let shard = ShardConfig {
            index: 0,
            cpu: None,
            pool_mode: config.pool_mode,
        };
        Self::with_shared(config, shard, driver, shared, make)
    }

    /// One of several shards.
    pub(super) fn with_shared<E>(
        config: &ServeConfig,
        shard_config: ShardConfig,
        driver: D,
        shared: SharedByShards,
        make: impl FnOnce(ShardStart) -> Result<S, E>,
    ) -> Result<Self, E> {
        let mut shard = Shard::new(shard_config, driver);
        shard.driver().set_accepted_max(config.limits.sockets_max());
        let service = make(ShardStart {
            index: shard_config.index,
            count: config.shards,
            waker: shard.waker(),
            pool_mode: config.pool_mode,
        })?;
        // The first shard writes the text, as any could.
        let scrape = shared.scrape.filter(|_| shard_config.index == 0);
        if let Some(scrape) = &scrape {
            scrape.set_writer(shard.waker());
        }
        let parts = ServerParts {
            metrics_access: config.metrics_access,
            scrape,
            limits: config.limits,
            pool_mode: config.pool_mode,
            blocks: shard.pools().blocks.clone(),
            bodies: shared.bodies,
            snapshots: shared.snapshots,
            build_labels: shared.build_labels,
            is_handing_over: shared.is_handing_over,
            access_log: shared
                .access_log
                .and_then(|log| log.shard(shard_config.index, config.pool_mode)),
        };
        let server = Server::new(service, parts);
        Ok(Self { shard, server })
    }

    /// Serves until a stop was asked for and every connection has ended, or until the abort.
    pub fn run(&mut self) -> Result<ShardReport, IoError> {
        self.shard.run(&mut self.server)
    }

    /// How others end it.
    pub fn stop_handle(&self) -> StopHandle {
        self.shard.stop_handle()
    }

    /// Makes the shard call [`Service::on_wake`].
    pub fn waker(&self) -> Waker {
        self.shard.waker()
    }

    /// The sockets.
    pub fn driver(&mut self) -> &mut D {
        self.shard.driver()
    }

    /// The handlers.
    pub fn service(&self) -> &S {
        self.server.service()
    }

    /// Counters so far.
    pub fn counters(&self) -> &HttpCounters {
        self.server.counters()
    }

    /// Whether the drain deadline cut connections.
    pub fn is_drain_over(&self) -> bool {
        self.server.is_drain_over()
    }

    /// Deadlines of connections; none when no connection is open.
    pub fn connection_timer_count(&self) -> usize {
        self.shard.timers().count() - self.server.own_timer_count()
    }

    /// Calls `visit` with the accounting of every pool.
    pub fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.server.connection_stats());
        self.server
            .exchange_stats()
            .into_iter()
            .for_each(&mut *visit);
        self.server.service().visit_pool_stats(visit);
        self.shard.visit_pool_stats(visit);
    }
}
