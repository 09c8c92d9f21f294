//! Snapshots as Prometheus text, and as a table for a person who sends SIGUSR1.

use super::MetricsText;
use super::proxy_protocol::write_proxy_heads;
use super::snapshot::ShardSnapshot;
use super::tls::write_tls;
use crate::access_log::{AccessLogCounters, WriterCounters};
use crate::counters::HttpCounters;
use crate::limits::{Limit, Limits};
use millpond_io::DriverCounters;
use millpond_mempool::PoolStats;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

/// What a server is, as labels of `millpond_build_info`.
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

fn write_thread_panics(out: &mut MetricsText<'_>) {
    let name = "millpond_thread_panics_total";
    out.describe(
        name,
        "counter",
        "Panics of helper threads, which go on after them.",
    );
    for (thread, count) in crate::thread_panics::counts() {
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
            "Connections taken.",
            |c| c.connections_accepted,
        ),
        (
            "connections_refused_total",
            "counter",
            "Connections answered 503: too many.",
            |c| c.struck(Limit::Connections) + c.struck(Limit::AddressConnections),
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
            |c| c.struck(Limit::IdleTime),
        ),
        (
            "head_timeouts_total",
            "counter",
            "Heads that took too long.",
            |c| c.struck(Limit::HeadTime),
        ),
        (
            "body_timeouts_total",
            "counter",
            "Bodies that were too slow.",
            |c| c.struck(Limit::BodyRate),
        ),
        (
            "write_stalls_total",
            "counter",
            "Connections cut: peer did not read.",
            |c| c.struck(Limit::WriteStall),
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
    let name = "millpond_http_limit_strikes_total";
    out.describe(name, "counter", "How often peers ran into a limit.");
    for (shard, snapshot) in shards.iter().enumerate() {
        for (text, _, limit) in named {
            if let Some(limit) = limit {
                let labels: [(&str, &dyn Display); 2] = [("shard", &shard), ("limit", &text)];
                out.sample(name, &labels, snapshot.http.struck(limit));
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
            "Entries of the access log that found no room.",
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
            out.sample(&name, &[("shard", &shard)], value(driver));
        }
    }
}

type DriverMetric = (&'static str, &'static str, fn(&DriverCounters) -> u64);

/// What a driver holds.
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

/// What a driver counts besides its calls.
const DRIVER_METRICS: [DriverMetric; 14] = [
    ("ticks_total", "Rounds of the event loop.", |driver| {
        driver.ticks
    }),
    (
        "sends_blocked_total",
        "Sends that left something over.",
        |driver| driver.sends_blocked,
    ),
    (
        "put_off_total",
        "Events handled in a later tick than they came in: its budget was spent.",
        |driver| driver.put_off,
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
        "spins_paid_total",
        "Spins before a sleep that met an event: with --busy-poll.",
        |driver| driver.spins_paid,
    ),
    (
        "spins_vain_total",
        "Spins after which the shard slept all the same.",
        |driver| driver.spins_vain,
    ),
    ("spun_ns_total", "Nanoseconds spent in spins.", |driver| {
        driver.spun_ns
    }),
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
        "Failed accepts, e.g. for want of descriptors.",
        |driver| driver.accept_failures,
    ),
    (
        "accepts_refused_total",
        "Connections reset as soon as they were taken, for want of a descriptor.",
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
    ("waste_bytes", "gauge", "Bytes nobody can use.", |p| {
        p.waste_bytes
    }),
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
            "millpond_pools_given_back_bytes_total",
            "counter",
            "Idle memory given back to the system.",
            |shard| shard.bytes_given_back,
        ),
        (
            "millpond_io_buffers_addressed_bytes",
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
