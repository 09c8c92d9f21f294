use super::*;

fn comparison(verdict: &str, ratio: f64) -> Comparison {
    let one = |candidate: &str, verdict: &str, ratio: f64| {
        json!({"candidate": candidate, "verdict": verdict, "ratio": ratio, "low": ratio - 0.02,
               "high": ratio + 0.02, "baseline_value": 1000.0})
    };
    Comparison::of_record(json!({
        "candidates": [{"role": "baseline", "rounds": [
            {"measures": {"m": 3.0}}, {"measures": {"m": 1.0}}, {"measures": {"m": 2.0}}, {}
        ]}],
        "details": [
            {"measure": "other", "comparisons": []},
            {"measure": "m", "comparisons": [
                one("glibc (again)", "equivalent", 1.0),
                one("retained", "worse", 9.0),
                one("retain:PLANT_RETAIN_BYTES=50", verdict, ratio),
            ]},
        ],
    }))
}

/// Goal: a candidate is found by its name and not by another's beginning; what was not measured is a
/// sentence.
#[test]
fn records_are_read() {
    let comparison = comparison("worse", 1.06);
    assert_eq!(comparison.baseline("m"), Ok(2.0));
    assert_eq!(comparison.of("retain", "m").unwrap().ratio, 1.06);
    assert_eq!(comparison.of("(again)", "m").unwrap().verdict, "equivalent");
    assert_eq!(
        comparison.of("stall", "m"),
        Err("stall has no m".to_owned())
    );
    assert!(comparison.baseline("n").is_err());
}

/// Goal: found, claimed, covered and untrusted are counted separately, against the true value of each kind.
#[test]
fn findings_are_counted() {
    let mut memory = Tally::of_fault("retain", "m", "50 bytes", Truth::Added(50.0));
    let mut equals = Tally::of_equals("(again)", "m");
    for (verdict, ratio) in [
        ("worse", 1.06),
        ("equivalent", 1.04),
        ("undecided", 1.01),
        ("worse", 1.2),
        ("not_trusted", 1.05),
    ] {
        for tally in [&mut memory, &mut equals] {
            tally.add(&comparison(verdict, ratio));
        }
    }
    assert_eq!((memory.found.len(), memory.missing), (4, 1));
    assert_eq!((memory.excluding_one(), memory.claims()), (3, 2));
    assert_eq!(memory.covered(), 2, "1.05 lies in two of the intervals");
    assert_eq!(
        (equals.claims(), equals.covered(), equals.missing),
        (0, 5, 0)
    );
    let text = table(&[memory, equals]);
    assert_eq!(text.lines().count(), 3);
    assert!(text.contains("1.050") && text.contains("1.000"), "{text}");
}
