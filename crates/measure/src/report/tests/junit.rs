use super::*;
use crate::record::RegressionQuestion;

/// Goal: each outcome is counted where CI reads it, and text cannot break the file.
#[test]
fn outcomes_are_counted_and_text_is_escaped() {
    let case = |name: &str, outcome| Case {
        name: name.to_owned(),
        outcome,
    };
    let suite = Suite {
        name: "a & b".to_owned(),
        duration_ns: 1_500_000_000,
        cases: vec![
            case("p99 < 5 ms", Outcome::Passed("4 ms".to_owned())),
            case("b", Outcome::Failed("\"slow\"\nand \u{1}".to_owned())),
            case("c", Outcome::Error("x".to_owned())),
            case("d", Outcome::Skipped("y".to_owned())),
        ],
    };
    let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites>
<testsuite name=\"a &amp; b\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"1.500\">
  <testcase classname=\"a &amp; b\" name=\"p99 &lt; 5 ms\"><system-out>4 ms</system-out></testcase>
  <testcase classname=\"a &amp; b\" name=\"b\"><failure message=\"&quot;slow&quot;&#10;and \u{fffd}\"/></testcase>
  <testcase classname=\"a &amp; b\" name=\"c\"><error message=\"x\"/></testcase>
  <testcase classname=\"a &amp; b\" name=\"d\"><skipped message=\"y\"/></testcase>
</testsuite>
</testsuites>
";
    assert_eq!(suite.render(), expected);
}

/// Goal: only what is certainly worse fails; what is undecided does not pass.
#[test]
fn verdicts_become_outcomes() {
    let comparison = |verdict| Comparison {
        candidate: "glibc".to_owned(),
        sentence: "a sentence".to_owned(),
        verdict,
        baseline: String::new(),
        ratio: None,
        low: None,
        high: None,
        confidence: 0.0,
        p: None,
        p_adjusted: None,
        rounds: 10,
        margin: 0.02,
        detectable: None,
        candidate_value: None,
        baseline_value: None,
    };
    let reason = "noise".to_owned();
    let mut regression = Regression {
        sentence: "the whole".to_owned(),
        questions: vec![RegressionQuestion {
            name: "memory".to_owned(),
            comparisons: vec![
                comparison(Verdict::Better),
                comparison(Verdict::Worse),
                comparison(Verdict::Undecided { rounds_needed: 9 }),
                comparison(Verdict::NotTrusted { reason }),
            ],
            ..RegressionQuestion::default()
        }],
        ..Regression::default()
    };
    let suite = Suite::of_regression(&regression, 0);
    let text = || "a sentence".to_owned();
    let outcomes: Vec<Outcome> = suite.cases.into_iter().map(|one| one.outcome).collect();
    let expected = [
        Outcome::Passed("the whole".to_owned()),
        Outcome::Passed(text()),
        Outcome::Failed(text()),
        Outcome::Skipped(text()),
        Outcome::Skipped("not to be trusted: noise".to_owned()),
    ];
    assert_eq!(outcomes, expected);
    regression.questions.clear();
    let suite = Suite::of_regression(&regression, 0);
    assert_eq!(
        suite.cases[0].outcome,
        Outcome::Error("the whole".to_owned())
    );
}
