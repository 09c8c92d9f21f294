//! How often a fault was found, and how often something was where there is nothing.

use super::faults::Truth;
use super::record::{Comparison, Found};
use crate::bench::record::Spread;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// One row of the table: a candidate in the measure in which it differs, or does not.
pub(crate) struct Tally {
    candidate: String,
    measure: String,
    planted: String,
    truth: Truth,
    /// With the ratio that should have been found.
    found: Vec<(Found, f64)>,
    missing: u32,
}

impl Tally {
    pub(crate) fn of_equals(candidate: &str, measure: &str) -> Self {
        Self::of_fault(candidate, measure, "nothing", Truth::Same)
    }

    pub(crate) fn of_fault(candidate: &str, measure: &str, planted: &str, truth: Truth) -> Self {
        Self {
            candidate: candidate.to_owned(),
            measure: measure.to_owned(),
            planted: planted.to_owned(),
            truth,
            found: Vec::new(),
            missing: 0,
        }
    }

    /// Counts one comparison. What was not measured, or is not to be trusted, is counted by itself.
    pub(crate) fn add(&mut self, comparison: &Comparison) {
        let found = comparison.of(&self.candidate, &self.measure).ok();
        let trusted = found.filter(|found| found.verdict != "not_trusted");
        let with_truth = trusted.and_then(|found| {
            let truth = self.truth.of(comparison, found.baseline_value)?;
            Some((found, truth))
        });
        match with_truth {
            Some(one) => self.found.push(one),
            None => self.missing += 1,
        }
    }

    fn claims(&self) -> usize {
        let claims = |found: &Found| ["better", "worse"].contains(&found.verdict.as_str());
        self.found.iter().filter(|(one, _)| claims(one)).count()
    }

    fn excluding_one(&self) -> usize {
        let found = self.found.iter();
        found.filter(|(one, _)| one.excludes_one()).count()
    }

    fn covered(&self) -> usize {
        let found = self.found.iter();
        found.filter(|(one, truth)| one.covers(*truth)).count()
    }

    pub(crate) fn to_json(&self) -> Value {
        let all = || self.found.iter().map(|(one, _)| one);
        let spread = |of: fn(&Found) -> f64| Spread::of(all().map(of)).to_json();
        let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
        for one in all() {
            *verdicts.entry(&one.verdict).or_default() += 1;
        }
        json!({
            "candidate": self.candidate,
            "measure": self.measure,
            "planted": self.planted,
            "judged": self.found.len(),
            "not_to_be_trusted": self.missing,
            "claims": self.claims(),
            "intervals_without_one": self.excluding_one(),
            "intervals_with_truth": self.covered(),
            "truth": Spread::of(self.found.iter().map(|(_, truth)| *truth)).to_json(),
            "verdicts": verdicts,
            "ratio": spread(|one| one.ratio),
            "low": spread(|one| one.low),
            "high": spread(|one| one.high),
        })
    }
}

/// All rows. `found`: the interval leaves out that there is no difference; `claimed`: the verdict is better or worse,
/// which a difference within the margin never is.
pub(crate) fn table(tallies: &[Tally]) -> String {
    let head = [
        "candidate",
        "measure",
        "judged",
        "untrusted",
        "found",
        "claimed",
        "truth",
        "covered",
        "planted",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for tally in tallies {
        let truth = tally.found.first().map(|(_, truth)| truth);
        rows.push([
            tally.candidate.clone(),
            tally.measure.clone(),
            tally.found.len().to_string(),
            tally.missing.to_string(),
            tally.excluding_one().to_string(),
            tally.claims().to_string(),
            truth.map_or_else(|| "-".to_owned(), |truth| format!("{truth:.3}")),
            tally.covered().to_string(),
            tally.planted.clone(),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
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

    /// Goal: found, claimed, covered and untrusted are counted apart, against the truth of each kind.
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
}
