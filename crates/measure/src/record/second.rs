//! One second of a load run: a line of `--print ndjson`.

use serde::{Deserialize, Serialize};

use super::{LoadErrors, LoadReport};
use crate::histogram::LatencySummary;

/// Where in a run a second lies.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPart {
    /// Before the window: counts for nothing, and is shown as such.
    WarmUp,
    /// What is counted.
    #[default]
    Window,
    /// After it: answers to requests that were due in the window.
    Drain,
}

/// Figures of one second, of all threads together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadSecond {
    /// Where it lies.
    pub part: RunPart,
    /// Counts from 0, warm-up included.
    pub second: u64,
    /// Its beginning, since sending began.
    pub start_ns: u64,
    /// A second; less where a part of the run ended.
    pub duration_ns: u64,
    /// Right answers that arrived in it.
    pub requests: u64,
    /// The same per second.
    pub requests_per_s: f64,
    /// Bytes received in it, while in the window.
    pub bytes_received: u64,
    /// Counted requests that left in it.
    pub sent: u64,
    /// Arrivals given up unsent in it, because they were later than the deadline.
    pub shed: u64,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// From the intended start to the last byte, of the answers that arrived in it.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
    /// From the intended start to the actual send.
    pub slip_ns: LatencySummary,
}

/// A line, named by its first field.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Second(&'a LoadSecond),
    Summary(&'a LoadReport),
}

fn line(line: &Line<'_>) -> Result<String, serde_json::Error> {
    serde_json::to_string(line).map(|mut text| {
        text.push('\n');
        text
    })
}

impl LoadSecond {
    /// One line of JSON, newline included.
    ///
    /// # Errors
    /// Only if a value cannot be expressed in JSON, which no type here has.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        line(&Line::Second(self))
    }
}

impl LoadReport {
    /// The last line of the same stream: the record of the whole run.
    ///
    /// # Errors
    /// As [`LoadSecond::to_line`].
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        line(&Line::Summary(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each line is one JSON object that says what it is.
    #[test]
    fn lines_say_what_they_are() {
        let second = LoadSecond {
            part: RunPart::WarmUp,
            requests: 3,
            ..LoadSecond::default()
        };
        let text = second.to_line().unwrap();
        assert!(
            text.starts_with(r#"{"type":"second","part":"warm_up","second":0"#),
            "{text}"
        );
        assert!(text.ends_with("}\n") && text.lines().count() == 1);
        let again: LoadSecond = serde_json::from_str(&text).unwrap();
        assert_eq!(again, second);
        let text = LoadReport::default().to_line().unwrap();
        assert!(
            text.starts_with(r#"{"type":"summary","format_version""#),
            "{text}"
        );
    }
}
