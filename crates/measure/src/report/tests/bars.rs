use super::*;

/// Goal: every value is in one row, the longest bar is that of the fullest, and a single value in the tail is seen.
#[test]
fn every_value_is_in_a_row() {
    let mut histogram = LatencyHistogram::new();
    assert_eq!(bars_text("nothing", &histogram), "");
    histogram.record_many(50_000, 9_000);
    histogram.record_many(120_000, 900);
    histogram.record(40_000_000);
    let found = rows(&histogram);
    let counts = found.iter().map(|(_, count)| *count);
    assert_eq!(counts.sum::<u64>(), 9_901);
    let ends = found.windows(2).all(|two| two[0].0 < two[1].0);
    assert!(ends && found.len() <= ROWS, "{found:?}");
    let text = bars_text("response", &histogram);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "  Histogram of response");
    let bars = |line: &str| line.bytes().filter(|byte| *byte == b'#').count();
    assert_eq!(bars(lines[1]), BAR_COLUMNS, "{text}");
    assert_eq!(bars(lines[lines.len() - 1]), 1, "{text}");
    assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn one_value_is_one_row() {
    let mut histogram = LatencyHistogram::new();
    histogram.record_many(1_000, 7);
    let text = bars_text("response", &histogram);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("100.00 %"), "{text}");
}
