//! wrk's text, byte for byte, and below it what wrk lacks: three clocks and a verdict.
//!
//! Scripts all over the world read this format, so its quirks are kept: a unit is left at 85 % of
//! the next one, hours never appear, values are padded by two blanks where letters are missing.

use crate::histogram::{LatencyHistogram, LatencySummary, SIGNIFICANT_DIGITS};
use crate::record::{LoadCookies, LoadReport, LoadSpread, LoadTls, LoadWarmUp, RateWindowEnd};
use crate::series::SampleSummary;
use crate::units::format_duration_ns;

use super::csv;
use super::terminal::wrapped;

/// wrk moves on to the next unit at this share of it.
const NEXT_UNIT_SHARE: f64 = 0.85;

/// The output before the run: `Running 30s test @ http://...`.
#[must_use]
pub fn header(url: &str, duration_ns: u64, threads: u32, connections: u32) -> String {
    let duration = scaled(duration_ns as f64 / 1e9, 60.0, &["s", "m"], 0);
    format!("Running {duration} test @ {url}\n  {threads} threads and {connections} connections\n")
}

/// The output after the run. `latency` is the clock to show as wrk's latency, `rates` the requests
/// per second of single threads in slices of 100 ms; `distribution` is `--latency`.
#[must_use]
pub fn results(
    report: &LoadReport,
    latency: &LatencyHistogram,
    rates: &SampleSummary,
    distribution: bool,
) -> String {
    let mut text = statistics(latency, rates);
    if distribution {
        text += "  Latency Distribution\n";
        for percent in [50.0, 75.0, 90.0, 99.0] {
            let value = format_time_us(latency.percentile(percent) as f64 / 1e3);
            text += &format!("{percent:7.0}%{}\n", padded(&value, 10));
        }
    }
    text + &totals(report)
}

/// The rows of means and deviations.
pub(super) fn statistics(latency: &LatencyHistogram, rates: &SampleSummary) -> String {
    let mut text = format!(
        "  Thread Stats{:>6}{:>11}{:>8}{:>12}\n",
        "Avg", "Stdev", "Max", "+/- Stdev"
    );
    let micros = |nanos: f64| format_time_us(nanos / 1e3);
    text += &stats_row(
        "Latency",
        [
            micros(latency.mean()),
            micros(latency.stdev()),
            micros(latency.max() as f64),
        ],
        latency.share_within_stdevs(1.0),
    );
    text += &stats_row(
        "Req/Sec",
        // wrk keeps rates as whole numbers.
        [rates.mean, rates.stdev, rates.max.trunc()].map(format_metric),
        rates.within_stdev_share,
    );
    text
}

/// The basis of the rows of counts, right and wrong responses alike, as wrk counts.
struct Counted {
    answers: u64,
    wrong_statuses: u64,
    bytes_received: u64,
    duration_ns: u64,
}

impl Counted {
    /// Of the window that the rate is of, so that responses over time are the rate. Where a number of requests ends the
    /// run, and in records of earlier versions, all of them.
    fn of(report: &LoadReport) -> Self {
        let errors = &report.errors;
        match report.rate_window {
            Some(window)
                if matches!(window.end, RateWindowEnd::Time | RateWindowEnd::LastAnswer) =>
            {
                Self {
                    answers: window.all_answers(),
                    wrong_statuses: window.wrong_statuses,
                    bytes_received: window.bytes_received,
                    duration_ns: window.duration_ns,
                }
            }
            _ => Self {
                answers: report.requests + errors.status + errors.validation,
                wrong_statuses: errors.status,
                bytes_received: report.bytes_received,
                duration_ns: report.duration_ns,
            },
        }
    }
}

/// The rows of counts and rates.
pub(super) fn totals(report: &LoadReport) -> String {
    let counted = Counted::of(report);
    let mut text = format!(
        "  {} requests in {}, {}B read\n",
        counted.answers,
        format_time_us(counted.duration_ns as f64 / 1e3),
        format_binary(counted.bytes_received as f64)
    );
    let errors = &report.errors;
    if errors.connect + errors.read + errors.write + errors.timeout > 0 {
        text += &format!(
            "  Socket errors: connect {}, read {}, write {}, timeout {}\n",
            errors.connect, errors.read, errors.write, errors.timeout
        );
    }
    if counted.wrong_statuses > 0 {
        text += &format!("  Non-2xx or 3xx responses: {}\n", counted.wrong_statuses);
    }
    let window = report.window_of_rate();
    let per_s = window.rate_of(window.bytes_received);
    let answers_per_s = window.rate_of(window.all_answers());
    text += &format!("Requests/sec: {answers_per_s:9.2}\n");
    text += &format!("Transfer/sec: {:>10}B\n", format_binary(per_s));
    text
}

/// Our own block after wrk's: all three clocks, and whether the generator trusts its own figures.
#[must_use]
pub fn clocks(report: &LoadReport) -> String {
    let mut text = clock_rows(report);
    text += &sample_line(report);
    text += &populations_line(report);
    text += &status_line(report);
    text += &failure_lines(report);
    text += &rate_window_line(report);
    text += &connection_lines(report);
    if let Some(arrivals) = &report.arrivals {
        text += &format!("  Arrivals: {arrivals}\n");
    }
    if let Some(LoadWarmUp {
        duration_ns,
        until_steady: Some(until_steady),
    }) = report.warm_up
    {
        let found = if until_steady.became_steady {
            "steady"
        } else {
            "NOT STEADY"
        };
        let length = format_duration_ns(duration_ns as f64);
        text += &format!("  Warm-up: {found} after {length}\n");
    }
    if report.shed > 0 {
        text += &format!("  Later than the deadline, not sent: {}\n", report.shed);
    }
    if report.errors.validation > 0 {
        text += &format!("  Wrong content in responses: {}", report.errors.validation);
        let kinds = report.wrong_answers.contents();
        let kinds = kinds.iter().map(|(what, count)| format!("{what} {count}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        text += &if kinds.is_empty() {
            "\n".to_owned()
        } else {
            format!(" ({kinds})\n")
        };
    }
    text += &csv::classes_text(report);
    if let Some(LoadTls {
        full,
        resumed,
        failed,
        ..
    }) = report.tls
    {
        text += &format!("  TLS handshakes: full {full}, resumed {resumed}, failed {failed}\n");
    }
    if let Some(LoadCookies {
        set,
        deleted,
        overflowed,
        unusable,
    }) = report.cookies
    {
        text += &format!(
            "  Cookies: set {set}, deleted {deleted}, without room {overflowed}, unusable {unusable}\n"
        );
    }
    text += &verdict_lines(report);
    if report.interrupted {
        text += "  Interrupted: these are the results so far.\n";
    }
    text
}

/// Share of failures above which the first of each kind is printed.
const FAILURES_SHOWN_SHARE: f64 = 0.01;

/// Responses by status.
fn status_line(report: &LoadReport) -> String {
    if report.statuses.is_empty() {
        return String::new();
    }
    let counts = report.statuses.iter();
    let counts: Vec<String> = counts
        .map(|(code, count)| format!("{code}: {count}"))
        .collect();
    wrapped(&format!("  Statuses: {}", counts.join(", ")), WIDTH, "    ")
}

/// Why requests failed, if enough did.
fn failure_lines(report: &LoadReport) -> String {
    let failed = report.errors.total();
    let share = failed as f64 / (report.requests + failed).max(1) as f64;
    if report.failures.is_empty() || share <= FAILURES_SHOWN_SHARE {
        return String::new();
    }
    let lines = report.failures.iter();
    let lines = lines.map(|one| wrapped(&format!("    {}", one.in_words()), WIDTH, "      "));
    format!("  Failures:\n{}", lines.collect::<String>())
}

/// The basis of the rows of the sample.
fn sample_line(report: &LoadReport) -> String {
    let Some(sample) = report.sampled_service_ns else {
        return String::new();
    };
    let sentence = format!(
        "  Sample: Wake, Kernel and Sampled, their sum, are of {} of {} right responses",
        sample.count, report.service_ns.count
    );
    wrapped(&sentence, WIDTH, "    ")
}

/// Which rows are of which responses, where some were wrong.
fn populations_line(report: &LoadReport) -> String {
    let has_wrong = report.errors.status + report.errors.validation > 0;
    let Some(window) = report.rate_window.filter(|_| has_wrong) else {
        return String::new();
    };
    let sentence = format!(
        "  Responses: {} right ({:.2}/s), {} wrong; Response and Service are of right ones, the rows All and \
         what stands above of both",
        window.answers, report.requests_per_s, window.wrong_answers
    );
    wrapped(&sentence, WIDTH, "    ")
}

/// The time span of the rate, where that is not the whole run.
fn rate_window_line(report: &LoadReport) -> String {
    let window = report.window_of_rate();
    if window.end == RateWindowEnd::Time {
        return String::new();
    }
    let sentence = format!(
        "  Rate: of {} responses in {}, {}",
        window.answers,
        format_time_us(window.duration_ns as f64 / 1e3),
        window.end.words()
    );
    wrapped(&sentence, WIDTH, "    ")
}

/// A figure of sets of connections, how far they lie apart in it, and how it is written.
type SpreadRow<'a> = (&'static str, &'a LoadSpread, fn(f64) -> String);

/// Connections asked for and had, and how far their sets lie apart.
fn connection_lines(report: &LoadReport) -> String {
    let mut text = String::new();
    if let Some(open) = report.connections_open {
        text += &format!(
            "  Connections: {} asked for, {} open at the start, {} at the end\n",
            report.connections, open.at_start, open.at_end
        );
    }
    if !report.addresses.is_empty() {
        let uses = report.addresses.iter();
        let uses: Vec<String> = uses
            .map(|one| format!("{} took {}", one.address, one.opened))
            .collect();
        text += &wrapped(&format!("  Addresses: {}", uses.join(", ")), WIDTH, "    ");
    }
    for outage in &report.outages {
        text += &wrapped(&format!("  Outage: {}", outage.in_words()), WIDTH, "    ");
    }
    let Some(sets) = &report.connection_sets else {
        return text;
    };
    text += &format!(
        "  Sets of connections: {}, compared {}\n    {:<8}{:>11}{:>11}{:>11}{:>10}\n",
        sets.opened,
        sets.sets.len(),
        "",
        "Median",
        "Min",
        "Max",
        "Stdev"
    );
    let time = |value_ns: f64| format_time_us(value_ns / 1e3);
    let rows: [SpreadRow<'_>; 3] = [
        ("Req/Sec", &sets.requests_per_s, |per_s| {
            format!("{per_s:.2}")
        }),
        ("50%", &sets.response_p50_ns, time),
        ("99%", &sets.response_p99_ns, time),
    ];
    for (name, spread, shown) in rows {
        text += &format!("    {name:<8}");
        for value in [spread.median, spread.min, spread.max] {
            text += &format!("{:>11}", shown(value));
        }
        text += &format!("{:>8.1} %\n", spread.stdev_share * 100.0);
    }
    text
}

/// Columns of a terminal; the table of the clocks is made for as many.
const WIDTH: usize = 80;

/// The verdict with its reasons, in lines that a terminal need not break.
fn verdict_lines(report: &LoadReport) -> String {
    let verdict = &report.verdict;
    let mut sentence = format!("Verdict: {}", verdict.status.label());
    if !verdict.reasons.is_empty() {
        sentence += &format!(" ({})", verdict.reasons.join("; "));
    }
    for note in &verdict.notes {
        sentence += &format!("; {note}");
    }
    wrapped(&format!("  {sentence}"), WIDTH, "    ")
}

/// The table of the three clocks, and of the parts of send delay and service that are known.
fn clock_rows(report: &LoadReport) -> String {
    let mut text = format!(
        "\n  {:<10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        "Clocks", "50%", "90%", "99%", "99.9%", "max"
    );
    let parts = [
        ("Late", &report.client_late_ns, "delay: generator"),
        ("Blocked", &report.no_connection_ns, "delay: none free"),
        ("Wake", &report.wake_delay_ns, "service: unread"),
        ("Kernel", &report.kernel_service_ns, "service: outside"),
        ("Sampled", &report.sampled_service_ns, "Wake and Kernel"),
    ];
    let clocks = [
        ("Response", &report.response_ns, "since it was due"),
        ("Service", &report.service_ns, "since it left"),
        ("Delay", &report.slip_ns, "before it left"),
    ];
    // Connections that stay are opened once, which says little.
    let has_churn = report.opening_ns.count > u64::from(report.connections) || report.tls.is_some();
    let connect = has_churn.then_some(("Connect", &report.opening_ns, "apart: opening"));
    let connect = connect.into_iter().chain(given(handshakes_of(report)));
    let parts = given(all_answers_of(report))
        .chain(given(batches_of(report)))
        .chain(given(parts));
    for (name, clock, what) in clocks.into_iter().chain(parts).chain(connect) {
        let LatencySummary {
            p50,
            p90,
            p99,
            p999,
            max,
            ..
        } = *clock;
        text += &format!("    {name:<8}");
        for value in [p50, p90, p99, p999, max] {
            text += &format!("{:>10}", format_time_us(value as f64 / 1e3));
        }
        text += &format!("  {what}\n");
    }
    text
}

/// A row's name, its figures, and what they are.
type ClockRow<'a, Figures> = (&'static str, &'a Figures, &'static str);

/// The parts of connecting over TLS.
const fn handshakes_of(report: &LoadReport) -> [ClockRow<'_, Option<LatencySummary>>; 2] {
    [
        ("TCP", &report.transport_ns, "Connect: TCP"),
        ("TLS", &report.handshake_ns, "Connect: TLS"),
    ]
}

/// The clocks of all responses, where some were wrong.
const fn all_answers_of(report: &LoadReport) -> [ClockRow<'_, Option<LatencySummary>>; 2] {
    let (response, service) = if report.errors.status + report.errors.validation > 0 {
        (&report.all_response_ns, &report.all_service_ns)
    } else {
        (&None, &None)
    };
    [
        ("All resp", response, "wrong ones too"),
        ("All serv", service, "wrong ones too"),
    ]
}

/// The clock of batches.
const fn batches_of(report: &LoadReport) -> [ClockRow<'_, Option<LatencySummary>>; 2] {
    [
        ("Batch", &report.batch_response_ns, "batch, since due"),
        ("B. sent", &report.batch_service_ns, "batch, since out"),
    ]
}

/// The rows that there are figures for.
fn given<'a, const COUNT: usize>(
    rows: [ClockRow<'a, Option<LatencySummary>>; COUNT],
) -> impl Iterator<Item = ClockRow<'a, LatencySummary>> {
    let rows = rows.into_iter();
    rows.filter_map(|(name, clock, what)| Some((name, clock.as_ref()?, what)))
}

fn stats_row(name: &str, [mean, stdev, max]: [String; 3], within: f64) -> String {
    format!(
        "    {name:<10}{}{}{}{:8.2}%\n",
        padded(&mean, 8),
        padded(&stdev, 10),
        padded(&max, 9),
        within * 100.0
    )
}

/// wrk's `print_units`: right-aligned, but so that digits stand below digits whether the unit has
/// two letters, one or none; what does not fit is cut off.
pub(super) fn padded(text: &str, width: usize) -> String {
    let letters = text
        .chars()
        .rev()
        .take(2)
        .filter(char::is_ascii_alphabetic)
        .count();
    let pad = 2 - letters;
    let width = width - pad;
    let cut = &text[..text.len().min(width)];
    format!("{cut:>width$}{:pad$}", "")
}

/// Divides by `scale` while there is a next unit and 85 % of it is reached.
fn scaled(value: f64, scale: f64, units: &[&str], digits: usize) -> String {
    let mut value = value;
    let mut index = 0;
    while index + 1 < units.len() && value >= scale * NEXT_UNIT_SHARE {
        value /= scale;
        index += 1;
    }
    format!("{value:.digits$}{}", units[index])
}

/// A time in microseconds as wrk prints it.
#[must_use]
pub fn format_time_us(micros: f64) -> String {
    if micros >= 1_000_000.0 {
        scaled(micros / 1_000_000.0, 60.0, &["s", "m"], 2)
    } else {
        scaled(micros, 1_000.0, &["us", "ms"], 2)
    }
}

/// A count as wrk prints it.
#[must_use]
pub fn format_metric(value: f64) -> String {
    scaled(value, 1_000.0, &["", "k", "M", "G", "T"], 2)
}

/// A size as wrk prints it (the `B` follows it).
#[must_use]
pub fn format_binary(value: f64) -> String {
    scaled(value, 1_024.0, &["", "K", "M", "G", "T"], 2)
}

// wrk2's text: wrk's, with HdrHistogram's spectrum instead of the short distribution.
//
// *Recorded* is from the intended start, *uncorrected* from the actual send: the response and the service clock of the
// same run. wrk2 drops its first ten seconds and prints their figures, a line for each thread. Here only the requested
// warm-up is dropped, and such a line has the figures of the whole run.

/// Ends a spectrum.
const RULE: &str = "----------------------------------------------------------";
/// How long wrk2 takes to measure how fast the server is.
const CALIBRATION_NS: u64 = 10_000_000_000;
/// It examines rates over this or over twice the 90th percentile.
const INTERVAL_MS_MIN: u64 = 10;
/// The rows above the spectrum.
const PERCENTS: [f64; 8] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];

/// Which blocks come between the statistics and the totals.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Blocks {
    /// `--latency`: the recorded latency.
    pub recorded: bool,
    /// `--u_latency`: the uncorrected one too.
    pub uncorrected: bool,
}

/// The output after the run, as [`results`].
#[must_use]
pub fn wrk2_results(
    report: &LoadReport,
    response: &LatencyHistogram,
    service: &LatencyHistogram,
    rates: &SampleSummary,
    blocks: Blocks,
) -> String {
    let mut text = calibration(report, response) + &statistics(response, rates);
    if blocks.recorded || blocks.uncorrected {
        text += &block("HdrHistogram - Recorded Latency", response);
    }
    if blocks.uncorrected {
        text.push('\n');
        text += &block(
            "HdrHistogram - Uncorrected Latency (measured without taking delayed starts into account)",
            service,
        );
    }
    text + &totals(report)
}

/// The lines that readers of wrk2's output pass over or count; shorter runs have none, as there.
fn calibration(report: &LoadReport, response: &LatencyHistogram) -> String {
    let mean_us = response.mean() / 1e3;
    if report.duration_ns <= CALIBRATION_NS || mean_us < 1.0 {
        return String::new();
    }
    let p90_ms = response.percentile(90.0) / 1_000_000;
    let line = format!(
        "  Thread calibration: mean lat.: {:.3}ms, rate sampling interval: {}ms\n",
        mean_us / 1e3,
        (2 * p90_ms).max(INTERVAL_MS_MIN)
    );
    line.repeat(report.threads as usize)
}

fn block(title: &str, histogram: &LatencyHistogram) -> String {
    let mut text = format!("  Latency Distribution ({title})\n");
    for percent in PERCENTS {
        let value = format_time_us(histogram.percentile(percent) as f64 / 1e3);
        text += &format!("{percent:7.3}%{}\n", padded(&value, 10));
    }
    text += "\n  Detailed Percentile spectrum:\n";
    text += &spectrum_text(histogram);
    text += RULE;
    text.push('\n');
    text
}

// HdrHistogram's percentile text: what its plotter reads, as a file or inside wrk2's output.
//
// The plotter takes a line of four numbers for a point and everything else for a remark, and merges
// all points of a file into one curve: so one file holds one histogram.
//
// Records are JSON.

const NS_PER_MS: f64 = 1e6;
/// Rows for each halving of what is left: what HdrHistogram's own tools use.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// The text of one histogram, values in milliseconds:
///
/// ```text
///        Value   Percentile   TotalCount 1/(1-Percentile)
///
///        0.064     0.500000          512         2.00
/// ```
#[must_use]
pub fn spectrum_text(histogram: &LatencyHistogram) -> String {
    let mut text = format!(
        "{:>12} {:>12} {:>12} {:>12}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    if !histogram.is_empty() {
        for (quantile, value_ns, total) in histogram.quantile_steps(TICKS_PER_HALF_DISTANCE) {
            text += &row(quantile, value_ns, total);
        }
    }
    let ms = |value_ns: f64| value_ns / NS_PER_MS;
    text += &format!(
        "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n",
        ms(histogram.mean()),
        ms(histogram.stdev())
    );
    text += &format!(
        "#[Max     = {:12.3}, Total count    = {:12}]\n",
        ms(histogram.max() as f64),
        histogram.count()
    );
    let sub_buckets = 2 * 10_u64.pow(SIGNIFICANT_DIGITS.into()).next_power_of_two();
    text += &format!(
        "#[Buckets = {:12}, SubBuckets     = {sub_buckets:12}]\n",
        histogram.bucket_count()
    );
    text
}

fn row(quantile: f64, value_ns: u64, total: u64) -> String {
    let value_ms = value_ns as f64 / NS_PER_MS;
    let odds = if quantile < 1.0 {
        format!("{:12.2}", 1.0 / (1.0 - quantile))
    } else {
        format!("{:>12}", "inf")
    };
    format!("{value_ms:12.3} {quantile:12.6} {total:12} {odds}\n")
}

// A histogram for a terminal: rows of equal ratio from the least value to the greatest, with bars of ASCII.

/// Rows at most.
const ROWS: usize = 12;
/// The longest bar.
const BAR_COLUMNS: usize = 40;

/// The distribution under `title`; empty without values. Rows grow by the same factor, since latencies have long tails;
/// a row that anything fell into has a bar of one column at least.
#[must_use]
pub fn bars_text(title: &str, histogram: &LatencyHistogram) -> String {
    let all = histogram.count();
    if all == 0 {
        return String::new();
    }
    let mut text = format!("  Histogram of {title}\n");
    let rows = rows(histogram);
    let most = rows
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(1)
        .max(1);
    for (upper_ns, count) in rows {
        let columns = (count as f64 / most as f64 * BAR_COLUMNS as f64).round() as usize;
        let bar = "#".repeat(columns.max(usize::from(count > 0)));
        let percent = 100.0 * count as f64 / all as f64;
        let upper = format_duration_ns(upper_ns as f64);
        text += format!("  <= {upper:>9} {count:>10} {percent:>6.2} %  {bar}").trim_end();
        text.push('\n');
    }
    text
}

/// The upper end of each row with what is in it.
fn rows(histogram: &LatencyHistogram) -> Vec<(u64, u64)> {
    let (least, greatest) = (histogram.min().max(1), histogram.max().max(1));
    let ratio = (greatest as f64 / least as f64).powf(1.0 / ROWS as f64);
    let mut ends: Vec<u64> = (1..ROWS)
        .map(|row| (least as f64 * ratio.powi(row as i32)).ceil() as u64)
        .collect();
    ends.push(greatest);
    ends.dedup();
    let mut rows: Vec<(u64, u64)> = ends.into_iter().map(|end| (end, 0)).collect();
    let last = rows.len() - 1;
    for (value_ns, count) in histogram.bins() {
        let row = rows.partition_point(|(end, _)| *end < value_ns).min(last);
        rows[row].1 += count;
    }
    rows
}

#[cfg(test)]
#[path = "tests/wrk.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/wrk2.rs"]
mod wrk2_tests;

#[cfg(test)]
#[path = "tests/spectrum.rs"]
mod spectrum_tests;

#[cfg(test)]
#[path = "tests/bars.rs"]
mod bars_tests;
