//! One load run on a page: what came out, whether to trust it, percentiles, the course of the run.
//!
//! The same page for a run and for merged records, which have no seconds and so no course.

use super::Page;
use super::{course, curves, escape, prose, table};
use crate::histogram::{LatencyHistogram, LatencySummary};
use crate::record::{LoadOutage, LoadReport, LoadSecond, LoadSpread, LoadStatus, RateWindowEnd};
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
    let title = format!("millpond load: {}", report.url);
    let mut text = Page::new(&title, &head(report), &(stopped(report) + &cards(report)));
    text.section(
        "How long responses took",
        curves::percentiles_plot(page) + &clock_table(report),
    );
    text.section("The course of the run", course::plots(page.seconds));
    text.section("What failed", failures(report));
    text.section("Classes of requests", classes(report));
    text.section("Sets of connections", connection_sets(report));
    text.section(
        "What was run",
        table::facts("What was run", &settings(report)),
    );
    text.finish("record", report)
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
    format!(
        "<h1>{}</h1><p class=\"sub\">{}</p>",
        escape(&report.url),
        escape(&facts.join(" \u{b7} "))
    )
}

/// Why the run ended before its time, if it did.
fn stopped(report: &LoadReport) -> String {
    let words = match &report.aborted {
        Some(reason) => format!("Ended early by a condition: {}.", prose(reason)),
        None if report.interrupted => "Interrupted: these are partial results.".to_owned(),
        None if report.target_gone => {
            "The target went away: the figures are those until then.".to_owned()
        }
        None => return String::new(),
    };
    format!("<p class=\"warn\">{words}</p>\n")
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
        .chain(&verdict.notes)
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
         <div class=\"card\"><h2 class=\"q\">Responses</h2><p class=\"a\">{}</p><p>{} right, {} failed \
         ({:.2}\u{a0}%)</p></div>\
         <div class=\"card\"><h2 class=\"q\">Response time</h2><p class=\"a\">p50 {} \u{b7} p99 {}</p>\
         <p>p99.9 {}, longest {}</p></div>\
         <div class=\"{class}\"><h2 class=\"q\">Verdict: {}</h2><p class=\"a\">{answer}</p>{reasons}</div>\
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

/// A clock: its name, what it is, its figures.
type Clock<'a> = (&'static str, &'static str, &'a LatencySummary);

fn clocks(report: &LoadReport) -> Vec<Clock<'_>> {
    let mut rows: Vec<Clock<'_>> = vec![
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
            "Send delay",
            "from the intended start to the actual send",
            &report.slip_ns,
        ),
    ];
    let parts = [
        (
            "Late",
            "of the send delay: the generator's own",
            &report.client_late_ns,
        ),
        (
            "Blocked",
            "of the send delay: no connection was free",
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
        "from the actual send to the head of the response",
        &report.waiting_ns,
    ));
    rows.push((
        "Connect",
        "of the first request on a connection, else 0",
        &report.connect_ns,
    ));
    rows.retain(|(_, _, clock)| clock.count > 0);
    rows
}

fn clock_table(report: &LoadReport) -> String {
    let head = [
        "clock",
        "min",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "what it is",
    ];
    let mut text = String::new();
    for (name, what, clock) in clocks(report) {
        text += &format!("<tr><th scope=\"row\">{name}</th>");
        for value_ns in [
            clock.min, clock.mean, clock.p50, clock.p90, clock.p99, clock.p999, clock.max,
        ] {
            text += &format!("<td>{}</td>", format_duration_ns(value_ns as f64));
        }
        text += &format!("<td class=\"hint words\">{what}</td></tr>");
    }
    table::with_head("The clocks of this run", &head, &text)
}

fn failures(report: &LoadReport) -> String {
    let errors = &report.errors;
    let rows: Vec<(String, String)> = [
        ("Could not connect", errors.connect),
        ("Connection lost before the response", errors.read),
        ("Could not be sent", errors.write),
        ("No response in time", errors.timeout),
        ("Status was wrong", errors.status),
        ("Content was wrong", errors.validation),
        ("Dropped unsent, later than the deadline", report.shed),
        ("Under way when the run was cut off", report.abandoned),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, count)| (name.to_owned(), count.to_string()))
    .collect();
    if rows.is_empty() {
        "<p>Nothing did.</p>".to_owned()
    } else {
        table::facts("What failed", &rows)
    }
}

fn classes(report: &LoadReport) -> String {
    if report.classes.is_empty() {
        return String::new();
    }
    let head = ["class", "answers", "rate", "failed", "p50", "p99", "max"];
    let mut text = String::new();
    for class in &report.classes {
        let clock = &class.response_ns;
        text += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td></tr>",
            escape(&class.name),
            format_count(class.requests as f64),
            format_rate(class.requests_per_s),
            class.errors.total(),
            format_duration_ns(clock.p50 as f64),
            format_duration_ns(clock.p99 as f64),
            format_duration_ns(clock.max as f64),
        );
    }
    table::with_head("Classes of requests", &head, &text)
}

/// The time span of the rate, where that is not the whole window.
fn rate_window(report: &LoadReport) -> String {
    let window = report.window_of_rate();
    match window.end {
        RateWindowEnd::Time => String::new(),
        end => format!(
            "{} responses in {}, {}",
            window.answers,
            format_duration_ns(window.duration_ns as f64),
            end.words()
        ),
    }
}

/// A figure of sets of connections, how far they lie apart in it, and how it is written.
type SpreadRow<'a> = (&'static str, &'a LoadSpread, fn(f64) -> String);

/// How far the sets of connections lie apart.
fn connection_sets(report: &LoadReport) -> String {
    let Some(sets) = &report.connection_sets else {
        return String::new();
    };
    let head = ["figure", "median", "min", "max", "standard deviation"];
    let rows: [SpreadRow<'_>; 3] = [
        ("rate", &sets.requests_per_s, format_rate),
        ("p50", &sets.response_p50_ns, format_duration_ns),
        ("p99", &sets.response_p99_ns, format_duration_ns),
    ];
    let mut text = String::new();
    for (name, spread, shown) in rows {
        text += &format!("<tr><th scope=\"row\">{name}</th>");
        for value in [spread.median, spread.min, spread.max] {
            text += &format!("<td>{}</td>", escape(&shown(value)));
        }
        text += &format!("<td>{:.1}\u{a0}%</td></tr>", spread.stdev_share * 100.0);
    }
    table::with_head("Sets of connections", &head, &text)
}

/// Connections that were open at the edges.
fn connections_open(report: &LoadReport) -> String {
    report.connections_open.map_or_else(String::new, |open| {
        format!("{} at the start, {} at the end", open.at_start, open.at_end)
    })
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
        ("Connections open", connections_open(report)),
        ("Driver", report.driver.clone()),
        ("Window", format_duration_ns(report.duration_ns as f64)),
        ("The rate is of", rate_window(report)),
        ("Received", format_bytes(report.bytes_received as f64)),
    ];
    let window = report.window_of_rate();
    if let Some(all) = &report.all_response_ns
        && window.wrong_answers > 0
    {
        rows.push((
            "All responses, right and wrong",
            format!(
                "{} per second, response p50 {}, p99 {}",
                format_count(window.rate_of(window.all_answers())),
                format_duration_ns(all.p50 as f64),
                format_duration_ns(all.p99 as f64)
            ),
        ));
    }
    let statuses: Vec<String> = report
        .statuses
        .iter()
        .map(|(status, count)| format!("{status}: {count}"))
        .collect();
    rows.push(("Statuses", statuses.join(", ")));
    let outages: Vec<String> = report.outages.iter().map(LoadOutage::in_words).collect();
    rows.push(("Outages", outages.join("; ")));
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
