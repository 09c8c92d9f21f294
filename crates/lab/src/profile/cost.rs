//! What a profiler takes: the same work with and without it, in pairs of the same round.

use millpond_measure::statistics::hodges_lehmann;
use serde::Serialize;

/// The same work takes this much more or less by itself, and what is claimed about a few percent is
/// not worth much.
const NOISY_SPREAD: f64 = 0.10;

/// One run of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// By the clock.
    pub(super) duration_ns: u64,
    /// CPU time of the server's processes.
    pub(super) cpu_ns: u64,
}

/// A ratio with and without, over pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle: 1.02 is 2 % more.
    pub ratio: f64,
    /// The smallest of the pairs.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

/// What a profiler took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Pairs of runs.
    pub pairs: usize,
    /// Of the time that the work took; absent at a constant rate, where that is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Spread>,
    /// Of the server's CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Spread>,
    /// The longest of the runs without a profiler over the shortest.
    pub without_varies: f64,
    /// True if runs without a profiler differ by more than is asked about.
    pub is_noisy: bool,
}

impl Cost {
    /// Of pairs (without, with); `None` without any.
    pub(super) fn of(pairs: &[(Work, Work)], time_is_given: bool) -> Option<Self> {
        let spread = |value: fn(&Work) -> u64| {
            let ratios: Vec<f64> = pairs
                .iter()
                .filter(|(without, with)| value(without) > 0 && value(with) > 0)
                .map(|(without, with)| value(with) as f64 / value(without) as f64)
                .collect();
            let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
            Some(Spread {
                ratio: hodges_lehmann(&logs)?.exp(),
                low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                high: ratios.iter().copied().fold(0.0, f64::max),
            })
        };
        let without: Vec<u64> = pairs.iter().map(|(without, _)| without.cpu_ns).collect();
        let (shortest, longest) = (without.iter().min()?, without.iter().max()?);
        let without_varies = *longest as f64 / (*shortest).max(1) as f64;
        Some(Self {
            pairs: pairs.len(),
            time: (!time_is_given)
                .then(|| spread(|work| work.duration_ns))
                .flatten(),
            cpu_time: spread(|work| work.cpu_ns),
            without_varies,
            is_noisy: without_varies > 1.0 + NOISY_SPREAD,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the middle of the pairs with their range, and runs that differ by themselves are told.
    #[test]
    fn pairs_give_a_ratio_with_its_range() {
        let work = |duration_ns, cpu_ns| Work {
            duration_ns,
            cpu_ns,
        };
        let pairs = [
            (work(100, 50), work(102, 52)),
            (work(200, 50), work(210, 51)),
            (work(100, 51), work(103, 53)),
        ];
        let cost = Cost::of(&pairs, false).unwrap();
        let time = cost.time.unwrap();
        assert!((time.low - 1.02).abs() < 1e-9 && (time.high - 1.05).abs() < 1e-9);
        assert!((1.02..1.05).contains(&time.ratio), "{time:?}");
        assert!(!cost.is_noisy && cost.pairs == 3);
        assert_eq!(Cost::of(&pairs, true).unwrap().time, None);
        let noisy = [(work(1, 50), work(1, 50)), (work(1, 90), work(1, 90))];
        assert!(Cost::of(&noisy, false).unwrap().is_noisy);
        assert_eq!(Cost::of(&[], false), None);
    }
}
