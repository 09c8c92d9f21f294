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
mod tests {
    use super::*;
    use crate::record::{LoadErrors, LoadStatus, LoadVerdict};

    #[test]
    fn units_change_at_85_percent() {
        assert_eq!(format_time_us(849.99), "849.99us");
        assert_eq!(format_time_us(850.0), "0.85ms");
        assert_eq!(format_time_us(999_999.0), "1000.00ms");
        assert_eq!(format_time_us(1_000_000.0), "1.00s");
        assert_eq!(format_time_us(51_000_000.0), "0.85m");
        assert_eq!(format_time_us(7_200_000_000.0), "120.00m");
        assert_eq!(format_metric(849.0), "849.00");
        assert_eq!(format_metric(56_200.0), "56.20k");
        assert_eq!(format_binary(870.0), "870.00");
        assert_eq!(format_binary(871.0), "0.85K");
        assert_eq!(format_binary(0.97 * 1048576.0), "0.97M");
        assert!(header("u", 30_000_000_000, 1, 1).starts_with("Running 30s test @ u\n"));
        assert!(header("u", 60_000_000_000, 1, 1).starts_with("Running 1m test @ u\n"));
    }

    #[test]
    fn padding_aligns_digits() {
        assert_eq!(padded("635.91us", 8), "635.91us");
        assert_eq!(padded("1.56s", 8), "  1.56s ");
        assert_eq!(padded("98.30", 8), " 98.30  ");
        assert_eq!(padded("123456789.00us", 8), "12345678");
    }

    fn report() -> LoadReport {
        LoadReport {
            requests: 22_464_657,
            duration_ns: 30_000_000_000,
            requests_per_s: 748_868.53,
            bytes_received: 19_069_898_000,
            ..LoadReport::default()
        }
    }

    /// Goal: the well-known example of wrk's README, down to the blank.
    #[test]
    fn equals_the_readme_of_wrk() {
        let mut latency = LatencyHistogram::new();
        latency.record_many(635_910, 1_000);
        let rates = SampleSummary {
            mean: 56_200.0,
            stdev: 8_070.0,
            max: 62_000.0,
            within_stdev_share: 0.8654,
            ..SampleSummary::default()
        };
        let text = results(&report(), &latency, &rates, true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "  Thread Stats   Avg      Stdev     Max   +/- Stdev"
        );
        // The histogram keeps three digits, wrk keeps every microsecond.
        assert!(
            lines[1].starts_with("    Latency   636.16us    0.00us 636.41us"),
            "{}",
            lines[1]
        );
        assert_eq!(
            lines[2],
            "    Req/Sec    56.20k     8.07k   62.00k    86.54%"
        );
        assert_eq!(lines[3], "  Latency Distribution");
        assert_eq!(lines[4], "     50%  636.41us");
        assert_eq!(lines[8], "  22464657 requests in 30.00s, 17.76GB read");
        assert_eq!(lines[9], "Requests/sec: 748868.53");
        assert_eq!(lines[10], "Transfer/sec:    606.22MB");
        assert_eq!(lines.len(), 11);
    }

    /// Goal: what wrk 4.1 really printed here, with every figure rubbed out, is what we print with
    /// every figure rubbed out.
    #[test]
    fn layout_equals_a_real_run() {
        let real = include_str!("wrk_sample.txt");
        let mut latency = LatencyHistogram::new();
        (1..=1_000).for_each(|step| latency.record(step * 1_000));
        let rates = SampleSummary::of([1_200.0, 1_300.0, 1_250.0]);
        let mut errors = LoadErrors {
            read: 3,
            status: 5,
            ..LoadErrors::default()
        };
        errors.timeout = 1;
        let report = LoadReport { errors, ..report() };
        let ours = header("http://127.0.0.1:8/", 2_000_000_000, 2, 4)
            + &results(&report, &latency, &rates, true);
        let words = |text: &str| -> Vec<Vec<String>> {
            let rub_out = |word: &str| {
                if word.starts_with(|c: char| c.is_ascii_digit()) && !word.ends_with('%') {
                    "#".to_owned()
                } else if word.starts_with("http") {
                    "URL".to_owned()
                } else if word.ends_with('%') && word.contains('.') {
                    "#%".to_owned()
                } else {
                    word.to_owned()
                }
            };
            text.lines()
                .map(|line| line.split_whitespace().map(rub_out).collect())
                .collect()
        };
        assert_eq!(words(&ours), words(real));
        // Where a label starts, a column starts.
        for (own, line) in ours.lines().zip(real.lines()) {
            let indent = |text: &str| text.len() - text.trim_start().len();
            if !line.contains("% ") && !line.contains("s") {
                assert_eq!(indent(own), indent(line), "{own:?} {line:?}");
            }
        }
    }

    #[test]
    fn our_block_says_what_wrk_cannot() {
        let clean = LoadReport::default();
        assert!(clocks(&clean).ends_with("  Verdict: OK\n"));
        let report = LoadReport {
            slip_ns: LatencySummary {
                p99: 1_500_000,
                ..LatencySummary::default()
            },
            errors: LoadErrors {
                validation: 2,
                ..LoadErrors::default()
            },
            verdict: LoadVerdict {
                status: LoadStatus::Invalid,
                reasons: vec!["97 % of its CPU used".to_owned(), "late".to_owned()],
                notes: vec!["sets differ".to_owned()],
            },
            interrupted: true,
            ..LoadReport::default()
        };
        let text = clocks(&report);
        assert!(text.contains("1.50ms") && text.contains("Slip"), "{text}");
        assert!(
            text.contains("Verdict: INVALID (97 % of its CPU used; late); sets differ"),
            "{text}"
        );
        assert!(text.contains("Wrong content in answers: 2"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }

    /// Goal: every row of the clocks and a verdict with much to say fit a terminal of 80 columns.
    #[test]
    fn everything_fits_80_columns() {
        let some = Some(LatencySummary::default());
        let why = "the generator sent late: p99 of its lateness is above the median response";
        let report = LoadReport {
            client_late_ns: some,
            no_connection_ns: some,
            wake_delay_ns: some,
            kernel_service_ns: some,
            transport_ns: some,
            handshake_ns: some,
            batch_response_ns: some,
            batch_service_ns: some,
            opening_ns: LatencySummary {
                count: 5,
                ..LatencySummary::default()
            },
            verdict: LoadVerdict {
                status: LoadStatus::Suspect,
                reasons: vec![why.to_owned(), why.to_owned()],
                notes: Vec::new(),
            },
            ..LoadReport::default()
        };
        let text = clocks(&report);
        for name in ["Kernel", "Connect", "TLS", "B. sent"] {
            assert!(text.contains(&format!("    {name:<8}")), "{name}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("SUSPECT ({why}; {why})")), "{text}");
    }
}
