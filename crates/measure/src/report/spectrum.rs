//! HdrHistogram's percentile text: what its plotter reads, as a file or inside wrk2's output.
//!
//! The plotter takes a line of four numbers for a point and everything else for a remark, and merges
//! all points of a file into one curve: so one file holds one histogram.
//!
//! Records are JSON.

use crate::histogram::{LatencyHistogram, SIGNIFICANT_DIGITS};

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
pub fn text(histogram: &LatencyHistogram) -> String {
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

#[cfg(test)]
#[path = "tests/spectrum.rs"]
mod tests;
