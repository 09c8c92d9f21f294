//! Figures of repetitions, and ratios of those that ran in the same one.

use millpond_measure::statistics::{hodges_lehmann, median, signed_rank_interval};
use serde::{Deserialize, Serialize};

/// Several measurements of one thing, in the terms of the earlier program's report.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// Sum over count.
    pub mean: f64,
    /// The middle one.
    pub median: f64,
    /// Standard deviation of the sample (n - 1); 0 for one measurement.
    pub stdev: f64,
    /// `stdev / mean`.
    pub cv: f64,
}

impl Summary {
    /// `None` without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = median(&mut values.to_vec())?;
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = (squares / (count - 1.0).max(1.0)).sqrt();
        let cv = if mean > 0.0 { stdev / mean } else { 0.0 };
        Some(Self {
            mean,
            median,
            stdev,
            cv,
        })
    }
}

/// How much longer one took than another, by pairs that ran in the same repetition.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ratio {
    /// The middle of all pairwise means of the pairs' log ratios (Hodges-Lehmann).
    pub ratio: f64,
    /// Lower end of the signed-rank interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How sure the interval is: 95 % from six pairs on, less with fewer.
    pub confidence: f64,
    /// How many pairs.
    pub pairs: usize,
}

impl Ratio {
    /// `first / second`; pairs in which either is missing or not above zero are left out. `None`
    /// without a pair.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let differences: Vec<f64> = pairs
            .iter()
            .filter(|(first, second)| *first > 0.0 && *second > 0.0)
            .map(|(first, second)| first.ln() - second.ln())
            .collect();
        let interval = signed_rank_interval(&differences, 0.95)?;
        Some(Self {
            ratio: hodges_lehmann(&differences)?.exp(),
            low: interval.low.exp(),
            high: interval.high.exp(),
            confidence: interval.confidence,
            pairs: differences.len(),
        })
    }
}

#[cfg(test)]
#[path = "tests/statistics.rs"]
mod tests;
