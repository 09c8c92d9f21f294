//! A figure with its target, the table of them, and the record on disk.

use super::Bench;
use super::machine::first_line;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// Which side of the target is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    AtMost,
    AtLeast,
}

/// One number this project holds itself to, or one that explains it.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// In glossary form, with its unit last.
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: f64,
    /// `None`: it explains another figure.
    pub(crate) target: Option<(Target, f64)>,
    /// The value of every run, in the order in which they ran.
    pub(crate) runs: Vec<f64>,
}

impl Figure {
    /// The median of the runs.
    pub(crate) fn median(name: impl Into<Cow<'static, str>>, runs: Vec<f64>) -> Self {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let value = match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Self {
            name: name.into(),
            value,
            target: None,
            runs,
        }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self {
            target: Some((Target::AtMost, limit)),
            ..self
        }
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        Self {
            target: Some((Target::AtLeast, limit)),
            ..self
        }
    }

    fn is_met(&self) -> Option<bool> {
        self.target.map(|(side, limit)| match side {
            Target::AtMost => self.value <= limit,
            Target::AtLeast => self.value >= limit,
        })
    }

    fn target_text(&self) -> String {
        match self.target {
            None => String::new(),
            Some((Target::AtMost, limit)) => format!("<= {}", digits(limit)),
            Some((Target::AtLeast, limit)) => format!(">= {}", digits(limit)),
        }
    }
}

/// Whole numbers once the fraction stops mattering.
fn digits(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// One line per figure, its target and whether it is met.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut text = format!("{:<56} {:>12} {:>12}\n", "figure", "target", "measured");
    for figure in figures {
        let met = match figure.is_met() {
            None => "",
            Some(true) => "  met",
            Some(false) => "  MISSED",
        };
        let (target, value) = (figure.target_text(), digits(figure.value));
        let _ = writeln!(text, "{:<56} {target:>12} {value:>12}{met}", figure.name);
    }
    text
}

/// Writes `benches/records/DATE-NAME.json`.
pub(crate) fn record(name: &str, figures: &[Figure], bench: &Bench) -> Result<(), String> {
    let date = first_line("date", &["-u", "+%F"]).ok_or("date(1) cannot be run")?;
    let figures: Vec<Value> = figures
        .iter()
        .map(|figure| {
            json!({
                "name": figure.name,
                "target": figure.target.map(|_| figure.target_text()),
                "met": figure.is_met(),
                "value": figure.value,
                "runs": figure.runs,
            })
        })
        .collect();
    let record = json!({
        "name": name,
        "date": date,
        "command": format!("cargo xtask bench {name}"),
        "environment": bench.machine.describe(),
        "pairs": bench.plan.pairs,
        "run_ns": bench.plan.run.as_nanos() as u64,
        "figures": figures,
    });
    let path = format!("benches/records/{date}-{name}.json");
    let directory = Path::new("benches/records");
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&path, format!("{record:#}\n")))
        .map_err(|error| format!("{path} cannot be written: {error}"))?;
    println!("recorded in {path}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the median does not depend on the order of the runs, and the table says who missed.
    #[test]
    fn targets_are_judged_by_the_median() {
        let figure = Figure::median("a_ratio", vec![0.9, 0.7, 0.8]).at_most(0.85);
        assert!((figure.value - 0.8).abs() < 1e-12);
        assert_eq!(figure.is_met(), Some(true));
        let missed = Figure::median("b_per_s", vec![2.0, 4.0]).at_least(10.0);
        let text = table(&[figure, missed, Figure::median("c", vec![1.0])]);
        assert_eq!(text.matches("met").count(), 1);
        assert_eq!(text.matches("MISSED").count(), 1, "{text}");
        assert!(text.contains(">= 10.00"));
    }
}
