//! The configuration of a proxy, and its replacement while it runs.
//!
//! The command line reads flags or a file into a [`ProxyConfig`]; each shard takes it when its
//! [`super::Proxy`] is made, and again when [`ProxyControl::replace`] has woken it.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millpond_io::Waker;
use millpond_io::connection_pool::{Endpoint, PoolConfig, Resolver};
use millpond_io::proxy_protocol::ProxyProtocol;
use millpond_io::tls::TlsClient;

use crate::client::Timeouts;
use crate::head_text::{Authority, HeadTextError, RequestTarget};
use crate::limits::{FIELDS_CAPACITY, HEAD_BYTES_CAPACITY, Limits};
use crate::method::Method;

use super::balance::Balance;
use super::client_peer::NameStates;
use super::client_peer::TrustedPeers;
use super::counters::{RefusalRegistry, UpstreamRegistry};
use super::mirrors::MirrorRegistry;
use super::request_head::ForwardedFields;
use super::request_head::ViaName;
use super::response_head::FieldChanges;
use super::service::{HalfClose, UpgradeProtocols};
use super::upstreams::{EjectionPolicy, ProbePolicy};

/// Upstreams of one proxy at most: one 128-bit mask holds those that a request has tried.
pub const UPSTREAMS_MAX: usize = 128;

/// One server behind the proxy.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// As the user wrote it: for logs and metrics, and to find it again after a reload.
    pub name: String,
    /// Where it is.
    pub place: Endpoint,
    /// Its name in `Host`, with [`HostPolicy::Upstream`] or where the client names none.
    pub host: String,
    /// Its share of the requests, beside those of the others; at least 1.
    pub weight: u32,
    /// How TLS is spoken with it, if it is.
    pub tls: Option<TlsClient>,
    /// Each connection begins with a PROXY header with the client's address. Such a connection serves one request: a
    /// second one could be from another client or connection, and the address would be wrong.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// `Host` as sent to upstreams.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HostPolicy {
    /// The client's value.
    #[default]
    Keep,
    /// The upstream's own name.
    Upstream,
}

/// Configuration of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// From 1 to [`UPSTREAMS_MAX`].
    pub upstreams: Vec<UpstreamConfig>,
    /// Servers that get copies of requests: at most [`MIRRORS_MAX`].
    pub mirrors: Vec<MirrorConfig>,
    /// Limits for these copies.
    pub mirroring: MirrorPolicy,
    /// How upstreams are chosen.
    pub balance: Balance,
    /// `Host` as sent to them.
    pub host: HostPolicy,
    /// Client fields as sent to them.
    pub forwarded: ForwardedFields,
    /// The peers whose client fields are passed on.
    pub trusted: Vec<TrustedPeers>,
    /// How they are probed, if they are.
    pub probe: Option<ProbePolicy>,
    /// When failures of requests take one out.
    pub ejection: EjectionPolicy,
    /// Connections to one upstream, of one shard.
    pub connections_max: usize,
    /// Requests that wait for one of them, of one shard; one more gets 503.
    pub pending_max: usize,
    /// Of each try; `total_ns` is for all tries of a request together.
    pub timeouts: Timeouts,
    /// Effect of a client's FIN on its request.
    pub half_close: HalfClose,
    /// Tries of one request, the first included.
    pub tries_max: u32,
    /// Retries as a share of all requests.
    pub retry_percent: u32,
    /// The status line and all fields of a response; 502 beyond it. At most [`HEAD_BYTES_CAPACITY`].
    pub response_head_bytes_max: usize,
    /// Fields of a response; 502 beyond it. At most [`FIELDS_CAPACITY`].
    pub response_fields_max: usize,
    /// How long a connection to an upstream is kept without a use.
    pub idle_max_ns: u64,
    /// Responses about failures contain only their status.
    pub quiet_errors: bool,
    /// Changes to requests.
    pub request_changes: FieldChanges,
    /// Changes to upstreams' responses.
    pub response_changes: FieldChanges,
    /// Protocols that may take a connection over.
    pub upgrades: UpgradeProtocols,
}

impl ProxyConfig {
    /// Round robin, no probes, two tries.
    #[must_use]
    pub fn new(upstreams: Vec<UpstreamConfig>) -> Self {
        Self {
            upstreams,
            mirrors: Vec::new(),
            mirroring: MirrorPolicy::default(),
            balance: Balance::default(),
            host: HostPolicy::default(),
            forwarded: ForwardedFields::default(),
            trusted: Vec::new(),
            probe: None,
            ejection: EjectionPolicy::default(),
            connections_max: 256,
            pending_max: 1024,
            timeouts: Timeouts::default(),
            half_close: HalfClose::default(),
            tries_max: 2,
            retry_percent: 20,
            response_head_bytes_max: 32 * 1024,
            response_fields_max: FIELDS_CAPACITY,
            idle_max_ns: PoolConfig::default().idle_max_ns,
            quiet_errors: false,
            request_changes: FieldChanges::default(),
            response_changes: FieldChanges::default(),
            upgrades: UpgradeProtocols::default(),
        }
    }

    /// Caps on responses; the other limits are in `limits`.
    pub(super) fn answer_limits(&self, limits: Limits) -> Limits {
        let limits = limits.with_body_bytes_max(u64::MAX);
        let heads = (self.response_head_bytes_max, self.response_fields_max);
        // Checked when the configuration was taken.
        limits
            .with_response_heads(heads.0, heads.1)
            .unwrap_or(limits)
    }

    /// How long opening a connection may take: the longest time that any request waits for it.
    pub(super) fn open_max_ns(&self) -> u64 {
        let of_mirrors = match self.mirrors.is_empty() {
            true => 0,
            false => self.mirroring.timeout_ns,
        };
        self.timeouts.connection_ns.max(of_mirrors)
    }

    /// Whether any upstream gets the addresses of clients' connections.
    pub(super) fn tells_ends(&self) -> bool {
        self.upstreams.iter().any(|it| it.proxy_protocol.is_some())
    }

    fn check(&self) -> Result<(), ProxyConfigError> {
        let count = self.upstreams.len();
        if count == 0 || count > UPSTREAMS_MAX {
            return Err(ProxyConfigError::UpstreamCount { count });
        }
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let earlier = &self.upstreams[..index];
            if earlier.iter().any(|other| other.name == upstream.name) {
                let name = upstream.name.clone();
                return Err(ProxyConfigError::Twice { name });
            }
            check_host(&upstream.name, &upstream.host)?;
        }
        self.check_mirrors()?;
        for (name, value, value_max) in [
            (
                "the header section of responses, in bytes",
                self.response_head_bytes_max,
                HEAD_BYTES_CAPACITY,
            ),
            (
                "the fields of responses",
                self.response_fields_max,
                FIELDS_CAPACITY,
            ),
            (
                "the bodies of copies for mirrors, in bytes",
                self.mirroring.body_bytes_max,
                MIRROR_BODY_BYTES_CAPACITY,
            ),
        ] {
            if !(1..=value_max).contains(&value) {
                return Err(ProxyConfigError::OutOfRange {
                    name,
                    value,
                    value_max,
                });
            }
        }
        if let Some(probe) = &self.probe {
            RequestTarget::new(&probe.path).map_err(ProxyConfigError::ProbePath)?;
        }
        Ok(())
    }

    fn check_mirrors(&self) -> Result<(), ProxyConfigError> {
        let count = self.mirrors.len();
        if count > MIRRORS_MAX {
            return Err(ProxyConfigError::MirrorCount { count });
        }
        for (index, mirror) in self.mirrors.iter().enumerate() {
            let earlier = &self.mirrors[..index];
            if earlier.iter().any(|other| other.name == mirror.name) {
                let name = mirror.name.clone();
                return Err(ProxyConfigError::MirrorTwice { name });
            }
            check_host(&mirror.name, &mirror.host)?;
        }
        Ok(())
    }
}

fn check_host(name: &str, host: &str) -> Result<(), ProxyConfigError> {
    match Authority::new(host) {
        Ok(_) => Ok(()),
        Err(error) => Err(ProxyConfigError::Host {
            name: name.to_owned(),
            error,
        }),
    }
}

/// A configuration that cannot work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyConfigError {
    /// None, or too many.
    #[error("{count} upstreams were named: name from 1 to {UPSTREAMS_MAX}")]
    UpstreamCount {
        /// How many.
        count: usize,
    },
    /// Numbers are kept by name.
    #[error("the upstream {name} is named twice: give it a larger weight instead")]
    Twice {
        /// Which.
        name: String,
    },
    /// Each has copies of its own.
    #[error("{count} mirrors were named: name at most {MIRRORS_MAX}")]
    MirrorCount {
        /// How many.
        count: usize,
    },
    /// Numbers are kept by name.
    #[error("the mirror {name} is named twice: give it a larger percentage instead")]
    MirrorTwice {
        /// Which.
        name: String,
    },
    /// It would be written into each request.
    #[error("the host of {name}: {error}")]
    Host {
        /// The name of the upstream or mirror.
        name: String,
        /// The fault in its host.
        error: HeadTextError,
    },
    /// No response could pass, or the parser's table is smaller.
    #[error("the limit on {name} is {value}: use a value from 1 to {value_max}")]
    OutOfRange {
        /// Of what.
        name: &'static str,
        /// The configured value.
        value: usize,
        /// The largest that works.
        value_max: usize,
    },
    /// It would be written into each probe.
    #[error("the path of the probes: {0}")]
    ProbePath(HeadTextError),
}

/// A proxy's configuration in force, shared by its shards and by the code that changes it.
#[derive(Debug)]
pub struct ProxyControl {
    current: Mutex<Arc<ProxyConfig>>,
    /// Grows when `current` changes.
    generation: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
    /// The proxy's name in `Via`.
    pub(super) via_name: ViaName,
    /// The proxy speaks TLS with its clients.
    pub(super) is_tls: bool,
    pub(super) resolver: Option<Resolver>,
    pub(super) registry: UpstreamRegistry,
    pub(super) mirror_registry: MirrorRegistry,
    pub(super) refusals: RefusalRegistry,
    pub(super) names: NameStates,
}

impl ProxyControl {
    /// For the shards to come. `resolver` is needed if an upstream is named by a host name.
    pub fn new(
        config: ProxyConfig,
        is_tls: bool,
        resolver: Option<Resolver>,
    ) -> Result<Arc<Self>, ProxyConfigError> {
        config.check()?;
        Ok(Arc::new(Self {
            current: Mutex::new(Arc::new(config)),
            generation: AtomicU64::new(1),
            wakers: Mutex::default(),
            via_name: ViaName::random(),
            is_tls,
            resolver,
            registry: UpstreamRegistry::default(),
            mirror_registry: MirrorRegistry::default(),
            refusals: RefusalRegistry::default(),
            names: NameStates::default(),
        }))
    }

    /// From now on this holds. Requests under way end as they began; upstreams that stay keep their
    /// connections and what is known of their health, but what probes have found if there are none now.
    pub fn replace(&self, config: ProxyConfig) -> Result<(), ProxyConfigError> {
        config.check()?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        self.generation.fetch_add(1, Ordering::Release);
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter().for_each(Waker::wake);
        Ok(())
    }

    pub(super) fn attend(&self, waker: Waker) {
        let wakers = self.wakers.lock();
        wakers.unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<ProxyConfig> {
        // A panic elsewhere leaves one whole configuration or the other.
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}

// Mirrors: servers that get a copy of some requests, and whose responses are dropped.
//
// Their configuration. [`super::mirrors`] takes the samples and sends the copies.

/// Mirrors of one proxy at most: each has copies of its own.
pub const MIRRORS_MAX: usize = 4;

/// Copies under way to one mirror, of one shard: as many connections are opened at most. With as many,
/// the next one is dropped.
pub const MIRROR_IN_FLIGHT_MAX: usize = 64;

/// Longest body that may be copied: [`MirrorPolicy::body_bytes_max`] is at most this.
pub const MIRROR_BODY_BYTES_CAPACITY: usize = 16 << 20;

/// One server that gets copies.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// As the user wrote it: for logs and metrics, and to find it again after a reload.
    pub name: String,
    /// Where it is.
    pub place: Endpoint,
    /// Its name in `Host`, with [`super::HostPolicy::Upstream`] or where the client names none.
    pub host: String,
    /// How TLS is spoken with it, if it is.
    pub tls: Option<TlsClient>,
    /// How many of the requests are copied.
    pub share: MirrorShare,
}

/// Settings for the copies of all mirrors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MirrorPolicy {
    /// Requests that are copied.
    pub methods: MirrorMethods,
    /// A request with a longer body is not copied. At most [`MIRROR_BODY_BYTES_CAPACITY`].
    pub body_bytes_max: usize,
    /// From the beginning of a copy to the end of its response; the connection is closed beyond it.
    pub timeout_ns: u64,
}

impl Default for MirrorPolicy {
    fn default() -> Self {
        Self {
            methods: MirrorMethods::default(),
            body_bytes_max: 64 << 10,
            timeout_ns: 10_000_000_000,
        }
    }
}

/// Which methods are copied.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MirrorMethods {
    /// GET, HEAD, OPTIONS and TRACE, which change nothing: a mirror that shares a database with the
    /// upstream would carry others out twice.
    #[default]
    Safe,
    /// Every method: the mirror's data is its own.
    All,
}

impl MirrorMethods {
    #[inline]
    pub(super) fn has(self, method: Method) -> bool {
        match self {
            Self::Safe => method.is_safe(),
            Self::All => true,
        }
    }
}

/// How many of a million requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MirrorShare {
    parts_per_million: u32,
}

pub(super) const MILLION: u32 = 1_000_000;

impl MirrorShare {
    /// Every request.
    pub const ALL: Self = Self {
        parts_per_million: MILLION,
    };

    /// A percentage above 0 up to 100, in steps of 0.0001.
    pub fn of_percent(percent: f64) -> Result<Self, MirrorShareError> {
        let parts = (percent * f64::from(MILLION / 100)).round();
        match parts >= 1.0 && percent <= 100.0 {
            // At most a million.
            true => Ok(Self {
                parts_per_million: parts as u32,
            }),
            false => Err(MirrorShareError {
                text: percent.to_string(),
            }),
        }
    }

    pub(super) const fn parts_per_million(self) -> u32 {
        self.parts_per_million
    }
}

impl FromStr for MirrorShare {
    type Err = MirrorShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let percent = number.parse().ok().and_then(|it| Self::of_percent(it).ok());
        percent.ok_or_else(|| MirrorShareError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for MirrorShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.parts_per_million) / f64::from(MILLION / 100);
        write!(formatter, "{percent}%")
    }
}

/// No such share.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no percentage of requests: write a number from 0.0001 to 100")]
pub struct MirrorShareError {
    text: String,
}

#[cfg(test)]
#[path = "tests/mirror_config.rs"]
mod mirror_config_tests;
