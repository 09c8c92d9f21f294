use super::*;

fn printed(blocks: Blocks) -> String {
    let (mut response, mut service) = (LatencyHistogram::new(), LatencyHistogram::new());
    (1..=1_000_u64).for_each(|step| response.record(step * 2_000));
    (1..=1_000_u64).for_each(|step| service.record(step * 1_000));
    let report = LoadReport {
        requests: 1_000,
        duration_ns: 10_000_000_000,
        requests_per_s: 100.0,
        bytes_received: 248_000,
        ..LoadReport::default()
    };
    let rates = SampleSummary::of([100.0, 101.0]);
    wrk2_results(&report, &response, &service, &rates, blocks)
}

/// Goal: the frame that scripts search for stands where wrk2 prints it.
#[test]
fn the_layout_is_that_of_wrk2() {
    let text = printed(Blocks {
        recorded: true,
        uncorrected: true,
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev"
    );
    assert_eq!(
        lines[3],
        "  Latency Distribution (HdrHistogram - Recorded Latency)"
    );
    assert_eq!(lines[4], " 50.000%    1.00ms");
    assert_eq!(lines[11], "100.000%    2.00ms");
    assert_eq!(
        (lines[12], lines[13]),
        ("", "  Detailed Percentile spectrum:")
    );
    assert_eq!(
        lines[14],
        "       Value   Percentile   TotalCount 1/(1-Percentile)"
    );
    let rules: Vec<usize> = (0..lines.len()).filter(|&at| lines[at] == RULE).collect();
    assert_eq!(rules.len(), 2);
    assert_eq!(lines[rules[0] + 1], "");
    assert!(lines[rules[0] + 2].contains("Uncorrected Latency (measured without"));
    assert_eq!(
        lines[rules[1] + 1],
        "  1000 requests in 10.00s, 242.19KB read"
    );
    assert_eq!(lines[rules[1] + 2], "Requests/sec:    100.00");
}

/// Goal: without the flags there is no spectrum, with the first only the recorded one.
#[test]
fn blocks_come_when_asked_for() {
    assert!(!printed(Blocks::default()).contains("spectrum"));
    let recorded = printed(Blocks {
        recorded: true,
        uncorrected: false,
    });
    assert_eq!(recorded.matches(RULE).count(), 1);
    assert!(!recorded.contains("Uncorrected"));
}
