//! The record for a terminal: the results of the combinations, and how evenly connections were served.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use millpond_lab::trace::{PATH_VARIABLE, Trace};
use millpond_measure::histogram::LatencySummary;
use millpond_measure::record::LoadSecond;
use millpond_measure::units::{format_bytes, format_three_digits};

use crate::child::PrivateDirectory;
use crate::error::{BenchError, RunError};
use crate::report::{count, lay_out, paragraph};
use crate::statistics::Ratio;
use crate::subject::{Launch, Preload, Subject};

use super::pair::{PairSample, PairSpec};
use super::record::LoopbackRecord;
use super::run::{ChildSpec, Line};

/// Narrower tables would wrap.
const WIDTH_MIN: usize = 80;

/// One second as it goes by: requests per second, how many, and their latency in milliseconds.
#[must_use]
pub fn second_line(second: &LoadSecond) -> String {
    let times = &second.response_ns;
    let stdev_ms = in_ms(times.stdev);
    let failures = match second.errors.total() {
        0 => String::new(),
        count => format!(", {count} failures"),
    };
    format!(
        "{:>4} s: {:.2}/s, N={}, latency ms mean={:.3}, var={:.3}, min={:.3}, max={:.3}, p50={:.3}, \
         p99={:.3}{failures}",
        second.second + 1,
        second.requests_per_s,
        second.requests,
        in_ms(times.mean),
        stdev_ms * stdev_ms,
        in_ms(times.min),
        in_ms(times.max),
        in_ms(times.p50),
        in_ms(times.p99),
    )
}

/// The whole report. `width`: columns of the terminal.
#[must_use]
pub fn render(record: &LoopbackRecord, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, 100);
    let mut text = String::new();
    paragraph(&mut text, width, &title(record));
    lay_out(&mut text, &rates(record));
    text.push('\n');
    paragraph(
        &mut text,
        width,
        "The best second, and how the transactions spread over the connections in the run that was least \
         fair:",
    );
    lay_out(&mut text, &spreads(record));
    for sentence in sentences(record) {
        paragraph(&mut text, width, &sentence);
    }
    text
}

fn title(record: &LoopbackRecord) -> String {
    let runs = record.candidates.iter().map(|it| it.runs.len()).max();
    let threads = match record.threads {
        1 => "one thread on each side".to_owned(),
        threads => format!("{threads} threads on each side"),
    };
    let drivers = match record.server_driver == record.client_driver {
        true => format!("both on {}", record.server_driver),
        false => format!(
            "the server on {}, the client on {}",
            record.server_driver, record.client_driver
        ),
    };
    format!(
        "loopback: client and server in one process, {} connections x {} requests, {} B in a chunk, {} B \
         answered in a chunk; {threads}, {drivers}; {} runs of each.",
        record.connections,
        record.requests_per_connection,
        record.request_bytes,
        record.response_bytes,
        runs.unwrap_or(0),
    )
}

fn heads(lines: &[&[&str]]) -> Vec<Vec<String>> {
    let line = |line: &&[&str]| line.iter().map(|&head| head.to_owned()).collect();
    lines.iter().map(line).collect()
}

fn rates(record: &LoopbackRecord) -> Vec<Vec<String>> {
    let mut rows = heads(&[
        &[
            "",
            "requests",
            "times the",
            "latency",
            "ms",
            "",
            "",
            "heap calls",
            "CPU us",
        ],
        &[
            "",
            "per s",
            "first",
            "mean",
            "p50",
            "p99",
            "max",
            "per trans.",
            "each",
        ],
    ]);
    for it in &record.candidates {
        let ms = |time: fn(&LatencySummary) -> u64| {
            format_three_digits(it.median(|run| time(&run.latency_ns) as f64) / 1e6)
        };
        let longest = it.runs.iter().map(|run| run.latency_ns.max).max();
        rows.push(vec![
            it.name.clone(),
            format!("{:.0}", it.requests_per_s.median),
            it.times_the_first
                .as_ref()
                .map_or_else(String::new, interval),
            ms(|times| times.mean),
            ms(|times| times.p50),
            ms(|times| times.p99),
            format_three_digits(in_ms(longest.unwrap_or(0))),
            count(it.heap_calls_per_transaction),
            format_three_digits(it.cpu_ns_per_transaction / 1e3),
        ]);
    }
    rows
}

fn spreads(record: &LoopbackRecord) -> Vec<Vec<String>> {
    let mut rows = heads(&[
        &[
            "",
            "best",
            "",
            "on each",
            "connection",
            "",
            "",
            "",
            "",
            "peak",
        ],
        &[
            "", "second", "accepts", "mean", "variance", "min", "max", "fairness", "failed", "RSS",
        ],
    ]);
    for it in &record.candidates {
        let fairness = |run: &PairSample| run.per_connection.fairness;
        let by_fairness =
            |one: &&PairSample, other: &&PairSample| fairness(one).total_cmp(&fairness(other));
        let Some(run) = it.runs.iter().min_by(by_fairness) else {
            continue;
        };
        let spread = &run.per_connection;
        let peak = it.median(|run| run.peak_requests_per_s);
        rows.push(vec![
            it.name.clone(),
            // A run of less than a second has none.
            if peak > 0.0 {
                format!("{peak:.0}")
            } else {
                "-".to_owned()
            },
            run.accepts.to_string(),
            format!("{:.1}", spread.mean),
            format!("{:.1}", spread.variance),
            spread.min.to_string(),
            spread.max.to_string(),
            format!("{:.4}", spread.fairness),
            it.failures().to_string(),
            format_bytes(it.median(|run| run.peak_rss_bytes as f64)),
        ]);
    }
    rows
}

fn sentences(record: &LoopbackRecord) -> Vec<String> {
    let mut notes = vec![format!(
        "Heap calls are malloc's of client and server together, counted in runs of their own; a second is \
         a whole one; latency is from a request's write to the last byte of its response. Ratios are of runs \
         of one repetition, with the signed-rank interval (95 % from six repetitions on, the range of all \
         pairs below). Seed {}.",
        record.seed
    )];
    if record.repetitions < 3 {
        notes.push(
            "So few runs tell no difference from drift: --repetitions 6 and more do.".to_owned(),
        );
    }
    let failures = record.failures();
    if failures > 0 {
        notes.push(format!(
            "{failures} requests failed: what was measured is not what was asked for."
        ));
    }
    if !record.verdict.is_trusted() {
        notes.push(format!(
            "Times are not to be trusted: {}. Heap calls and spreads are.",
            record.verdict.reasons.join(", and ")
        ));
    }
    if record.interrupted {
        notes.push("Interrupted: this is what was measured until then.".to_owned());
    }
    notes
}

/// `1.02 [1.01, 1.03]`, or the ratio alone where one pair is all there is.
fn interval(ratio: &Ratio) -> String {
    let digits = format_three_digits;
    match ratio.pairs {
        0 | 1 => digits(ratio.ratio),
        _ => format!(
            "{} [{}, {}]",
            digits(ratio.ratio),
            digits(ratio.low),
            digits(ratio.high)
        ),
    }
}

fn in_ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

// Heap calls per transaction, of client and server together.

/// Transactions of the second run beyond those of the first.
const COUNTED: u64 = 100_000;
/// Transactions on each connection of the first run: each has had its first ones by then.
const FIRST_PER_CONNECTION: u64 = 8;
const FIRST_MIN: u64 = 20_000;

/// malloc and realloc calls for each transaction. `None`: they cannot be counted here.
pub(super) fn per_transaction(
    launcher: &Path,
    pair: &PairSpec,
    stop: &AtomicBool,
) -> Result<Option<f64>, BenchError> {
    let first = (pair.connections as u64 * FIRST_PER_CONNECTION).max(FIRST_MIN);
    let mut calls = Vec::new();
    for requests in [first, first + COUNTED] {
        let directory = PrivateDirectory::create()?;
        let trace = Trace::create(&directory.path).map_err(|error| BenchError::Output {
            path: directory.path.clone(),
            error,
        })?;
        let pair = PairSpec {
            requests,
            ..pair.clone()
        };
        match heap_count(launcher, pair, &trace, stop) {
            Ok(counted) => calls.push(counted),
            // Absent from the report; the timed runs say what is wrong.
            Err(_) => return Ok(None),
        }
    }
    let more = calls[1].saturating_sub(calls[0]);
    Ok(Some(more as f64 / COUNTED as f64))
}

fn heap_count(
    launcher: &Path,
    pair: PairSpec,
    trace: &Trace,
    stop: &AtomicBool,
) -> Result<u64, RunError> {
    let environment = [(PATH_VARIABLE.into(), trace.counters().into())];
    let launch = Launch {
        program: launcher,
        wrapper: &[],
        preload: Preload::Before(trace.object()),
        environment: &environment,
    };
    let requests = pair.requests;
    let spec = ChildSpec {
        pair,
        library: None,
        front: Some(trace.object().to_owned()),
        tells_seconds: false,
    };
    let unreadable = |reason: String| RunError::Unreadable {
        line: trace.counters().display().to_string(),
        reason,
    };
    let words = spec.to_arguments().map_err(unreadable)?;
    let mut subject = Subject::start_with(&launch, &words, None)?;
    let sample = loop {
        if let Line::End(sample) = subject.next(stop)? {
            break sample;
        }
    };
    subject.succeeded()?;
    if sample.requests != requests {
        return Err(unreadable(format!("{} failures", sample.errors.total())));
    }
    let calls = trace
        .read()
        .map_err(|error| unreadable(error.to_string()))?;
    if calls.processes == 0 {
        return Err(unreadable(
            "the heap call counter was not loaded".to_owned(),
        ));
    }
    Ok(calls.calls())
}

#[cfg(test)]
#[path = "tests/report.rs"]
mod tests;
