//! How many requests it takes until a target's throughput no longer changes.
//!
//! On the path: `preflight` drives each candidate in slices and asks after each; the largest number of
//! requests found becomes the warm-up of every run of every candidate, so that memory is still compared
//! at equal work. Servers that compile while they run (node, Java) are the reason.
//!
//! The rule looks at the best of three successive slices, because a neighbour can only make a slice
//! slower than the target is: steady is what has four such values in a row within a tenth of each other.
//! Absent on purpose: tests of trend. They need sixteen slices and more, of each candidate and operation,
//! which the rounds would pay for.

/// Slices whose best counts as one value.
const WINDOW: usize = 3;
/// Values that have to agree.
const VALUES_MIN: usize = 4;
/// How far apart they may be.
const TOLERANCE: f64 = 0.10;

/// The slices that were driven so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    per_s: Vec<f64>,
    requests: Vec<u64>,
}

impl Slices {
    /// One more: what it answered, and how fast.
    pub(crate) fn push(&mut self, requests: u64, per_s: f64) {
        self.requests.push(requests);
        self.per_s.push(per_s);
    }

    /// True if the last values no longer change.
    pub(crate) fn is_steady(&self) -> bool {
        let values = self.values();
        values.len() >= VALUES_MIN && self.steady_from() + VALUES_MIN <= values.len()
    }

    /// Requests before the first slice of what is steady now.
    pub(crate) fn requests_before(&self) -> u64 {
        self.requests.iter().take(self.steady_from()).sum()
    }

    /// The last slice alone: nothing is said about what came before.
    pub(crate) fn without_warm_up(mut self) -> Self {
        let last = self.per_s.len().saturating_sub(1);
        self.per_s.drain(..last);
        self.requests.drain(..last);
        self
    }

    /// Requests in all.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Requests per second of the target as it is now.
    pub(crate) fn capacity_per_s(&self) -> f64 {
        let last = self.per_s.iter().rev().take(WINDOW);
        last.copied().fold(0.0, f64::max)
    }

    fn values(&self) -> Vec<f64> {
        let best = |window: &[f64]| window.iter().copied().fold(0.0, f64::max);
        self.per_s.windows(WINDOW).map(best).collect()
    }

    /// The first value from which on all are like the last one.
    fn steady_from(&self) -> usize {
        let values = self.values();
        let Some(&last) = values.last() else {
            return 0;
        };
        let is_like = |value: &f64| (value - last).abs() <= TOLERANCE * last;
        values.len()
            - values
                .iter()
                .rev()
                .take_while(|value| is_like(value))
                .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(per_s: &[f64]) -> Slices {
        let mut slices = Slices::default();
        for &rate in per_s {
            slices.push((rate / 10.0) as u64, rate);
        }
        slices
    }

    fn steady_after(per_s: impl Iterator<Item = f64>) -> Option<(usize, Slices)> {
        let mut slices = Slices::default();
        for (index, rate) in per_s.enumerate() {
            slices.push((rate / 10.0) as u64, rate);
            if slices.is_steady() {
                return Some((index + 1, slices));
            }
        }
        None
    }

    /// Goal: what is steady from the start takes six slices and no warm-up, bursts of a neighbour or not.
    #[test]
    fn steady_from_the_start() {
        let (count, found) = steady_after([1000.0; 20].into_iter()).unwrap();
        assert_eq!((count, found.requests_before()), (6, 0));
        let hit = [1000.0, 400.0, 1020.0, 990.0, 300.0, 600.0, 1010.0, 980.0];
        let (_, found) = steady_after(hit.into_iter()).unwrap();
        assert_eq!(found.requests_before(), 0);
        assert_eq!(
            found.capacity_per_s(),
            1020.0_f64.min(found.capacity_per_s())
        );
        assert!(!slices(&[1000.0; 5]).is_steady());
        assert!(!Slices::default().is_steady());
    }

    /// Goal: a target that gets faster is driven until it no longer does; what came before counts as its
    /// warm-up.
    #[test]
    fn a_transient_is_counted() {
        let rates = (0..100).map(|slice| 10_000.0 * (1.0 - 0.9 * (-f64::from(slice) / 4.0).exp()));
        let (count, found) = steady_after(rates).unwrap();
        assert!((8..30).contains(&count), "{count}");
        let warm_up = found.requests_before();
        assert!(warm_up > 500 && warm_up < found.requests(), "{warm_up}");
        assert!(found.capacity_per_s() > 8_500.0);
        // One that gets slower as well.
        let rates = (0..100).map(|slice| 1_000.0 + 9_000.0 * (-f64::from(slice) / 4.0).exp());
        let (_, found) = steady_after(rates).unwrap();
        assert!(found.requests_before() > 1_000);
        assert!(found.capacity_per_s() < 1_500.0);
    }

    /// Goal: what keeps changing is never steady.
    #[test]
    fn what_changes_is_not_steady() {
        assert!(steady_after((0..60).map(|slice| 100.0 * 1.06_f64.powi(slice))).is_none());
        assert!(steady_after((0..60).map(|slice| 1e6 * 0.94_f64.powi(slice))).is_none());
    }
}
