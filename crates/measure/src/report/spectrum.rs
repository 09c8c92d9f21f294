//! HdrHistogram's percentile text: what its plotter reads, as a file or inside wrk2's output.
//!
//! The plotter takes a line of four numbers for a point and everything else for a remark, and merges
//! all points of a file into one curve: so one file holds one histogram.
//!
//! Absent on purpose: reading it back. Records are JSON.

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
mod tests {
    use super::*;

    /// The plotter's rule for a line: four words, no `#` in front, the first and the last numbers.
    fn point(line: &str) -> Option<[f64; 4]> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<f64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let numbers: [f64; 4] = numbers.try_into().ok()?;
        (!line.starts_with('#') && numbers[3].is_finite()).then_some(numbers)
    }

    /// Goal: the plotter finds every row but the last, which has no finite odds, and the rows say
    /// what the histogram says.
    #[test]
    fn the_plotter_can_read_it() {
        let mut histogram = LatencyHistogram::new();
        (1..=10_000_u64).for_each(|step| histogram.record(step * 1_000));
        let text = text(&histogram);
        let points: Vec<[f64; 4]> = text.lines().filter_map(point).collect();
        assert!(points.len() > 40, "{}", points.len());
        assert!(points.is_sorted_by(|one, next| one[0] <= next[0] && one[1] < next[1]));
        for [value_ms, quantile, total, odds] in &points {
            let expected_ms = histogram.percentile(quantile * 100.0) as f64 / 1e6;
            assert!((value_ms - expected_ms).abs() <= 0.002 + expected_ms * 0.002);
            assert!(
                *total >= quantile * 10_000.0 - 1e-6,
                "{total} at {quantile}"
            );
            assert!((odds * (1.0 - quantile) - 1.0).abs() < 0.01);
        }
        let last = text.lines().rfind(|line| line.contains("inf")).unwrap();
        let words: Vec<&str> = last.split_whitespace().collect();
        assert_eq!((words[1], words[2], words[3]), ("1.000000", "10000", "inf"));
        assert!(text.contains("#[Mean    =        5.00"), "{text}");
        assert!(text.contains("Total count    =        10000]"), "{text}");
        assert!(text.contains("SubBuckets     =         2048]"), "{text}");
    }

    #[test]
    fn an_empty_histogram_has_no_points() {
        let text = text(&LatencyHistogram::new());
        assert_eq!(text.lines().filter_map(point).count(), 0);
        assert!(text.contains("Total count    =            0]"));
    }
}
