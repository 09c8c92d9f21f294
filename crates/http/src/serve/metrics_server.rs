//! `/metrics` on a listener of its own: one thread, so that scrapes are answered however full the server is.
//!
//! Its connections are not among those of `--max-connections`, and nothing but the metrics can be asked for there.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use millpond_io::{
    Address, Driver, EpollDriver, IoError, Listener, Shard, ShardConfig, ShardReport, StopHandle,
    Waker,
};
use millpond_mempool::PoolStats;

use crate::access_log::AccessLog;
use crate::body_budget::BodyBudget;
use crate::completions::Completions;
use crate::counters::HttpCounters;
use crate::head_text::FieldValue;
use crate::limits::{Limit, LimitValues, Limits};
use crate::log;
use crate::log::{CountedEvent, LogLevel};
use crate::method::Method;
use crate::metrics::report::{Scrape, ShardSnapshot, Snapshots};
use crate::metrics::{MetricsAccess, PROMETHEUS_TEXT};
use crate::request::Request;
use crate::request::{READ_ONLY, answer_other_method};
use crate::response::Response;
use crate::server::{Server, ServerParts};
use crate::service::{Flow, RequestToken, Service, ServiceContext, ShardStart};
use crate::status::StatusCode;

use super::shards::{Departure, bind};
use super::{ServeConfig, ServeError, StatusPage};

/// Scrapers are few; one more is answered with 503.
const CONNECTIONS_MAX: usize = 64;
/// Nobody sends a body here.
const BODY_BYTES_MAX: u64 = 4096;

/// The listener and its thread.
pub(super) struct MetricsServer {
    address: Address,
    departure: Arc<Departure>,
    stop: StopHandle,
    thread: JoinHandle<()>,
}

impl MetricsServer {
    /// Starts it, if the configuration names an address for it. `scrape`: where it asks for the text.
    pub(super) fn start(
        config: &ServeConfig,
        scrape: &Arc<Scrape>,
    ) -> Result<Option<Self>, ServeError> {
        let Some(address) = &config.metrics_listen else {
            return Ok(None);
        };
        let own = ServeConfig {
            pool_mode: config.pool_mode,
            limits: LIMITS,
            metrics_access: MetricsAccess::None,
            reuse_port: config.reuse_port,
            status_pages: config.status_pages.clone(),
            ..ServeConfig::new("metrics", address.clone())
        };
        let (mut listeners, share) = bind(&own)?;
        let departure = Arc::new(Departure::from(share));
        let Some(listener) = listeners.pop() else {
            return Err(ServeError::NoShards);
        };
        let local = listener.local_address().clone();
        let (ready_sender, ready) = channel();
        let scrape = Arc::clone(scrape);
        let body = move || {
            if let Err(error) = run(&own, &scrape, listener, &ready_sender) {
                log::write(
                    LogLevel::Error,
                    format_args!("metrics are not served: {error}"),
                );
            }
        };
        let thread = Builder::new()
            .name(format!("{}-metrics", config.name))
            .spawn(body);
        let thread = thread.map_err(|source| ServeError::Thread {
            shard_index: 0,
            source,
        })?;
        // It has said why on its way out.
        let Ok(stop) = ready.recv() else {
            return Ok(None);
        };
        log::write(LogLevel::Info, ListeningAddress(&local));
        Ok(Some(Self {
            address: local,
            departure,
            stop,
            thread,
        }))
    }

    /// Where it listens, and what leaves the address to a new server; scrapes go on being answered meanwhile.
    pub(super) fn place(&self) -> (Address, Arc<Departure>) {
        (self.address.clone(), Arc::clone(&self.departure))
    }

    /// Ends it at once: the server has ended.
    pub(super) fn finish(self) {
        self.stop.request_abort();
        // A panic has printed its message, and nothing waits for a scrape any more.
        let _ = self.thread.join();
        self.departure.finish();
    }
}

/// Checked when this is compiled.
const LIMITS: Limits = {
    let values = LimitValues {
        connections_max: CONNECTIONS_MAX,
        body_bytes_max: BODY_BYTES_MAX,
        bodies_bytes_max: BODY_BYTES_MAX * CONNECTIONS_MAX as u64,
        ..LimitValues::DEFAULT
    };
    match values.checked() {
        Ok(limits) => limits,
        Err(_) => panic!("a limit is out of its range"),
    }
};

/// The line of the log that says where.
struct ListeningAddress<'a>(&'a Address);

impl std::fmt::Display for ListeningAddress<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Address::Unix(path) => write!(formatter, "metrics at /metrics on {}", path.display()),
            address @ Address::Inet(_) => write!(formatter, "metrics at http://{address}/metrics"),
        }
    }
}

/// The body of the thread.
fn run(
    config: &ServeConfig,
    scrape: &Arc<Scrape>,
    listener: Listener,
    ready: &Sender<StopHandle>,
) -> Result<(), IoError> {
    let mut driver = EpollDriver::new(config.pool_mode)?;
    driver.listen(listener)?;
    let make = |start: crate::service::ShardStart| {
        scrape.set_reader(start.waker);
        Ok::<_, Infallible>(MetricsService {
            scrape: Arc::clone(scrape),
            waiting: Vec::with_capacity(CONNECTIONS_MAX),
            pages: config.status_pages.clone(),
        })
    };
    let Ok(mut server) = ShardServer::new(config, driver, make);
    let _ = ready.send(server.stop_handle());
    server.run().map(drop)
}

/// Answers `GET /metrics` with the text of the server beside it.
struct MetricsService {
    scrape: Arc<Scrape>,
    /// Requests that wait for the text: one per connection at most.
    waiting: Vec<RequestToken>,
    pages: Vec<StatusPage>,
}

impl Service for MetricsService {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let path = request.path();
        let page = self.pages.iter().find(|page| page.path.as_bytes() == path);
        if let Some(page) = page.filter(|_| is_read) {
            // Without memory nothing is sent, which the server answers with 503.
            let _ = response.send(StatusCode::OK, Some(page.content_type), &page.text());
            return Flow::Done;
        }
        let is_known_path = page.is_some() || matches!(path, b"/metrics" | b"*");
        // Out of memory leaves the response unsent, which the server answers with 503.
        let _ = match (is_known_path, is_read) {
            (true, true) => {
                if self.waiting.is_empty() {
                    self.scrape.ask();
                }
                self.waiting.push(context.token);
                return Flow::Pending;
            }
            (true, false) => {
                let sentence = b"metrics can only be read: use GET\n";
                return answer_other_method(request.method, response, READ_ONLY, sentence);
            }
            (false, _) => response.send(
                StatusCode::NOT_FOUND,
                Some(FieldValue::TEXT_PLAIN),
                b"no such path: metrics are at /metrics\n",
            ),
        };
        Flow::Done
    }

    fn abandoned(&mut self, token: RequestToken, _state: u64) {
        self.waiting.retain(|&waiting| waiting != token);
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        let Some(text) = self.scrape.take_answer() else {
            return;
        };
        for token in self.waiting.drain(..) {
            completions.respond(token, |response, _pools| {
                // Without memory nothing is sent, which becomes 503.
                let _ = response.send(StatusCode::OK, Some(PROMETHEUS_TEXT), &text);
            });
        }
    }
}

// What befalls a server again and again, as lines of its log.
//
// Shards only count. The controlling thread looks at their counts once a second and tells what has
// grown: at once when it begins, then once a minute with how much more there was, until it ends.
// So a flood of peers costs a shard nothing here, and the log two lines a minute for each kind.

/// How old news may be.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// One kind of event.
struct Kind {
    name: &'static str,
    level: LogLevel,
    /// What happened, and what to do about it.
    sentence: &'static str,
    count: fn(&ShardSnapshot) -> u64,
}

const KINDS: [Kind; 11] = [
    Kind {
        name: "accept_failed",
        level: LogLevel::Warn,
        sentence: "connections could not be accepted, for lack of file descriptors or memory; \
                   raise the limit (ulimit -n)",
        count: |shard| shard.driver.accept_failures,
    },
    Kind {
        name: "connections_refused",
        level: LogLevel::Warn,
        sentence: "connections refused with 503: --max-connections are open and none is idle",
        count: |shard| shard.http.limit_hits(Limit::Connections),
    },
    Kind {
        name: "address_refused",
        level: LogLevel::Warn,
        sentence: "connections refused with 503: --max-connections-per-address from one address",
        count: |shard| shard.http.limit_hits(Limit::AddressConnections),
    },
    Kind {
        name: "connections_shed",
        level: LogLevel::Warn,
        sentence: "idle connections closed to make room for new ones",
        count: |shard| shard.http.connections_shed,
    },
    Kind {
        name: "access_log_dropped",
        level: LogLevel::Warn,
        sentence: "entries of the access log found no room and were dropped; raise \
                   --access-log-queue, or find a faster disk",
        count: |shard| shard.access_log.map_or(0, |log| log.dropped),
    },
    Kind {
        name: "receives_starved",
        level: LogLevel::Info,
        sentence: "receives waited for a buffer",
        count: |shard| shard.driver.receive_starvations,
    },
    Kind {
        name: "head_timeouts",
        level: LogLevel::Debug,
        sentence: "heads took longer than --head-timeout",
        count: |shard| shard.http.limit_hits(Limit::HeadTime),
    },
    Kind {
        name: "body_timeouts",
        level: LogLevel::Debug,
        sentence: "bodies came slower than --min-body-rate",
        count: |shard| shard.http.limit_hits(Limit::BodyRate),
    },
    Kind {
        name: "write_stalls",
        level: LogLevel::Debug,
        sentence: "connections cut: their peers did not take the response for --write-stall",
        count: |shard| shard.http.limit_hits(Limit::WriteStall),
    },
    Kind {
        name: "contended_bodies_cut",
        level: LogLevel::Warn,
        sentence: "uploads refused with 408: others waited for the memory that they held, and they \
                   were the slowest (--contended-grace)",
        count: |shard| shard.http.limit_hits(Limit::Contended),
    },
    Kind {
        name: "drain_cut",
        level: LogLevel::Warn,
        sentence: "connections cut: they were not done within --drain-timeout",
        count: |shard| shard.http.limit_hits(Limit::Drain),
    },
];

/// What was seen of each kind.
pub(super) struct Watch {
    snapshots: Arc<Snapshots>,
    events: [CountedEvent; KINDS.len()],
}

impl Watch {
    pub(super) fn new(snapshots: Arc<Snapshots>) -> Self {
        Self {
            snapshots,
            events: KINDS.map(|kind| CountedEvent::new(kind.level, kind.name, kind.sentence)),
        }
    }

    /// Tells what has happened since the last look.
    pub(super) fn look(&mut self, now_ns: u64) {
        let counts = self.counts();
        for (event, count) in self.events.iter_mut().zip(counts) {
            event.look(count, now_ns);
        }
    }

    /// Of all shards together.
    fn counts(&self) -> [u64; KINDS.len()] {
        let mut counts = [0; KINDS.len()];
        for index in 0..self.snapshots.len() {
            let shard = self.snapshots.lock(index);
            for (count, kind) in counts.iter_mut().zip(&KINDS) {
                *count += (kind.count)(&shard);
            }
        }
        counts
    }
}

// One shard of a server, on a driver of the caller's and on the caller's thread.

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

/// What the shards of one server share.
#[derive(Clone)]
pub(super) struct MetricsShared {
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) bodies: BodyBudget,
    pub(super) build_labels: Arc<[(&'static str, String)]>,
    /// Another process takes the address over: set before the shards are asked to stop.
    pub(super) is_handing_over: Arc<AtomicBool>,
    pub(super) access_log: Option<Arc<AccessLog>>,
    /// Of a server whose metrics have a listener of their own.
    pub(super) scrape: Option<Arc<Scrape>>,
}

impl<D: Driver, S: Service> ShardServer<D, S> {
    /// The only shard of a server, over `driver`, not bound to a CPU. `config.listen` and
    /// `config.driver` are the driver's business, and `config.access_log` that of [`super::serve`]: there
    /// is no log, whose thread needs an owner.
    pub fn new<E>(
        config: &ServeConfig,
        driver: D,
        make: impl FnOnce(ShardStart) -> Result<S, E>,
    ) -> Result<Self, E> {
        let shared = MetricsShared {
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
        shared: MetricsShared,
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

    /// What was counted so far.
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

#[cfg(test)]
#[path = "tests/watch.rs"]
mod watch_tests;
