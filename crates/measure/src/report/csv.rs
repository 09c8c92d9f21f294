//! One run as a line of comma-separated values, under a line of names: for spreadsheets.
//!
//! Times are nanoseconds, as everywhere in records; a field that does not apply is empty. New
//! columns come at the end.

use std::fmt::Write;

use crate::histogram::LatencySummary;
use crate::record::LoadReport;

use super::wrk::format_time_us;

/// Names and values, in the order of the columns.
fn columns(report: &LoadReport) -> Vec<(String, String)> {
    let mut columns: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| columns.push((name.to_owned(), value));
    let errors = &report.errors;
    add("url", quoted(&report.url));
    add("threads", report.threads.to_string());
    add("connections", report.connections.to_string());
    add("pipeline", report.pipeline.to_string());
    let rate = report.rate_per_s.map(|per_s| per_s.to_string());
    add("rate_per_s", rate.unwrap_or_default());
    add("duration_ns", report.duration_ns.to_string());
    add("requests", report.requests.to_string());
    add("requests_per_s", report.requests_per_s.to_string());
    add("bytes_received", report.bytes_received.to_string());
    for (name, count) in [
        ("errors_connect", errors.connect),
        ("errors_read", errors.read),
        ("errors_write", errors.write),
        ("errors_timeout", errors.timeout),
        ("errors_status", errors.status),
        ("errors_validation", errors.validation),
        ("shed", report.shed),
    ] {
        add(name, count.to_string());
    }
    for (clock, summary) in [
        ("response", &report.response_ns),
        ("service", &report.service_ns),
        ("slip", &report.slip_ns),
    ] {
        for (name, value_ns) in times(summary) {
            add(&format!("{clock}_{name}_ns"), value_ns.to_string());
        }
    }
    add("verdict", report.verdict.status.label().to_owned());
    let window = report.window_of_rate();
    add("rate_window_ns", window.duration_ns.to_string());
    add("rate_window_answers", window.answers.to_string());
    add(
        "rate_window_wrong_answers",
        window.wrong_answers.to_string(),
    );
    let per_s = report.all_answers_per_s.map(|per_s| per_s.to_string());
    add("all_answers_per_s", per_s.unwrap_or_default());
    for (clock, summary) in [
        ("all_response", &report.all_response_ns),
        ("all_service", &report.all_service_ns),
    ] {
        for (name, value_ns) in times(&summary.unwrap_or_default()) {
            let value = summary.map(|_| value_ns.to_string());
            add(&format!("{clock}_{name}_ns"), value.unwrap_or_default());
        }
    }
    columns
}

fn times(summary: &LatencySummary) -> [(&'static str, u64); 8] {
    [
        ("min", summary.min),
        ("mean", summary.mean),
        ("stdev", summary.stdev),
        ("p50", summary.p50),
        ("p90", summary.p90),
        ("p99", summary.p99),
        ("p999", summary.p999),
        ("max", summary.max),
    ]
}

/// Quoted as RFC 4180 section 2 says, if need be.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Two lines: names, values.
#[must_use]
pub fn text(report: &LoadReport) -> String {
    let (names, values): (Vec<String>, Vec<String>) = columns(report).into_iter().unzip();
    format!("{}\n{}\n", names.join(","), values.join(","))
}

// A line for each request, in the order of writing, to see what percentiles hide: which
// requests were slow, when, and what else happened then.
//
// Comma-separated, under a line of names; times are nanoseconds, a field that does not apply is
// empty. New columns come at the end.

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// When it was written, since the epoch.
    pub written_unix_ns: u64,
    /// From when it was due until it was written; 0 in a closed loop.
    pub slip_ns: u64,
    /// Connecting, before the write, if that was for it.
    pub connect_ns: u64,
    /// From the write to the head of the response.
    pub waiting_ns: u64,
    /// From the write to the last byte.
    pub service_ns: u64,
    /// From the write to the last byte's arrival in the kernel, of a sample.
    pub kernel_service_ns: Option<u64>,
}

/// The table.
#[must_use]
pub fn requests_text(mut rows: Vec<Row>) -> String {
    rows.sort_by_key(|row| row.written_unix_ns);
    let names = "written_unix_ns,slip_ns,connect_ns,waiting_ns,service_ns,kernel_service_ns\n";
    let mut text = names.to_owned();
    for row in rows {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{},{},{},{},{},",
            row.written_unix_ns, row.slip_ns, row.connect_ns, row.waiting_ns, row.service_ns
        );
        if let Some(span_ns) = row.kernel_service_ns {
            let _ = write!(text, "{span_ns}");
        }
        text.push('\n');
    }
    text
}

// A table of the classes of a load run, below what wrk prints.

/// Longer names are cut: the table has to stay one.
const NAME_LETTERS_MAX: usize = 40;

/// One row for each class, by the response clock; empty without classes.
#[must_use]
pub fn classes_text(report: &LoadReport) -> String {
    if report.classes.is_empty() {
        return String::new();
    }
    let names: Vec<String> = report
        .classes
        .iter()
        .map(|class| shown(&class.name))
        .collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut text = format!(
        "  {:<width$}  {:>10}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        "Classes", "requests", "errors", "50%", "90%", "99%", "99.9%", "max"
    );
    for (class, name) in report.classes.iter().zip(&names) {
        let LatencySummary {
            p50,
            p90,
            p99,
            p999,
            max,
            ..
        } = class.response_ns;
        let errors = class.errors.total();
        text += &format!("    {name:<width$}{:>10}{errors:>8}", class.requests);
        for value in [p50, p90, p99, p999, max] {
            text += &format!("{:>10}", format_time_us(value as f64 / 1e3));
        }
        text.push('\n');
    }
    text
}

/// The end of a URL is more specific than its beginning.
fn shown(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= NAME_LETTERS_MAX {
        return name.to_owned();
    }
    let end = name.chars().skip(letters - NAME_LETTERS_MAX + 3);
    "...".chars().chain(end).collect()
}

#[cfg(test)]
#[path = "tests/csv.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/requests.rs"]
mod requests_tests;

#[cfg(test)]
#[path = "tests/classes.rs"]
mod classes_tests;
