//! The settings of a run, checked before anything is connected.
use crate::arrivals::{Arrivals, RATE_PER_S_MAX, Rate};
use crate::connection_plan::ConnectionPlan;
use crate::connection_plan::TargetThreads;
use crate::cookies::CookiePlan;
use crate::error::LoadError;
use crate::request_mix::RequestMix;
use crate::schedule::Pace;
use crate::shared::AbortRule;
use crate::validation::Validation;
use crate::workload::Requests;
use millpond_http::limits::HEAD_BYTES_CAPACITY;
use millpond_http::{Limits, Method};
use millpond_io::tls::TlsClient;
use millpond_io::{Address, DriverChoice};
use millpond_mempool::PoolMode;
use std::sync::Arc;

/// Most repetitions of a run.
const REPEATS_MAX: u64 = 1_000;

/// Most requests in flight on one connection.
pub const PIPELINE_MAX: usize = 1_024;
/// Most connections: the files that Linux lets a process open, unless root has raised that.
const CONNECTIONS_MAX: usize = 1 << 20;
/// More threads than any machine has CPUs is a typo, and each takes megabytes.
const THREADS_MAX: usize = 1_024;
/// Default of [`LoadConfig::timeout_ns`]: wrk's.
pub const TIMEOUT_NS_DEFAULT: u64 = 2_000_000_000;
/// Default of [`LoadConfig::gone_after_ns`].
pub const GONE_AFTER_NS_DEFAULT: u64 = 1_000_000_000;
/// Default of [`LoadConfig::connect_within_ns`].
pub const CONNECT_WITHIN_NS_DEFAULT: u64 = 30_000_000_000;

/// Longest head of a response that can be read.
pub const RESPONSE_HEAD_BYTES_MAX: usize = HEAD_BYTES_CAPACITY;
/// Most fields of a response.
pub const RESPONSE_FIELDS_MAX: usize = 300;

/// Where requests go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The socket addresses, at least one; names are resolved by the caller. Connections take them in turn, and where
    /// one refuses, the next.
    pub addresses: Arc<[Address]>,
    /// Value of the Host field.
    pub host: String,
    /// Path and query of a static workload; path before `?id=` of an entity workload.
    pub path: String,
}

/// The rule that starts the next request.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// A response lets the next request of that connection leave.
    ClosedLoop,
    /// Requests are due on a fixed grid, whatever the responses do.
    ConstantRate {
        /// Requests per second of all threads together; fractions are kept to a millionth.
        per_s: f64,
    },
    /// Requests are due when an arrival process says so, whatever the responses do.
    Open(Arrivals),
}

/// The end of the window; with both, whichever comes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stop {
    /// Length of the window.
    pub duration_ns: Option<u64>,
    /// Exact number of counted requests.
    pub requests: Option<u64>,
}

impl Stop {
    /// After `duration_ns` of counting.
    pub const fn after_ns(duration_ns: u64) -> Self {
        Self {
            duration_ns: Some(duration_ns),
            requests: None,
        }
    }

    /// After exactly `requests` counted requests.
    pub const fn after_requests(requests: u64) -> Self {
        Self {
            duration_ns: None,
            requests: Some(requests),
        }
    }
}

/// The kind of requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// The same request each time.
    Static {
        /// Its method.
        method: Method,
        /// Fields besides Host and Content-Length.
        fields: Vec<(String, String)>,
        /// Its body.
        body: Vec<u8>,
    },
    /// The same request each time, its body in chunks: nothing says beforehand how long it is.
    StaticChunked {
        /// Its method.
        method: Method,
        /// Fields besides Host and Transfer-Encoding.
        fields: Vec<(String, String)>,
        /// Its body.
        body: Vec<u8>,
        /// Length of each chunk but the last, at least 1.
        chunk_bytes: usize,
    },
    /// `PUT path?id=k000000123`: request number i writes key i modulo `keys`, so a run of `keys`
    /// requests writes each key exactly once.
    EntityPut {
        /// Number of keys.
        keys: u64,
        /// Size of each value.
        value_bytes: usize,
        /// Values follow from seed and key.
        seed: u64,
    },
    /// `GET path?id=...` of a key drawn uniformly from those an [`Workload::EntityPut`] with the
    /// same parameters has filled.
    EntityGet {
        /// Number of keys.
        keys: u64,
        /// Size of each value.
        value_bytes: usize,
        /// As for the writing run; it also decides the order of the keys.
        seed: u64,
    },
    /// Requests of several classes, from templates. The path of the target is not used.
    Mix(RequestMix),
}

/// The time before the window, uncounted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WarmUp {
    /// So much time; 0: none.
    Lasting {
        /// How long.
        duration_ns: u64,
    },
    /// As long as it takes until throughput and median response time no longer change.
    UntilSteady {
        /// When it ends in any case; the verdict then says so.
        limit_ns: u64,
    },
}

impl WarmUp {
    /// How long it takes, as far as that is known beforehand.
    #[must_use]
    pub const fn known_ns(self) -> u64 {
        match self {
            Self::Lasting { duration_ns } => duration_ns,
            Self::UntilSteady { .. } => 0,
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// Where requests go.
    pub target: Target,
    /// Threads; never more than connections.
    pub threads: usize,
    /// Connections of all threads together, exactly. Each is an open file: see [`crate::raise_descriptor_limit`].
    pub connections: usize,
    /// Most requests in flight per connection.
    pub pipeline: usize,
    /// The rule that starts the next request.
    pub mode: Mode,
    /// An arrival that cannot be sent within this time of its intended start is dropped unsent, and
    /// counted apart. `None`: it is sent whenever there is a connection. Not for the closed loop.
    pub deadline_ns: Option<u64>,
    /// Uncounted time before the window.
    pub warm_up: WarmUp,
    /// The end of the window.
    pub stop: Stop,
    /// How often the whole of it, warm-up included, is measured on fresh connections; at least 1. The record is of
    /// all of them together.
    pub repeats: u64,
    /// The kind of requests.
    pub workload: Workload,
    /// Which responses are right.
    pub validation: Validation,
    /// How connections come and go.
    pub plan: ConnectionPlan,
    /// TLS towards the target; `None`: plaintext.
    pub tls: Option<TlsClient>,
    /// A request without a response this long after its write has failed; also bounds connecting
    /// and the drain at the end.
    pub timeout_ns: u64,
    /// Longest head of a response, at most and by default [`RESPONSE_HEAD_BYTES_MAX`]. It has at most
    /// [`RESPONSE_FIELDS_MAX`] fields; bodies may have any length.
    pub response_head_bytes_max: usize,
    /// How long is waited for all connections to be open before anything is sent. If some are not, they are abandoned,
    /// the others are measured, and the verdict is INVALID. With a ramp it is the first alone that is waited for.
    pub connect_within_ns: u64,
    /// A target without any connection for this long is gone, and the run ends, unless it is to continue.
    pub gone_after_ns: u64,
    /// CPUs for the threads, in turn; `None` leaves placement to the kernel.
    pub cpus: Option<Vec<usize>>,
    /// Whether the generator's own pools pool.
    pub pool_mode: PoolMode,
    /// Which kernel interface the threads use. Epoll unless asked otherwise: with it a request
    /// leaves in the moment it is stamped, with io_uring when its thread next waits.
    pub driver: DriverChoice,
    /// How long a thread may poll for responses before it sleeps, while polling pays; 0: never. See
    /// [`millpond_io::Driver::set_busy_poll`].
    pub busy_poll_ns: u64,
    /// Whether a sample of the responses is stamped by the kernel on arrival, where the driver can, to distinguish a
    /// thread that woke late from a slow target. The kernel then stamps every packet of the machine, which is cheap but
    /// not free.
    pub receive_stamps: bool,
    /// Whether the run continues without a target until its duration ends: see [`LoadRecord::outages`]. A request that
    /// no connection takes within `timeout_ns` of when it was due has failed then.
    ///
    /// [`LoadRecord::outages`]: crate::LoadRecord::outages
    pub keeps_going: bool,
    /// The condition that ends the run early.
    pub abort: Option<AbortRule>,
    /// Each connection is a user that keeps the server's cookies and sends them back; `None`:
    /// cookies are ignored. Not for scripts, which write their requests themselves.
    pub cookies: Option<CookiePlan>,
    /// Whether batches of requests that left together are timed too, as a whole.
    pub batch_latency: bool,
    /// Whether the clocks are also kept without the requests that met a stall of the generator's own thread; see
    /// [`crate::Undisturbed`]. Not where target and generator share a CPU.
    pub watch_stalls: bool,
    /// With `watch_stalls`, the target's threads, if it runs here: what they waited for other programs is a stall too.
    pub target_threads: Option<Arc<TargetThreads>>,
    /// Whether threads take the highest priority that is permitted (root, `CAP_SYS_NICE`), so that other programs
    /// interrupt them less; where it is not, they run with this process's.
    pub raises_priority: bool,
    /// Whether connections stay open after the last response until [`crate::Observer::connections_held`] has returned.
    pub holds_connections: bool,
    /// How many requests are kept one by one, at most; 0: none.
    pub samples_max: usize,
}

impl LoadConfig {
    /// A closed loop of one thread and one connection for ten seconds; change what differs.
    pub fn new(target: Target, workload: Workload) -> Self {
        let validation = Validation::for_workload(&workload);
        Self {
            target,
            threads: 1,
            connections: 1,
            pipeline: 1,
            mode: Mode::ClosedLoop,
            deadline_ns: None,
            warm_up: WarmUp::Lasting { duration_ns: 0 },
            stop: Stop::after_ns(10_000_000_000),
            repeats: 1,
            workload,
            validation,
            plan: ConnectionPlan::default(),
            tls: None,
            timeout_ns: TIMEOUT_NS_DEFAULT,
            response_head_bytes_max: RESPONSE_HEAD_BYTES_MAX,
            connect_within_ns: CONNECT_WITHIN_NS_DEFAULT,
            gone_after_ns: GONE_AFTER_NS_DEFAULT,
            cpus: None,
            pool_mode: PoolMode::On,
            driver: DriverChoice::Epoll,
            busy_poll_ns: 0,
            receive_stamps: false,
            keeps_going: false,
            abort: None,
            cookies: None,
            batch_latency: false,
            watch_stalls: false,
            target_threads: None,
            raises_priority: false,
            holds_connections: false,
            samples_max: 0,
        }
    }

    /// Refuses what cannot be run, naming the setting; [`crate::run()`] calls it first.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |name, problem: String| Err(LoadError::Setting { name, problem });
        if self.connections == 0 || self.threads == 0 {
            return refuse(
                "connections",
                "at least one connection and one thread are needed".into(),
            );
        }
        self.check_room()?;
        self.check_addresses()?;
        if self.pipeline == 0 || self.pipeline > PIPELINE_MAX {
            return refuse(
                "pipeline",
                format!("{} is not in 1..={PIPELINE_MAX}", self.pipeline),
            );
        }
        if self.timeout_ns == 0 {
            return refuse("timeout", "no response can come in zero time".into());
        }
        if let Err(problem) = self.try_response_limits() {
            return refuse("max-response-header", problem);
        }
        if self.connect_within_ns == 0 {
            return refuse("connect-within", "no connection opens in zero time".into());
        }
        self.check_stop()?;
        if self.cpus.as_ref().is_some_and(Vec::is_empty) {
            return refuse("cpus", "the list is empty; leave it out instead".into());
        }
        if self.deadline_ns == Some(0) {
            return refuse("deadline", "no request can leave within zero time".into());
        }
        if self.deadline_ns.is_some() && self.mode == Mode::ClosedLoop {
            return refuse(
                "deadline",
                "in a closed loop no request is ever late; give a rate".into(),
            );
        }
        self.check_warm_up()?;
        self.plan.check(self.connections)?;
        self.check_repeats()?;
        let keys = match &self.workload {
            Workload::Mix(mix) => mix.keys.as_ref(),
            _ => None,
        };
        if self.validation.has_echo && keys.is_none() {
            return refuse(
                "expect-echo",
                "no request names a key: put {key} into the URL or the body, and give --keys"
                    .into(),
            );
        }
        if let Some(cookies) = &self.cookies {
            cookies
                .check()
                .or_else(|problem| refuse("cookies", problem))?;
        }
        self.check_request()
    }

    fn check_stop(&self) -> Result<(), LoadError> {
        let refuse = |problem: &str| {
            Err(LoadError::Setting {
                name: "stop",
                problem: problem.to_owned(),
            })
        };
        match self.stop {
            Stop {
                duration_ns: None, ..
            } if self.keeps_going => Err(LoadError::Setting {
                name: "keep-going",
                problem: "give a duration too: a target that does not come back would never let the run end".into(),
            }),
            Stop {
                duration_ns: None,
                requests: None,
            } if self.span_ns().is_none() => {
                refuse("give a duration, a number of requests, or both")
            }
            Stop {
                duration_ns: Some(0),
                ..
            }
            | Stop {
                requests: Some(0), ..
            } => refuse("zero time or zero requests measure nothing"),
            _ => Ok(()),
        }
    }

    /// GET of `/` where nothing listens, for tests that open nothing.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let target = Target {
            addresses: [Address::from(std::net::SocketAddr::from((
                [127, 0, 0, 1],
                1,
            )))]
            .into(),
            host: "a".to_owned(),
            path: "/".to_owned(),
        };
        let workload = Workload::Static {
            method: Method::Get,
            fields: Vec::new(),
            body: Vec::new(),
        };
        Self::new(target, workload)
    }

    /// Refuses a target without an address, and sources of a family that none of its addresses has.
    fn check_addresses(&self) -> Result<(), LoadError> {
        let refuse = |name, problem: &str| {
            let problem = problem.to_owned();
            Err(LoadError::Setting { name, problem })
        };
        if self.target.addresses.is_empty() {
            return refuse("address", "the target has none");
        }
        let is_v6 = self.plan.sources.map(|sources| sources.at(0).is_ipv6());
        let families = self.target.addresses.iter().filter_map(Address::inet);
        match is_v6 {
            Some(is_v6) if families.clone().any(|address| address.is_ipv6() != is_v6) => refuse(
                "source",
                "the target has addresses of another family (IPv4, IPv6) than the sources",
            ),
            _ => Ok(()),
        }
    }

    /// Refuses what memory has no room for.
    fn check_room(&self) -> Result<(), LoadError> {
        let refuse = |name, problem| Err(LoadError::Setting { name, problem });
        let (connections, threads) = (self.connections, self.threads);
        if connections > CONNECTIONS_MAX {
            let problem = format!("{connections} is more than {CONNECTIONS_MAX}");
            return refuse("connections", problem);
        }
        if threads > THREADS_MAX {
            let problem = format!("{threads} is more than {THREADS_MAX}: one for each CPU does");
            return refuse("threads", problem);
        }
        Ok(())
    }

    fn try_response_limits(&self) -> Result<Limits, String> {
        let limits = Limits::DEFAULT.with_body_bytes_max(u64::MAX);
        limits
            .with_response_heads(self.response_head_bytes_max, RESPONSE_FIELDS_MAX)
            .map_err(|_| {
                format!(
                    "{} is not in 1..={RESPONSE_HEAD_BYTES_MAX} bytes",
                    self.response_head_bytes_max
                )
            })
    }

    /// The limits of responses, of a checked configuration.
    pub(crate) fn response_limits(&self) -> Limits {
        self.try_response_limits().unwrap_or_default()
    }

    /// Connections that are to be open before anything is sent.
    pub(crate) fn connections_due_at_start(&self) -> usize {
        if self.plan.ramp_ns > 0 {
            1
        } else {
            self.connections
        }
    }

    /// Whether the run is of more than one set of connections.
    pub(crate) fn has_sets(&self) -> bool {
        self.repeats > 1 || self.plan.reconnect.is_some()
    }

    fn check_repeats(&self) -> Result<(), LoadError> {
        let refuse = |name, problem: &str| {
            Err(LoadError::Setting {
                name,
                problem: problem.to_owned(),
            })
        };
        if self.repeats == 0 || self.repeats > REPEATS_MAX {
            let problem = format!("{} is not in 1..={REPEATS_MAX}", self.repeats);
            return refuse("repeat", &problem);
        }
        if self.plan.reconnect.is_some() && self.cookies.is_some() {
            return refuse(
                "reconnect-every",
                "users would lose their cookies with their connections: leave out the cookies, or use --repeat",
            );
        }
        Ok(())
    }

    fn check_warm_up(&self) -> Result<(), LoadError> {
        let pace = self.pace()?;
        let WarmUp::UntilSteady { limit_ns } = self.warm_up else {
            return Ok(());
        };
        let refuse = |problem: &str| {
            Err(LoadError::Setting {
                name: "warm-up",
                problem: problem.to_owned(),
            })
        };
        if limit_ns == 0 {
            return refuse("a limit of zero time leaves nothing to judge");
        }
        match pace {
            Pace::Open(arrivals) if arrivals.first_rate().is_none() => {
                refuse("a trace has no rate that could become steady before it begins")
            }
            _ => Ok(()),
        }
    }

    /// The source of due requests; refuses rates that cannot be kept.
    pub(crate) fn pace(&self) -> Result<Pace, LoadError> {
        match &self.mode {
            Mode::ClosedLoop => Ok(Pace::Closed),
            Mode::ConstantRate { per_s } => Rate::from_per_s(*per_s)
                .map(|rate| Pace::Open(Arrivals::constant(rate).into()))
                .ok_or_else(|| LoadError::Setting {
                    name: "rate",
                    problem: format!("{per_s} is not a rate above 0 and up to {RATE_PER_S_MAX}/s"),
                }),
            Mode::Open(arrivals) => {
                let refuse = |problem| LoadError::Setting {
                    name: "arrivals",
                    problem,
                };
                arrivals.check().map_err(refuse)?;
                Ok(Pace::Open(arrivals.clone().into()))
            }
        }
    }

    /// How long the arrivals last by themselves, if they end.
    pub(crate) fn span_ns(&self) -> Option<u64> {
        match &self.mode {
            Mode::Open(arrivals) => arrivals.span_ns(),
            _ => None,
        }
    }

    fn check_request(&self) -> Result<(), LoadError> {
        let refuse = |name, problem: String| Err(LoadError::Setting { name, problem });
        if !self.target.path.starts_with('/') || !is_visible(&self.target.path) {
            return refuse(
                "path",
                format!(
                    "{:?} must begin with / and hold no blanks",
                    self.target.path
                ),
            );
        }
        if !is_visible(&self.target.host) {
            return refuse(
                "host",
                format!("{:?} holds a blank or a control byte", self.target.host),
            );
        }
        match &self.workload {
            Workload::Static {
                method: Method::Connect | Method::Extension,
                ..
            }
            | Workload::StaticChunked {
                method: Method::Connect | Method::Extension,
                ..
            } => refuse(
                "method",
                "CONNECT and made-up methods cannot be sent".into(),
            ),
            Workload::StaticChunked { chunk_bytes: 0, .. } => {
                refuse("chunk", "a chunk of no bytes ends the body".into())
            }
            Workload::Static { fields, .. } | Workload::StaticChunked { fields, .. } => {
                check_fields(fields)
            }
            Workload::Mix(mix) => {
                for class in &mix.classes {
                    check_fields(&class.fields)?;
                    if matches!(class.method, Method::Connect | Method::Extension) {
                        return refuse(
                            "method",
                            "CONNECT and made-up methods cannot be sent".into(),
                        );
                    }
                    if !class.target.starts_with('/') || !is_visible(&class.target) {
                        let target = &class.target;
                        return refuse(
                            "path",
                            format!("{target:?} must begin with / and hold no blanks"),
                        );
                    }
                }
                Requests::new(self).map(drop)
            }
            Workload::EntityPut { keys: 0, .. } | Workload::EntityGet { keys: 0, .. } => {
                refuse("keys", "at least one key is needed".into())
            }
            Workload::EntityPut { .. } | Workload::EntityGet { .. } => Ok(()),
        }
    }
}

fn check_fields(fields: &[(String, String)]) -> Result<(), LoadError> {
    let bad = fields.iter().find(|(name, value)| {
        let ours = ["host", "content-length", "transfer-encoding"];
        name.is_empty()
            || !is_visible(name)
            || name.contains(':')
            || value
                .bytes()
                .any(|byte| byte.is_ascii_control() && byte != b'\t')
            || ours.iter().any(|one| name.eq_ignore_ascii_case(one))
    });
    bad.map_or(Ok(()), |(name, _)| {
        Err(LoadError::Setting {
            name: "header",
            problem: format!("{name:?} is malformed or set by the generator itself"),
        })
    })
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte > b' ' && byte != 0x7f)
}
