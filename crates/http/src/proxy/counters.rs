//! Counters of each upstream and each mirror: cells that one shard writes and any thread may read.
//!
//! `upstreams` counts tries and their ends, `mirrors` copies and theirs; `/metrics` of any shard adds up
//! all shards. A cell has one writer, so that counting is a load and a store, no locked instruction.

use super::failure::Failure;
use crate::counters::Counter;
use crate::durations::{DurationHistogram, SharedHistogram};
use crate::metrics::MetricsText;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// Names one of a fixed number of cells.
pub(super) trait CellIndex: Copy + 'static {
    fn index(self) -> usize;
}

/// Counters and gauges of an upstream, one index each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(super) enum Cell {
    Tries,
    Retries,
    Responses1xx,
    Responses2xx,
    Responses3xx,
    Responses4xx,
    Responses5xx,
    FailedConnect,
    FailedTimeout,
    FailedBroken,
    FailedResponse,
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

impl CellIndex for Cell {
    fn index(self) -> usize {
        self as usize
    }
}

const CELLS: usize = Cell::IsEjected as usize + 1;
const FAILURES: usize = Failure::ALL.len();

/// One shard's cells of one upstream.
pub(super) type UpstreamCounters = Counters<Cell, CELLS>;

/// One shard's `N` cells, named by `C`, and failures by their cause.
pub(super) struct Counters<C, const N: usize> {
    cells: [Counter; N],
    failures: [Counter; FAILURES],
    /// Of the tries that brought a whole response.
    pub(super) durations: SharedHistogram,
    named_by: PhantomData<fn(C)>,
}

impl<C, const N: usize> Default for Counters<C, N> {
    fn default() -> Self {
        Self {
            cells: [const { Counter::new() }; N],
            failures: [const { Counter::new() }; FAILURES],
            durations: SharedHistogram::default(),
            named_by: PhantomData,
        }
    }
}

impl<C, const N: usize> fmt::Debug for Counters<C, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Counters")
            .field("cells", &self.cells)
            .finish_non_exhaustive()
    }
}

impl<C: CellIndex, const N: usize> Counters<C, N> {
    #[inline]
    pub(super) fn add(&self, cell: C, count: u64) {
        self.cells[cell.index()].add(count);
    }

    #[inline]
    pub(super) fn count(&self, cell: C) {
        self.add(cell, 1);
    }

    #[cold]
    pub(super) fn count_failure(&self, failure: Failure) {
        self.failures[failure as usize].add(1);
    }

    #[inline]
    pub(super) fn set(&self, cell: C, value: u64) {
        self.cells[cell.index()].set(value);
    }

    fn get(&self, cell: C) -> u64 {
        self.cells[cell.index()].value()
    }

    fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure as usize].value()
    }
}

/// All shards' cells, by the upstream's name.
pub(super) type UpstreamRegistry = Registry<Cell, CELLS>;

/// All shards' counters, by name. Those of a name that left the configuration stay: counters must not
/// fall.
pub(super) struct Registry<C, const N: usize> {
    entries: Mutex<Vec<RegistryEntry<C, N>>>,
}

impl<C, const N: usize> Default for Registry<C, N> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<C, const N: usize> fmt::Debug for Registry<C, N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Registry").finish_non_exhaustive()
    }
}

struct RegistryEntry<C, const N: usize> {
    name: String,
    by_shard: Vec<(usize, Arc<Counters<C, N>>)>,
}

impl<C: CellIndex, const N: usize> RegistryEntry<C, N> {
    fn sum(&self, cell: C) -> u64 {
        let by_shard = self.by_shard.iter();
        by_shard.map(|(_, counters)| counters.get(cell)).sum()
    }

    fn durations(&self) -> DurationHistogram {
        let mut sum = DurationHistogram::default();
        for (_, counters) in &self.by_shard {
            sum.merge(&counters.durations.read());
        }
        sum
    }

    fn failures(&self, failure: Failure) -> u64 {
        let by_shard = self.by_shard.iter();
        by_shard
            .map(|(_, counters)| counters.failures(failure))
            .sum()
    }
}

impl<C: CellIndex, const N: usize> Registry<C, N> {
    /// The cells of this shard for this name; the same as before if it was there before.
    pub(super) fn counters(&self, name: &str, shard_index: usize) -> Arc<Counters<C, N>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match entries.iter().position(|entry| entry.name == name) {
            Some(index) => index,
            None => {
                entries.push(RegistryEntry {
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
        let counters = Arc::<Counters<C, N>>::default();
        by_shard.push((shard_index, Arc::clone(&counters)));
        counters
    }

    /// Calls `visit` with each name there is or was, and a function that adds up a cell.
    pub(super) fn visit(&self, mut visit: impl FnMut(&str, &dyn Fn(C) -> u64)) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.iter() {
            visit(&entry.name, &|cell| entry.sum(cell));
        }
    }

    /// The lines of `/metrics`: nothing where there is no name.
    pub(super) fn write(&self, out: &mut MetricsText<'_>, shown: &Shown<C>) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.is_empty() {
            return;
        }
        for metric in shown.metrics {
            out.describe(metric.name, metric.kind, metric.help);
            for entry in entries.iter() {
                let named = (shown.label, &*entry.name);
                for &(label, value, cell) in metric.cells {
                    let sum = entry.sum(cell);
                    match label {
                        "" => out.sample_count(metric.name, &[(named.0, &named.1)], sum),
                        label => {
                            out.sample_count(
                                metric.name,
                                &[(named.0, &named.1), (label, &value)],
                                sum,
                            );
                        }
                    }
                }
            }
        }
        if let Some((name, help)) = shown.durations {
            out.describe(name, "histogram", help);
            for entry in entries.iter() {
                out.histogram(name, &[(shown.label, &entry.name)], &entry.durations());
            }
        }
        let (name, help) = shown.failures;
        out.describe(name, "counter", help);
        for entry in entries.iter() {
            for &failure in Failure::ALL {
                let sum = entry.failures(failure);
                if sum > 0 {
                    let (error, cause) = (failure.error(), failure.cause());
                    let labels: [(&str, &dyn fmt::Display); 3] = [
                        (shown.label, &entry.name),
                        ("error", &error),
                        ("cause", &cause),
                    ];
                    let first = usize::from(shown.label.is_empty());
                    out.sample(name, &labels[first..], sum);
                }
            }
        }
    }
}

/// How the cells of a registry appear in `/metrics`.
pub(super) struct Shown<C: 'static> {
    /// The label with the name; empty if the only name is the default.
    pub(super) label: &'static str,
    pub(super) metrics: &'static [Metric<C>],
    /// Name and help of the metric that has failures by cause.
    pub(super) failures: (&'static str, &'static str),
    /// Name and help of the histogram of their durations, if that is shown.
    pub(super) durations: Option<(&'static str, &'static str)>,
}

/// No cell: failures alone are counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoCell {}

impl CellIndex for NoCell {
    fn index(self) -> usize {
        match self {}
    }
}

/// Of requests that went to no upstream.
pub(super) type RefusalCounters = Counters<NoCell, 0>;

/// All shards' of these.
pub(super) type RefusalRegistry = Registry<NoCell, 0>;

/// Of requests that went to no upstream.
pub(super) const REFUSALS: Shown<NoCell> = Shown {
    label: "",
    metrics: &[],
    failures: (
        "millpond_proxy_refused_total",
        "Requests that the proxy refused because they could go to no upstream, by the error type of RFC 9209 and \
         the cause; only those that occurred.",
    ),
    durations: None,
};

/// Of upstreams.
pub(super) const UPSTREAMS: Shown<Cell> = Shown {
    label: "upstream",
    metrics: &METRICS,
    failures: (
        "millpond_upstream_errors_total",
        "Tries without a complete response, by the error type of RFC 9209 and the cause; only those that occurred.",
    ),
    durations: Some((
        "millpond_upstream_request_duration_seconds",
        "Time of a try from its beginning to the end of the response, the wait for a connection included.",
    )),
};

pub(super) struct Metric<C: 'static> {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    /// Label and its value, if it has one, and what it shows.
    pub(super) cells: &'static [(&'static str, &'static str, C)],
}

const METRICS: [Metric<Cell>; 17] = [
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
        name: "millpond_upstream_responses_total",
        kind: "counter",
        help: "Responses by class of their status.",
        cells: &[
            ("class", "1xx", Cell::Responses1xx),
            ("class", "2xx", Cell::Responses2xx),
            ("class", "3xx", Cell::Responses3xx),
            ("class", "4xx", Cell::Responses4xx),
            ("class", "5xx", Cell::Responses5xx),
        ],
    },
    Metric {
        name: "millpond_upstream_failures_total",
        kind: "counter",
        help: "Tries without a complete response, by cause; local and client are not the upstream's fault.",
        cells: &[
            ("cause", "connect", Cell::FailedConnect),
            ("cause", "timeout", Cell::FailedTimeout),
            ("cause", "broken", Cell::FailedBroken),
            ("cause", "response", Cell::FailedResponse),
            ("cause", "local", Cell::FailedLocal),
            ("cause", "client", Cell::ClientGone),
        ],
    },
    Metric {
        name: "millpond_upstream_ejections_total",
        kind: "counter",
        help: "Times it was ejected after consecutive failures.",
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
        name: "millpond_upstream_first_byte_seconds_total",
        kind: "counter",
        help: "Sum of the times from having a connection to the first byte of the response.",
        cells: &[("", "", Cell::FirstByteNs)],
    },
    Metric {
        name: "millpond_upstream_body_bytes_total",
        kind: "counter",
        help: "Bytes of response bodies.",
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
            ("state", "idle", Cell::Parked),
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
#[path = "tests/counters.rs"]
mod tests;
