use super::*;

/// Goal: totals, the heaviest, what it cost and that it is noisy are all said.
#[test]
fn a_candidate_in_words() {
    let spread = |ratio: f64| Spread {
        ratio,
        low: ratio - 0.01,
        high: ratio + 0.01,
    };
    let candidate = CandidateProfile {
        name: "mimalloc".to_owned(),
        cpu: None,
        allocations: Some(AllocationFigures {
            samples: 10_000,
            dropped: 0,
            without_stack: 0,
            sample_bytes: 524_288,
            calls: 2_000_000,
            bytes: 5 << 30,
            heaviest: vec![("parse".to_owned(), 0.25)],
            cost: Some(Cost {
                pairs: 5,
                time: Some(spread(1.02)),
                cpu_time: Some(spread(1.03)),
                without_varies: 1.4,
                is_noisy: true,
            }),
        }),
    };
    let text = candidate.to_string();
    for part in [
        "5.00 GiB in 2.00M calls, estimated from 10000 samples (one in 512 KiB",
        "good to about 2.0 %",
        " 25.0 %  parse",
        "+3.0 % (+2.0 to +4.0 %) of the server's CPU time and +2.0 %",
        "in 5 pairs",
        "noisy: runs without it differ by 40 %",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
