use super::*;
use crate::record::SearchStep;

fn point(rate_per_s: f64, outcome: StepOutcome, reason: &str) -> CurvePoint {
    let typical = SearchStep {
        rate_per_s,
        requests_per_s: rate_per_s,
        reasons: vec![reason.to_owned()],
        ..SearchStep::default()
    };
    CurvePoint {
        rate_per_s,
        outcome,
        votes: 2,
        steps: 3,
        typical,
    }
}

fn report(ended: SearchEnd) -> SearchReport {
    SearchReport {
        objectives: vec!["p99 < 5.00 ms".to_owned()],
        rate_per_s: Some(1234.4),
        missed_per_s: Some(1246.0),
        precision: 0.01,
        ended,
        curve: vec![
            point(1234.4, StepOutcome::Met, ""),
            point(1246.0, StepOutcome::Missed, "p99 < 5.00 ms: 7.00 ms"),
            point(
                2000.0,
                StepOutcome::Rejected,
                "a thread used 97 % of its CPU",
            ),
        ],
        ..SearchReport::default()
    }
}

/// Goal: one line for each rate, with the votes and the reason, then the rate to type again.
#[test]
fn the_curve_is_a_table_with_an_answer() {
    let text = results(&report(SearchEnd::Found));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].contains("Outcome"), "{text}");
    assert!(
        lines[3].contains("missed 2 of 3: p99 < 5.00 ms: 7.00 ms"),
        "{text}"
    );
    assert!(
        text.contains("Maximum: 1234/s with p99 < 5.00 ms"),
        "{text}"
    );
    assert!(
        text.contains("1246/s does not hold, and lies within 1 %"),
        "{text}"
    );
}

/// Goal: every end says why, and the generator's limit is not given out as the target's.
#[test]
fn every_end_has_a_sentence() {
    let text = results(&report(SearchEnd::GeneratorLimit));
    assert!(
        text.contains("97 % of its CPU") && text.contains("or higher"),
        "{text}"
    );
    for ended in [
        SearchEnd::NoneHolds,
        SearchEnd::Unsteady,
        SearchEnd::Interrupted,
        SearchEnd::TargetGone,
        SearchEnd::Failed,
    ] {
        assert!(results(&report(ended)).contains("Ended: "), "{ended:?}");
    }
    let failed = SearchReport {
        failure: Some("the script said so".to_owned()),
        ..report(SearchEnd::Failed)
    };
    assert!(results(&failed).contains("Ended: the script said so; "));
    let unknown = SearchReport {
        rate_per_s: None,
        ..report(SearchEnd::NoneHolds)
    };
    assert!(results(&unknown).contains("no rate is known"));
}
