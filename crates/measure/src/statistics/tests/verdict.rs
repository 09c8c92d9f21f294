use super::*;

fn comparison(ratio: f64, low: f64, high: f64, verdict: Verdict) -> Comparison {
    let mut comparison = Comparison {
        candidate: "mimalloc".to_owned(),
        baseline: "glibc".to_owned(),
        ratio: Some(ratio),
        low: Some(low),
        high: Some(high),
        confidence: 0.951,
        p: Some(0.01),
        p_adjusted: Some(0.02),
        rounds: 10,
        margin: 0.02,
        detectable: Some(0.03),
        candidate_value: Some(2.0),
        baseline_value: Some(1.0),
        verdict,
        sentence: String::new(),
    };
    comparison.describe("throughput");
    comparison
}

#[test]
fn sentences() {
    let text = |ratio, low, high, verdict| comparison(ratio, low, high, verdict).sentence;
    assert_eq!(
        text(1.12, 1.08, 1.15, Verdict::Better),
        "mimalloc: throughput 12 % higher than glibc: 1.12x [1.08, 1.15]"
    );
    assert_eq!(
        text(0.66, 0.5, 0.7, Verdict::Worse),
        "mimalloc: throughput 34 % lower than glibc: 0.66x [0.50, 0.70]"
    );
    assert_eq!(
        text(2.1, 2.0, 2.2, Verdict::Better),
        "mimalloc: throughput 2.10 times glibc: 2.10x [2.00, 2.20]"
    );
    assert_eq!(
        text(1.001, 0.99, 1.012, Verdict::Equivalent),
        "mimalloc: throughput equivalent to glibc within 2 %: 1.001x [0.990, 1.012]"
    );
    assert_eq!(
        text(1.1, 0.9, 1.2, Verdict::Undecided { rounds_needed: 1 }),
        "mimalloc: throughput undecided against glibc: 1.10x [0.90, 1.20]; needs about 1 more \
         round"
    );
    let reason = "the machine was busy".to_owned();
    assert_eq!(
        text(1.1, 0.9, 1.2, Verdict::NotTrusted { reason }),
        "mimalloc: throughput not to be trusted: the machine was busy"
    );
}

/// Goal: the contract of results.json: the verdict is a word beside the numbers, its details stand
/// next to it, and all of it reads back.
#[test]
fn json_of_a_comparison() {
    let undecided = comparison(1.1, 0.9, 1.2, Verdict::Undecided { rounds_needed: 7 });
    let json = serde_json::to_value(&undecided).unwrap();
    for key in [
        "candidate",
        "baseline",
        "ratio",
        "low",
        "high",
        "p",
        "verdict",
        "sentence",
    ] {
        assert!(json.get(key).is_some_and(|value| !value.is_null()), "{key}");
    }
    assert_eq!(json["verdict"], "undecided");
    assert_eq!(json["rounds_needed"], 7);
    assert_eq!(
        serde_json::from_value::<Comparison>(json).unwrap(),
        undecided
    );
    let better = comparison(1.1, 1.05, 1.2, Verdict::Better);
    assert_eq!(serde_json::to_value(&better).unwrap()["verdict"], "better");
}

#[test]
fn a_baseline_of_zero_has_no_ratio_but_words() {
    let mut comparison = comparison(1.0, 1.0, 1.0, Verdict::Worse);
    (comparison.ratio, comparison.high) = (None, None);
    (comparison.candidate_value, comparison.baseline_value) = (Some(14.0), Some(0.0));
    comparison.describe("heap calls/req");
    assert_eq!(
        comparison.sentence,
        "mimalloc: heap calls/req higher than glibc: 14.0 against 0"
    );
}
