//! How often a fault was found, and how often something was where there is nothing.

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
    kind: Kind,
    found: Vec<Found>,
    missing: u32,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Nothing is there.
    Equals,
    /// The truth follows from the baseline's value and this amount.
    Added(f64),
    /// The truth is the median of the estimates.
    Median,
}

impl Tally {
    pub(crate) fn of_equals(candidate: &str, measure: &str) -> Self {
        Self::new(candidate, measure, "nothing", Kind::Equals)
    }

    pub(crate) fn of_fault(
        candidate: &str,
        measure: &str,
        planted: &str,
        added: Option<f64>,
    ) -> Self {
        let kind = added.map_or(Kind::Median, Kind::Added);
        Self::new(candidate, measure, planted, kind)
    }

    fn new(candidate: &str, measure: &str, planted: &str, kind: Kind) -> Self {
        Self {
            candidate: candidate.to_owned(),
            measure: measure.to_owned(),
            planted: planted.to_owned(),
            kind,
            found: Vec::new(),
            missing: 0,
        }
    }

    /// Counts one comparison. What was not measured, or is not to be trusted, is told apart.
    pub(crate) fn add(&mut self, comparison: &Comparison) {
        match comparison.of(&self.candidate, &self.measure) {
            Ok(found) if found.verdict != "not_trusted" => self.found.push(found),
            _ => self.missing += 1,
        }
    }

    fn claims(&self) -> usize {
        let claims = |found: &&Found| ["better", "worse"].contains(&found.verdict.as_str());
        self.found.iter().filter(claims).count()
    }

    fn excluding_one(&self) -> usize {
        self.found.iter().filter(|one| one.excludes_one()).count()
    }

    fn truth(&self, of: &Found) -> f64 {
        match self.kind {
            Kind::Equals => 1.0,
            Kind::Added(amount) => 1.0 + amount / of.baseline_value,
            Kind::Median => {
                let mut ratios: Vec<f64> = self.found.iter().map(|one| one.ratio).collect();
                ratios.sort_by(f64::total_cmp);
                ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
            }
        }
    }

    fn covered(&self) -> usize {
        let covers = |one: &&Found| one.covers(self.truth(one));
        self.found.iter().filter(covers).count()
    }

    pub(crate) fn to_json(&self) -> Value {
        let spread = |of: fn(&Found) -> f64| Spread::of(self.found.iter().map(of)).to_json();
        let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
        for one in &self.found {
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
            "truth": self.found.first().map(|one| self.truth(one)),
            "verdicts": verdicts,
            "ratio": spread(|one| one.ratio),
            "low": spread(|one| one.low),
            "high": spread(|one| one.high),
        })
    }
}

/// All rows. `found`: the interval leaves out that there is no difference; `claimed`: better or worse by
/// more than the margin.
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
        let truth = tally.found.first().map(|one| tally.truth(one));
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
        let mut memory = Tally::of_fault("retain", "m", "50 bytes", Some(50.0));
        let mut time = Tally::of_fault("retain", "m", "50 bytes", None);
        let mut equals = Tally::of_equals("(again)", "m");
        for (verdict, ratio) in [
            ("worse", 1.06),
            ("equivalent", 1.04),
            ("undecided", 1.01),
            ("worse", 1.2),
            ("not_trusted", 1.05),
        ] {
            for tally in [&mut memory, &mut time, &mut equals] {
                tally.add(&comparison(verdict, ratio));
            }
        }
        assert_eq!((memory.found.len(), memory.missing), (4, 1));
        assert_eq!((memory.excluding_one(), memory.claims()), (3, 2));
        assert_eq!(memory.covered(), 2, "1.05 lies in two of the intervals");
        assert_eq!(time.covered(), 2, "the median is 1.06");
        assert_eq!(
            (equals.claims(), equals.covered(), equals.missing),
            (0, 5, 0)
        );
        let text = table(&[memory, time, equals]);
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("1.050") && text.contains("1.060"), "{text}");
    }
}
