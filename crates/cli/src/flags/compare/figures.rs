//! What the five earlier benchmarks published, and how far it can be set beside ours.

use millpond_measure::record::{CandidateRounds, ComparisonRecord, Measure, Operation, Quantity};
use millpond_measure::report::lines::wrapped;
use millpond_measure::units::format_duration_ns;

/// One published figure.
struct Figure {
    what: &'static str,
    earlier: &'static str,
    /// Our measure, and the allocator it was published for.
    ours: Option<(Measure, &'static str)>,
}

/// One earlier benchmark.
struct Earlier {
    name: &'static str,
    title: &'static str,
    figures: &'static [Figure],
    comparable: &'static str,
    not_comparable: &'static str,
}

const fn of_request(quantity: Quantity) -> Measure {
    Measure::of(Operation::Request, quantity)
}

const fn figure(
    what: &'static str,
    earlier: &'static str,
    measure: Measure,
    allocator: &'static str,
) -> Figure {
    Figure {
        what,
        earlier,
        ours: Some((measure, allocator)),
    }
}

const fn alone(what: &'static str, earlier: &'static str) -> Figure {
    Figure {
        what,
        earlier,
        ours: None,
    }
}

const RATE: Measure = of_request(Quantity::Throughput);
const RSS: Measure = Measure::whole(Quantity::RssAfterWork);

const ALL: [Earlier; 4] = [
    Earlier {
        name: "everscale",
        title: "everscale, 2020-04-16: 500 connections x 5,000 requests, 1,024 B sent in chunks, 740 B \
                answered; client and server in one process",
        figures: &[
            figure("malloc, no pools", "174,956/s, peak 190,018", RATE, "glibc"),
            figure(
                "tcmalloc, no pools",
                "161,082/s, peak 168,962",
                RATE,
                "tcmalloc",
            ),
            figure("malloc, pools", "174,323/s, peak 194,263", RATE, "mempool"),
        ],
        comparable: "connections, requests on each, the request byte for byte, no pipelining, the size \
                     of the answer, loopback; and the ratios between allocators.",
        not_comparable: "the rates: other hardware, 3 client and 3 server threads there. Client and server \
                         are two processes here, as a server under another allocator has to be \
                         (--one-process has both in one); our answer is a file with Content-Length, theirs came in chunks; theirs made no \
                         heap calls at all in a steady state, with pools or without, ours runs with its \
                         pools off. One run of each then, with drifts of 4 to 11 % in it: the \
                         differences that were published are within its noise.",
    },
    Earlier {
        name: "haywire",
        title: "haywire, 2016-11-30: 768 connections, 128 requests deep, wrk for 60 s on another machine",
        figures: &[
            figure("malloc", "7,347,393/s", RATE, "glibc"),
            figure("tcmalloc", "9,493,995/s", RATE, "tcmalloc"),
            figure("jemalloc", "9,244,076/s", RATE, "jemalloc"),
            alone("lockless", "9,440,641/s, 166.0 MB"),
            figure("malloc, memory", "64.2 MB", RSS, "glibc"),
            figure("tcmalloc, memory", "85.0 MB", RSS, "tcmalloc"),
            figure("jemalloc, memory", "70.4 MB", RSS, "jemalloc"),
        ],
        comparable: "connections, depth, the request, an answer of a few words; and the ratios between \
                     allocators (tcmalloc 1.29x malloc then).",
        not_comparable: "the rates: 20 cores with the generator on another machine there. haywire made 14 \
                         heap calls per request, our server with its pools off makes far fewer, so an \
                         allocator moves it less. Latency was published as plots only (at 3,000,000/s); \
                         p50 and p99 here are of the constant rate that follows the pipelined run. \
                         Memory there is one look at top. lockless is in no registry: build it and name \
                         it with --allocators lockless=FILE.",
    },
    Earlier {
        name: "network-pool",
        title: "network_pool, 2017-12-30: ab -c 10000 -n 200000, no keep-alive, one thread",
        figures: &[
            figure("requests", "16,357.69/s", RATE, "glibc"),
            figure(
                "median",
                "10 ms",
                of_request(Quantity::ResponseP50),
                "glibc",
            ),
            figure(
                "99 %",
                "7,036 ms",
                of_request(Quantity::ResponseP99),
                "glibc",
            ),
            alone("memory at its peak", "30 MB, read by hand"),
        ],
        comparable: "connections, a connection for each request, loopback, the generator beside the \
                     server on few cores.",
        not_comparable: "the rate: one core for both there. Its p99 of 7 s is SYNs sent again because the \
                         listen queue overflowed, and not the server's work. ab's median leaves out \
                         what waited to be sent. Addresses of 127.1.0.0/16 are used here, or ports run \
                         out.",
    },
    Earlier {
        name: "entity",
        title: "/v0/entity in Java, 2020-10-04: wrk2 -t1 -c1 -R2000 -d15s, PUT of 3 bytes, then GET",
        figures: &[
            figure(
                "PUT p50, corrected",
                "1.09 ms",
                Measure::of(Operation::Put, Quantity::ResponseP50),
                "glibc",
            ),
            figure(
                "PUT p99, corrected",
                "2.11 ms",
                Measure::of(Operation::Put, Quantity::ResponseP99),
                "glibc",
            ),
            figure(
                "PUT p50, uncorrected",
                "0.206 ms",
                Measure::of(Operation::Put, Quantity::ServiceP50),
                "glibc",
            ),
            figure(
                "GET p50, corrected",
                "1.11 ms",
                Measure::of(Operation::Get, Quantity::ResponseP50),
                "glibc",
            ),
            figure(
                "GET p99, corrected",
                "2.11 ms",
                Measure::of(Operation::Get, Quantity::ResponseP99),
                "glibc",
            ),
            figure(
                "GET p50, uncorrected",
                "0.223 ms",
                Measure::of(Operation::Get, Quantity::ServiceP50),
                "glibc",
            ),
        ],
        comparable: "the API, the rate, one connection, values of 3 bytes, RocksDB; both latencies.",
        not_comparable: "the corrected latency: about 1 ms of it was wrk2's own timer. PUT there was \
                         acknowledged before it was durable, here after a sync of the log. GET there \
                         always asked for one key.",
    },
];

/// The table of one benchmark, and what may be made of it, for so many columns.
pub(super) fn beside(name: &str, record: &ComparisonRecord, width: usize) -> String {
    let Some(earlier) = ALL.iter().find(|one| one.name == name) else {
        return String::new();
    };
    let mut text = "\nThe earlier figure beside ours\n".to_owned();
    text += &wrapped(earlier.title, width, INDENT);
    text += &row("", "then", "ours");
    for figure in earlier.figures {
        let ours = figure.ours.map_or_else(
            || "-".to_owned(),
            |(measure, allocator)| ours(record, measure, allocator),
        );
        text += &row(figure.what, figure.earlier, &ours);
    }
    let Earlier {
        comparable,
        not_comparable,
        ..
    } = earlier;
    text += &wrapped(&format!("Comparable: {comparable}"), width, INDENT);
    text + &wrapped(&format!("Not comparable: {not_comparable}"), width, INDENT)
}

/// Of all lines but the first of a sentence.
const INDENT: &str = "  ";

fn row(what: &str, then: &str, ours: &str) -> String {
    format!("{INDENT}{what:<22}{then:<28}{ours}\n")
}

/// The median of the candidate of that allocator, and its ratio to the baseline.
fn ours(record: &ComparisonRecord, measure: Measure, allocator: &str) -> String {
    let is_it = |one: &&CandidateRounds| one.allocator == allocator;
    let Some(candidate) = record.candidates.iter().find(is_it) else {
        return format!("{allocator} was not compared");
    };
    let Some(median) = candidate.median(measure) else {
        return "not measured".to_owned();
    };
    let value = measure.quantity.unit().format(median);
    let mut details = record.analysis.details.iter();
    let ratio = details
        .find(|detail| detail.measure == measure)
        .and_then(|detail| {
            let mut comparisons = detail.comparisons.iter();
            comparisons.find(|one| one.candidate == candidate.name)
        })
        .map_or_else(String::new, |one| {
            format!(" ({}, {})", one.ratio_text(), one.verdict.label())
        });
    format!("{value} {}{ratio}", candidate.name)
}

/// The same for the micro-benchmark.
pub(super) fn beside_pools(record: &serde_json::Value, width: usize) -> String {
    let medians = pool_medians(record);
    let ours = |name: &str| {
        let mut found = medians.iter();
        let found = found.find(|(candidate, _)| candidate == name);
        found.map_or_else(
            || "not measured".to_owned(),
            |(_, median_ns)| format_duration_ns(*median_ns),
        )
    };
    let title = "memory_pool, 2024-06-29: an iteration of 140 objects of 56 bytes made and destroyed, \
                 and 16 times a vector that grows; 100,000 iterations, 5 repetitions";
    let comparable = "Comparable: the program, its objects and their number, iterations and \
                      repetitions; the ratio of the pool to malloc, 0.71x then.";
    let not_comparable = "Not comparable: nanoseconds, on another processor (4 x 2.7 GHz there). The \
                          earlier pool was measured with one thread and one size only: `millpond \
                          bench pools` has the other programs.";
    [
        "\nThe earlier figure beside ours\n".to_owned(),
        wrapped(title, width, INDENT),
        row("", "then", "ours"),
        row("pool", "0.005 ms (5,000 ns)", &ours("pool")),
        row("malloc", "0.007 ms (7,000 ns)", &ours("glibc")),
        wrapped(comparable, width, INDENT),
        wrapped(not_comparable, width, INDENT),
    ]
    .concat()
}

fn pool_medians(record: &serde_json::Value) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    let programs = record["programs"].as_array().into_iter().flatten();
    for program in programs {
        let results = program["allocators"].as_array().into_iter().flatten();
        for result in results {
            let name = result["allocator"].as_str();
            let median = result["ns_per_iteration"]["median"].as_f64();
            found.extend(name.map(str::to_owned).zip(median));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::compare::preset::Preset;
    use millpond_measure::record::RoundMeasures;

    /// Goal: every preset has its earlier figures, with what may be compared and what may not; what was
    /// measured stands beside them, what was not is not made up.
    #[test]
    fn every_preset_has_its_figures() {
        let mut round = RoundMeasures::default();
        round.set(RATE, 500_000.0);
        let mut record = ComparisonRecord::new("0");
        record.candidates = vec![CandidateRounds {
            name: "glibc".to_owned(),
            allocator: "glibc".to_owned(),
            rounds: vec![round],
            ..CandidateRounds::default()
        }];
        for name in Preset::all_names() {
            let text = if name == "mempool" {
                beside_pools(&serde_json::Value::Null, 80)
            } else {
                beside(&name, &record, 80)
            };
            for part in ["beside ours", "Comparable: ", "Not comparable: ", "then"] {
                assert!(text.contains(part), "{name}: {text}");
            }
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
        }
        let text = beside("haywire", &record, 80);
        assert!(
            text.contains("500k/s glibc") && text.contains("tcmalloc was not compared"),
            "{text}"
        );
        assert!(
            text.contains("malloc, memory") && text.contains("not measured"),
            "{text}"
        );
    }
}
