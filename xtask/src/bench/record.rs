//! The record of a measurement, small enough to be read: `benches/records/DATE-NAME.json`.
//!
//! A record holds what was measured as a [`Spread`], never as a list of runs or samples: those would
//! be thousands of lines that no reader compares. Each element of a list or of a table is one line,
//! so the diff of two records shows which figures changed.

use super::machine::{Machine, first_line};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

const DIRECTORY: &str = "benches/records";

/// Members that stand first in a line, in this order: what an element is called, and what was found.
const KEYS_FIRST: [&str; 13] = [
    "name",
    "attack",
    "driver",
    "server",
    "candidate",
    "measure",
    "value",
    "target",
    "met",
    "median",
    "min",
    "max",
    "count",
];

/// Below this, numbers keep six digits. From here on they are whole.
const WHOLE_MIN: f64 = 100_000.0;

/// What remains of many values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// All but the count are NaN, `null` in a record, if there is no value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Self {
            median,
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
            count: sorted.len(),
        }
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max, "count": self.count })
    }

    /// Of samples over time: the first third is the warm-up, and the last one above the middle one is
    /// growth.
    pub(crate) fn thirds(samples: &[f64]) -> Value {
        let third = samples.len() / 3;
        let of = |samples: &[f64]| Self::of(samples.iter().copied()).to_json();
        json!({
            "first_third": of(&samples[..third]),
            "middle_third": of(&samples[third..2 * third]),
            "last_third": of(&samples[2 * third..]),
        })
    }
}

/// One measurement, with its date, its command and the machine.
pub(crate) struct Record {
    name: String,
    date: String,
    members: Vec<(&'static str, Value)>,
}

impl Record {
    pub(crate) fn new(name: &str, command: String, machine: &Machine) -> Result<Self, String> {
        let date = first_line("date", &["-u", "+%F"]).ok_or("date(1) cannot be run")?;
        let record = Self {
            name: name.to_owned(),
            date,
            members: Vec::new(),
        };
        Ok(record
            .with("command", command)
            .with("environment", machine.describe()))
    }

    pub(crate) fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.members.push((key, value.into()));
        self
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        let path = format!("{DIRECTORY}/{}-{}.json", self.date, self.name);
        std::fs::create_dir_all(Path::new(DIRECTORY))
            .and_then(|()| std::fs::write(&path, self.text()))
            .map_err(|error| format!("{path} cannot be written: {error}"))?;
        println!("recorded in {path}");
        Ok(())
    }

    /// JSON, with one line for each member of the record and for each element of a member.
    fn text(&self) -> String {
        let head = [
            ("name", json!(self.name.as_str())),
            ("date", json!(self.date.as_str())),
        ];
        let members = head.iter().chain(&self.members);
        let members: Vec<String> = members
            .map(|(key, value)| format!("  {}: {}", json!(key), in_lines(value)))
            .collect();
        format!("{{\n{}\n}}\n", members.join(",\n"))
    }
}

/// A member of a record: a line for each element that it has.
fn in_lines(value: &Value) -> String {
    let (elements, [open, close]) = match value {
        Value::Array(elements) if !elements.is_empty() => {
            let lines = elements.iter().map(in_one_line);
            (lines.collect::<Vec<_>>(), ["[", "]"])
        }
        Value::Object(members) if !members.is_empty() => {
            let lines = members.iter();
            let lines = lines.map(|(key, value)| format!("{}: {}", json!(key), in_one_line(value)));
            (lines.collect(), ["{", "}"])
        }
        single => return in_one_line(single),
    };
    let lines: Vec<String> = elements.iter().map(|line| format!("    {line}")).collect();
    format!("{open}\n{}\n  {close}", lines.join(",\n"))
}

fn in_one_line(value: &Value) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(in_one_line).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Object(members) => {
            let mut text = String::new();
            for key in keys(members) {
                let separator = if text.is_empty() { "" } else { ", " };
                let value = in_one_line(&members[key]);
                let _ = write!(text, "{separator}{}: {value}", json!(key));
            }
            format!("{{{text}}}")
        }
        Value::Number(number) if number.is_f64() => rounded(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

fn keys(members: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let is_first = |key: &&str| KEYS_FIRST.contains(key);
    let first = KEYS_FIRST
        .into_iter()
        .filter(|key| members.contains_key(*key));
    let others = members.keys().map(String::as_str);
    first.chain(others.filter(move |key| !is_first(key)))
}

fn rounded(value: f64) -> String {
    if value.abs() >= WHOLE_MIN {
        return format!("{value:.0}");
    }
    let short: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    match short.fract() == 0.0 {
        true => format!("{short:.0}"),
        false => json!(short).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::*;

    fn record() -> Record {
        Record {
            name: "a".to_owned(),
            date: "2026-01-02".to_owned(),
            members: Vec::new(),
        }
    }

    /// Goal: the size of a record depends on how many figures it has, not on how often each was measured.
    #[test]
    fn a_record_of_many_runs_stays_small() {
        let runs: Vec<f64> = (0..100_000).map(|run| f64::from(run) / 3.0).collect();
        let figures: Vec<Value> = (0..10)
            .map(|number| Figure::median(format!("figure_{number}"), runs.clone()).at_most(1.0))
            .map(|figure| figure.to_json())
            .collect();
        let servers = json!([{ "server": "a", "resident_bytes": Spread::thirds(&runs) }]);
        let record = record().with("figures", figures).with("servers", servers);
        let text = record.text();
        assert_eq!(text.lines().count(), 19, "{text}");
        assert!(text.len() < 4_000, "{}", text.len());
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["figures"][9]["count"], 100_000);
        assert_eq!(read["figures"][0]["value"], 16_666.5);
        assert_eq!(
            read["servers"][0]["resident_bytes"]["last_third"]["max"],
            33_333
        );
    }

    /// Goal: an element is a line that begins with its name, and numbers are no longer than somebody reads.
    #[test]
    fn an_element_is_a_line() {
        let record = record()
            .with("pairs", 9)
            .with(
                "list",
                json!([{ "b": [0.1 + 0.2, 1e-7 / 3.0], "a": 2_511_021.4, "name": "c" }]),
            )
            .with("table", json!({ "key": "value \"quoted\"", "none": null }))
            .with("empty", json!([]));
        let expected = r#"{
  "name": "a",
  "date": "2026-01-02",
  "pairs": 9,
  "list": [
    {"name": "c", "a": 2511021, "b": [0.3, 3.33333e-8]}
  ],
  "table": {
    "key": "value \"quoted\"",
    "none": null
  },
  "empty": []
}
"#;
        assert_eq!(record.text(), expected);
        let read: Value = serde_json::from_str(&record.text()).unwrap();
        assert_eq!(read["table"]["key"], "value \"quoted\"");
    }

    /// Goal: the order of values does not matter, and of no values nothing is said.
    #[test]
    fn a_spread_is_of_sorted_values() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]);
        let expected = Spread {
            median: 2.5,
            min: 1.0,
            max: 10.0,
            count: 4,
        };
        assert_eq!(spread, expected);
        let none = Spread::of([]).to_json();
        assert_eq!(
            none,
            json!({"median": null, "min": null, "max": null, "count": 0})
        );
        let thirds = Spread::thirds(&[1.0, 5.0, 7.0]);
        assert_eq!(thirds["middle_third"]["median"], 5.0);
        assert_eq!(thirds["last_third"]["median"], 7.0);
    }
}
