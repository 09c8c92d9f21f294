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
mod tests {
    use super::*;
    use crate::record::LoadClass;

    /// Goal: one row for each class, columns below each other, long names cut at the front.
    #[test]
    fn classes_are_a_table() {
        assert_eq!(text(&LoadReport::default()), "");
        let class = |name: &str, requests, p50| LoadClass {
            name: name.to_owned(),
            requests,
            response_ns: LatencySummary {
                p50,
                p90: 2 * p50,
                ..LatencySummary::default()
            },
            ..LoadClass::default()
        };
        let long = format!("http://127.0.0.1/{}/end", "x".repeat(60));
        let report = LoadReport {
            classes: vec![class("read", 1_000, 150_000), class(&long, 5, 2_000_000)],
            ..LoadReport::default()
        };
        let text = text(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.len() == lines[0].len()),
            "{text}"
        );
        assert!(
            lines[1].contains("read") && lines[1].contains("150.00us"),
            "{text}"
        );
        assert!(
            lines[2].contains("...") && lines[2].contains("xx/end "),
            "{text}"
        );
    }
}
