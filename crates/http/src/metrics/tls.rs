//! Handshakes and their failures as Prometheus text; nothing of a server without TLS.

use super::MetricsText;
use super::snapshot::ShardSnapshot;
use millpond_io::tls::{TlsCounters, TlsFailure};
use std::fmt::Display;

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
            "broken_total",
            "counter",
            "Established connections ended by what TLS does not allow.",
            |c| c.broken,
        ),
        (
            "truncated_total",
            "counter",
            "Connections whose peer did not announce the end of what it sends.",
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
