use super::*;
use crate::record::{LoadErrors, LoadStatus, LoadVerdict};

#[test]
fn units_change_at_85_percent() {
    assert_eq!(format_time_us(849.99), "849.99us");
    assert_eq!(format_time_us(850.0), "0.85ms");
    assert_eq!(format_time_us(999_999.0), "1000.00ms");
    assert_eq!(format_time_us(1_000_000.0), "1.00s");
    assert_eq!(format_time_us(51_000_000.0), "0.85m");
    assert_eq!(format_time_us(7_200_000_000.0), "120.00m");
    assert_eq!(format_metric(849.0), "849.00");
    assert_eq!(format_metric(56_200.0), "56.20k");
    assert_eq!(format_binary(870.0), "870.00");
    assert_eq!(format_binary(871.0), "0.85K");
    assert_eq!(format_binary(0.97 * 1048576.0), "0.97M");
    assert!(header("u", 30_000_000_000, 1, 1).starts_with("Running 30s test @ u\n"));
    assert!(header("u", 60_000_000_000, 1, 1).starts_with("Running 1m test @ u\n"));
}

#[test]
fn padding_aligns_digits() {
    assert_eq!(padded("635.91us", 8), "635.91us");
    assert_eq!(padded("1.56s", 8), "  1.56s ");
    assert_eq!(padded("98.30", 8), " 98.30  ");
    assert_eq!(padded("123456789.00us", 8), "12345678");
}

fn report() -> LoadReport {
    LoadReport {
        requests: 22_464_657,
        duration_ns: 30_000_000_000,
        requests_per_s: 748_868.53,
        bytes_received: 19_069_898_000,
        ..LoadReport::default()
    }
}

/// Goal: the well-known example of wrk's README, down to the blank.
#[test]
fn equals_the_readme_of_wrk() {
    let mut latency = LatencyHistogram::new();
    latency.record_many(635_910, 1_000);
    let rates = SampleSummary {
        mean: 56_200.0,
        stdev: 8_070.0,
        max: 62_000.0,
        within_stdev_share: 0.8654,
        ..SampleSummary::default()
    };
    let text = results(&report(), &latency, &rates, true);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev"
    );
    // The histogram keeps three digits, wrk keeps every microsecond.
    assert!(
        lines[1].starts_with("    Latency   636.16us    0.00us 636.41us"),
        "{}",
        lines[1]
    );
    assert_eq!(
        lines[2],
        "    Req/Sec    56.20k     8.07k   62.00k    86.54%"
    );
    assert_eq!(lines[3], "  Latency Distribution");
    assert_eq!(lines[4], "     50%  636.41us");
    assert_eq!(lines[8], "  22464657 requests in 30.00s, 17.76GB read");
    assert_eq!(lines[9], "Requests/sec: 748868.53");
    assert_eq!(lines[10], "Transfer/sec:    606.22MB");
    assert_eq!(lines.len(), 11);
}

/// Goal: the real output of wrk 4.1, with every figure replaced, equals ours with every figure
/// replaced.
#[test]
fn layout_equals_a_real_run() {
    let real = include_str!("../wrk_sample.txt");
    let mut latency = LatencyHistogram::new();
    (1..=1_000).for_each(|step| latency.record(step * 1_000));
    let rates = SampleSummary::of([1_200.0, 1_300.0, 1_250.0]);
    let mut errors = LoadErrors {
        read: 3,
        status: 5,
        ..LoadErrors::default()
    };
    errors.timeout = 1;
    let report = LoadReport { errors, ..report() };
    let ours = header("http://127.0.0.1:8/", 2_000_000_000, 2, 4)
        + &results(&report, &latency, &rates, true);
    let words = |text: &str| -> Vec<Vec<String>> {
        let rub_out = |word: &str| {
            if word.starts_with(|c: char| c.is_ascii_digit()) && !word.ends_with('%') {
                "#".to_owned()
            } else if word.starts_with("http") {
                "URL".to_owned()
            } else if word.ends_with('%') && word.contains('.') {
                "#%".to_owned()
            } else {
                word.to_owned()
            }
        };
        text.lines()
            .map(|line| line.split_whitespace().map(rub_out).collect())
            .collect()
    };
    assert_eq!(words(&ours), words(real));
    // Where a label starts, a column starts.
    for (own, line) in ours.lines().zip(real.lines()) {
        let indent = |text: &str| text.len() - text.trim_start().len();
        if !line.contains("% ") && !line.contains("s") {
            assert_eq!(indent(own), indent(line), "{own:?} {line:?}");
        }
    }
}

#[test]
fn our_block_says_what_wrk_cannot() {
    let clean = LoadReport::default();
    assert!(clocks(&clean).ends_with("  Verdict: OK\n"));
    let report = LoadReport {
        slip_ns: LatencySummary {
            p99: 1_500_000,
            ..LatencySummary::default()
        },
        errors: LoadErrors {
            validation: 2,
            ..LoadErrors::default()
        },
        verdict: LoadVerdict {
            status: LoadStatus::Invalid,
            reasons: vec!["97 % of its CPU used".to_owned(), "late".to_owned()],
            notes: vec!["sets differ".to_owned()],
        },
        interrupted: true,
        ..LoadReport::default()
    };
    let text = clocks(&report);
    assert!(text.contains("1.50ms") && text.contains("Delay"), "{text}");
    assert!(
        text.contains("Verdict: INVALID (97 % of its CPU used; late); sets differ"),
        "{text}"
    );
    assert!(text.contains("Wrong content in responses: 2"), "{text}");
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
}

/// Goal: every row of the clocks and a verdict with much to say fit a terminal of 80 columns.
#[test]
fn everything_fits_80_columns() {
    let some = Some(LatencySummary::default());
    let why = "the generator sent late: p99 of its lateness is above the median response";
    let report = LoadReport {
        client_late_ns: some,
        no_connection_ns: some,
        wake_delay_ns: some,
        kernel_service_ns: some,
        transport_ns: some,
        handshake_ns: some,
        batch_response_ns: some,
        batch_service_ns: some,
        opening_ns: LatencySummary {
            count: 5,
            ..LatencySummary::default()
        },
        verdict: LoadVerdict {
            status: LoadStatus::Suspect,
            reasons: vec![why.to_owned(), why.to_owned()],
            notes: Vec::new(),
        },
        ..LoadReport::default()
    };
    let text = clocks(&report);
    for name in ["Kernel", "Connect", "TLS", "B. sent"] {
        assert!(text.contains(&format!("    {name:<8}")), "{name}: {text}");
    }
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("SUSPECT ({why}; {why})")), "{text}");
}
