//! A server on a simulated network, and what must be true of it in the end.

use crate::service::{BackOffice, TestService};
use millpond_http::counters::HttpCounters;
use millpond_http::{Limits, ServeConfig, ShardServer};
use millpond_io::driver::sim::{FaultPlan, Network, SimDriver};
use millpond_io::{Address, Driver, StopHandle};
use millpond_mempool::PoolMode;
use std::convert::Infallible;
use std::net::SocketAddr;

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
pub(crate) const SECOND_NS: u64 = 1_000 * MILLISECOND_NS;

/// More than any run needs: a server that is busy for nothing gets there within seconds.
const TICKS_MAX: u64 = 3_000_000;

/// One run: set the scene with [`Self::network`], then [`Self::play`].
pub(crate) struct Stage {
    pub(crate) network: Network,
    server: ShardServer<SimDriver, TestService>,
    may_hold_slots: bool,
}

impl Stage {
    pub(crate) fn new(seed: u64, plan: FaultPlan, limits: Limits) -> Self {
        Self::with_pools(seed, plan, limits, PoolMode::On)
    }

    pub(crate) fn with_pools(
        seed: u64,
        plan: FaultPlan,
        limits: Limits,
        pool_mode: PoolMode,
    ) -> Self {
        limits.check().unwrap();
        let may_hold_slots = plan.delayed_closes > 0.0;
        let network = Network::new(seed, plan);
        network.set_tick_limit(TICKS_MAX);
        let mut driver = network.driver(pool_mode).unwrap();
        driver.listen_anywhere().unwrap();
        let listen = Address::Inet(SocketAddr::from(([127, 0, 0, 1], 80)));
        let config = ServeConfig {
            limits,
            pool_mode,
            ..ServeConfig::new("simulated", listen)
        };
        let mut back_office = None;
        let server = ShardServer::new(&config, driver, |start| {
            let office = back_office.insert(BackOffice::new(start.waker));
            Ok::<_, Infallible>(TestService::new(office))
        })
        .unwrap();
        network.spawn(back_office.unwrap().script());
        Self {
            network,
            server,
            may_hold_slots,
        }
    }

    pub(crate) fn stop_handle(&self) -> StopHandle {
        self.server.stop_handle()
    }

    /// Serves until a script has stopped the server; then everything must be gone.
    pub(crate) fn play(&mut self) -> &HttpCounters {
        let report = self.server.run();
        let report = report.unwrap_or_else(|error| panic!("{error}; {:?}", self.server.counters()));
        assert!(!report.aborted);
        assert_eq!(self.server.driver().socket_count(), 0, "sockets");
        assert_eq!(self.server.connection_timer_count(), 0, "timers");
        assert_eq!(self.server.service().open_streams(), 0, "exchanges");
        let may_hold_slots = self.may_hold_slots;
        self.server.visit_pool_stats(&mut |stats| {
            assert!(stats.identity_holds(), "{stats:?}");
            // The simulator itself may still hold the slot of a socket that it closes late.
            if !(may_hold_slots && stats.name == "io_sockets") {
                assert_eq!((stats.live_objects, stats.live_bytes), (0, 0), "{stats:?}");
            }
        });
        let counters = self.server.counters();
        assert_eq!(counters.connections_open, 0);
        counters
    }
}
