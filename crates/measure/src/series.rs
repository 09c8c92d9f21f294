//! A number sampled over time within one run: requests per 100 ms, resident memory per second.
//!
//! `load` keeps the rate of each thread, `lab` keeps memory while a server works; the reports draw
//! them. Samples of one run follow each other and are *not* independent, so no verdict is ever made
//! from them.

use serde::{Deserialize, Serialize};

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Nanoseconds since the start of the run.
    pub at_ns: u64,
    /// The value.
    pub value: f64,
}

/// Samples in order of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The samples.
    pub points: Vec<SeriesPoint>,
}

impl Series {
    /// Adds a sample; what is not finite is left out.
    pub fn push(&mut self, at_ns: u64, value: f64) {
        if value.is_finite() {
            self.points.push(SeriesPoint { at_ns, value });
        }
    }

    /// The value at a moment on the lines between samples, outside of them that of the nearest; `None` without any.
    #[must_use]
    pub fn value_at(&self, at_ns: u64) -> Option<f64> {
        let later = self.points.partition_point(|point| point.at_ns < at_ns);
        let after = self.points.get(later);
        let before = later
            .checked_sub(1)
            .and_then(|index| self.points.get(index));
        match (before, after) {
            (Some(before), Some(after)) => {
                let length_ns = (after.at_ns - before.at_ns) as f64;
                let share = (at_ns - before.at_ns) as f64 / length_ns;
                Some(before.value + (after.value - before.value) * share)
            }
            (one, other) => one.or(other).map(|point| point.value),
        }
    }

    /// The mean over a stretch of time, on the lines between samples; `None` without any.
    #[must_use]
    pub fn mean_between(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let mut last = (from_ns, self.value_at(from_ns)?);
        let end = (to_ns, self.value_at(to_ns)?);
        let is_within = |point: &&SeriesPoint| point.at_ns > from_ns && point.at_ns < to_ns;
        let within = self.points.iter().filter(is_within);
        let within = within.map(|point| (point.at_ns, point.value));
        let mut area = 0.0;
        for next in within.chain([end]) {
            area += f64::midpoint(last.1, next.1) * next.0.saturating_sub(last.0) as f64;
            last = next;
        }
        let length_ns = to_ns
            .checked_sub(from_ns)
            .filter(|&length_ns| length_ns > 0)?;
        Some(area / length_ns as f64)
    }

    /// The largest value.
    #[must_use]
    pub fn largest(&self) -> Option<f64> {
        self.points.iter().map(|point| point.value).reduce(f64::max)
    }

    /// Figures of the values alone.
    #[must_use]
    pub fn summary(&self) -> SampleSummary {
        SampleSummary::of(self.points.iter().map(|point| point.value))
    }
}

/// Plain figures of a handful of samples, as wrk's `Req/Sec` row needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation (n - 1).
    pub stdev: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Share (0..1) of the samples within one standard deviation of the mean.
    pub within_stdev_share: f64,
}

impl SampleSummary {
    /// Figures of any samples; all zero if there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len();
        if count == 0 {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = if count > 1 {
            (squares / (count - 1) as f64).sqrt()
        } else {
            0.0
        };
        let inside = values
            .iter()
            .filter(|value| (*value - mean).abs() <= stdev)
            .count();
        Self {
            count: count as u64,
            mean,
            stdev,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            within_stdev_share: inside as f64 / count as f64,
        }
    }
}

#[cfg(test)]
#[path = "tests/series.rs"]
mod tests;
