//! What a proxy counts of each upstream: cells that one shard writes and any may read.
//!
//! On the path: `upstreams` counts tries and their ends; `/metrics` of any shard adds up all shards.
//! A cell has one writer, so that counting is a load and a store, no locked instruction.

use super::failure::Failure;
use crate::metrics::MetricsText;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is counted or measured, one place each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(super) enum Cell {
    Tries,
    Retries,
    Answers1xx,
    Answers2xx,
    Answers3xx,
    Answers4xx,
    Answers5xx,
    FailedConnect,
    FailedTimeout,
    FailedBroken,
    FailedAnswer,
    FailedLocal,
    ClientGone,
    Ejections,
    ProbesFailed,
    ReusedConnections,
    NewConnections,
    FirstByteNs,
    BodyBytes,
    Tunnels,
    TunnelsIdle,
    // From here on what is now, not counts.
    Outstanding,
    IsUsable,
    Parked,
    InUse,
    Waiting,
    IsUnresolved,
    IsConfigured,
    IsDown,
    IsEjected,
}

const CELLS: usize = Cell::IsEjected as usize + 1;
const FAILURES: usize = Failure::ALL.len();

/// One shard's cells of one upstream.
#[derive(Debug, Default)]
pub(super) struct UpstreamCounters {
    cells: [AtomicU64; CELLS],
    failures: [AtomicU64; FAILURES],
}

impl UpstreamCounters {
    #[inline]
    pub(super) fn add(&self, cell: Cell, count: u64) {
        let place = &self.cells[cell as usize];
        place.store(
            place.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    #[inline]
    pub(super) fn count(&self, cell: Cell) {
        self.add(cell, 1);
    }

    #[cold]
    pub(super) fn count_failure(&self, failure: Failure) {
        let place = &self.failures[failure as usize];
        place.store(
            place.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    #[inline]
    pub(super) fn set(&self, cell: Cell, value: u64) {
        self.cells[cell as usize].store(value, Ordering::Relaxed);
    }

    fn get(&self, cell: Cell) -> u64 {
        self.cells[cell as usize].load(Ordering::Relaxed)
    }
}

/// All shards' cells, by the upstream's name. Those of an upstream that left stay: counters must not
/// fall.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    by_shard: Vec<(usize, Arc<UpstreamCounters>)>,
}

impl Registry {
    /// The cells of this shard for this upstream; the same as before if it was there before.
    pub(super) fn counters(&self, name: &str, shard_index: usize) -> Arc<UpstreamCounters> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match entries.iter().position(|entry| entry.name == name) {
            Some(index) => index,
            None => {
                entries.push(Entry {
                    name: name.to_owned(),
                    by_shard: Vec::new(),
                });
                entries.len() - 1
            }
        };
        let by_shard = &mut entries[index].by_shard;
        if let Some((_, counters)) = by_shard.iter().find(|(shard, _)| *shard == shard_index) {
            return Arc::clone(counters);
        }
        let counters = Arc::<UpstreamCounters>::default();
        by_shard.push((shard_index, Arc::clone(&counters)));
        counters
    }

    /// Calls `visit` with the name of each upstream there is or was, and a function that adds up a cell.
    pub(super) fn visit(&self, mut visit: impl FnMut(&str, &dyn Fn(Cell) -> u64)) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.iter() {
            visit(&entry.name, &|cell| {
                let by_shard = entry.by_shard.iter();
                by_shard.map(|(_, counters)| counters.get(cell)).sum()
            });
        }
    }

    /// The lines of `/metrics`.
    pub(super) fn write(&self, out: &mut MetricsText<'_>) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for metric in &METRICS {
            out.describe(metric.name, metric.kind, metric.help);
            for entry in entries.iter() {
                for &(label, value, cell) in metric.cells {
                    let by_shard = entry.by_shard.iter();
                    let sum: u64 = by_shard.map(|(_, counters)| counters.get(cell)).sum();
                    match label {
                        "" => out.sample(metric.name, &[("upstream", &entry.name)], sum),
                        label => out.sample(
                            metric.name,
                            &[("upstream", &entry.name), (label, &value)],
                            sum,
                        ),
                    }
                }
            }
        }
        let name = "millpond_upstream_errors_total";
        out.describe(
            name,
            "counter",
            "Tries without a whole answer, by the error type of RFC 9209 and the cause; those there were.",
        );
        for entry in entries.iter() {
            for &failure in Failure::ALL {
                let by_shard = entry.by_shard.iter();
                let sum: u64 = by_shard
                    .map(|(_, counters)| {
                        counters.failures[failure as usize].load(Ordering::Relaxed)
                    })
                    .sum();
                if sum > 0 {
                    let (error, cause) = (failure.error(), failure.cause());
                    out.sample(
                        name,
                        &[
                            ("upstream", &entry.name),
                            ("error", &error),
                            ("cause", &cause),
                        ],
                        sum,
                    );
                }
            }
        }
    }
}

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// Label and its value, if it has one, and what it shows.
    cells: &'static [(&'static str, &'static str, Cell)],
}

const METRICS: [Metric; 17] = [
    Metric {
        name: "millpond_upstream_tries_total",
        kind: "counter",
        help: "Requests sent to the upstream, repeated ones each time.",
        cells: &[("", "", Cell::Tries)],
    },
    Metric {
        name: "millpond_upstream_retries_total",
        kind: "counter",
        help: "Of these, those that had failed elsewhere or before.",
        cells: &[("", "", Cell::Retries)],
    },
    Metric {
        name: "millpond_upstream_answers_total",
        kind: "counter",
        help: "Answers by class of their status.",
        cells: &[
            ("class", "1xx", Cell::Answers1xx),
            ("class", "2xx", Cell::Answers2xx),
            ("class", "3xx", Cell::Answers3xx),
            ("class", "4xx", Cell::Answers4xx),
            ("class", "5xx", Cell::Answers5xx),
        ],
    },
    Metric {
        name: "millpond_upstream_failures_total",
        kind: "counter",
        help: "Tries without a whole answer, by cause; local and client are not the upstream's fault.",
        cells: &[
            ("cause", "connect", Cell::FailedConnect),
            ("cause", "timeout", Cell::FailedTimeout),
            ("cause", "broken", Cell::FailedBroken),
            ("cause", "answer", Cell::FailedAnswer),
            ("cause", "local", Cell::FailedLocal),
            ("cause", "client", Cell::ClientGone),
        ],
    },
    Metric {
        name: "millpond_upstream_ejections_total",
        kind: "counter",
        help: "Times it was taken out for failures in a row.",
        cells: &[("", "", Cell::Ejections)],
    },
    Metric {
        name: "millpond_upstream_probes_failed_total",
        kind: "counter",
        help: "Health checks that failed.",
        cells: &[("", "", Cell::ProbesFailed)],
    },
    Metric {
        name: "millpond_upstream_connections_used_total",
        kind: "counter",
        help: "Tries by the connection they were made on: one kept from before, or a new one.",
        cells: &[
            ("kind", "reused", Cell::ReusedConnections),
            ("kind", "new", Cell::NewConnections),
        ],
    },
    Metric {
        name: "millpond_upstream_first_byte_ns_total",
        kind: "counter",
        help: "Nanoseconds from having a connection to the first byte of the answer, added up.",
        cells: &[("", "", Cell::FirstByteNs)],
    },
    Metric {
        name: "millpond_upstream_body_bytes_total",
        kind: "counter",
        help: "Bytes of answers' bodies.",
        cells: &[("", "", Cell::BodyBytes)],
    },
    Metric {
        name: "millpond_upstream_tunnels_total",
        kind: "counter",
        help: "Connections that another protocol took over.",
        cells: &[("", "", Cell::Tunnels)],
    },
    Metric {
        name: "millpond_upstream_tunnel_idle_timeouts_total",
        kind: "counter",
        help: "Of these, those closed because nothing went through them for too long.",
        cells: &[("", "", Cell::TunnelsIdle)],
    },
    Metric {
        name: "millpond_upstream_outstanding",
        kind: "gauge",
        help: "Requests under way.",
        cells: &[("", "", Cell::Outstanding)],
    },
    Metric {
        name: "millpond_upstream_usable_shards",
        kind: "gauge",
        help: "Shards that would give it a request now, up to a second ago.",
        cells: &[("", "", Cell::IsUsable)],
    },
    Metric {
        name: "millpond_upstream_connections",
        kind: "gauge",
        help: "Connections to it, up to a second ago.",
        cells: &[
            ("state", "parked", Cell::Parked),
            ("state", "in_use", Cell::InUse),
        ],
    },
    Metric {
        name: "millpond_upstream_waiting",
        kind: "gauge",
        help: "Requests that wait for a connection, up to a second ago.",
        cells: &[("", "", Cell::Waiting)],
    },
    Metric {
        name: "millpond_upstream_unresolved_shards",
        kind: "gauge",
        help: "Shards for which its name had no address when they last looked it up.",
        cells: &[("", "", Cell::IsUnresolved)],
    },
    Metric {
        name: "millpond_upstream_shards",
        kind: "gauge",
        help: "Shards that have it; those that do not use it since health checks or requests failed.",
        cells: &[
            ("state", "configured", Cell::IsConfigured),
            ("state", "down", Cell::IsDown),
            ("state", "ejected", Cell::IsEjected),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_mempool::{BlockPool, PoolMode};

    /// Goal: shards are added up, an upstream that comes back finds its counts, and every cell is shown.
    #[test]
    fn shards_are_added_up() {
        let registry = Registry::default();
        registry.counters("a:1", 0).add(Cell::Tries, 2);
        registry.counters("a:1", 1).count(Cell::Tries);
        registry.counters("a:1", 0).count(Cell::Answers5xx);
        registry.counters("b:2", 0).set(Cell::Parked, 7);
        let refused = Failure::CertificateExpired;
        registry.counters("b:2", 0).count_failure(refused);
        registry.counters("b:2", 1).count_failure(refused);
        let blocks = BlockPool::new("test", PoolMode::Off);
        let mut text = MetricsText::new(&blocks);
        registry.write(&mut text);
        let text = String::from_utf8(text.finish().unwrap().to_vec()).unwrap();
        for line in [
            "millpond_upstream_tries_total{upstream=\"a:1\"} 3",
            "millpond_upstream_tries_total{upstream=\"b:2\"} 0",
            "millpond_upstream_answers_total{upstream=\"a:1\",class=\"5xx\"} 1",
            "millpond_upstream_connections{upstream=\"b:2\",state=\"parked\"} 7",
            "millpond_upstream_errors_total{upstream=\"b:2\",error=\"tls_certificate_error\",\
             cause=\"certificate_expired\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let shown: usize = METRICS.iter().map(|metric| metric.cells.len()).sum();
        assert_eq!(shown, CELLS);
    }
}
