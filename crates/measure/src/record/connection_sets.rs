//! What each set of connections of a load run came to, and how far the sets lie apart.
//!
//! Which connections a run happens to get shifts its figures for as long as they stand, so one set of them is one
//! observation, however many requests it answers. Their spread is what a single run can be wrong by.

use serde::{Deserialize, Serialize};

use crate::statistics::median;

/// Connections of a run at the edges of what it measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadConnectionsOpen {
    /// How many were to be open when sending began: all, or with a ramp the first.
    pub due_at_start: u64,
    /// How many were.
    pub at_start: u64,
    /// How many were when the last request was accounted for.
    pub at_end: u64,
}

impl LoadConnectionsOpen {
    /// Of generators that ran at the same time.
    pub const fn add_parallel(&mut self, other: &Self) {
        self.due_at_start += other.due_at_start;
        self.at_start += other.at_start;
        self.at_end += other.at_end;
    }

    /// Of sets one after another: the fewest that were open.
    pub fn add_sequel(&mut self, other: &Self) {
        self.due_at_start = self.due_at_start.max(other.due_at_start);
        self.at_start = self.at_start.min(other.at_start);
        self.at_end = self.at_end.min(other.at_end);
    }
}

/// One of several addresses of a target.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadAddress {
    /// With its port.
    pub address: String,
    /// Connections that it took.
    pub opened: u64,
}

impl LoadAddress {
    /// Adds the connections of another record, address by address.
    pub fn add(sums: &mut Vec<Self>, others: &[Self]) {
        for other in others {
            match sums.iter_mut().find(|one| one.address == other.address) {
                Some(sum) => sum.opened += other.opened,
                None => sums.push(other.clone()),
            }
        }
    }
}

/// What one set of connections came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadConnectionSet {
    /// Which repetition of the run it belongs to, from 0.
    pub repetition: u64,
    /// Right answers to requests that count.
    pub requests: u64,
    /// Right answers per second.
    pub requests_per_s: f64,
    /// Median response time.
    pub response_p50_ns: u64,
    /// 99th percentile of response time.
    pub response_p99_ns: u64,
}

/// How far the sets lie apart in one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadSpread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Standard deviation of a set, as a share of the mean.
    pub stdev_share: f64,
}

impl LoadSpread {
    /// Of at least two values; of fewer it is unknown and 0.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        let Some(median) = median(&mut sorted) else {
            return Self::default();
        };
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = (squares / (count - 1.0).max(1.0)).sqrt();
        Self {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            stdev_share: if mean > 0.0 { stdev / mean } else { 0.0 },
        }
    }
}

/// All sets of a run that were complete, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadConnectionSets {
    /// How many there were, with those that the spread is not of: cut short, or the smaller rest at the end.
    pub opened: u64,
    /// The complete ones.
    pub sets: Vec<LoadConnectionSet>,
    /// Of the rate.
    pub requests_per_s: LoadSpread,
    /// Of the median response time.
    pub response_p50_ns: LoadSpread,
    /// Of the 99th percentile of response time.
    pub response_p99_ns: LoadSpread,
}

impl LoadConnectionSets {
    /// With the spreads of these sets.
    #[must_use]
    pub fn of(sets: Vec<LoadConnectionSet>, opened: u64) -> Self {
        let spread = |figure: &dyn Fn(&LoadConnectionSet) -> f64| {
            LoadSpread::of(&sets.iter().map(figure).collect::<Vec<f64>>())
        };
        Self {
            requests_per_s: spread(&|set| set.requests_per_s),
            response_p50_ns: spread(&|set| set.response_p50_ns as f64),
            response_p99_ns: spread(&|set| set.response_p99_ns as f64),
            opened,
            sets,
        }
    }

    /// What the spread means for who has one run; `None` of fewer than two sets.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        if self.sets.len() < 2 {
            return None;
        }
        let percent = |spread: &LoadSpread| format!("+-{:.1} %", spread.stdev_share * 100.0);
        Some(format!(
            "one set of connections to another differs by {} in the rate, {} in p50 and {} in p99 (standard \
             deviation of {} sets)",
            percent(&self.requests_per_s),
            percent(&self.response_p50_ns),
            percent(&self.response_p99_ns),
            self.sets.len()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(rates: &[f64]) -> LoadConnectionSets {
        let one = |&requests_per_s: &f64| LoadConnectionSet {
            requests_per_s,
            response_p50_ns: 7,
            ..LoadConnectionSet::default()
        };
        LoadConnectionSets::of(rates.iter().map(one).collect(), rates.len() as u64)
    }

    /// Goal: the spread is the sample's, and what does not vary has none.
    #[test]
    fn spreads_are_those_of_the_sample() {
        let found = sets(&[98.0, 102.0, 100.0]);
        let rate = found.requests_per_s;
        assert_eq!((rate.median, rate.min, rate.max), (100.0, 98.0, 102.0));
        assert!((rate.stdev_share - 0.02).abs() < 1e-12);
        assert_eq!(found.response_p50_ns.stdev_share, 0.0);
        let note = found.note().unwrap();
        assert!(note.contains("differs by +-2.0 % in the rate"), "{note}");
        assert!(note.contains("of 3 sets"), "{note}");
    }

    #[test]
    fn one_set_has_no_spread() {
        assert_eq!(sets(&[]).requests_per_s, LoadSpread::default());
        assert_eq!(sets(&[5.0]).requests_per_s.stdev_share, 0.0);
        assert_eq!(sets(&[5.0]).note(), None);
    }
}
