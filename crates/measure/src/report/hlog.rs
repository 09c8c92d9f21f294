//! HdrHistogram's own files: the interval log (`.hlog`) and its compressed histograms alone.
//!
//! Both are read by every tool of HdrHistogram, and both end with a remark that holds the counts of
//! the run as JSON, so that files can be merged into one record. Tags distinguish the clocks:
//! `response`, `service`, `slip`, and with `warm_up.` in front what does not count.

use crate::histogram::{EncodedError, LatencyHistogram};
use crate::record::{LoadReport, LoadSecond, RunPart};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Before the JSON of the remark.
const REMARK: &str = "#millpond-record ";
/// The divisor of the largest value's field, as Java's tools expect: milliseconds.
const NS_PER_MS: f64 = 1e6;
/// The clocks, as they are tagged.
const CLOCKS: [&str; 3] = ["response", "service", "slip"];

/// The first lines of an interval log. Times in it count from `started`.
#[must_use]
pub fn header(version: &str, started: SystemTime) -> String {
    let since = started.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = since.as_secs_f64();
    let date = crate::units::format_utc(since.as_secs());
    format!(
        "#[Logged with millpond {version}]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {seconds:.3} (seconds since epoch), {date}]\n\
         #[BaseTime: {seconds:.3} (seconds since epoch)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
    )
}

/// One second: a line for each of response, service and slip.
#[must_use]
pub fn second(figures: &LoadSecond, clocks: [&LatencyHistogram; 3]) -> String {
    let prefix = match figures.part {
        RunPart::WarmUp => "warm_up.",
        RunPart::Window | RunPart::Drain => "",
    };
    let mut text = String::new();
    for (name, histogram) in CLOCKS.into_iter().zip(clocks) {
        text += &format!(
            "Tag={prefix}{name},{:.3},{:.3},{:.3},{}\n",
            figures.start_ns as f64 / 1e9,
            figures.duration_ns as f64 / 1e9,
            histogram.max() as f64 / NS_PER_MS,
            histogram.to_v2()
        );
    }
    text
}

/// The last line of both files.
///
/// # Errors
/// Only if a value cannot be expressed in JSON, which no type here has.
pub fn remark(report: &LoadReport) -> Result<String, serde_json::Error> {
    let counts = LoadReport {
        histograms: None,
        ..report.clone()
    };
    Ok(format!("{REMARK}{}\n", serde_json::to_string(&counts)?))
}

/// The compressed histograms of a whole run, one a line behind the clock's name.
///
/// # Errors
/// As [`remark`].
pub fn compressed(
    report: &LoadReport,
    clocks: [&LatencyHistogram; 3],
) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for (name, histogram) in CLOCKS.into_iter().zip(clocks) {
        text += &format!("{name} {}\n", histogram.to_v2());
    }
    Ok(text + &remark(report)?)
}

/// Why a file cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Cut off, or not of millpond.
    #[error("it ends without the counts of the run: only whole files of millpond can be merged")]
    NoRecord,
    /// The remark is damaged.
    #[error("the counts of the run cannot be read: {0}")]
    Record(#[from] serde_json::Error),
    /// A line is no histogram.
    #[error("a histogram cannot be read: {0}")]
    Histogram(#[from] EncodedError),
    /// Neither an interval log nor compressed histograms.
    #[error("byte {offset} begins a line that is neither a histogram nor a remark")]
    Line {
        /// Where.
        offset: usize,
    },
}

/// The record of such a file, with the sums of response, service and slip.
///
/// # Errors
/// If it is cut off, damaged or something else.
pub fn read(text: &str) -> Result<(LoadReport, [LatencyHistogram; 3]), LogError> {
    let remark = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(REMARK));
    let report: LoadReport = serde_json::from_str(remark.ok_or(LogError::NoRecord)?)?;
    let mut sums = [(); 3].map(|()| LatencyHistogram::new());
    let mut add = |name: &str, encoded: &str| -> Result<(), EncodedError> {
        if let Some(place) = CLOCKS.iter().position(|clock| *clock == name) {
            sums[place].merge(&LatencyHistogram::from_v2(encoded)?);
        }
        Ok(())
    };
    if text.starts_with('#') {
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            let entry = entry.map_err(|error| match error {
                hdrhistogram::serialization::interval_log::LogIteratorError::ParseError {
                    offset,
                } => LogError::Line { offset },
            })?;
            if let LogEntry::Interval(interval) = entry {
                let tag = interval.tag();
                add(
                    tag.map_or("", |tag| tag.as_str()),
                    interval.encoded_histogram(),
                )?;
            }
        }
    } else {
        for line in text.lines() {
            if let Some((name, encoded)) = line.split_once(' ') {
                add(name, encoded)?;
            }
        }
    }
    Ok((report, sums))
}

#[cfg(test)]
#[path = "tests/hlog.rs"]
mod tests;
