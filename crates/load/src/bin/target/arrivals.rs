//! When requests came, and how that compares with an even grid.

use std::fmt::Write;

/// Moments of arrival, in their order, up to a number fixed beforehand.
pub(crate) struct Arrivals {
    at_ns: Vec<u64>,
    /// Those that found no room.
    unrecorded: u64,
}

impl Arrivals {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self {
            at_ns: Vec::with_capacity(count),
            unrecorded: 0,
        }
    }

    pub(crate) fn record(&mut self, now_ns: u64) {
        if self.at_ns.len() < self.at_ns.capacity() {
            self.at_ns.push(now_ns);
        } else {
            self.unrecorded += 1;
        }
    }

    /// The JSON response of `/arrivals`. A gap is short if it is less than half of `interval_ns`; a delay is how far an
    /// arrival lies behind the grid that begins at the earliest one against it.
    pub(crate) fn describe(&self, interval_ns: u64, connections_most: usize) -> String {
        let gaps = self.at_ns.windows(2).map(|pair| pair[1] - pair[0]);
        let short = gaps.filter(|gap_ns| gap_ns * 2 < interval_ns).count();
        let slips = self.slips(interval_ns);
        let at = |share: f64| {
            let place = (slips.len() as f64 * share) as usize;
            slips.get(place.min(slips.len().saturating_sub(1))).copied()
        };
        let span_ns = match self.at_ns[..] {
            [first, .., last] => last - first,
            _ => 0,
        };
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{{\"arrivals\":{},\"unrecorded\":{},\"connections_most\":{connections_most},\
             \"span_ns\":{span_ns},\"gaps_short\":{short},\"slip_p50_ns\":{},\"slip_p99_ns\":{}}}",
            self.at_ns.len(),
            self.unrecorded,
            at(0.5).unwrap_or(0),
            at(0.99).unwrap_or(0),
        );
        text
    }

    /// Sorted.
    fn slips(&self, interval_ns: u64) -> Vec<u64> {
        let offsets = || {
            let places = self.at_ns.iter().enumerate();
            places
                .map(|(place, &at_ns)| i128::from(at_ns) - place as i128 * i128::from(interval_ns))
        };
        let earliest = offsets().min().unwrap_or(0);
        let mut slips: Vec<u64> = offsets()
            .map(|offset| u64::try_from(offset - earliest).unwrap_or(u64::MAX))
            .collect();
        slips.sort_unstable();
        slips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: gaps and delays of a grid with one late arrival are those counted by hand.
    #[test]
    fn a_late_arrival_is_seen() {
        let mut arrivals = Arrivals::with_capacity(5);
        [1_000, 2_000, 3_900, 4_000, 5_000, 6_000]
            .into_iter()
            .for_each(|at_ns| arrivals.record(at_ns));
        let text = arrivals.describe(1_000, 3);
        for part in [
            "\"arrivals\":5,\"unrecorded\":1,\"connections_most\":3",
            "\"span_ns\":4000,\"gaps_short\":1,\"slip_p50_ns\":0,\"slip_p99_ns\":900",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            Arrivals::with_capacity(1)
                .describe(10, 0)
                .contains("\"span_ns\":0")
        );
    }
}
