//! One run as a line of comma-separated values, under a line of names: for spreadsheets.
//!
//! Times are nanoseconds, as everywhere in records; a field that does not apply is empty. New
//! columns come at the end.

use crate::histogram::LatencySummary;
use crate::record::LoadReport;

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

#[cfg(test)]
#[path = "tests/csv.rs"]
mod tests;
