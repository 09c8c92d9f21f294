//! Verdicts as JUnit XML, the form in which CI shows tests.
//!
//! One case for each thing that was judged. A failure is what the measured server did wrong; an error is
//! what keeps the measurement from saying; what the rounds could not decide is skipped, never passed.
//!
//! The record has them.

use crate::record::Regression;
use crate::slo::SloOutcome;
use crate::statistics::{Comparison, Verdict};
use std::fmt::Write as _;

/// Cases that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The judged subject, e.g. `millpond load`.
    pub name: String,
    /// How long the measuring took.
    pub duration_ns: u64,
    /// In the order of the page.
    pub cases: Vec<Case>,
}

/// One thing that was judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its question.
    pub name: String,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a case, each with a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It holds.
    Passed(String),
    /// It does not.
    Failed(String),
    /// Undecided, and has to be checked by hand.
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

/// For text and for attributes in double quotes. Characters that XML 1.0 cannot express become U+FFFD.
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
#[path = "tests/junit.rs"]
mod tests;
