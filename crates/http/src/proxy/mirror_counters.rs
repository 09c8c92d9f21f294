//! What a proxy counts of each mirror.

use super::counters::{CellIndex, Counters, Metric, Registry, Shown};

/// What is counted or measured of a mirror, one place each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(super) enum MirrorCell {
    Mirrored,
    DroppedInFlight,
    DroppedPaused,
    DroppedBody,
    DroppedUnfinished,
    DroppedMemory,
    ExcludedMethod,
    ExcludedUpgrade,
    ExcludedExpect,
    Answers2xx,
    Answers3xx,
    Answers4xx,
    Answers5xx,
    Failed,
    AnswersCut,
    FirstByteNs,
    TotalNs,
    BodyBytes,
    // From here on what is now, not counts.
    InFlight,
}

impl CellIndex for MirrorCell {
    fn index(self) -> usize {
        self as usize
    }
}

const CELLS: usize = MirrorCell::InFlight as usize + 1;

/// One shard's cells of one mirror.
pub(super) type MirrorCounters = Counters<MirrorCell, CELLS>;

/// All shards' cells, by the mirror's name.
pub(super) type MirrorRegistry = Registry<MirrorCell, CELLS>;

/// In `/metrics`.
pub(super) const MIRRORS: Shown<MirrorCell> = Shown {
    label: "mirror",
    metrics: &METRICS,
    failures: (
        "millpond_mirror_errors_total",
        "Copies without a whole response, by the error type of RFC 9209 and the cause; those there were.",
    ),
};

const METRICS: [Metric<MirrorCell>; 10] = [
    Metric {
        name: "millpond_mirror_requests_total",
        kind: "counter",
        help: "Requests copied to the mirror.",
        cells: &[("", "", MirrorCell::Mirrored)],
    },
    Metric {
        name: "millpond_mirror_dropped_total",
        kind: "counter",
        help: "Requests of the sample that were not copied: as many copies as may be were under way (in_flight), \
               the mirror had failed five times in a row within the last second (paused), the body was too long or did not come whole, no memory.",
        cells: &[
            ("reason", "in_flight", MirrorCell::DroppedInFlight),
            ("reason", "paused", MirrorCell::DroppedPaused),
            ("reason", "body_too_long", MirrorCell::DroppedBody),
            ("reason", "body_unfinished", MirrorCell::DroppedUnfinished),
            ("reason", "memory", MirrorCell::DroppedMemory),
        ],
    },
    Metric {
        name: "millpond_mirror_excluded_total",
        kind: "counter",
        help: "Requests of kinds that are never copied, before the sample is taken.",
        cells: &[
            ("reason", "method", MirrorCell::ExcludedMethod),
            ("reason", "upgrade", MirrorCell::ExcludedUpgrade),
            ("reason", "expect", MirrorCell::ExcludedExpect),
        ],
    },
    Metric {
        name: "millpond_mirror_answers_total",
        kind: "counter",
        help: "Responses of the mirror by class of their status; all are dropped.",
        cells: &[
            ("class", "2xx", MirrorCell::Answers2xx),
            ("class", "3xx", MirrorCell::Answers3xx),
            ("class", "4xx", MirrorCell::Answers4xx),
            ("class", "5xx", MirrorCell::Answers5xx),
        ],
    },
    Metric {
        name: "millpond_mirror_failures_total",
        kind: "counter",
        help: "Copies without a whole response.",
        cells: &[("", "", MirrorCell::Failed)],
    },
    Metric {
        name: "millpond_mirror_answers_cut_total",
        kind: "counter",
        help: "Responses that were longer than a mirror's may be; the connection was closed.",
        cells: &[("", "", MirrorCell::AnswersCut)],
    },
    Metric {
        name: "millpond_mirror_first_byte_ns_total",
        kind: "counter",
        help: "Nanoseconds from having a connection to the first byte of the response, of whole ones, added up.",
        cells: &[("", "", MirrorCell::FirstByteNs)],
    },
    Metric {
        name: "millpond_mirror_total_ns_total",
        kind: "counter",
        help: "Nanoseconds from the beginning of a copy to the end of its response, of whole ones, added up.",
        cells: &[("", "", MirrorCell::TotalNs)],
    },
    Metric {
        name: "millpond_mirror_body_bytes_total",
        kind: "counter",
        help: "Bytes of the bodies of whole responses.",
        cells: &[("", "", MirrorCell::BodyBytes)],
    },
    Metric {
        name: "millpond_mirror_in_flight",
        kind: "gauge",
        help: "Copies under way.",
        cells: &[("", "", MirrorCell::InFlight)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsText;
    use millpond_mempool::{BlockPool, PoolMode};

    /// Goal: every cell is shown once, and a proxy without mirrors shows none of it.
    #[test]
    fn every_cell_is_shown() {
        let shown: usize = METRICS.iter().map(|metric| metric.cells.len()).sum();
        assert_eq!(shown, CELLS);
        let blocks = BlockPool::new("test", PoolMode::Off);
        let registry = MirrorRegistry::default();
        let text = |registry: &MirrorRegistry| {
            let mut text = MetricsText::new(&blocks);
            registry.write(&mut text, &MIRRORS);
            String::from_utf8(text.finish().unwrap().to_vec()).unwrap()
        };
        assert_eq!(text(&registry), "");
        registry.counters("m:1", 0).add(MirrorCell::Mirrored, 3);
        let line = "millpond_mirror_requests_total{mirror=\"m:1\"} 3";
        assert!(text(&registry).lines().any(|found| found == line));
    }
}
