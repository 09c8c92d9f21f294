//! Verdicts as JUnit XML, the form in which build servers show tests.
//!
//! One case for each thing that was judged. A failure is what the measured server did wrong; an error is
//! what keeps the measurement from saying; what the rounds could not decide is skipped, never passed.
//!
//! Absent on purpose: the measured values in a form for programs. The record has them.

use crate::record::Regression;
use crate::slo::SloOutcome;
use crate::statistics::{Comparison, Verdict};
use std::fmt::Write as _;

/// Cases that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// What was judged, e.g. `millpond load`.
    pub name: String,
    /// How long the measuring took.
    pub duration_ns: u64,
    /// In the order of the page.
    pub cases: Vec<Case>,
}

/// One thing that was judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What it asks for.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a case, each with a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It holds.
    Passed(String),
    /// It does not.
    Failed(String),
    /// Nobody can say, and somebody has to look at it.
    Error(String),
    /// It was not decided.
    Skipped(String),
}

impl Case {
    /// An objective of `--slo`.
    #[must_use]
    pub fn of_objective(outcome: &SloOutcome) -> Self {
        let sentence = format!("{}: {}", outcome.objective, outcome.measured);
        Self {
            name: outcome.objective.clone(),
            outcome: match outcome.is_met {
                true => Outcome::Passed(sentence),
                false => Outcome::Failed(sentence),
            },
        }
    }

    /// A candidate against itself in an earlier record.
    fn of_comparison(question: &str, comparison: &Comparison) -> Self {
        let sentence = comparison.sentence.clone();
        Self {
            name: format!("{question} of {}", comparison.candidate),
            outcome: match &comparison.verdict {
                Verdict::Worse if comparison.is_regression() => Outcome::Failed(sentence),
                Verdict::Better | Verdict::Equivalent | Verdict::Worse => Outcome::Passed(sentence),
                Verdict::Undecided { .. } => Outcome::Skipped(sentence),
                Verdict::NotTrusted { reason } => {
                    Outcome::Skipped(format!("not to be trusted: {reason}"))
                }
            },
        }
    }
}

impl Suite {
    /// A check against an earlier record, one case for each candidate and question.
    #[must_use]
    pub fn of_regression(regression: &Regression, duration_ns: u64) -> Self {
        let judged = match regression.is_judged() {
            true => Outcome::Passed(regression.sentence.clone()),
            false => Outcome::Error(regression.sentence.clone()),
        };
        let whole = Case {
            name: "something can be judged".to_owned(),
            outcome: judged,
        };
        let questions = regression.questions.iter();
        let cases = questions.flat_map(|question| {
            let comparisons = question.comparisons.iter();
            comparisons.map(|one| Case::of_comparison(&question.name, one))
        });
        Self {
            name: "millpond compare --baseline".to_owned(),
            duration_ns,
            cases: std::iter::once(whole).chain(cases).collect(),
        }
    }

    /// The whole file.
    #[must_use]
    pub fn render(&self) -> String {
        let count =
            |is: fn(&Outcome) -> bool| self.cases.iter().filter(|it| is(&it.outcome)).count();
        let failures = count(|outcome| matches!(outcome, Outcome::Failed(_)));
        let errors = count(|outcome| matches!(outcome, Outcome::Error(_)));
        let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        let seconds = self.duration_ns as f64 / 1e9;
        let name = escape(&self.name);
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        // A String takes any text.
        let _ = writeln!(
            text,
            "<testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" \
             skipped=\"{skipped}\" time=\"{seconds:.3}\">",
            self.cases.len()
        );
        for case in &self.cases {
            let title = escape(&case.name);
            let _ = write!(text, "  <testcase classname=\"{name}\" name=\"{title}\">");
            let _ = match &case.outcome {
                Outcome::Passed(why) => write!(text, "<system-out>{}</system-out>", escape(why)),
                Outcome::Failed(why) => write!(text, "<failure message=\"{}\"/>", escape(why)),
                Outcome::Error(why) => write!(text, "<error message=\"{}\"/>", escape(why)),
                Outcome::Skipped(why) => write!(text, "<skipped message=\"{}\"/>", escape(why)),
            };
            text.push_str("</testcase>\n");
        }
        text.push_str("</testsuite>\n</testsuites>\n");
        text
    }
}

/// For text and for attributes in double quotes. What XML 1.0 cannot say at all becomes U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push('\t'),
            '\0'..'\u{20}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RegressionQuestion;

    /// Goal: each outcome is counted where build servers look for it, and text cannot break the file.
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

    /// Goal: only what is certainly worse fails; what nobody can tell does not pass.
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
}
