//! A histogram for a terminal: rows of equal ratio from the least value to the greatest, with bars of ASCII.

use crate::histogram::LatencyHistogram;
use crate::units::format_duration_ns;

/// Rows at most.
const ROWS: usize = 12;
/// The longest bar.
const BAR_COLUMNS: usize = 40;

/// The distribution under `title`; empty without values. Rows grow by the same factor, since latencies have long tails;
/// a row that anything fell into has a bar of one column at least.
#[must_use]
pub fn text(title: &str, histogram: &LatencyHistogram) -> String {
    let all = histogram.count();
    if all == 0 {
        return String::new();
    }
    let mut text = format!("  Histogram of {title}\n");
    let rows = rows(histogram);
    let most = rows
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(1)
        .max(1);
    for (upper_ns, count) in rows {
        let columns = (count as f64 / most as f64 * BAR_COLUMNS as f64).round() as usize;
        let bar = "#".repeat(columns.max(usize::from(count > 0)));
        let percent = 100.0 * count as f64 / all as f64;
        let upper = format_duration_ns(upper_ns as f64);
        text += format!("  <= {upper:>9} {count:>10} {percent:>6.2} %  {bar}").trim_end();
        text.push('\n');
    }
    text
}

/// The upper end of each row with what is in it.
fn rows(histogram: &LatencyHistogram) -> Vec<(u64, u64)> {
    let (least, greatest) = (histogram.min().max(1), histogram.max().max(1));
    let ratio = (greatest as f64 / least as f64).powf(1.0 / ROWS as f64);
    let mut ends: Vec<u64> = (1..ROWS)
        .map(|row| (least as f64 * ratio.powi(row as i32)).ceil() as u64)
        .collect();
    ends.push(greatest);
    ends.dedup();
    let mut rows: Vec<(u64, u64)> = ends.into_iter().map(|end| (end, 0)).collect();
    let last = rows.len() - 1;
    for (value_ns, count) in histogram.bins() {
        let row = rows.partition_point(|(end, _)| *end < value_ns).min(last);
        rows[row].1 += count;
    }
    rows
}

#[cfg(test)]
#[path = "tests/bars.rs"]
mod tests;
