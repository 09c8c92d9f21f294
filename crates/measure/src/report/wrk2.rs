//! wrk2's text: wrk's, with HdrHistogram's spectrum in the place of the short distribution.
//!
//! *Recorded* is from the intended start, *uncorrected* from the actual send: the response and the
//! service clock of the same run. wrk2 throws its first ten seconds away and says what they were like, a line for each
//! thread. Here nothing is thrown away but the warm-up that was asked for, and such a line says what the whole run was like.

use super::{spectrum, wrk};
use crate::histogram::LatencyHistogram;
use crate::record::LoadReport;
use crate::series::SampleSummary;

/// Ends a spectrum.
const RULE: &str = "----------------------------------------------------------";
/// How long wrk2 takes to learn how fast the server is.
const CALIBRATION_NS: u64 = 10_000_000_000;
/// It looks at rates over this or over twice the 90th percentile.
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

/// What is printed after the run, as [`wrk::results`].
#[must_use]
pub fn results(
    report: &LoadReport,
    response: &LatencyHistogram,
    service: &LatencyHistogram,
    rates: &SampleSummary,
    blocks: Blocks,
) -> String {
    let mut text = calibration(report, response) + &wrk::statistics(response, rates);
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
    text + &wrk::totals(report)
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
        let value = wrk::format_time_us(histogram.percentile(percent) as f64 / 1e3);
        text += &format!("{percent:7.3}%{}\n", wrk::padded(&value, 10));
    }
    text += "\n  Detailed Percentile spectrum:\n";
    text += &spectrum::text(histogram);
    text += RULE;
    text.push('\n');
    text
}

#[cfg(test)]
#[path = "tests/wrk2.rs"]
mod tests;
