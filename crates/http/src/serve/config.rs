//! What a server is told, and what it tells in the end.

use crate::access_log::{AccessLogConfig, AccessLogTarget};
use crate::head_text::FieldValue;
use crate::limits::Limits;
use crate::metrics::MetricsAccess;
use millpond_io::tls::TlsServer;
use millpond_io::{
    Address, DriverChoice, DriverFeatures, HandedOver, IoError, ServiceManager, ServiceState,
    ShardReport,
};
use millpond_mempool::PoolMode;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

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
    /// How long a shard may look for events before it sleeps, while that pays; 0: never. See
    /// [`millpond_io::Driver::set_busy_poll`].
    pub busy_poll_ns: u64,
    /// Sockets that listen already, in the place of `listen`, which then only says where.
    pub handed_over: Option<HandedOver>,
    /// Who is told when the server is ready, reads files again, and stops.
    pub service_manager: Option<ServiceManager>,
    /// Share the address with another process of this user that does so too: a new server starts
    /// beside the old one and has the address for itself once that was asked to stop. Without it an
    /// address that is taken is refused.
    pub reuse_port: bool,
    /// Certificates, for a server that speaks TLS: [`super::load_tls`] reads them.
    pub tls: Option<TlsServer>,
    /// Whoever connects begins with a head of the PROXY protocol, version 1 or 2, that says for whom; one
    /// without is closed. It comes before TLS.
    pub proxy_protocol: bool,
    /// A line for each request, if wanted.
    pub access_log: Option<AccessLogConfig>,
    /// The service asks other servers over TLS, whether or not it speaks TLS with its clients.
    pub speaks_tls_to_others: bool,
    /// What else SIGHUP makes the server read again.
    pub reread: Option<Reread>,
    /// Which peers `GET /metrics` is answered for on the main listener.
    pub metrics_access: MetricsAccess,
    /// A listener of its own for `/metrics`, in clear text, if wanted.
    pub metrics_listen: Option<Address>,
    /// Further pages of that listener.
    pub status_pages: Vec<StatusPage>,
    /// Labels added to `millpond_build_info`, e.g. `("engine", "rocksdb")`.
    pub build_labels: Vec<(&'static str, String)>,
}

/// What is called when somebody asks the server to read its files again; it says itself what became
/// of it.
#[derive(Clone)]
pub struct Reread(Arc<dyn Fn() + Send + Sync>);

impl Reread {
    /// Calls `read_again` on the controlling thread.
    pub fn new(read_again: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(read_again))
    }

    pub(super) fn call(&self) {
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
    /// What it is.
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

    pub(super) fn text(&self) -> Vec<u8> {
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

    /// Tells the service manager, if there is one.
    pub(super) fn tell(&self, state: ServiceState<'_>) {
        if let Some(manager) = &self.service_manager {
            manager.tell(state);
        }
    }

    /// The labels of `millpond_build_info`.
    pub(super) fn labels_for(
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
        /// The service's own words.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No thread for a shard.
    #[error("cannot start the thread of shard {shard_index}: {source}; use fewer shards")]
    Thread {
        /// Which shard.
        shard_index: usize,
        /// The system's words.
        source: std::io::Error,
    },
    /// No place for the log.
    #[error("cannot write the access log to {target}: {source}")]
    AccessLog {
        /// What was asked for.
        target: AccessLogTarget,
        /// The system's words.
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
