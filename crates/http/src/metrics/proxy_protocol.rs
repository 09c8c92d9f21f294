//! Heads of the PROXY protocol as Prometheus text; nothing of a server that awaits none.

use super::MetricsText;
use super::snapshot::ShardSnapshot;
use millpond_io::proxy_protocol::{ProxyHeadCounters, ProxyHeadFailure};
use std::fmt::Display;

pub(super) fn write_proxy_heads(out: &mut MetricsText<'_>, shards: &[ShardSnapshot]) {
    let heads: Vec<(usize, ProxyHeadCounters)> = shards
        .iter()
        .enumerate()
        .filter_map(|(shard, snapshot)| Some((shard, snapshot.proxy_heads?)))
        .collect();
    if heads.is_empty() {
        return;
    }
    let name = "millpond_proxy_protocol_heads_total";
    out.describe(
        name,
        "counter",
        "Heads of the PROXY protocol that were taken.",
    );
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
        "Connections closed for want of a head of the PROXY protocol, by reason.",
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
            "awaited",
            "gauge",
            "Connections whose head is not whole.",
            |counters| counters.awaited,
        ),
        (
            "without_address_total",
            "counter",
            "Heads that told no address, so that the connection's own was taken.",
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
