//! A server on a simulated network, and what must be true of it in the end.

use crate::line::{Speech, tls_server};
use crate::service::{BackOffice, TestService};
use millpond_http::counters::HttpCounters;
use millpond_http::{Limits, MetricsAccess, ServeConfig, Service, ShardServer, ShardStart};
use millpond_io::driver::sim::{FaultPlan, Network, Turn};
use millpond_io::tls::Tls;
use millpond_io::{Address, Driver, IoError, ShardReport, StopHandle};
use millpond_mempool::{PoolMode, PoolStats};
use std::convert::Infallible;
use std::net::SocketAddr;

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
pub(crate) const SECOND_NS: u64 = 1_000 * MILLISECOND_NS;

/// More than any run needs: a server that is busy for nothing gets there within seconds.
const TICKS_MAX: u64 = 3_000_000;

/// A server on a driver of any kind.
trait Played {
    fn run(&mut self) -> Result<ShardReport, IoError>;
    fn stop_handle(&self) -> StopHandle;
    fn socket_count(&mut self) -> usize;
    fn sockets_peak(&mut self) -> u64;
    fn connection_timer_count(&self) -> usize;
    fn service(&self) -> &TestService;
    fn counters(&self) -> &HttpCounters;
    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats));
    /// Handshakes under way, or connections past them, of a driver that has such.
    fn tls_count(&mut self) -> u64;
}

impl<D: Driver> Played for ShardServer<D, TestService> {
    fn run(&mut self) -> Result<ShardReport, IoError> {
        self.run()
    }

    fn stop_handle(&self) -> StopHandle {
        self.stop_handle()
    }

    fn socket_count(&mut self) -> usize {
        self.driver().socket_count()
    }

    fn sockets_peak(&mut self) -> u64 {
        self.driver().counters().sockets_peak
    }

    fn connection_timer_count(&self) -> usize {
        self.connection_timer_count()
    }

    fn service(&self) -> &TestService {
        self.service()
    }

    fn counters(&self) -> &HttpCounters {
        self.counters()
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        self.visit_pool_stats(visit);
    }

    fn tls_count(&mut self) -> u64 {
        let tls = self.driver().tls_counters().unwrap_or_default();
        tls.handshaking + tls.established
    }
}

/// One run: set the scene with [`Self::network`], then [`Self::play`].
pub(crate) struct Stage {
    pub(crate) network: Network,
    server: Box<dyn Played>,
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
        Self::speaking(seed, plan, limits, pool_mode, Speech::Clear)
    }

    pub(crate) fn speaking(
        seed: u64,
        plan: FaultPlan,
        limits: Limits,
        pool_mode: PoolMode,
        speech: Speech,
    ) -> Self {
        let may_hold_slots = plan.delayed_closes > 0.0;
        let network = Network::new(seed, plan);
        network.set_tick_limit(TICKS_MAX);
        let mut driver = network.driver(pool_mode).unwrap();
        driver.listen_anywhere().unwrap();
        let listen = Address::Inet(SocketAddr::from(([127, 0, 0, 1], 80)));
        let config = ServeConfig {
            limits,
            pool_mode,
            // Its clients have addresses of other machines.
            metrics_access: MetricsAccess::All,
            ..ServeConfig::new("simulated", listen)
        };
        let mut back_office = None;
        let make = |start: ShardStart| {
            let office = back_office.insert(BackOffice::new(start.waker));
            Ok::<_, Infallible>(TestService::new(office))
        };
        let server: Box<dyn Played> = match speech {
            Speech::Clear => Box::new(ShardServer::new(&config, driver, make).unwrap()),
            Speech::Tls12 | Speech::Tls13 => {
                let driver = Tls::new(driver, &tls_server(&limits), pool_mode);
                Box::new(ShardServer::new(&config, driver, make).unwrap())
            }
        };
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

    /// The most sockets that were held at a time.
    pub(crate) fn sockets_peak(&mut self) -> u64 {
        self.server.sockets_peak()
    }

    /// Serves until a script has stopped the server; then everything must be gone.
    pub(crate) fn play(&mut self) -> &HttpCounters {
        let report = self.server.run();
        let report = report.unwrap_or_else(|error| panic!("{error}; {:?}", self.server.counters()));
        assert!(!report.aborted);
        assert_eq!(self.server.socket_count(), 0, "sockets");
        assert_eq!(self.server.tls_count(), 0, "sessions");
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

/// Runs a server over its network until `is_done`, then stops it and plays its stop to the end.
pub(crate) fn run_until<D: Driver, S: Service>(
    network: &Network,
    server: &mut ShardServer<D, S>,
    is_done: impl Fn() -> bool + 'static,
    seed: u64,
) {
    let stop = server.stop_handle();
    network.spawn(move |network| {
        if !is_done() {
            return Turn::At(network.now_ns() + 10 * MILLISECOND_NS);
        }
        stop.request_stop();
        Turn::Done
    });
    server
        .run()
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// The accounting of every pool is sound, and nothing is left in these.
pub(crate) fn expect_nothing_in<D: Driver, S: Service>(
    server: &ShardServer<D, S>,
    names: [&str; 3],
    seed: u64,
) {
    let mut seen = 0;
    server.visit_pool_stats(&mut |stats| {
        assert!(stats.identity_holds(), "seed {seed}: {stats:?}");
        if names.contains(&stats.name) {
            assert_eq!(stats.live_objects, 0, "seed {seed}: {stats:?}");
            seen += 1;
        }
    });
    assert_eq!(seen, names.len());
}
