//! A number sampled over time within one run: requests per 100 ms, resident memory per second.
//!
//! On the path: `load` keeps the rate of each thread, `lab` keeps memory while a server works; the
//! reports draw them. Samples of one run follow each other and are *not* independent, so no verdict
//! is ever made from them.

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
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let mut series = Series::default();
        assert_eq!(series.summary(), SampleSummary::default());
        for (at_ns, value) in [(0, 1.0), (1, 2.0), (2, 3.0), (3, f64::NAN), (4, 10.0)] {
            series.push(at_ns, value);
        }
        let summary = series.summary();
        assert_eq!(
            (summary.count, summary.mean, summary.min, summary.max),
            (4, 4.0, 1.0, 10.0)
        );
        assert!((summary.stdev - 4.082_482_9).abs() < 1e-6);
        assert_eq!(summary.within_stdev_share, 0.75);
    }
}
