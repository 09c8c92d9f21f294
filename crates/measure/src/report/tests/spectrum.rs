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
    let text = spectrum_text(&histogram);
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
    let text = spectrum_text(&LatencyHistogram::new());
    assert_eq!(text.lines().filter_map(point).count(), 0);
    assert!(text.contains("Total count    =            0]"));
}
