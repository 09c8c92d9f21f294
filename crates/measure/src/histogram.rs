//! One latency distribution: every request of a run in bins of a tenth of a percent.
//!
//! A load worker records into its own histograms (response, service and send delay) without sharing; they
//! are merged when the run ends, and the percentiles of *that run* enter the statistics. The
//! generator measures from the intended start, so nothing has to be guessed back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::series::SampleSummary;

/// The smallest time distinguished from zero.
pub const LOWEST_NS: u64 = 1;
/// The largest time recorded as itself; anything longer counts as this.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits: a recorded value is off by at most 0.1 %.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Times in nanoseconds from 1 ns to 1 h with three significant digits.
///
/// Zero is a value too (a request sent exactly on time has a send delay of zero).
#[derive(Clone)]
pub struct LatencyHistogram {
    inner: Histogram<u64>,
}

/// The figures: thousands of bins are unreadable.
impl std::fmt::Debug for LatencyHistogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.summary().fmt(formatter)
    }
}

/// Equal in every bin.
impl PartialEq for LatencyHistogram {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// An empty histogram. All memory is taken now: [`record`](Self::record) never allocates.
    #[must_use]
    pub fn new() -> Self {
        let inner = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants that satisfy HdrHistogram's rules");
        Self { inner }
    }

    /// Counts one time. Longer than [`HIGHEST_NS`] counts as [`HIGHEST_NS`].
    pub fn record(&mut self, value_ns: u64) {
        self.inner.saturating_record(value_ns);
    }

    /// Counts the same time `count` times.
    pub fn record_many(&mut self, value_ns: u64, count: u64) {
        self.inner.saturating_record_n(value_ns, count);
    }

    /// Adds every sample of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.inner
            .add(&other.inner)
            .expect("all latency histograms share one range");
    }

    /// These samples with `out`, which are among them, exchanged for `new`.
    #[must_use]
    pub fn replaced(&self, out: &Self, new: &Self) -> Self {
        let mut inner = self.inner.clone();
        inner
            .subtract(&out.inner)
            .expect("what is taken out was put in, and all share one range");
        let mut histogram = Self { inner };
        histogram.merge(new);
        histogram
    }

    /// Forgets every sample, keeps the memory. For the end of a warm-up.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.inner.reset();
        }
    }

    /// Samples recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// True before the first sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The time that `percent` of the samples do not exceed, e.g. `percentile(99.0)`; 0 if empty.
    /// Never above the largest time seen, though bins are wider than one nanosecond.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.is_empty() {
            0
        } else {
            self.inner.value_at_percentile(percent).min(self.max())
        }
    }

    /// Smallest time (the low edge of its bin); 0 if empty.
    #[must_use]
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.inner.min() }
    }

    /// Largest time (the high edge of its bin); 0 if empty.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.inner.max()
    }

    /// Arithmetic mean; 0 if empty.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.is_empty() {
            0.0
        } else {
            self.moments().0
        }
    }

    /// Standard deviation of the samples; 0 if empty.
    #[must_use]
    pub fn stdev(&self) -> f64 {
        if self.is_empty() {
            0.0
        } else {
            self.moments().1
        }
    }

    /// Share (0..1) of samples within `width` standard deviations of the mean, as wrk prints it.
    #[must_use]
    pub fn share_within_stdevs(&self, width: f64) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let (mean, stdev) = self.moments();
        let spread = stdev * width;
        let (low, high) = ((mean - spread).max(0.0), mean + spread);
        let inside: u64 = self
            .inner
            .iter_recorded()
            .filter(|step| {
                let middle = self.inner.median_equivalent(step.value_iterated_to()) as f64;
                middle >= low && middle <= high
            })
            .map(|step| step.count_since_last_iteration())
            .sum();
        inside as f64 / self.count() as f64
    }

    /// The same figures as of single samples, for values that are no times.
    #[must_use]
    pub fn sample_summary(&self) -> SampleSummary {
        SampleSummary {
            count: self.count(),
            mean: self.mean(),
            stdev: self.stdev(),
            min: self.min() as f64,
            max: self.max() as f64,
            within_stdev_share: self.share_within_stdevs(1.0),
        }
    }

    /// Doublings of range that the bins cover, as HdrHistogram counts its buckets.
    #[must_use]
    pub fn bucket_count(&self) -> u8 {
        self.inner.buckets()
    }

    /// Whether a percentile rests on enough samples to be quoted: at least 100 beyond it.
    #[must_use]
    pub fn can_estimate(&self, percent: f64) -> bool {
        self.count() as f64 * (1.0 - percent / 100.0) >= 100.0 - 1e-6
    }

    /// The figures every record carries.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        if self.is_empty() {
            return LatencySummary::default();
        }
        let (mean, stdev) = self.moments();
        LatencySummary {
            count: self.count(),
            min: self.min(),
            mean: mean.round() as u64,
            stdev: stdev.round() as u64,
            p50: self.percentile(50.0),
            p90: self.percentile(90.0),
            p99: self.percentile(99.0),
            p999: self.percentile(99.9),
            max: self.max(),
        }
    }

    /// Mean and standard deviation in one walk over the bins, which is most of the work. Both are of the distances from
    /// the smallest, so that the difference of squares keeps its digits.
    fn moments(&self) -> (f64, f64) {
        let total = self.count() as f64;
        let smallest = self.min() as f64;
        let (mut sum, mut squares) = (0.0, 0.0);
        for step in self.inner.iter_recorded() {
            let middle = self.inner.median_equivalent(step.value_iterated_to()) as f64;
            let distances = (middle - smallest) * step.count_at_value() as f64;
            sum += distances;
            squares += distances * (middle - smallest);
        }
        let mean = sum / total;
        let variance = (squares / total - mean * mean).max(0.0);
        (smallest + mean, variance.sqrt())
    }

    /// Points of the curve value over percentile, denser towards the tail: `ticks` per halving of
    /// what is left, ending at 100 %. Small enough to keep in a record (about 70 points for 5): a
    /// point that adds no sample is left out.
    #[must_use]
    pub fn spectrum(&self, ticks: u32) -> Vec<SpectrumPoint> {
        self.inner
            .iter_quantiles(ticks.max(1))
            .filter(|step| {
                step.count_since_last_iteration() > 0 || step.quantile_iterated_to() >= 1.0
            })
            .map(|step| SpectrumPoint {
                // Eight decimals distinguish what an hour at a million per second can.
                percent: (step.quantile_iterated_to() * 1e10).round() / 1e8,
                value_ns: step.value_iterated_to().min(self.max()),
                count: step.count_since_last_iteration(),
            })
            .collect()
    }

    /// The same curve with every step in it, as HdrHistogram prints it: quantile (0..1), value, and
    /// samples at or below it.
    pub fn quantile_steps(&self, ticks: u32) -> impl Iterator<Item = (f64, u64, u64)> + '_ {
        self.inner
            .iter_quantiles(ticks.max(1))
            .scan(0, |total, step| {
                *total += step.count_since_last_iteration();
                let value_ns = step.value_iterated_to().min(self.max());
                Some((step.quantile_iterated_to(), value_ns, *total))
            })
    }

    /// Every occupied bin as (value, samples), ascending: for exports and for Lua's `latency(i)`.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

/// One point of a percentile curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpectrumPoint {
    /// 0..100: the share of samples at or below `value_ns`.
    pub percent: f64,
    /// The time at that percentile.
    pub value_ns: u64,
    /// Samples between the previous point and this one.
    pub count: u64,
}

/// The figures of one clock of one run; every time in nanoseconds.
///
/// The field names are the JSON contract: `response_ns: {min, mean, stdev, p50, ...}`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Mean.
    pub mean: u64,
    /// Standard deviation.
    pub stdev: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

// A histogram as text: HdrHistogram's V2 encoding, compressed, in base64 (`HISTFAAA...`).
//
// Every tool of HdrHistogram reads it, and it holds every bin: what is decoded equals what was
// encoded, so that runs can be merged exactly. They would have to be recorded anew, bin by bin, and
// would no longer be what was measured.

/// Why a text is no histogram of ours.
#[derive(Debug, thiserror::Error)]
pub enum EncodedError {
    /// Not base64.
    #[error("it is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// Base64, but of something else.
    #[error("it is no HdrHistogram of version 2: {0}")]
    Format(String),
    /// A histogram over another range, whose bins do not fall on ours.
    #[error(
        "it covers {low} to {high} with {digits} digits; only histograms of {LOWEST_NS} to \
         {HIGHEST_NS} ns with {SIGNIFICANT_DIGITS} digits can be merged exactly"
    )]
    Range {
        /// Smallest value.
        low: u64,
        /// Largest value.
        high: u64,
        /// Significant digits.
        digits: u8,
    },
}

impl LatencyHistogram {
    /// The text. Values are nanoseconds.
    #[must_use]
    pub fn to_v2(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.inner, &mut bytes)
            .expect("memory takes every byte, and no count is above what the format holds");
        STANDARD.encode(bytes)
    }

    /// The histogram of such a text.
    ///
    /// # Errors
    /// If it is something else, or a histogram whose bins are not ours.
    pub fn from_v2(text: &str) -> Result<Self, EncodedError> {
        let bytes = STANDARD.decode(text.trim())?;
        let inner: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| EncodedError::Format(error.to_string()))?;
        let (low, high, digits) = (inner.low(), inner.high(), inner.sigfig());
        if (low, high, digits) != (LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS) {
            return Err(EncodedError::Range { low, high, digits });
        }
        // Into one of our own: a decoded one grows, and has no more bins than it needs.
        let mut histogram = Self::new();
        for step in inner.iter_recorded() {
            histogram.record_many(step.value_iterated_to(), step.count_at_value());
        }
        Ok(histogram)
    }
}

/// In records: the text.
impl Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_v2())
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_v2(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[path = "tests/histogram.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/encoded.rs"]
mod encoded_tests;
