//! A whole server: one thread, listener and service per shard, until a signal or its owner ends it.
//!
//! The command line calls [`serve`] and blocks in it. Listeners are bound on the calling thread, so
//! that a taken port is one clear error before any thread exists.

mod event_watch;
mod metrics_server;
mod shard_server;
mod shards;

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};
use std::{fmt, io};

use millpond_io::tls::TlsServer;
use millpond_io::{
    Address, DriverFeatures, HandedOver, IoError, ServiceManager, ServiceState, ShardReport,
};
use millpond_mempool::PoolMode;
use shards::{ControlEvent, Notice};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};

use crate::access_log::{AccessLogConfig, AccessLogTarget};
use crate::head_text::FieldValue;
use crate::limits::Limits;
use crate::log;
use crate::metrics::MetricsAccess;
use crate::service::{Service, ShardStart};

pub use millpond_io::DriverChoice;
pub use shard_server::ShardServer;
pub use shards::{Running, serve_with};
pub use shards::{TLS_HANDSHAKE_BYTES_MAX, load_tls};

/// Runs a server until SIGTERM or SIGINT, then drains it; a second signal ends it at once.
/// SIGUSR1 prints the pools' accounting on stderr; SIGHUP makes a server that speaks TLS read its
/// certificates again, and one with an access log open the file anew. `on_ready` is called once it
/// accepts.
pub fn serve<S, E>(
    config: &ServeConfig,
    make: impl Fn(ShardStart) -> Result<S, E> + Sync,
    on_ready: impl FnOnce(&Address),
) -> Result<ServeReport, ServeError>
where
    S: Service,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    // Before anything else: a signal that comes early must not kill a half-started server.
    let has_files = config.tls.is_some() || config.access_log.is_some() || config.reread.is_some();
    // A service manager sends SIGHUP to reload a service; there is no terminal to end with.
    let rereads = has_files || config.service_manager.is_some();
    let signals = SignalWatch::install(rereads).map_err(ServeError::Signals)?;
    shards::run(config, make, |running, notices| {
        let forwarder = signals.forward_to(notices.sender())?;
        on_ready(running.local_address());
        let status = format!("listening on {}", running.local_address());
        let ready = ServiceState::Ready { status: &status };
        config.tell(ready);
        if let Some(manager) = &config.service_manager {
            log::show_errors_to(manager, &status);
        }
        shards::wait_for_end(running, notices, |event| match event {
            ControlEvent::RereadBegins => config.tell(ServiceState::Reloading),
            ControlEvent::RereadEnds => config.tell(ready),
            ControlEvent::StopBegins => config.tell(ServiceState::Stopping),
        });
        log::show_errors_to_no_manager();
        forwarder.stop();
        Ok(())
    })
}

// Configuration and report of a server.

/// A server's configuration.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: Address,
    /// Threads; each has its own listener.
    pub shards: usize,
    /// Pin shard i to the i-th CPU this process may use.
    pub pin: bool,
    /// Pools, or one malloc and free per pool call.
    pub pool_mode: PoolMode,
    /// Caps on what peers send.
    pub limits: Limits,
    /// Which server this is, for `/metrics` and threads' names: `plaintext`, `entity`.
    pub name: &'static str,
    /// Which kernel interface to use.
    pub driver: DriverChoice,
    /// How long a shard may poll for events before it sleeps, while that pays; 0: never. See
    /// [`millpond_io::Driver::set_busy_poll`].
    pub busy_poll_ns: u64,
    /// Sockets that listen already, instead of `listen`, which then only names the address.
    pub handed_over: Option<HandedOver>,
    /// Notified when the server is ready, reads files again, and stops.
    pub service_manager: Option<ServiceManager>,
    /// Share the address with another process of this user that does so too: a new server starts
    /// beside the old one and has the address for itself once that was asked to stop. Without it an
    /// address that is taken is refused.
    pub reuse_port: bool,
    /// Certificates, for a server with TLS: [`load_tls`] reads them.
    pub tls: Option<TlsServer>,
    /// Every connection begins with a PROXY header, version 1 or 2, with the client's address; one
    /// without is closed. It comes before TLS.
    pub proxy_protocol: bool,
    /// A line for each request, if wanted.
    pub access_log: Option<AccessLogConfig>,
    /// The service calls other servers over TLS, whether or not it uses TLS with its clients.
    pub speaks_tls_to_others: bool,
    /// Other files that SIGHUP makes the server read again.
    pub reread: Option<Reread>,
    /// The peers that may read `GET /metrics` on the main listener.
    pub metrics_access: MetricsAccess,
    /// A listener of its own for `/metrics`, in plaintext, if wanted.
    pub metrics_listen: Option<Address>,
    /// Further pages of that listener.
    pub status_pages: Vec<StatusPage>,
    /// Labels added to `millpond_build_info`, e.g. `("engine", "rocksdb")`.
    pub build_labels: Vec<(&'static str, String)>,
}

/// Called on a request to read files again; it logs the result itself.
#[derive(Clone)]
pub struct Reread(Arc<dyn Fn() + Send + Sync>);

impl Reread {
    /// Calls `read_again` on the controlling thread.
    pub fn new(read_again: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(read_again))
    }

    fn call(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Reread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reread")
    }
}

/// A page beside `/metrics`, on the listener that metrics have of their own.
#[derive(Clone)]
pub struct StatusPage {
    /// Where it is, from the first slash on.
    pub path: &'static str,
    /// Its name in the log.
    pub content_type: FieldValue<'static>,
    write: Arc<dyn Fn() -> Vec<u8> + Send + Sync>,
}

impl StatusPage {
    /// `write` gives the page as it is now; it is called by the listener's thread, for each request.
    pub fn new(
        path: &'static str,
        content_type: FieldValue<'static>,
        write: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self {
            path,
            content_type,
            write: Arc::new(write),
        }
    }

    fn text(&self) -> Vec<u8> {
        (self.write)()
    }
}

impl fmt::Debug for StatusPage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StatusPage")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ServeConfig {
    /// One shard, pools on, default limits.
    #[must_use]
    pub fn new(name: &'static str, listen: Address) -> Self {
        Self {
            listen,
            shards: 1,
            pin: false,
            pool_mode: PoolMode::On,
            limits: Limits::default(),
            name,
            driver: DriverChoice::Auto,
            busy_poll_ns: 0,
            handed_over: None,
            service_manager: None,
            reuse_port: false,
            tls: None,
            proxy_protocol: false,
            access_log: None,
            speaks_tls_to_others: false,
            reread: None,
            metrics_access: MetricsAccess::default(),
            metrics_listen: None,
            status_pages: Vec::new(),
            build_labels: Vec::new(),
        }
    }

    /// Notifies the service manager, if there is one.
    fn tell(&self, state: ServiceState<'_>) {
        if let Some(manager) = &self.service_manager {
            manager.tell(state);
        }
    }

    /// The labels of `millpond_build_info`.
    fn labels_for(
        &self,
        driver: &'static str,
        features: DriverFeatures,
    ) -> Vec<(&'static str, String)> {
        let mut labels = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("server", self.name.to_owned()),
            ("driver", driver.to_owned()),
            ("driver_features", features.to_string()),
            ("pools", self.pool_mode.to_string()),
            ("shards", self.shards.to_string()),
            (
                "tls",
                if self.tls.is_some() { "on" } else { "off" }.to_owned(),
            ),
        ];
        labels.extend(self.build_labels.iter().cloned());
        labels
    }
}

/// How a server's life went.
#[derive(Clone, Debug)]
pub struct ServeReport {
    /// One per shard.
    pub shards: Vec<ShardReport>,
    /// Requests served, all shards.
    pub requests: u64,
    /// A second signal or the drain deadline cut connections.
    pub is_aborted: bool,
}

/// Why a server did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// No thread to serve.
    #[error("a server needs at least one shard: ask for 1 or more")]
    NoShards,
    /// Sockets, CPUs or the driver.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The service could not be made.
    #[error("{source}")]
    Service {
        /// Which shard.
        shard_index: usize,
        /// The service's own error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No thread for a shard.
    #[error("cannot start the thread of shard {shard_index}: {source}; use fewer shards")]
    Thread {
        /// Which shard.
        shard_index: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// No place for the log.
    #[error("cannot write the access log to {target}: {source}")]
    AccessLog {
        /// The configured value.
        target: AccessLogTarget,
        /// The system's error.
        source: std::io::Error,
    },
    /// Signal handlers could not be installed.
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    /// A bug: the thread's panic message is on stderr.
    #[error("shard {shard_index} panicked: please report the message above")]
    Panicked {
        /// Which shard.
        shard_index: usize,
    },
}

// SIGTERM, SIGINT, SIGUSR1 and SIGHUP as notices on the controlling thread's queue.

/// Signals are caught from here on; those that come early wait.
struct SignalWatch {
    signals: Signals,
}

impl SignalWatch {
    /// SIGHUP is only caught where it is used: a server without files to read again ends with its terminal.
    fn install(rereads: bool) -> io::Result<Self> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1])?;
        if rereads {
            signals.add_signal(SIGHUP)?;
        }
        Ok(Self { signals })
    }

    /// Starts the thread that turns signals into notices.
    fn forward_to(mut self, notices: Sender<Notice>) -> Result<Forwarder, ServeError> {
        let handle = self.signals.handle();
        let forward = move || {
            for signal in &mut self.signals {
                let notice = match signal {
                    SIGUSR1 => Notice::PrintAccounting,
                    SIGHUP => Notice::Reread,
                    _ => Notice::Stop,
                };
                if notices.send(notice).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new()
            .name("signals".to_owned())
            .spawn(forward)
            .map_err(ServeError::Signals)?;
        Ok(Forwarder { handle, thread })
    }
}

/// The thread that waits for signals.
struct Forwarder {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Forwarder {
    fn stop(self) {
        self.handle.close();
        // The loop above cannot panic; were it to, the server has ended anyway.
        let _ = self.thread.join();
    }
}
