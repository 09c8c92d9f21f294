use super::*;

fn all_as(times: &LatencyHistogram) -> Times<'_> {
    Times {
        connect: times,
        processing: times,
        waiting: times,
        total: times,
    }
}

fn of_us(values_us: &[(u64, u64)]) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for &(value_us, count) in values_us {
        histogram.record_many(value_us * 1_000, count);
    }
    histogram
}

/// Goal: ab's doubts are voiced where ab voices them: they come from its rounding, as no median
/// lies further than a deviation from its mean.
#[test]
fn rounded_times_are_remarked_on() {
    let skewed = of_us(&[(0, 90), (100_000, 10)]);
    let even = of_us(&[(4_000, 10), (5_000, 10), (6_000, 10)]);
    let wide = of_us(&[(400, 51), (1_900, 49)]);
    let narrow = of_us(&[(450, 51), (600, 49)]);
    let times = Times {
        connect: &skewed,
        processing: &even,
        waiting: &wide,
        total: &narrow,
    };
    let text = table(&times);
    assert!(
        text.contains("\nConnect:        0   10  30.0      0     100\n"),
        "{text}"
    );
    let (_, remarks) = text.split_once("Total:").unwrap();
    let (warning, error) = remarks.split_once("ERROR: ").unwrap();
    assert!(
        warning.contains("WARNING: The median and mean for the waiting time"),
        "{text}"
    );
    assert!(
        error.starts_with("The median and mean for the total time"),
        "{text}"
    );
    assert_eq!(text.matches("median and mean").count(), 2, "{text}");
}

#[test]
fn urls_come_apart() {
    assert_eq!(parts("http://h:81/a?b"), ("h", "81", "/a?b"));
    assert_eq!(parts("https://h"), ("h", "443", "/"));
    assert_eq!(parts("http://[::1]/x"), ("[::1]", "80", "/x"));
    assert_eq!(parts("http://[::1]:8080/"), ("[::1]", "8080", "/"));
}

#[test]
fn the_table_has_every_percentage() {
    let text = csv(&of_us(&[(1_000, 50), (2_000, 50)]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 102);
    assert!(
        lines[1].starts_with("0,1.0") && lines[51].starts_with("50,1.0"),
        "{text}"
    );
    assert!(
        lines[52].starts_with("51,2.0") && lines[101].starts_with("100,2.0"),
        "{text}"
    );
}

/// Goal: with `-l` there is no length, and with a body three lines more, where ab has them.
#[test]
fn flags_change_the_lines() {
    let report = LoadReport {
        sent_bytes: 2_048,
        duration_ns: 2_000_000_000,
        bytes_received: 4_096,
        ..LoadReport::default()
    };
    let style = Style {
        has_variable_length: true,
        has_body: true,
    };
    let empty = LatencyHistogram::new();
    let times = all_as(&empty);
    let text = text(&report, &times, style);
    for part in [
        "\nDocument Length:        Variable\n\n",
        "\nTotal transferred:      4096 bytes\nTotal body sent:        2048\nHTML transferred:",
        "\nTransfer rate:          2.00 [Kbytes/sec] received\n                        1.00 kb/s sent\n                        \
         3.00 kb/s total\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_run_without_answers_prints() {
    let empty = LatencyHistogram::new();
    let times = all_as(&empty);
    let text = text(&LoadReport::default(), &times, Style::default());
    assert!(
        text.contains("Requests per second:    0.00 [#/sec] (mean)"),
        "{text}"
    );
}
