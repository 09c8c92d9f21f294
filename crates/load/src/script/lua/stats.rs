//! Figures as `done()` gets them: the `latency` and `requests` objects.
//!
//! Both call styles: wrk's `stats(i)` is the i-th distinct value and how often it occurred, wrk2's
//! `stats[i]` the i-th of all values in order. `#stats` counts what the style in use walks along.
//! Microseconds have a fraction, so the figures are the record's.
use millpond_measure::histogram::LatencyHistogram;
use mlua::{MetaMethod, UserData, UserDataFields, UserDataMethods, Value};

/// The value of `#stats`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Length {
    /// Different values: wrk's.
    Distinct,
    /// All of them: wrk2's, which always runs at a rate.
    Total,
}

/// Any samples, ready for questions.
pub(super) struct Stats {
    /// Different values, ascending, each with the number of samples up to and with it.
    values: Vec<(f64, u64)>,
    mean: f64,
    stdev: f64,
    min: f64,
    max: f64,
    percentile: Box<dyn Fn(f64) -> f64 + Send + Sync>,
    length: Length,
}

impl Stats {
    /// Latencies, in microseconds.
    pub(super) fn of_latencies(latencies: &LatencyHistogram, length: Length) -> Self {
        Self::of(latencies, length, 1e3)
    }

    /// Rates, in requests per second.
    pub(super) fn of_rates(rates_per_s: &LatencyHistogram, length: Length) -> Self {
        Self::of(rates_per_s, length, 1.0)
    }

    fn of(histogram: &LatencyHistogram, length: Length, unit: f64) -> Self {
        let kept = histogram.clone();
        let mut values = cumulated(
            histogram
                .bins()
                .map(|(value, count)| (value as f64 / unit, count)),
        );
        // A bin is named by its upper end, the smallest value by its lower one.
        if let Some((first, _)) = values.first_mut() {
            *first = histogram.min() as f64 / unit;
        }
        Self {
            values,
            mean: histogram.mean() / unit,
            stdev: histogram.stdev() / unit,
            min: histogram.min() as f64 / unit,
            max: histogram.max() as f64 / unit,
            percentile: Box::new(move |percent| kept.percentile(percent) as f64 / unit),
            length,
        }
    }

    fn len(&self) -> u64 {
        match self.length {
            Length::Distinct => self.values.len() as u64,
            Length::Total => self.values.last().map_or(0, |&(_, up_to)| up_to),
        }
    }

    /// The `index`-th different value, from 1, and how often it occurred.
    fn distinct(&self, index: usize) -> (f64, u64) {
        let Some(place) = index.checked_sub(1).filter(|&at| at < self.values.len()) else {
            return (0.0, 0);
        };
        let before = place.checked_sub(1).map_or(0, |at| self.values[at].1);
        let (value, up_to) = self.values[place];
        (value, up_to - before)
    }

    /// The `index`-th of all values in order, from 1.
    fn ordered(&self, index: u64) -> Option<f64> {
        let place = self.values.partition_point(|&(_, up_to)| up_to < index);
        let found = self.values.get(place).filter(|_| index > 0);
        found.map(|&(value, _)| value)
    }
}

/// Adds the counts up.
fn cumulated(bins: impl Iterator<Item = (f64, u64)>) -> Vec<(f64, u64)> {
    let sums = bins.scan(0, |up_to, (value, count)| {
        *up_to += count;
        Some((value, *up_to))
    });
    sums.collect()
}

impl UserData for Stats {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("min", |_, stats| Ok(stats.min));
        fields.add_field_method_get("max", |_, stats| Ok(stats.max));
        fields.add_field_method_get("mean", |_, stats| Ok(stats.mean));
        fields.add_field_method_get("stdev", |_, stats| Ok(stats.stdev));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("percentile", |_, stats, percent: f64| {
            Ok((stats.percentile)(percent.clamp(0.0, 100.0)))
        });
        methods.add_meta_method(MetaMethod::Call, |_, stats, index: usize| {
            Ok(stats.distinct(index))
        });
        methods.add_meta_method(MetaMethod::Len, |_, stats, ()| Ok(stats.len()));
        methods.add_meta_method(MetaMethod::Index, |_, stats, index: Value| {
            let index = match index {
                Value::Integer(index) => u64::try_from(index).ok(),
                Value::Number(index) if index >= 1.0 => Some(index as u64),
                _ => None,
            };
            Ok(index.and_then(|index| stats.ordered(index)))
        });
    }
}

#[cfg(test)]
#[path = "tests/stats.rs"]
mod tests;
