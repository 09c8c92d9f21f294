//! ab's text (ApacheBench 2.3), line for line: whole milliseconds, its rows, its warnings.
//!
//! ab knows a closed loop only. *Connect* is charged to the first request on a connection, as there;
//! *Processing* is the service clock, *Waiting* the part of it until the head of the response, *Total*
//! connecting and service. The times of wrong responses, which ab mixes with those of right ones, are not in its rows.
//! The rate is ab's own: all complete requests over the time until the last, those behind the window included, and so
//! are the bytes. The record has the rate without them.

use crate::histogram::LatencyHistogram;
use crate::record::LoadReport;
use crate::units::format_utc;

/// The rows of times.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    /// Connecting; 0 for all but the first request on a connection.
    pub connect: &'a LatencyHistogram,
    /// From the write to the last byte.
    pub processing: &'a LatencyHistogram,
    /// From the write to the head.
    pub waiting: &'a LatencyHistogram,
    /// Connecting and processing.
    pub total: &'a LatencyHistogram,
}

/// Parts of ab's output that some of its flags change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Style {
    /// `-l`: bodies may differ in length.
    pub has_variable_length: bool,
    /// `-p` and `-u`: what was sent is shown too.
    pub has_body: bool,
}

const NS_PER_MS: f64 = 1e6;

/// The whole text.
#[must_use]
pub fn text(report: &LoadReport, times: &Times<'_>, style: Style) -> String {
    let (host, port, path) = parts(&report.url);
    let mut text = banner(&report.version, &report.url) + "..done\n\n\n";
    let mut row = |name: &str, value: String| text += &format!("{name:<24}{value}\n");
    row("Server Software:", report.server.clone());
    row("Server Hostname:", host.to_owned());
    row("Server Port:", format!("{port}\n"));
    row("Document Path:", path.to_owned());
    row(
        "Document Length:",
        match style.has_variable_length {
            true => "Variable\n".to_owned(),
            false => format!("{} bytes\n", report.document_bytes),
        },
    );
    text + &counts(report, style) + &table(times) + &percentages(times.total)
}

/// ab's output before the first response, and the whole output for a target that it cannot reach.
#[must_use]
pub fn banner(version: &str, url: &str) -> String {
    let (host, ..) = parts(url);
    format!(
        "This is millpond load {version}, printing as ApacheBench, Version 2.3\n\n\
         Benchmarking {host} (be patient)..."
    )
}

/// Host, port and path of a URL.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let port = if scheme == "https" { "443" } else { "80" };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port, path),
        _ => (authority, port, path),
    }
}

fn counts(report: &LoadReport, style: Style) -> String {
    let errors = &report.errors;
    let complete: u64 = report.statuses.values().sum();
    let within_ns = report.duration_ns.max(report.answered_within_ns);
    let seconds = within_ns as f64 / 1e9;
    let bytes_received = report.bytes_received + report.drained_bytes;
    let exceptions = errors.timeout;
    let failed = errors.connect + errors.read + errors.validation + exceptions;
    let mut text = String::new();
    let mut row = |name: &str, value: String| text += &format!("{name:<24}{value}\n");
    row("Concurrency Level:", report.connections.to_string());
    row("Time taken for tests:", format!("{seconds:.3} seconds"));
    row("Complete requests:", complete.to_string());
    row("Failed requests:", failed.to_string());
    if failed > 0 {
        row(
            &format!(
                "   (Connect: {}, Receive: {}, Length: {}, Exceptions: {exceptions})",
                errors.connect, errors.read, errors.validation
            ),
            String::new(),
        );
    }
    if errors.write > 0 {
        row("Write errors:", errors.write.to_string());
    }
    let successes = report.statuses.range(200..300).map(|(_, count)| count);
    let others = complete - successes.sum::<u64>();
    if others > 0 {
        row("Non-2xx responses:", others.to_string());
    }
    if report.keep_alive_requests > 0 {
        row(
            "Keep-Alive requests:",
            report.keep_alive_requests.to_string(),
        );
    }
    row("Total transferred:", format!("{bytes_received} bytes"));
    if style.has_body {
        row("Total body sent:", report.sent_bytes.to_string());
    }
    row("HTML transferred:", format!("{} bytes", report.body_bytes));
    let per_s = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
    let rate = per_s(complete as f64);
    let mean_ms = if complete > 0 {
        seconds * 1e3 / complete as f64
    } else {
        0.0
    };
    let in_flight = f64::from(report.connections * report.pipeline.max(1));
    row("Requests per second:", format!("{rate:.2} [#/sec] (mean)"));
    row(
        "Time per request:",
        format!("{:.3} [ms] (mean)", mean_ms * in_flight),
    );
    row(
        "Time per request:",
        format!("{mean_ms:.3} [ms] (mean, across all concurrent requests)"),
    );
    let kib = per_s(bytes_received as f64 / 1024.0);
    row("Transfer rate:", format!("{kib:.2} [Kbytes/sec] received"));
    if style.has_body {
        let sent_kib = per_s(report.sent_bytes as f64 / 1024.0);
        row("", format!("{sent_kib:.2} kb/s sent"));
        row("", format!("{:.2} kb/s total", kib + sent_kib));
    }
    text
}

/// The figures of a row, as ab rounds them.
struct Row {
    mean_ms: u64,
    stdev_ms: f64,
    median_ms: u64,
    text: String,
}

fn whole_ms(value_ns: f64) -> u64 {
    (value_ns / NS_PER_MS).round() as u64
}

fn figures(name: &str, times: &LatencyHistogram) -> Row {
    let mean_ms = whole_ms(times.mean());
    let stdev_ms = times.stdev() / NS_PER_MS;
    let median_ms = whole_ms(times.percentile(50.0) as f64);
    let text = format!(
        "{name:<11} {:5} {mean_ms:4} {stdev_ms:5.1} {median_ms:6} {:7}\n",
        whole_ms(times.min() as f64),
        whole_ms(times.max() as f64)
    );
    Row {
        mean_ms,
        stdev_ms,
        median_ms,
        text,
    }
}

fn table(times: &Times<'_>) -> String {
    let mut text =
        "\nConnection Times (ms)\n              min  mean[+/-sd] median   max\n".to_owned();
    let mut remarks = String::new();
    for (name, what, histogram) in [
        ("Connect:", "the initial connection time", times.connect),
        ("Processing:", "the processing time", times.processing),
        ("Waiting:", "the waiting time", times.waiting),
        ("Total:", "the total time", times.total),
    ] {
        let row = figures(name, histogram);
        text += &row.text;
        let distance = row.mean_ms.abs_diff(row.median_ms) as f64;
        if distance > 2.0 * row.stdev_ms {
            remarks += &format!(
                "ERROR: The median and mean for {what} are more than twice the standard\n       \
                 deviation apart. These results are NOT reliable.\n"
            );
        } else if distance > row.stdev_ms {
            remarks += &format!(
                "WARNING: The median and mean for {what} are not within a normal deviation\n        \
                 These results are probably not that reliable.\n"
            );
        }
    }
    text + &remarks
}

fn percentages(total: &LatencyHistogram) -> String {
    let mut text = "\nPercentage of the requests served within a certain time (ms)\n".to_owned();
    for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
        let value_ms = whole_ms(total.percentile(f64::from(percent)) as f64);
        text += &format!("  {percent}%  {value_ms:5}\n");
    }
    text + &format!(
        " 100%  {:5} (longest request)\n",
        whole_ms(total.max() as f64)
    )
}

/// The table of `ab -e`: the time that each percentage was served within.
#[must_use]
pub fn csv(total: &LatencyHistogram) -> String {
    let mut text = "Percentage served,Time in ms\n".to_owned();
    for percent in 0..=100_u32 {
        let value_ns = match percent {
            0 => total.min(),
            100 => total.max(),
            percent => total.percentile(f64::from(percent)),
        };
        text += &format!("{percent},{:.3}\n", value_ns as f64 / NS_PER_MS);
    }
    text
}

// ab's table of single requests (`-g`), which gnuplot reads: tabs, whole milliseconds, the fastest
// request first.
//
// Times are UTC here instead of ab's local time, so that files of two machines can be compared;
// `seconds` is the same either way.

/// One request, as a row of [`request_table`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestRow {
    /// When it began, since the epoch.
    pub started_unix_s: u64,
    /// Connecting.
    pub connect_us: u64,
    /// From the write to the head of the response.
    pub waiting_us: u64,
    /// All of it.
    pub total_us: u64,
}

/// The table of `-g`.
#[must_use]
pub fn request_table(mut rows: Vec<RequestRow>) -> String {
    rows.sort_by_key(|row| row.total_us);
    let mut text = "starttime\tseconds\tctime\tdtime\tttime\twait\n".to_owned();
    for row in rows {
        let rest_us = row.total_us.saturating_sub(row.connect_us);
        let [connect, rest, total, waiting] =
            [row.connect_us, rest_us, row.total_us, row.waiting_us].map(|us| (us + 500) / 1_000);
        let seconds = row.started_unix_s;
        let start = start_time(seconds);
        text += &format!("{start}\t{seconds}\t{connect}\t{rest}\t{total}\t{waiting}\n");
    }
    text
}

/// As C's ctime: `Sun Nov 22 13:07:18 2026`.
fn start_time(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let day = DAYS[(unix_s / 86_400 % 7) as usize];
    // 2026-11-22 13:07:18 UTC
    let utc = format_utc(unix_s);
    let mut words = utc.split_whitespace();
    let (date, time) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let mut date = date.split('-');
    let year = date.next().unwrap_or("");
    let month: usize = date.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let day_of_month = date.next().unwrap_or("");
    let month = MONTHS.get(month.wrapping_sub(1)).copied().unwrap_or("");
    format!("{day} {month} {day_of_month} {time} {year}")
}

#[cfg(test)]
#[path = "tests/ab.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/ab_requests.rs"]
mod ab_requests_tests;
