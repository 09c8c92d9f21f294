//! Figures as `done()` gets them: the `latency` and `requests` objects.
//!
//! Both call styles: wrk's `stats(i)` is the i-th distinct value and how often it occurred, wrk2's
//! `stats[i]` the i-th of all values in order. `#stats` counts what the style in use walks along.
//! Absent on purpose: rounding. Microseconds have a fraction, so the figures are the record's.
use millpond_measure::histogram::LatencyHistogram;
use mlua::{MetaMethod, UserData, UserDataFields, UserDataMethods, Value};

/// What `#stats` means.
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
mod tests {
    use super::*;
    use mlua::Lua;

    fn check(stats: Stats, code: &str) {
        let lua = Lua::new();
        lua.globals().set("s", stats).unwrap();
        lua.load(code).exec().unwrap();
    }

    fn latencies() -> LatencyHistogram {
        let mut latencies = LatencyHistogram::new();
        for (ns, count) in [(1_000, 2), (2_500, 1), (900, 1)] {
            latencies.record_many(ns, count);
        }
        latencies
    }

    /// Goal: a script of wrk's walks along the different values and their counts.
    #[test]
    fn wrk_walks_along_distinct_values() {
        let code = "assert(#s == 3, #s)
             local seen, total = {}, 0
             for i = 1, #s do
                local value, count = s(i)
                seen[i], total = value, total + count
             end
             assert(total == 4 and seen[1] < seen[2] and seen[2] < seen[3])
             local value, count = s(2)
             assert(math.abs(value - 1) < 0.01 and count == 2)
             assert(select(2, s(0)) == 0 and select(2, s(4)) == 0)";
        check(Stats::of_latencies(&latencies(), Length::Distinct), code);
    }

    /// Goal: a script of wrk2's walks along all values in order.
    #[test]
    fn wrk2_walks_along_all_values() {
        let code = "assert(#s == 4, #s)
             for i = 2, #s do assert(s[i - 1] <= s[i]) end
             assert(math.abs(s[1] - 0.9) < 0.01 and math.abs(s[4] - 2.5) < 0.01)
             assert(s[2] == s[3] and s[0] == nil and s[5] == nil and s.nothing == nil)";
        check(Stats::of_latencies(&latencies(), Length::Total), code);
    }

    #[test]
    fn figures_are_those_of_the_histogram() {
        let kept = latencies();
        let code = format!(
            "assert(s.min == {} and s.max == {} and s.mean == {} and s.stdev == {})
             assert(s:percentile(50) == {} and s:percentile(99.999) == {})",
            kept.min() as f64 / 1e3,
            kept.max() as f64 / 1e3,
            kept.mean() / 1e3,
            kept.stdev() / 1e3,
            kept.percentile(50.0) as f64 / 1e3,
            kept.percentile(99.999) as f64 / 1e3,
        );
        check(Stats::of_latencies(&kept, Length::Distinct), &code);
    }

    #[test]
    fn rates_have_no_unit_and_may_be_missing() {
        let mut rates = LatencyHistogram::new();
        let code = "assert(#s == 0 and s:percentile(50) == 0 and s.mean == 0)";
        check(Stats::of_rates(&rates, Length::Distinct), code);
        [20, 10, 10].iter().for_each(|&rate| rates.record(rate));
        let code = "assert(#s == 2 and s(1) == 10 and s.max == 20 and s:percentile(50) == 10)
                    assert(select(2, s(1)) == 2)";
        check(Stats::of_rates(&rates, Length::Distinct), code);
    }
}
