//! `/metrics` on a listener of its own: one thread, so that scrapes get responses however loaded the server is.
//!
//! Its connections are not among those of `--max-connections`, and nothing but the metrics can be asked for there.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use millpond_io::{Address, Driver, EpollDriver, IoError, Listener, StopHandle};

use crate::completions::Completions;
use crate::head_text::FieldValue;
use crate::limits::{LimitValues, Limits};
use crate::log;
use crate::log::LogLevel;
use crate::method::Method;
use crate::metrics::Scrape;
use crate::metrics::{MetricsAccess, PROMETHEUS_TEXT};
use crate::request::{READ_ONLY, Request, answer_other_method};
use crate::response::Response;
use crate::service::{Flow, RequestToken, Service, ServiceContext};
use crate::status::StatusCode;

use super::shard_server::ShardServer;
use super::shards::{Departure, bind};
use super::{ServeConfig, ServeError, StatusPage};

/// Scrapers are few; one more gets 503.
const CONNECTIONS_MAX: usize = 64;
/// Requests have no body here.
const BODY_BYTES_MAX: u64 = 4096;

/// The listener and its thread.
pub(super) struct MetricsServer {
    address: Address,
    departure: Arc<Departure>,
    stop: StopHandle,
    thread: JoinHandle<()>,
}

impl MetricsServer {
    /// Starts it, if the configuration names an address for it. `scrape`: where it requests the text.
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
        // It has logged the reason.
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

    /// Its address, and the handle that releases the address to a new server; scrapes are still served meanwhile.
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

/// The line of the log with its address.
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

/// Responds to `GET /metrics` with the text of the server beside it.
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
            // Without memory nothing is sent, and the server responds with 503.
            let _ = response.send(StatusCode::OK, Some(page.content_type), &page.text());
            return Flow::Done;
        }
        let is_known_path = page.is_some() || matches!(path, b"/metrics" | b"*");
        // Out of memory leaves the response unsent, and the server responds with 503.
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
