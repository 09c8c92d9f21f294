//! Starting the shards' threads, waiting for their end, collecting their reports.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use millpond_io::listener::BACKLOG;
use millpond_io::tls::{
    CertificateFiles, CertificateWarning, Tls, TlsError, TlsOptions, TlsServer,
};
use millpond_io::{
    Address, Driver, DriverKind, EpollDriver, IoError, Listener, PortShare, ShardConfig,
    ShardReport, StopHandle, UringDriver, allowed_cpus, monotonic_ns,
};
use millpond_mempool::PoolMode;

use crate::access_log::AccessLog;
use crate::body_budget::BodyBudget;
use crate::limits::Limits;
use crate::log;
use crate::log::LogLevel;
use crate::metrics::{Snapshots, accounting_table};
use crate::server::HAND_OVER_NS;
use crate::service::{Service, ShardStart};

use super::event_watch::{LOOK_INTERVAL, Watch};
use super::metrics_server::MetricsServer;
use super::shard_server::{ShardServer, SharedByShards};
use super::{Reread, ServeConfig, ServeError, ServeReport};

/// Events the controlling thread waits for.
#[derive(Debug)]
pub(super) enum Notice {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGUSR1.
    PrintAccounting,
    /// SIGHUP.
    Reread,
    /// A shard's thread is about to end, well or not.
    ShardEnded,
}

/// Actions of the controlling thread, planned or done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ControlEvent {
    /// Before files are read again.
    RereadBegins,
    /// After that.
    RereadEnds,
    /// The first reason to stop.
    StopBegins,
}

/// The controlling thread's queue.
pub(super) struct Notices {
    sender: Sender<Notice>,
    receiver: Receiver<Notice>,
}

impl Notices {
    pub(super) fn sender(&self) -> Sender<Notice> {
        self.sender.clone()
    }
}

/// A server that is up, as seen by the thread that controls it.
#[derive(Clone, Debug)]
pub struct Running {
    name: &'static str,
    local_address: Address,
    stop_handles: Vec<StopHandle>,
    snapshots: Arc<Snapshots>,
    departure: Arc<Departure>,
    /// Of the listener for metrics: where it is, and how it is left.
    metrics: Option<(Address, Arc<Departure>)>,
    tls: Option<TlsServer>,
    access_log: Option<Arc<AccessLog>>,
    reread: Option<Reread>,
}

impl Running {
    /// Where it listens, with the real port.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        &self.local_address
    }

    /// Where `/metrics` has a listener of its own, with the real port.
    #[must_use]
    pub fn metrics_address(&self) -> Option<&Address> {
        self.metrics.as_ref().map(|(address, _)| address)
    }

    /// Graceful: completes the requests that have arrived, then closes. If another process listens on the address too
    /// (see [`ServeConfig::reuse_port`]), it takes over and no client notices.
    pub fn request_stop(&self) {
        self.departure.begin();
        if let Some((_, departure)) = &self.metrics {
            departure.begin();
        }
        self.stop_handles.iter().for_each(StopHandle::request_stop);
    }

    /// At once.
    pub fn request_abort(&self) {
        self.stop_handles.iter().for_each(StopHandle::request_abort);
    }

    /// Opens the access log anew, by its name: a renamed file is closed. Also reads the certificates again, for new
    /// connections; if one cannot be used, all stay unchanged. Logs the result on stderr. SIGHUP does this.
    pub fn reread(&self) {
        if let Some(log) = &self.access_log {
            log.reopen();
        }
        if let Some(tls) = &self.tls {
            reload(tls);
        }
        if let Some(reread) = &self.reread {
            reread.call();
        }
    }

    /// The pools' accounting as a table, at most about a second old.
    #[must_use]
    pub fn accounting_table(&self) -> String {
        accounting_table(self.name, &self.snapshots.to_vec())
    }
}

/// Like [`super::serve`] without signals: `control` runs on this thread once the server accepts,
/// and when it returns the server is stopped gracefully.
pub fn serve_with<S, E>(
    config: &ServeConfig,
    make: impl Fn(ShardStart) -> Result<S, E> + Sync,
    control: impl FnOnce(&Running),
) -> Result<ServeReport, ServeError>
where
    S: Service,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    run(config, make, |running, _notices| {
        control(running);
        Ok(())
    })
}

/// State shared by all shards' threads.
struct Plan<'a, M> {
    config: &'a ServeConfig,
    driver: DriverKind,
    make: M,
    shared: SharedByShards,
    cpus: Vec<usize>,
}

/// Result of a thread: the shard's report, requests served, and whether a drain was cut.
type ShardOutcome = Result<(ShardReport, u64, bool), ServeError>;

pub(super) fn run<S, E, M>(
    config: &ServeConfig,
    make: M,
    control: impl FnOnce(&Running, &Notices) -> Result<(), ServeError>,
) -> Result<ServeReport, ServeError>
where
    S: Service,
    E: Into<Box<dyn Error + Send + Sync>>,
    M: Fn(ShardStart) -> Result<S, E> + Sync,
{
    if config.shards == 0 {
        return Err(ServeError::NoShards);
    }
    let (listeners, share) = bind(config)?;
    let departure = Arc::new(Departure::from(share));
    let plan = plan(config, make, departure.is_under_way())?;
    let (sender, receiver) = channel();
    let notices = Notices { sender, receiver };
    scope(|scope| {
        let mut running = Running {
            name: config.name,
            local_address: listeners[0].local_address().clone(),
            stop_handles: Vec::with_capacity(config.shards),
            snapshots: Arc::clone(&plan.shared.snapshots),
            departure,
            metrics: None,
            tls: config.tls.clone(),
            access_log: plan.shared.access_log.clone(),
            reread: config.reread.clone(),
        };
        let mut threads = Vec::with_capacity(config.shards);
        let started = start_all(
            scope,
            &plan,
            listeners,
            &notices,
            &mut threads,
            &mut running,
        );
        let is_up = running.stop_handles.len() == config.shards;
        let mut metrics = None;
        let started = started.and_then(|()| {
            if let Some(scrape) = plan.shared.scrape.as_ref().filter(|_| is_up) {
                metrics = MetricsServer::start(config, scrape)?;
            }
            running.metrics = metrics.as_ref().map(MetricsServer::place);
            Ok(())
        });
        let controlled = started.and_then(|()| match is_up {
            true => control(&running, &notices),
            // `join_all` finds the error of the shard that is missing.
            false => Ok(()),
        });
        if is_up && controlled.is_ok() {
            running.request_stop();
        } else {
            running.request_abort();
        }
        let report = join_all(threads);
        running.departure.finish();
        if let Some(metrics) = metrics {
            metrics.finish();
        }
        // Also for a server that failed: its last requests may show why.
        if let Some(Err(loss)) = plan.shared.access_log.as_ref().map(|log| log.finish()) {
            log::write(LogLevel::Error, loss);
        }
        let report = report?;
        controlled.map(|()| report)
    })
}

/// Arguments of the shards' threads.
fn plan<M>(
    config: &ServeConfig,
    make: M,
    is_handing_over: Arc<AtomicBool>,
) -> Result<Plan<'_, M>, ServeError> {
    let driver = config.driver.choose()?;
    let access_log = open_access_log(config)?;
    let mut snapshots = Snapshots::new(config.shards);
    snapshots.log_writer = access_log.as_ref().map(|log| log.counters());
    Ok(Plan {
        config,
        driver: driver.kind,
        make,
        shared: SharedByShards {
            snapshots: Arc::new(snapshots),
            bodies: BodyBudget::within(&config.limits),
            build_labels: config
                .labels_for(driver.kind.name(), driver.features)
                .into(),
            is_handing_over,
            access_log,
            scrape: config.metrics_listen.as_ref().map(|_| Arc::default()),
        },
        cpus: if config.pin {
            allowed_cpus()?
        } else {
            Vec::new()
        },
    })
}

/// The shards' listeners, and what it takes to leave their address to others.
pub(super) fn bind(config: &ServeConfig) -> Result<(Vec<Listener>, Option<PortShare>), IoError> {
    if let Some(sockets) = &config.handed_over {
        return Ok((sockets.listeners(config.shards)?, None));
    }
    if config.reuse_port {
        let (listeners, share) = PortShare::bind(&config.listen, config.shards, BACKLOG)?;
        return Ok((listeners, Some(share)));
    }
    let listeners = Listener::bind_group(&config.listen, config.shards, BACKLOG)?;
    Ok((listeners, None))
}

fn open_access_log(config: &ServeConfig) -> Result<Option<Arc<AccessLog>>, ServeError> {
    let Some(wanted) = &config.access_log else {
        return Ok(None);
    };
    let opened = AccessLog::open(wanted, config.shards);
    let log = opened.map_err(|source| ServeError::AccessLog {
        target: wanted.target.clone(),
        source,
    })?;
    Ok(Some(Arc::new(log)))
}

/// Starts every shard's thread, then waits until all accept.
fn start_all<'scope, 'env: 'scope, S, E, M>(
    scope: &'scope Scope<'scope, 'env>,
    plan: &'env Plan<'_, M>,
    listeners: Vec<Listener>,
    notices: &Notices,
    threads: &mut Vec<ScopedJoinHandle<'scope, ShardOutcome>>,
    running: &mut Running,
) -> Result<(), ServeError>
where
    S: Service,
    E: Into<Box<dyn Error + Send + Sync>>,
    M: Fn(ShardStart) -> Result<S, E> + Sync,
{
    let (ready_sender, ready) = channel();
    let mut outcome = Ok(());
    for (shard_index, listener) in listeners.into_iter().enumerate() {
        let ready = ready_sender.clone();
        let ended = EndedNotice(notices.sender());
        let body = move || {
            let _ended = ended;
            let uring = |mode| UringDriver::busy_polling(mode, plan.config.busy_poll_ns);
            // Each a shard of its own kind: one that needs no layer has no trace of it.
            match (plan.driver, needs_layer(plan.config)) {
                (DriverKind::Uring, false) => run_shard(plan, shard_index, uring, listener, ready),
                (DriverKind::Epoll, false) => {
                    run_shard(plan, shard_index, EpollDriver::new, listener, ready)
                }
                (DriverKind::Uring, true) => {
                    let make = |mode| Ok(layered(plan.config, uring(mode)?, mode));
                    run_shard(plan, shard_index, make, listener, ready)
                }
                (DriverKind::Epoll, true) => {
                    let make = |mode| Ok(layered(plan.config, EpollDriver::new(mode)?, mode));
                    run_shard(plan, shard_index, make, listener, ready)
                }
            }
        };
        let name = format!("{}-{shard_index}", plan.config.name);
        match Builder::new().name(name).spawn_scoped(scope, body) {
            Ok(thread) => threads.push(thread),
            Err(source) => {
                outcome = Err(ServeError::Thread {
                    shard_index,
                    source,
                });
                break;
            }
        }
    }
    drop(ready_sender);
    // Ends when every thread that was started has announced itself or stopped.
    running.stop_handles.extend(ready);
    outcome
}

/// Whether a layer is between the driver and the server.
fn needs_layer(config: &ServeConfig) -> bool {
    config.tls.is_some() || config.speaks_tls_to_others || config.proxy_protocol
}

/// The driver under what comes before HTTP.
fn layered<D: Driver>(config: &ServeConfig, driver: D, mode: PoolMode) -> Tls<D> {
    let layer = match (&config.tls, config.speaks_tls_to_others) {
        (None, false) => Tls::in_plaintext(driver, mode),
        (server, _) => Tls::towards_others(driver, server.as_ref(), mode),
    };
    if !config.proxy_protocol {
        return layer;
    }
    let limits = &config.limits;
    layer.awaiting_heads(limits.head_timeout_ns, limits.connections_max, mode)
}

/// Sent when dropped, so that a panicking shard is noticed too.
struct EndedNotice(Sender<Notice>);

impl Drop for EndedNotice {
    fn drop(&mut self) {
        // The controlling thread may have stopped listening.
        let _ = self.0.send(Notice::ShardEnded);
    }
}

/// The body of a shard's thread.
fn run_shard<D, S, E, M>(
    plan: &Plan<'_, M>,
    shard_index: usize,
    make_driver: impl FnOnce(PoolMode) -> Result<D, IoError>,
    listener: Listener,
    ready: Sender<StopHandle>,
) -> ShardOutcome
where
    D: Driver,
    S: Service,
    E: Into<Box<dyn Error + Send + Sync>>,
    M: Fn(ShardStart) -> Result<S, E> + Sync,
{
    let config = plan.config;
    let pool_mode = config.pool_mode;
    let mut driver = make_driver(pool_mode)?;
    driver.set_busy_poll(config.busy_poll_ns);
    driver.listen(listener)?;
    let cpu = (!plan.cpus.is_empty()).then(|| plan.cpus[shard_index % plan.cpus.len()]);
    let shard = ShardConfig {
        index: shard_index,
        cpu,
        pool_mode,
    };
    let make = |start| {
        (plan.make)(start).map_err(|error| ServeError::Service {
            shard_index,
            source: error.into(),
        })
    };
    let mut server = ShardServer::with_shared(config, shard, driver, plan.shared.clone(), make)?;
    // The receiver is held until all have announced themselves, which dropping the sender ends.
    let _ = ready.send(server.stop_handle());
    drop(ready);
    let report = server.run()?;
    Ok((report, server.counters().requests, server.is_drain_over()))
}

fn join_all(threads: Vec<ScopedJoinHandle<'_, ShardOutcome>>) -> Result<ServeReport, ServeError> {
    let mut report = ServeReport {
        shards: Vec::new(),
        requests: 0,
        is_aborted: false,
    };
    let mut first_error = None;
    for (shard_index, thread) in threads.into_iter().enumerate() {
        match thread
            .join()
            .unwrap_or(Err(ServeError::Panicked { shard_index }))
        {
            Ok((shard, requests, is_drain_over)) => {
                report.is_aborted |= shard.aborted || is_drain_over;
                report.requests += requests;
                report.shards.push(shard);
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(report), Err)
}

/// Handles notices until every shard has ended; `tell` gets those that other threads need.
pub(super) fn wait_for_end(running: &Running, notices: &Notices, tell: impl Fn(ControlEvent)) {
    let mut shards_left = running.stop_handles.len();
    let mut is_stopping = false;
    let mut watch = Watch::new(Arc::clone(&running.snapshots));
    while shards_left > 0 {
        watch.look(monotonic_ns());
        // The sender lives in `notices`, so the queue cannot be disconnected.
        let Ok(notice) = notices.receiver.recv_timeout(LOOK_INTERVAL) else {
            continue;
        };
        match notice {
            Notice::Reread => {
                tell(ControlEvent::RereadBegins);
                running.reread();
                tell(ControlEvent::RereadEnds);
            }
            Notice::PrintAccounting => log::write_table(&running.accounting_table()),
            Notice::Stop if is_stopping => {
                log::write(LogLevel::Info, "stopping at once");
                running.request_abort();
            }
            Notice::Stop => {
                let sentence =
                    "stopping: what was asked is answered; a second signal ends it at once";
                log::write(LogLevel::Info, sentence);
                tell(ControlEvent::StopBegins);
                running.request_stop();
            }
            Notice::ShardEnded => {
                shards_left -= 1;
                // A shard that ends by itself failed; the others must not continue without it.
                running.request_stop();
            }
        }
        is_stopping |= matches!(notice, Notice::Stop);
    }
    watch.look(monotonic_ns());
}

// Leaving the address to the server that takes over, step by step, while the shards drain.

/// How often it checks whether the shards have closed their listeners.
const LOOK: Duration = Duration::from_millis(2);

/// A departure that may come.
#[derive(Debug)]
pub(super) struct Departure {
    share: Mutex<Option<PortShare>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_under_way: Arc<AtomicBool>,
}

impl Departure {
    /// From an address that others share, or not.
    pub(super) fn from(share: Option<PortShare>) -> Self {
        Self {
            share: Mutex::new(share),
            thread: Mutex::new(None),
            is_under_way: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Tells the shards, before they are asked to stop, that another process takes over.
    pub(super) fn is_under_way(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_under_way)
    }

    /// Begins, if a process is there that takes over. The first call counts.
    pub(super) fn begin(&self) {
        let Some(share) = lock(&self.share).take() else {
            return;
        };
        if !share.steer_away() {
            return;
        }
        self.is_under_way.store(true, Ordering::Release);
        // Without a thread the sockets close with their shards: steered connections stay steered.
        let thread = Builder::new().name("hand-over".to_owned());
        *lock(&self.thread) = thread.spawn(move || go_on(share)).ok();
    }

    /// Waits until the address is left. After the end of the shards, which it waits for.
    pub(super) fn finish(&self) {
        drop(lock(&self.share).take());
        if let Some(thread) = lock(&self.thread).take() {
            // It cannot panic; were it to, the sockets have closed with it.
            let _ = thread.join();
        }
    }
}

/// Half of the time is for handshakes that had begun; in the other half those are ignored that come
/// here although they were steered away.
fn go_on(share: PortShare) {
    let refuse_at = Instant::now() + Duration::from_nanos(HAND_OVER_NS / 2);
    while !share.is_released() && Instant::now() < refuse_at {
        sleep(LOOK);
    }
    share.refuse_handshakes();
    while !share.is_released() {
        sleep(LOOK);
    }
    share.leave();
}

/// Nothing panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// TLS settings for HTTP, and reading certificates again while serving.

/// Bytes a client may send before its handshake is over: several times the longest real ones, with keys of post-quantum
/// size and a ticket.
pub const TLS_HANDSHAKE_BYTES_MAX: usize = 32 << 10;

/// The only protocol spoken here, as ALPN names it.
const PROTOCOL: &[u8] = b"http/1.1";

/// For a client that meant http:// and found this port.
const PLAINTEXT_RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Connection: close\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 51\r\n\
    \r\n\
    this port speaks TLS: use https:// instead of http\n";

/// Reads certificates and keys for a server with these limits: a handshake may take as long as a
/// head. The first pair is for clients that name no host, or none of the others'. With
/// `client_authorities`, clients have to show a certificate that one of them has signed.
pub fn load_tls(
    certificates: Vec<CertificateFiles>,
    client_authorities: Option<PathBuf>,
    limits: &Limits,
    handshake_bytes_max: usize,
) -> Result<(TlsServer, Vec<CertificateWarning>), TlsError> {
    TlsServer::load(TlsOptions {
        certificates,
        client_authorities,
        protocols: vec![PROTOCOL.to_vec()],
        plaintext_response: PLAINTEXT_RESPONSE,
        handshake_timeout_ns: limits.head_timeout_ns,
        handshake_bytes_max,
    })
}

/// Reads them again and logs the result, in one line and one more for each warning.
pub(super) fn reload(tls: &TlsServer) {
    match tls.reload() {
        Ok(warnings) => {
            let count = tls.certificate_count();
            let sentence =
                format!("read the certificates again ({count}); new connections get them");
            log::write(LogLevel::Info, sentence);
            for warning in warnings {
                log::write(LogLevel::Warn, warning);
            }
        }
        Err(error) => {
            let sentence = format!("the certificates stay as they were: {error}");
            log::write(LogLevel::Warn, sentence);
        }
    }
}

#[cfg(test)]
#[path = "tests/tls.rs"]
mod tls_tests;
