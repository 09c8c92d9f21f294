//! A table of the classes of a load run, below what wrk prints.

use super::wrk::format_time_us;
use crate::histogram::LatencySummary;
use crate::record::LoadReport;

/// Longer names are cut: the table has to stay one.
const NAME_LETTERS_MAX: usize = 40;

/// One row for each class, by the response clock; empty without classes.
#[must_use]
pub fn text(report: &LoadReport) -> String {
    if report.classes.is_empty() {
        return String::new();
    }
    let names: Vec<String> = report
        .classes
        .iter()
        .map(|class| shown(&class.name))
        .collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut text = format!(
        "  {:<width$}  {:>10}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
        "Classes", "requests", "errors", "50%", "90%", "99%", "99.9%", "max"
    );
    for (class, name) in report.classes.iter().zip(&names) {
        let LatencySummary {
            p50,
            p90,
            p99,
            p999,
            max,
            ..
        } = class.response_ns;
        let errors = class.errors.total();
        text += &format!("    {name:<width$}{:>10}{errors:>8}", class.requests);
        for value in [p50, p90, p99, p999, max] {
            text += &format!("{:>10}", format_time_us(value as f64 / 1e3));
        }
        text.push('\n');
    }
    text
}

/// The end of a URL tells more than its beginning.
fn shown(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= NAME_LETTERS_MAX {
        return name.to_owned();
    }
    let end = name.chars().skip(letters - NAME_LETTERS_MAX + 3);
    "...".chars().chain(end).collect()
}

#[cfg(test)]
#[path = "tests/classes.rs"]
mod tests;
