//! Latency as a function of load, for a terminal: what a search for the highest rate found.

use crate::record::{CurvePoint, SearchEnd, SearchReport, StepOutcome};
use crate::units::{format_duration_ns, format_percent, format_rate};
use std::fmt::Write;

/// The output before the first step.
#[must_use]
pub fn header(report: &SearchReport) -> String {
    format!(
        "Finding the highest rate at which {} holds @ {}\n  {} threads and {} connections, {} \
         arrivals, {} for each step after {} of warm-up\n",
        report.objectives.join(", "),
        report.url,
        report.threads,
        report.connections,
        report.arrivals,
        format_duration_ns(report.step_ns as f64),
        format_duration_ns(report.warm_up_ns as f64),
    )
}

/// The table and the answer.
#[must_use]
pub fn results(report: &SearchReport) -> String {
    let mut text = format!(
        "\n  {:>10}{:>12}{:>10}{:>10}{:>10}{:>10}{:>9}  Outcome\n",
        "Rate", "Answered", "50%", "99%", "99.9%", "max", "Errors"
    );
    for point in &report.curve {
        text += &row(point);
    }
    text.push('\n');
    text += &answer(report);
    text
}

fn row(point: &CurvePoint) -> String {
    let step = &point.typical;
    let clock = &step.response_ns;
    let mut text = format!(
        "  {:>10}{:>12}",
        format_rate(point.rate_per_s),
        format_rate(step.requests_per_s)
    );
    for value_ns in [clock.p50, clock.p99, clock.p999, clock.max] {
        let _ = write!(text, "{:>10}", format_duration_ns(value_ns as f64));
    }
    let _ = write!(
        text,
        "{:>9}  {}",
        step.errors.total(),
        point.outcome.label()
    );
    if point.steps > 1 {
        let _ = write!(text, " {} of {}", point.votes, point.steps);
    }
    if !step.reasons.is_empty() {
        let _ = write!(text, ": {}", step.reasons.join("; "));
    }
    text.push('\n');
    text
}

/// One or two sentences: the rate, and why the search ended there.
#[must_use]
pub fn answer(report: &SearchReport) -> String {
    let objectives = report.objectives.join(", ");
    let mut text = match report.rate_per_s {
        Some(per_s) => format!("Maximum: {} with {objectives}\n", exact_rate(per_s)),
        None => format!("Maximum: no rate is known to hold {objectives}\n"),
    };
    text += &match (report.ended, report.missed_per_s) {
        (SearchEnd::Found, Some(missed_per_s)) => format!(
            "Ended: {} does not hold, and lies within {}\n",
            exact_rate(missed_per_s),
            format_percent(report.precision)
        ),
        (SearchEnd::Found, None) => "Ended: found\n".to_owned(),
        (SearchEnd::NoneHolds, _) => {
            "Ended: not even the lowest rate that was tried holds\n".to_owned()
        }
        (SearchEnd::GeneratorLimit, _) => {
            let reason = rejection(report).unwrap_or_default();
            format!(
                "Ended: above it the generator was at its own limit ({reason}): the target's lies \
                 there or higher; use more threads or CPUs\n"
            )
        }
        (SearchEnd::Unsteady, _) => "Ended: the votes kept changing; the target or the machine is \
                                     not steady, use longer steps\n"
            .to_owned(),
        (SearchEnd::Interrupted, _) => {
            "Ended: interrupted; the maximum is what held until then\n".to_owned()
        }
        (SearchEnd::TargetGone, _) => {
            "Ended: the target stopped accepting connections\n".to_owned()
        }
        (SearchEnd::Failed, _) => {
            let failure = report.failure.as_deref().unwrap_or("a step failed");
            format!("Ended: {failure}; the maximum is what held until then\n")
        }
    };
    text
}

/// A rate one will type again: every digit that the precision of a search can mean.
fn exact_rate(per_s: f64) -> String {
    let digits = if per_s < 100.0 { 2 } else { 0 };
    format!("{per_s:.digits$}/s")
}

fn rejection(report: &SearchReport) -> Option<String> {
    let rejected = |point: &&CurvePoint| point.outcome == StepOutcome::Rejected;
    let point = report.curve.iter().find(rejected)?;
    point.typical.reasons.first().cloned()
}

#[cfg(test)]
#[path = "tests/curve.rs"]
mod tests;
