//! One load run on a page: what came out, whether to believe it, percentiles, the course of the run.
//!
//! The same page for a run and for merged records, which have no seconds and so no course. Absent on
//! purpose: a comparison with other runs; that is what the other page is for.

use super::table;
use super::{STYLE, course, escape, percentiles, prose};
use crate::histogram::{LatencyHistogram, LatencySummary};
use crate::record::{LoadReport, LoadSecond, LoadStatus};
use crate::units::{format_bytes, format_count, format_duration_ns, format_rate, format_utc};

/// A run and what is drawn of it.
#[derive(Clone, Copy, Debug)]
pub struct LoadPage<'a> {
    /// Its figures.
    pub report: &'a LoadReport,
    /// From the intended start to the last byte.
    pub response: &'a LatencyHistogram,
    /// From the actual send to the last byte.
    pub service: &'a LatencyHistogram,
    /// From the intended start to the actual send.
    pub slip: &'a LatencyHistogram,
    /// Its seconds, if they were kept.
    pub seconds: &'a [LoadSecond],
}

/// The whole file.
#[must_use]
pub fn render(page: &LoadPage<'_>) -> String {
    let report = page.report;
    let mut text = String::with_capacity(128 * 1024);
    text += "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; img-src data:\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">";
    text += &format!(
        "<title>millpond load: {}</title>\n<style>\n{STYLE}</style></head><body><main>\n",
        escape(&report.url)
    );
    text += &head(report);
    text += &cards(report);
    text += &section(
        "How long answers took",
        &(percentiles::plot(page) + &clock_table(report)),
    );
    text += &section("The course of the run", &course::plots(page.seconds));
    text += &section("What failed", &failures(report));
    text += &section("Classes of requests", &classes(report));
    text += &section("What was run", &table::facts(&settings(report)));
    text += &data(report);
    text + "</main></body></html>\n"
}

fn section(title: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section><h2>{}</h2>{body}</section>\n", escape(title))
}

fn head(report: &LoadReport) -> String {
    let mut facts = vec![
        format!("{} connections", report.connections),
        match report.rate_per_s {
            Some(per_s) => format!("{} offered", format_rate(per_s)),
            None => "closed loop".to_owned(),
        },
        format_duration_ns(report.duration_ns as f64),
    ];
    if report.started_unix_ns > 0 {
        facts.push(format_utc(report.started_unix_ns / 1_000_000_000));
    }
    let aborted = report.aborted.as_ref().map(|reason| {
        let reason = prose(reason);
        format!("<p class=\"warn\">Ended early by a condition: {reason}.</p>")
    });
    let stopped = match (report.interrupted, report.target_gone) {
        _ if aborted.is_some() => aborted.as_deref().unwrap_or_default(),
        (true, _) => "<p class=\"warn\">Interrupted: these are partial results.</p>",
        (_, true) => {
            "<p class=\"warn\">The target went away: the figures are those until then.</p>"
        }
        _ => "",
    };
    format!(
        "<header><h1>{}</h1><p class=\"sub\">{}</p>{stopped}</header>\n",
        escape(&report.url),
        escape(&facts.join(" \u{b7} "))
    )
}

fn cards(report: &LoadReport) -> String {
    let verdict = &report.verdict;
    let (class, answer) = match verdict.status {
        LoadStatus::Ok => ("card", "The figures can be relied on"),
        LoadStatus::Suspect => ("card untrusted", "Usable with care"),
        LoadStatus::Invalid => ("card untrusted", "Not to be relied on"),
    };
    let reasons: String = verdict
        .reasons
        .iter()
        .map(|reason| format!("<li>{}</li>", prose(reason)))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!("<ul>{reasons}</ul>")
    };
    let failed = report.errors.total();
    let share = failed as f64 / (report.requests + failed).max(1) as f64;
    let time = |value_ns: u64| format_duration_ns(value_ns as f64);
    let response = &report.response_ns;
    format!(
        "<div class=\"cards\">\
         <div class=\"card\"><p class=\"q\">Answers</p><p class=\"a\">{}</p><p>{} right, {} failed \
         ({:.2}\u{a0}%)</p></div>\
         <div class=\"card\"><p class=\"q\">Response time</p><p class=\"a\">p50 {} \u{b7} p99 {}</p>\
         <p>p99.9 {}, longest {}</p></div>\
         <div class=\"{class}\"><p class=\"q\">Verdict: {}</p><p class=\"a\">{answer}</p>{reasons}</div>\
         </div>\n",
        escape(&format_rate(report.requests_per_s)),
        escape(&format_count(report.requests as f64)),
        escape(&format_count(failed as f64)),
        share * 100.0,
        time(response.p50),
        time(response.p99),
        time(response.p999),
        time(response.max),
        verdict.status.label(),
    )
}

fn clock_table(report: &LoadReport) -> String {
    let mut rows: Vec<(&str, &str, &LatencySummary)> = vec![
        (
            "Response",
            "from the intended start to the last byte",
            &report.response_ns,
        ),
        (
            "Service",
            "from the actual send to the last byte",
            &report.service_ns,
        ),
        (
            "Slip",
            "from the intended start to the actual send",
            &report.slip_ns,
        ),
    ];
    let parts = [
        (
            "Late",
            "of slip: the generator's own",
            &report.client_late_ns,
        ),
        (
            "Blocked",
            "of slip: no connection was free",
            &report.no_connection_ns,
        ),
        (
            "Wake",
            "of service: arrived, and not read yet",
            &report.wake_delay_ns,
        ),
        (
            "Kernel",
            "of service: from the send to its arrival",
            &report.kernel_service_ns,
        ),
    ];
    for (name, what, clock) in parts {
        rows.extend(clock.as_ref().map(|clock| (name, what, clock)));
    }
    rows.push((
        "Waiting",
        "from the actual send to the head of the answer",
        &report.waiting_ns,
    ));
    rows.push((
        "Connect",
        "of the first request on a connection, else 0",
        &report.connect_ns,
    ));
    let mut text = "<div class=\"scroll\"><table><thead><tr><th></th><th>min</th><th>mean</th>\
                    <th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>max</th><th></th></tr>\
                    </thead><tbody>"
        .to_owned();
    for (name, what, clock) in rows.into_iter().filter(|(_, _, clock)| clock.count > 0) {
        text += &format!("<tr><th>{name}</th>");
        for value_ns in [
            clock.min, clock.mean, clock.p50, clock.p90, clock.p99, clock.p999, clock.max,
        ] {
            text += &format!("<td>{}</td>", format_duration_ns(value_ns as f64));
        }
        text += &format!("<td class=\"hint\" style=\"text-align:left\">{what}</td></tr>");
    }
    text + "</tbody></table></div>"
}

fn failures(report: &LoadReport) -> String {
    let errors = &report.errors;
    let rows: Vec<(String, String)> = [
        ("Could not connect", errors.connect),
        ("Connection lost before the answer", errors.read),
        ("Could not be sent", errors.write),
        ("No answer in time", errors.timeout),
        ("Status was wrong", errors.status),
        ("Content was wrong", errors.validation),
        ("Given up unsent, later than the deadline", report.shed),
        ("Under way when the run was cut off", report.abandoned),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, count)| (name.to_owned(), count.to_string()))
    .collect();
    if rows.is_empty() {
        "<p>Nothing did.</p>".to_owned()
    } else {
        table::facts(&rows)
    }
}

fn classes(report: &LoadReport) -> String {
    if report.classes.is_empty() {
        return String::new();
    }
    let mut text = "<div class=\"scroll\"><table><thead><tr><th>class</th><th>answers</th>\
                    <th>rate</th><th>failed</th><th>p50</th><th>p99</th><th>max</th></tr></thead>\
                    <tbody>"
        .to_owned();
    for class in &report.classes {
        let clock = &class.response_ns;
        text += &format!(
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&class.name),
            format_count(class.requests as f64),
            format_rate(class.requests_per_s),
            class.errors.total(),
            format_duration_ns(clock.p50 as f64),
            format_duration_ns(clock.p99 as f64),
            format_duration_ns(clock.max as f64),
        );
    }
    text + "</tbody></table></div>"
}

fn settings(report: &LoadReport) -> Vec<(String, String)> {
    let mut rows = vec![
        ("URL", report.url.clone()),
        ("Server", report.server.clone()),
        (
            "Arrivals",
            report
                .arrivals
                .clone()
                .unwrap_or_else(|| "closed loop".to_owned()),
        ),
        (
            "Threads, connections, pipeline",
            format!(
                "{}, {}, {}",
                report.threads, report.connections, report.pipeline
            ),
        ),
        ("Driver", report.driver.clone()),
        ("Window", format_duration_ns(report.duration_ns as f64)),
        ("Received", format_bytes(report.bytes_received as f64)),
    ];
    let statuses: Vec<String> = report
        .statuses
        .iter()
        .map(|(status, count)| format!("{status}: {count}"))
        .collect();
    rows.push(("Statuses", statuses.join(", ")));
    if let Some(share) = report.generator_cpu_share {
        let percent = share * 100.0;
        rows.push((
            "Busiest generator thread",
            format!("{percent:.0} % of a CPU"),
        ));
    }
    if let Some(share) = report.steal_share {
        let percent = share * 100.0;
        rows.push((
            "Withheld by the hypervisor",
            format!("{percent:.1} % of the machine"),
        ));
    }
    rows.push(("Millpond", report.version.clone()));
    rows.retain(|(_, value)| !value.is_empty());
    rows.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The record, so that the numbers can be analysed again from the page alone.
fn data(report: &LoadReport) -> String {
    let json = serde_json::to_string(report).unwrap_or_else(|_| "null".to_owned());
    format!(
        "<script type=\"application/json\" id=\"record\">{}</script>\n",
        json.replace('<', "\\u003c")
    )
}
