//! A figure with its target, and the table of them.

use super::record::Spread;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write;

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
        Self {
            name: name.into(),
            value: Spread::of(runs.iter().copied()).median,
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

    /// For the record. The median differs from the value where the worst run is what counts.
    pub(crate) fn to_json(&self) -> Value {
        let mut shown = Spread::of(self.runs.iter().copied()).to_json();
        shown["name"] = json!(self.name);
        shown["value"] = json!(self.value);
        if let Some(is_met) = self.is_met() {
            shown["target"] = json!(self.target_text());
            shown["met"] = json!(is_met);
        }
        shown
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
