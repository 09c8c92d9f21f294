//! The result of a comparison, read from `results.json` as a user would.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::bench::candidates::Spread;

use super::faults::Truth;

/// The courses of all comparisons, for the record.
pub(crate) fn courses(courses: &[Value]) -> Value {
    let spread = |key: &str| {
        let values = courses.iter().filter_map(|course| course[key].as_f64());
        Spread::of(values).to_json()
    };
    json!({
        "duration_ns": spread("duration_ns"),
        "rounds": spread("rounds"),
        "latency_phase_ns": spread("latency_phase_ns"),
        "rate_per_s": spread("rate_per_s"),
    })
}

/// One comparison.
#[derive(Debug)]
pub(crate) struct Comparison {
    record: Value,
}

/// One candidate against the baseline in one measure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) verdict: String,
    pub(crate) baseline_value: f64,
}

impl Found {
    /// True if the interval leaves out that there is no difference.
    pub(crate) fn excludes_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    pub(crate) fn covers(&self, truth: f64) -> bool {
        self.low <= truth && truth <= self.high
    }
}

impl Comparison {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
        let record = serde_json::from_slice(&text).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { record })
    }

    pub(crate) fn of_record(record: Value) -> Self {
        Self { record }
    }

    /// The needed parts of it, without the rounds' slices and courses.
    pub(crate) fn kept(&self) -> Value {
        let candidates = self.record["candidates"].as_array().into_iter().flatten();
        let candidates: Vec<Value> = candidates
            .map(|one| {
                let rounds = one["rounds"].as_array().into_iter().flatten();
                let rounds: Vec<Value> = rounds
                    .map(|round| json!({"measures": round["measures"]}))
                    .collect();
                json!({
                    "name": one["name"],
                    "role": one["role"],
                    "block_checks": one["block_checks"],
                    "rounds": rounds,
                })
            })
            .collect();
        json!({
            "duration_ns": self.record["duration_ns"],
            "settings": self.record["settings"],
            "details": self.record["details"],
            "candidates": candidates,
        })
    }

    /// The blocks' results on slices, with the names of the candidates.
    pub(crate) fn block_checks(&self) -> Vec<(String, Value)> {
        let candidates = self.record["candidates"].as_array().into_iter().flatten();
        let checks = candidates.flat_map(|one| {
            let name = one["name"].as_str().unwrap_or_default().to_owned();
            let checks = one["block_checks"].as_array().into_iter().flatten();
            checks.map(move |check| (name.clone(), check.clone()))
        });
        checks.collect()
    }

    /// How long it took, how many rounds and how long phases that allowed.
    pub(crate) fn course(&self) -> Value {
        let settings = &self.record["settings"];
        json!({
            "duration_ns": self.record["duration_ns"],
            "rounds": settings["rounds_done"],
            "latency_phase_ns": settings["latency_phase_ns"],
            "rate_per_s": settings["rate_per_s"]["request"],
        })
    }

    /// The constant rate.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        self.record["settings"]["rate_per_s"]["request"].as_f64()
    }

    /// The median of the baseline's rounds.
    pub(crate) fn baseline(&self, measure: &str) -> Result<f64, String> {
        let candidates = self.record["candidates"].as_array();
        let baseline = candidates
            .and_then(|all| all.iter().find(|one| one["role"] == "baseline"))
            .ok_or("the comparison has no baseline")?;
        let rounds = baseline["rounds"].as_array().into_iter().flatten();
        let mut values: Vec<f64> = rounds
            .filter_map(|round| round["measures"][measure].as_f64())
            .collect();
        values.sort_by(f64::total_cmp);
        values
            .get(values.len() / 2)
            .copied()
            .ok_or_else(|| format!("{measure} was not measured"))
    }

    /// The result of the candidate of that name, which a blank or its settings may follow. `(again)` is the baseline's
    /// double.
    pub(crate) fn of(&self, name: &str, measure: &str) -> Result<Found, String> {
        let details = self.record["details"].as_array().into_iter().flatten();
        let comparisons = details
            .filter(|detail| detail["measure"] == measure)
            .flat_map(|detail| detail["comparisons"].as_array().into_iter().flatten());
        let is_named = |candidate: &str| match name {
            "(again)" => candidate.ends_with("(again)"),
            name => candidate
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ' '])),
        };
        let mut named = comparisons.filter(|one| one["candidate"].as_str().is_some_and(is_named));
        let missing = || format!("{name} has no {measure}");
        let one = named.next().ok_or_else(missing)?;
        let number = |key: &str| one[key].as_f64().ok_or_else(missing);
        Ok(Found {
            ratio: number("ratio")?,
            low: number("low")?,
            high: number("high")?,
            baseline_value: number("baseline_value")?,
            verdict: one["verdict"].as_str().ok_or_else(missing)?.to_owned(),
        })
    }
}

// How often a fault was found, and how often something was where there is nothing.

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

    /// Counts one comparison. Missing or untrusted values are counted separately.
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
#[path = "tests/tally.rs"]
mod tally_tests;
