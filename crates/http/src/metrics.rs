//! `/metrics`: Prometheus text of one server, all shards; and a table for an operator on SIGUSR1.
//!
//! A shard counts in plain integers and publishes a copy of them about once a second while
//! anything happens (`Snapshots`); the shard that is asked puts all copies into one text (`write_all`).
//!
//! The metrics are those listed here and what the service adds through [`MetricsText`].

use std::fmt;
use std::fmt::{Display, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millpond_io::proxy_protocol::{ProxyHeadCounters, ProxyHeadFailure};
use millpond_io::tls::{TlsCounters, TlsFailure};
use millpond_io::{DriverCounters, Peer, Waker};
use millpond_mempool::{BlockPool, Buffer, ClassStats, PoolError, PoolStats};
use procfs::process::LimitValue;

use crate::access_log::{AccessLogCounters, WriterCounters};
use crate::counters::HttpCounters;
use crate::durations::{DurationHistogram, by_route};
use crate::head_text::FieldValue;
use crate::limits::{Limit, Limits};
use crate::request::Request;

/// The media type of the text.
pub(crate) const PROMETHEUS_TEXT: FieldValue<'_> =
    FieldValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Properties of a server, as labels of `millpond_build_info`.
pub(crate) type BuildLabels = [(&'static str, String)];

/// All shards' numbers and the build's labels.
pub(crate) fn write_all(
    out: &mut MetricsText<'_>,
    shards: &[ShardSnapshot],
    limits: &Limits,
    build: &BuildLabels,
    log_writer: Option<&WriterCounters>,
) {
    let labels: Vec<(&str, &dyn Display)> = build
        .iter()
        .map(|(name, value)| (*name, value as &dyn Display))
        .collect();
    out.describe(
        "millpond_build_info",
        "gauge",
        "What is running; the value is always 1.",
    );
    out.sample("millpond_build_info", &labels, 1);
    write_process(out);
    write_http(out, shards);
    write_limits(out, shards, limits);
    write_access_log(out, shards, log_writer);
    write_thread_panics(out);
    write_driver(out, shards);
    write_proxy_heads(out, shards);
    write_tls(out, shards);
    write_pools(out, shards);
    write_idle(out, shards);
    write_classes(out, shards);
}

/// The metrics that Prometheus' client libraries have of their process, under the same names. Values that the kernel
/// does not report are left out.
fn write_process(out: &mut MetricsText<'_>) {
    let Ok(process) = procfs::process::Process::myself() else {
        return;
    };
    let stat = process.stat().ok();
    let limits = process.limits().ok();
    let descriptors_max = limits.and_then(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(limit) => Some(limit),
        LimitValue::Unlimited => None,
    });
    let stat = stat.as_ref();
    let in_seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let started_at = stat.and_then(|stat| {
        let boot_s = procfs::boot_time_secs().ok()?;
        Some(boot_s as f64 + in_seconds(stat.starttime))
    });
    let cpu = stat.map(|stat| in_seconds(stat.utime + stat.stime));
    let resident_bytes = stat.map(|stat| stat.rss.saturating_mul(procfs::page_size()));
    let metrics: [(&str, &str, &str, Option<f64>); 7] = [
        (
            "cpu_seconds_total",
            "counter",
            "User and system CPU time.",
            cpu,
        ),
        (
            "resident_memory_bytes",
            "gauge",
            "Resident memory.",
            resident_bytes.map(|bytes| bytes as f64),
        ),
        (
            "virtual_memory_bytes",
            "gauge",
            "Virtual memory.",
            stat.map(|stat| stat.vsize as f64),
        ),
        (
            "open_fds",
            "gauge",
            "Open file descriptors.",
            process.fd_count().ok().map(|count| count as f64),
        ),
        (
            "max_fds",
            "gauge",
            "Most file descriptors that may be open.",
            descriptors_max.map(|limit| limit as f64),
        ),
        (
            "threads",
            "gauge",
            "Threads of the process.",
            stat.map(|stat| stat.num_threads as f64),
        ),
        (
            "start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970.",
            started_at,
        ),
    ];
    for (suffix, kind, help, value) in metrics {
        if let Some(value) = value {
            let name = format!("process_{suffix}");
            out.describe(&name, kind, help);
            out.sample(&name, &[], value);
        }
    }
}

fn write_thread_panics(out: &mut MetricsText<'_>) {
    let name = "millpond_thread_panics_total";
    out.describe(
        name,
        "counter",
        "Panics of helper threads, which go on after them.",
    );
    for (thread, count) in crate::error::counts() {
        out.sample(name, &[("thread", &thread)], count);
    }
}

fn write_http(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    type Read = fn(&HttpCounters) -> u64;
    let metrics: [(&str, &str, &str, Read); 10] = [
        ("requests_total", "counter", "Requests served.", |c| {
            c.requests
        }),
        (
            "requests_cancelled_total",
            "counter",
            "Requests whose client closed first.",
            |c| c.requests_cancelled,
        ),
        ("connections", "gauge", "Open connections.", |c| {
            c.connections_open
        }),
        (
            "connections_accepted_total",
            "counter",
            "Connections accepted.",
            |c| c.connections_accepted,
        ),
        (
            "connections_refused_total",
            "counter",
            "Connections refused with 503: too many.",
            |c| c.limit_hits(Limit::Connections) + c.limit_hits(Limit::AddressConnections),
        ),
        (
            "connections_shed_total",
            "counter",
            "Idle connections closed for new ones.",
            |c| c.connections_shed,
        ),
        (
            "idle_timeouts_total",
            "counter",
            "Connections closed for idleness.",
            |c| c.limit_hits(Limit::IdleTime),
        ),
        (
            "head_timeouts_total",
            "counter",
            "Request heads that took too long.",
            |c| c.limit_hits(Limit::HeadTime),
        ),
        (
            "body_timeouts_total",
            "counter",
            "Request bodies that were too slow.",
            |c| c.limit_hits(Limit::BodyRate),
        ),
        (
            "write_stalls_total",
            "counter",
            "Connections closed because the peer did not read.",
            |c| c.limit_hits(Limit::WriteStall),
        ),
    ];
    for (suffix, kind, help, read) in metrics {
        let name = format!("millpond_http_{suffix}");
        out.describe(&name, kind, help);
        for (shard, snapshot) in shards.iter().enumerate() {
            out.sample(&name, &[("shard", &shard)], read(&snapshot.http));
        }
    }
    write_responses(out, shards);
    write_durations(out, shards);
}

fn write_responses(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    let name = "millpond_http_responses_total";
    out.describe(name, "counter", "Responses by status code.");
    for (shard, snapshot) in shards.iter().enumerate() {
        for (status, count) in snapshot.http.responses() {
            out.sample(name, &[("shard", &shard), ("status", &status)], count);
        }
    }
}

fn write_durations(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    let name = "millpond_http_request_duration_seconds";
    out.describe(
        name,
        "histogram",
        "Time from a complete request to its complete response, by route and class of status; all shards.",
    );
    let routes = shards.first().map_or(&[][..], |shard| shard.routes);
    let all = shards.iter().map(|shard| shard.durations.as_slice());
    for (route, class, histogram) in by_route(all) {
        let class = StatusClass(class);
        let class: (&str, &dyn Display) = ("status_class", &class);
        match routes.get(route) {
            Some(route) => out.histogram(name, &[("route", route), class], &histogram),
            None => out.histogram(name, &[class], &histogram),
        }
    }
}

/// `2xx` for 2.
struct StatusClass(u16);

impl Display for StatusClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}xx", self.0)
    }
}

/// Every limit with its value, and how often peers ran into it.
fn write_limits(out: &mut MetricsText<'_>, shards: &[ShardSnapshot], limits: &Limits) {
    let named = limits.named();
    let name = "millpond_http_limit";
    out.describe(
        name,
        "gauge",
        "Limits of each shard (bodies_bytes_max: of all of them), in the unit named.",
    );
    for (limit, value, _) in named {
        out.sample(name, &[("limit", &limit)], value);
    }
    let name = "millpond_http_limit_exceeded_total";
    out.describe(name, "counter", "How often a peer exceeded a limit.");
    for (shard, snapshot) in shards.iter().enumerate() {
        for (text, _, limit) in named {
            if let Some(limit) = limit {
                let labels: [(&str, &dyn Display); 2] = [("shard", &shard), ("limit", &text)];
                out.sample(name, &labels, snapshot.http.limit_hits(limit));
            }
        }
    }
}

fn write_access_log(
    out: &mut MetricsText<'_>,
    shards: &[ShardSnapshot],
    writer: Option<&WriterCounters>,
) {
    let Some(writer) = writer else {
        return;
    };
    type Read = fn(AccessLogCounters) -> u64;
    let metrics: [(&str, &str, Read); 2] = [
        (
            "millpond_http_access_log_entries_total",
            "Entries of the access log given to its writer.",
            |log| log.queued,
        ),
        (
            "millpond_http_access_log_dropped_total",
            "Entries of the access log that were dropped: its queue was full.",
            |log| log.dropped,
        ),
    ];
    for (name, help, read) in metrics {
        out.describe(name, "counter", help);
        for (shard, snapshot) in shards.iter().enumerate() {
            if let Some(log) = snapshot.access_log {
                out.sample(name, &[("shard", &shard)], read(log));
            }
        }
    }
    for (name, help, count) in [
        (
            "millpond_http_access_log_lines_total",
            "Lines of the access log that were written.",
            &writer.lines,
        ),
        (
            "millpond_http_access_log_write_failures_total",
            "Failed attempts to write to the access log.",
            &writer.failures,
        ),
    ] {
        out.describe(name, "counter", help);
        out.sample(name, &[], count.load(Ordering::Relaxed));
    }
}

fn write_driver(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    let calls = "millpond_driver_system_calls_total";
    out.describe(
        calls,
        "counter",
        "Operations by kind. With epoll each is a system call; with uring only waits are.",
    );
    for (shard, ShardSnapshot { driver, .. }) in shards.iter().enumerate() {
        for (call, count) in [
            ("wait", driver.waits),
            ("accept", driver.accepts),
            ("connect", driver.connects),
            ("receive", driver.receives),
            ("send", driver.sends),
            ("control", driver.controls),
            ("close", driver.closes),
        ] {
            out.sample(calls, &[("shard", &shard), ("call", &call)], count);
        }
    }
    for (suffix, help, value) in DRIVER_GAUGES {
        let name = format!("millpond_driver_{suffix}");
        out.describe(&name, "gauge", help);
        for (shard, ShardSnapshot { driver, .. }) in shards.iter().enumerate() {
            out.sample(&name, &[("shard", &shard)], value(driver));
        }
    }
    for (suffix, help, value) in DRIVER_METRICS {
        let name = format!("millpond_driver_{suffix}");
        out.describe(&name, "counter", help);
        for (shard, ShardSnapshot { driver, .. }) in shards.iter().enumerate() {
            out.sample_count(&name, &[("shard", &shard)], value(driver));
        }
    }
}

type DriverMetric = (&'static str, &'static str, fn(&DriverCounters) -> u64);

/// Gauges of a driver.
const DRIVER_GAUGES: [DriverMetric; 2] = [
    (
        "sockets_held",
        "Sockets of connections, those included that are closing.",
        |driver| driver.sockets_held,
    ),
    (
        "sockets_peak",
        "The most sockets ever held at once.",
        |driver| driver.sockets_peak,
    ),
];

/// Counters of a driver besides its calls.
const DRIVER_METRICS: [DriverMetric; 14] = [
    ("ticks_total", "Rounds of the event loop.", |driver| {
        driver.ticks
    }),
    (
        "sends_blocked_total",
        "Sends that the kernel took only in part.",
        |driver| driver.sends_blocked,
    ),
    (
        "deferred_total",
        "Events handled in a later tick than they came in: its budget was spent.",
        |driver| driver.deferred,
    ),
    (
        "receive_starvations_total",
        "Receives that found no buffer and were made again.",
        |driver| driver.receive_starvations,
    ),
    (
        "abandoned_sockets_total",
        "Sockets closed while the kernel still had operations on them.",
        |driver| driver.abandoned,
    ),
    (
        "submissions_total",
        "Entries put into the ring's submission queue.",
        |driver| driver.submissions,
    ),
    (
        "productive_polls_total",
        "Busy polls before a sleep that met an event: with --busy-poll.",
        |driver| driver.spins_paid,
    ),
    (
        "unproductive_polls_total",
        "Busy polls that met no event, so that the shard slept.",
        |driver| driver.spins_vain,
    ),
    (
        "busy_poll_seconds_total",
        "Time spent in busy polls.",
        |driver| driver.spun_ns,
    ),
    ("received_bytes_total", "Bytes received.", |driver| {
        driver.received_bytes
    }),
    (
        "sent_bytes_total",
        "Bytes handed to the kernel.",
        |driver| driver.sent_bytes,
    ),
    (
        "file_sends_total",
        "Parts of files that went out of the kernel's memory without a copy.",
        |driver| driver.file_sends,
    ),
    (
        "accept_failures_total",
        "Failed accepts, e.g. no free descriptor.",
        |driver| driver.accept_failures,
    ),
    (
        "accepts_refused_total",
        "Connections reset on accept: no free descriptor.",
        |driver| driver.accepts_refused,
    ),
];

type PoolMetric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&PoolStats) -> u64,
);

/// The accounting identity reserved = live + cached + waste can be checked from outside.
const POOL_METRICS: [PoolMetric; 9] = [
    ("live_objects", "gauge", "Objects in use.", |p| {
        p.live_objects
    }),
    ("live_bytes", "gauge", "Bytes in use.", |p| p.live_bytes),
    ("cached_bytes", "gauge", "Bytes ready for reuse.", |p| {
        p.cached_bytes
    }),
    (
        "waste_bytes",
        "gauge",
        "Bytes that no allocation can use.",
        |p| p.waste_bytes,
    ),
    ("reserved_bytes", "gauge", "live + cached + waste.", |p| {
        p.reserved_bytes
    }),
    (
        "high_water_bytes",
        "gauge",
        "Most bytes ever in use.",
        |p| p.high_water_bytes,
    ),
    (
        "hits_total",
        "counter",
        "Requests served from memory at hand.",
        |p| p.hits,
    ),
    (
        "misses_total",
        "counter",
        "Requests that needed new memory.",
        |p| p.misses,
    ),
    (
        "remote_frees_total",
        "counter",
        "Blocks other threads sent back.",
        |p| p.remote_frees,
    ),
];

fn write_pools(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    for (suffix, kind, help, read) in POOL_METRICS {
        let name = format!("millpond_pool_{suffix}");
        out.describe(&name, kind, help);
        for (shard, snapshot) in shards.iter().enumerate() {
            for pool in &snapshot.pools {
                let labels: [(&str, &dyn Display); 4] = [
                    ("shard", &shard),
                    ("pool", &pool.name),
                    ("kind", &pool.kind),
                    ("mode", &pool.mode.as_str()),
                ];
                out.sample(&name, &labels, read(pool));
            }
        }
    }
}

fn write_idle(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    type Read = fn(&ShardSnapshot) -> u64;
    let metrics: [(&str, &str, &str, Read); 2] = [
        (
            "millpond_pools_released_bytes_total",
            "counter",
            "Idle memory returned to the system.",
            |shard| shard.bytes_given_back,
        ),
        (
            "millpond_io_buffers_virtual_bytes",
            "gauge",
            "Address space of the I/O buffers; only their pool's reserved bytes can have pages.",
            |shard| shard.io_buffers_addressed_bytes,
        ),
    ];
    for (name, kind, help, read) in metrics {
        out.describe(name, kind, help);
        for (shard, snapshot) in shards.iter().enumerate() {
            out.sample(name, &[("shard", &shard)], read(snapshot));
        }
    }
}

fn write_classes(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    for (suffix, kind, help) in [
        ("live_objects", "gauge", "Blocks in use, by size class."),
        (
            "cached_objects",
            "gauge",
            "Blocks ready for reuse, by size class.",
        ),
        (
            "hits_total",
            "counter",
            "Requests served from the class's free list.",
        ),
        (
            "misses_total",
            "counter",
            "Requests that needed new memory.",
        ),
    ] {
        let name = format!("millpond_pool_class_{suffix}");
        out.describe(&name, kind, help);
        for (shard, snapshot) in shards.iter().enumerate() {
            for class in &snapshot.classes {
                let value = match suffix {
                    "live_objects" => class.live_objects,
                    "cached_objects" => class.cached_objects,
                    "hits_total" => class.hits,
                    _ => class.misses,
                };
                let labels: [(&str, &dyn Display); 2] =
                    [("shard", &shard), ("block_bytes", &class.block_bytes)];
                out.sample(&name, &labels, value);
            }
        }
    }
}

/// One line per shard and pool, for stderr.
pub(crate) fn accounting_table(name: &str, shards: &[ShardSnapshot]) -> String {
    let mut text = format!(
        "{name}: pool accounting (bytes; reserved = live + cached + waste)\n\
         {:>5} {:<20} {:<6} {:<4} {:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>9}\n",
        "shard",
        "pool",
        "kind",
        "mode",
        "objects",
        "live",
        "cached",
        "waste",
        "reserved",
        "high water",
        "hits",
        "misses",
    );
    for (shard, snapshot) in shards.iter().enumerate() {
        for p in &snapshot.pools {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{shard:>5} {:<20} {:<6} {:<4} {:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>9}",
                p.name,
                p.kind,
                p.mode.as_str(),
                p.live_objects,
                p.live_bytes,
                p.cached_bytes,
                p.waste_bytes,
                p.reserved_bytes,
                p.high_water_bytes,
                p.hits,
                p.misses,
            );
        }
    }
    text
}

// A copy of one shard's numbers, for the other shards and for SIGUSR1.

/// One shard's numbers at some moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSnapshot {
    pub(crate) http: HttpCounters,
    /// The service's routes, and the durations of their requests, by route and class of status.
    pub(crate) routes: &'static [&'static str],
    pub(crate) durations: Vec<DurationHistogram>,
    pub(crate) driver: DriverCounters,
    /// Of a server that speaks TLS.
    pub(crate) tls: Option<TlsCounters>,
    /// Of a server whose clients send a PROXY header.
    pub(crate) proxy_heads: Option<ProxyHeadCounters>,
    pub(crate) driver_name: &'static str,
    /// With a log only.
    pub(crate) access_log: Option<AccessLogCounters>,
    pub(crate) pools: Vec<PoolStats>,
    pub(crate) classes: Vec<ClassStats>,
    /// Bytes that the pools have given back because they were unused, in total.
    pub(crate) bytes_given_back: u64,
    /// Addresses of the buffers the kernel writes to, with pages or without.
    pub(crate) io_buffers_addressed_bytes: u64,
}

/// The latest copy of every shard. Locked for the time of a copy, about once a second.
#[derive(Debug)]
pub(crate) struct Snapshots {
    shards: Vec<Mutex<ShardSnapshot>>,
    /// Counts as it goes, and of all shards.
    pub(crate) log_writer: Option<Arc<WriterCounters>>,
}

impl Snapshots {
    pub(crate) fn new(shard_count: usize) -> Self {
        Self {
            shards: (0..shard_count).map(|_| Mutex::default()).collect(),
            log_writer: None,
        }
    }

    /// The place of one shard. A panic elsewhere leaves only numbers behind: still good to read.
    pub(crate) fn lock(&self, shard_index: usize) -> MutexGuard<'_, ShardSnapshot> {
        self.shards[shard_index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn to_vec(&self) -> Vec<ShardSnapshot> {
        (0..self.len())
            .map(|index| self.lock(index).clone())
            .collect()
    }
}

// Access to `/metrics` on the listener that serves everything else.

/// The peers that may read `GET /metrics` on the main listener. For all others the path belongs to the service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MetricsAccess {
    /// Peers on a loopback address or a unix socket, unless a proxy of this machine passes the request on for others.
    #[default]
    Loopback,
    /// Every peer.
    All,
    /// No peer.
    None,
}

impl FromStr for MetricsAccess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "loopback" => Ok(Self::Loopback),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => Err("use loopback, all or none".to_owned()),
        }
    }
}

impl MetricsAccess {
    /// Whether this request may read the metrics. `peer`: called only where it matters.
    pub(crate) fn allows(self, request: &Request<'_>, peer: impl FnOnce() -> Option<Peer>) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Loopback => !is_forwarded(request) && peer().is_some_and(is_local),
        }
    }
}

/// A peer that is not known is not local.
fn is_local(peer: Peer) -> bool {
    match peer {
        Peer::Unix => true,
        Peer::Inet(address) => address.ip().to_canonical().is_loopback(),
    }
}

/// Whether the request has fields that proxies add.
fn is_forwarded(request: &Request<'_>) -> bool {
    const NAMES: [&[u8]; 3] = [b"forwarded", b"via", b"x-real-ip"];
    const PREFIX: &[u8] = b"x-forwarded-";
    request.headers().any(|(name, _)| {
        let start = &name[..name.len().min(PREFIX.len())];
        start.eq_ignore_ascii_case(PREFIX) || NAMES.iter().any(|one| name.eq_ignore_ascii_case(one))
    })
}

// PROXY headers as Prometheus text; nothing of a server that awaits none.

pub(super) fn write_proxy_heads(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    let heads: Vec<(usize, ProxyHeadCounters)> = shards
        .iter()
        .enumerate()
        .filter_map(|(shard, snapshot)| Some((shard, snapshot.proxy_heads?)))
        .collect();
    if heads.is_empty() {
        return;
    }
    let name = "millpond_proxy_protocol_headers_total";
    out.describe(name, "counter", "PROXY headers that were accepted.");
    for (shard, counters) in &heads {
        for (version, count) in [("1", counters.taken_v1), ("2", counters.taken_v2)] {
            let labels: [(&str, &dyn Display); 2] = [("shard", shard), ("version", &version)];
            out.sample(name, &labels, count);
        }
    }
    let name = "millpond_proxy_protocol_refused_total";
    out.describe(
        name,
        "counter",
        "Connections closed because of a missing or invalid PROXY header, by reason.",
    );
    for (shard, counters) in &heads {
        for failure in ProxyHeadFailure::ALL {
            let labels: [(&str, &dyn Display); 2] = [("shard", shard), ("reason", &failure.name())];
            out.sample(name, &labels, counters.refused_by(failure));
        }
    }
    type Read = fn(&ProxyHeadCounters) -> u64;
    let metrics: [(&str, &str, &str, Read); 2] = [
        (
            "pending",
            "gauge",
            "Connections whose PROXY header is not complete.",
            |counters| counters.awaited,
        ),
        (
            "without_address_total",
            "counter",
            "PROXY headers without an address: the connection's own was taken.",
            |counters| counters.without_address,
        ),
    ];
    for (suffix, kind, help, read) in metrics {
        let name = format!("millpond_proxy_protocol_{suffix}");
        out.describe(&name, kind, help);
        for (shard, counters) in &heads {
            out.sample(&name, &[("shard", shard)], read(counters));
        }
    }
}

// Handshakes and their failures as Prometheus text; nothing of a server without TLS.

pub(super) fn write_tls(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    let tls: Vec<(usize, TlsCounters)> = shards
        .iter()
        .enumerate()
        .filter_map(|(shard, snapshot)| Some((shard, snapshot.tls?)))
        .collect();
    if tls.is_empty() {
        return;
    }
    let name = "millpond_tls_handshakes_total";
    out.describe(name, "counter", "Handshakes that succeeded.");
    for (shard, c) in &tls {
        for (version, kind, count) in [
            ("1.2", "full", c.full_tls12),
            ("1.2", "resumed", c.resumed_tls12),
            ("1.3", "full", c.full_tls13),
            ("1.3", "resumed", c.resumed_tls13),
        ] {
            let labels: [(&str, &dyn Display); 3] =
                [("shard", shard), ("version", &version), ("kind", &kind)];
            out.sample(name, &labels, count);
        }
    }
    let name = "millpond_tls_handshake_failures_total";
    out.describe(name, "counter", "Handshakes that failed, by reason.");
    for (shard, c) in &tls {
        for failure in TlsFailure::ALL {
            let labels: [(&str, &dyn Display); 2] = [("shard", shard), ("reason", &failure.name())];
            out.sample(name, &labels, c.failed_by(failure));
        }
    }
    type Read = fn(&TlsCounters) -> u64;
    let metrics: [(&str, &str, &str, Read); 5] = [
        (
            "handshaking",
            "gauge",
            "Connections in the middle of their handshake.",
            |c| c.handshaking,
        ),
        (
            "established",
            "gauge",
            "Connections past their handshake.",
            |c| c.established,
        ),
        (
            "protocol_errors_total",
            "counter",
            "Established connections closed because the peer violated TLS.",
            |c| c.broken,
        ),
        (
            "truncated_total",
            "counter",
            "Connections whose peer closed without a close_notify.",
            |c| c.truncated,
        ),
        (
            "handshake_received_bytes_total",
            "counter",
            "Bytes of handshakes, from peers.",
            |c| c.handshake_bytes,
        ),
    ];
    for (suffix, kind, help, read) in metrics {
        let name = format!("millpond_tls_{suffix}");
        out.describe(&name, kind, help);
        for (shard, c) in &tls {
            out.sample(&name, &[("shard", shard)], read(c));
        }
    }
}

// The Prometheus text format, written into pooled memory.

/// Prometheus text being written.
pub struct MetricsText<'a> {
    out: Buffer,
    blocks: &'a BlockPool,
    error: Option<PoolError>,
}

impl fmt::Debug for MetricsText<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MetricsText")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<'a> MetricsText<'a> {
    pub(crate) fn new(blocks: &'a BlockPool) -> Self {
        Self {
            out: Buffer::new(),
            blocks,
            error: None,
        }
    }

    pub(crate) fn finish(self) -> Result<Buffer, PoolError> {
        self.error.map_or(Ok(self.out), Err)
    }

    /// Begins a metric: its help and type lines. `kind` is `counter`, `gauge` or `histogram`.
    pub fn describe(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One sample. Label values are escaped.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.write(format_args!("{name}"));
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{}\"", Escaped(*text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{end} {value}\n"));
    }

    /// All samples of a histogram in seconds: buckets, sum and count.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &dyn Display)],
        histogram: &DurationHistogram,
    ) {
        let bucket = format!("{name}_bucket");
        let count = histogram.count();
        let mut labels = labels.to_vec();
        for (bound_ns, count) in histogram.cumulative() {
            let bound = Seconds(bound_ns);
            let mut labels = labels.clone();
            labels.push(("le", &bound));
            self.sample(&bucket, &labels, count);
        }
        labels.push(("le", &"+Inf"));
        self.sample(&bucket, &labels, count);
        labels.pop();
        self.sample(&format!("{name}_sum"), &labels, Seconds(histogram.sum_ns()));
        self.sample(&format!("{name}_count"), &labels, count);
    }

    /// One sample of a counter in its metric's unit: of a metric in seconds, `count` is in nanoseconds.
    pub fn sample_count(&mut self, name: &str, labels: &[(&str, &dyn Display)], count: u64) {
        match name.ends_with("_seconds_total") {
            true => self.sample(name, labels, Seconds(count)),
            false => self.sample(name, labels, count),
        }
    }

    fn write(&mut self, text: fmt::Arguments<'_>) {
        // The cause is kept in `error`, which `finish` returns.
        let _ = self.write_fmt(text);
    }
}

impl Write for MetricsText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out
            .extend_from_slice(self.blocks, text.as_bytes())
            .map_err(|error| {
                self.error = Some(error);
                fmt::Error
            })
    }
}

/// Nanoseconds as seconds in decimal, none of them lost: a float of 64 bits loses some after 104 days.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND_NS: u64 = 1_000_000_000;
        let (seconds, mut rest, mut digits) = (self.0 / SECOND_NS, self.0 % SECOND_NS, 9);
        if rest == 0 {
            return write!(f, "{seconds}");
        }
        while rest % 10 == 0 {
            (rest, digits) = (rest / 10, digits - 1);
        }
        write!(f, "{seconds}.{rest:0digits$}")
    }
}

/// A label value with backslash, quote and line feed escaped.
struct Escaped<'a>(&'a dyn Display);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'f, 'g>(&'f mut fmt::Formatter<'g>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '\\' => self.0.write_str("\\\\"),
            '"' => self.0.write_str("\\\""),
            '\n' => self.0.write_str("\\n"),
            character => self.0.write_char(character),
        })
    }
}

// `/metrics` for a listener of its own: its thread asks a shard for the text, and the shard writes it.
//
// The text has what the service of a shard adds, which only its thread can read. One text is asked for at a time,
// however many peers wait for it.

/// The request, the text, and the threads to wake for each.
#[derive(Default)]
pub(crate) struct Scrape {
    is_asked: AtomicBool,
    text: Mutex<Option<Vec<u8>>>,
    /// Of the shard that writes.
    writer: OnceLock<Waker>,
    /// Of the thread that asks.
    reader: OnceLock<Waker>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Scrape")
            .field("is_asked", &self.is_asked)
            .finish_non_exhaustive()
    }
}

impl Scrape {
    /// The first call counts: one shard writes.
    pub(crate) fn set_writer(&self, waker: Waker) {
        let _ = self.writer.set(waker);
    }

    pub(crate) fn set_reader(&self, waker: Waker) {
        let _ = self.reader.set(waker);
    }

    /// Requests a text; the reader is woken when it is ready.
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Ordering::Release);
        if let Some(writer) = self.writer.get() {
            writer.wake();
        }
    }

    /// Whether a text was requested, which the caller then writes.
    pub(crate) fn take_question(&self) -> bool {
        // Read first: a shard is woken often, and writes cost the others the cache line.
        self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn answer(&self, text: Vec<u8>) {
        *self.lock() = Some(text);
        if let Some(reader) = self.reader.get() {
            reader.wake();
        }
    }

    pub(crate) fn take_answer(&self) -> Option<Vec<u8>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "metrics/tests/access.rs"]
mod access_tests;

#[cfg(test)]
#[path = "metrics/tests/text.rs"]
mod text_tests;
