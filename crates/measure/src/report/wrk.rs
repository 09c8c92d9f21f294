//! wrk's text, byte for byte, and below it what wrk does not know: three clocks and a verdict.
//!
//! Scripts all over the world read this format, so its quirks are kept: a unit is left at 85 % of
//! the next one, hours never appear, values are padded by two blanks where letters are missing.

use super::classes;
use super::lines::wrapped;
use crate::histogram::{LatencyHistogram, LatencySummary};
use crate::record::{LoadCookies, LoadReport, LoadSpread, LoadTls, LoadWarmUp, RateWindowEnd};
use crate::series::SampleSummary;
use crate::units::format_duration_ns;

/// wrk moves on to the next unit at this share of it.
const NEXT_UNIT_SHARE: f64 = 0.85;

/// What is printed before the run: `Running 30s test @ http://...`.
#[must_use]
pub fn header(url: &str, duration_ns: u64, threads: u32, connections: u32) -> String {
    let duration = scaled(duration_ns as f64 / 1e9, 60.0, &["s", "m"], 0);
    format!("Running {duration} test @ {url}\n  {threads} threads and {connections} connections\n")
}

/// What is printed after the run. `latency` is the clock to show as wrk's latency, `rates` the
/// requests per second of single threads in slices of 100 ms; `distribution` is `--latency`.
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

/// What the rows of counts are of, right and wrong answers alike, as wrk counts.
struct Counted {
    answers: u64,
    wrong_statuses: u64,
    bytes_received: u64,
    duration_ns: u64,
}

impl Counted {
    /// Of the window that the rate is of, so that answers over time are the rate. Where a number of requests ends the
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

/// Our own block after wrk's: all three clocks, and whether the generator believes itself.
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
        text += &format!("  Wrong content in answers: {}", report.errors.validation);
        let kinds = report.wrong_answers.contents();
        let kinds = kinds.iter().map(|(what, count)| format!("{what} {count}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        text += &if kinds.is_empty() {
            "\n".to_owned()
        } else {
            format!(" ({kinds})\n")
        };
    }
    text += &classes::text(report);
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

/// Answers by status.
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

/// What the rows of the sample are of.
fn sample_line(report: &LoadReport) -> String {
    let Some(sample) = report.sampled_service_ns else {
        return String::new();
    };
    let sentence = format!(
        "  Sample: Wake, Kernel and Sampled, their sum, are of {} of {} right answers",
        sample.count, report.service_ns.count
    );
    wrapped(&sentence, WIDTH, "    ")
}

/// Which rows are of which answers, where some were wrong.
fn populations_line(report: &LoadReport) -> String {
    let has_wrong = report.errors.status + report.errors.validation > 0;
    let Some(window) = report.rate_window.filter(|_| has_wrong) else {
        return String::new();
    };
    let sentence = format!(
        "  Answers: {} right ({:.2}/s), {} wrong; Response and Service are of right ones, the rows All and \
         what stands above of both",
        window.answers, report.requests_per_s, window.wrong_answers
    );
    wrapped(&sentence, WIDTH, "    ")
}

/// What the rate is of, where that is not the whole run.
fn rate_window_line(report: &LoadReport) -> String {
    let window = report.window_of_rate();
    if window.end == RateWindowEnd::Time {
        return String::new();
    }
    let sentence = format!(
        "  Rate: of {} answers in {}, {}",
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

/// The table of the three clocks, and of the parts of slip and service that are known.
fn clock_rows(report: &LoadReport) -> String {
    let mut text = format!(
        "\n  {:<10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        "Clocks", "50%", "90%", "99%", "99.9%", "max"
    );
    let parts = [
        ("Late", &report.client_late_ns, "slip: generator"),
        ("Blocked", &report.no_connection_ns, "slip: none free"),
        ("Wake", &report.wake_delay_ns, "service: unread"),
        ("Kernel", &report.kernel_service_ns, "service: outside"),
        ("Sampled", &report.sampled_service_ns, "Wake and Kernel"),
    ];
    let clocks = [
        ("Response", &report.response_ns, "since it was due"),
        ("Service", &report.service_ns, "since it left"),
        ("Slip", &report.slip_ns, "before it left"),
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

/// The clocks of all answers, where some were wrong.
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

#[cfg(test)]
#[path = "tests/wrk.rs"]
mod tests;
