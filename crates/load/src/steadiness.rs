//! Whether a warm-up may end: throughput and median response time no longer change.
//!
//! On the path: `timeline` shows it each slice of a warm-up that ends by itself; the supervising
//! thread asks it after each. The rule, over the means of slices of the last minute:
//!
//! 1. MSER (White 1997; MSER-5 with a slice in the place of five observations): of all beginnings
//!    that could be cut off, the one that leaves the smallest standard error of the mean. It has to
//!    lie in the first half, or the end of the transient has not been seen.
//! 2. Mann-Kendall (1945), without a trend at 5 %, over what that leaves: MSER by itself is blind to
//!    a slow drift below the noise.
//!
//! Both have to hold for both series, of at least sixteen slices, four times in a row: a test that is
//! repeated until it passes would pass by chance. A slice is a quarter of a second, or as many
//! quarters as it takes for ten answers.
//! Absent on purpose: a look at what was meant to arrive. A server that stays slow is steady.
use crate::timeline::Clocks;
use millpond_measure::histogram::LatencyHistogram;
use std::collections::VecDeque;

/// The length of a slice.
pub(crate) const SLICE_NS: u64 = 250_000_000;
/// Answers without which a mean says little.
const ANSWERS_MIN: u64 = 10;
/// Slices without which nothing is decided: 4 s.
const SLICES_MIN: usize = 16;
/// Slices in a row that have to leave the series steady.
const HOLDS_MIN: usize = 4;
/// Slices that are looked at: a minute.
const SLICES_MAX: usize = 240;
/// Slices that MSER leaves at least: a few at the end may be alike by chance.
const KEPT_MIN: usize = 5;
/// Two-sided, 5 %.
const TREND_Z: f64 = 1.96;

/// Means of slices so far.
#[derive(Debug, Default)]
pub(crate) struct Steadiness {
    rates: VecDeque<f64>,
    medians: VecDeque<f64>,
    lengths_ns: VecDeque<u64>,
    /// The slice that has too few answers yet.
    open: LatencyHistogram,
    open_ns: u64,
    /// Time that is no longer looked at.
    forgotten_ns: u64,
    /// How often in a row the rule has held, and the transient that it found last.
    holds: usize,
    found_ns: u64,
}

impl Steadiness {
    /// A quarter of a second is over.
    pub(crate) fn quarter(&mut self, duration_ns: u64, clocks: &Clocks) {
        self.open.merge(&clocks.response);
        self.open_ns += duration_ns;
        if self.open.count() < ANSWERS_MIN || self.open_ns == 0 {
            return;
        }
        let per_s = self.open.count() as f64 * 1e9 / self.open_ns as f64;
        self.add(per_s, self.open.percentile(50.0) as f64);
    }

    fn add(&mut self, per_s: f64, median_ns: f64) {
        if self.rates.len() == SLICES_MAX {
            self.rates.pop_front();
            self.medians.pop_front();
            self.forgotten_ns += self.lengths_ns.pop_front().unwrap_or_default();
        }
        self.rates.push_back(per_s);
        self.medians.push_back(median_ns);
        self.lengths_ns.push_back(self.open_ns);
        self.open.clear();
        self.open_ns = 0;
        self.holds = match self.find_transient_ns() {
            Some(found_ns) => {
                self.found_ns = found_ns;
                self.holds + 1
            }
            None => 0,
        };
    }

    /// How many slices there are to judge by.
    pub(crate) fn slices(&self) -> usize {
        self.rates.len()
    }

    /// How long throughput or response time changed at the beginning; `None`: they still may.
    pub(crate) fn transient_ns(&self) -> Option<u64> {
        (self.holds >= HOLDS_MIN).then_some(self.found_ns)
    }

    /// The rule, over the slices that are there.
    fn find_transient_ns(&mut self) -> Option<u64> {
        if self.rates.len() < SLICES_MIN {
            return None;
        }
        let mut cut = 0;
        for series in [&mut self.rates, &mut self.medians] {
            let series = &*series.make_contiguous();
            let transient = mser(series);
            if transient > series.len() / 2 || trend_z(&series[transient..]).abs() > TREND_Z {
                return None;
            }
            cut = cut.max(transient);
        }
        let cut_ns: u64 = self.lengths_ns.iter().take(cut).sum();
        Some(if cut == 0 {
            0
        } else {
            self.forgotten_ns + cut_ns
        })
    }
}

/// How many values to cut off the front so that the squared standard error of the mean of the rest
/// is smallest; the first such number.
fn mser(series: &[f64]) -> usize {
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    // Around the last value, so that small spreads of large values are not lost in rounding.
    let origin = series.last().copied().unwrap_or_default();
    for (cut, value) in series.iter().enumerate().rev() {
        let value = value - origin;
        sum += value;
        squares += value * value;
        count += 1.0;
        let spread = f64::max(squares - sum * sum / count, 0.0);
        let error = spread / (count * count);
        if series.len() - cut >= KEPT_MIN && error <= best.0 {
            best = (error, cut);
        }
    }
    best.1
}

/// Mann-Kendall's Z, corrected for ties: far from 0 if later values tend to be larger, or smaller.
fn trend_z(series: &[f64]) -> f64 {
    let sign = |one: &f64, other: &f64| f64::from(i8::from(other > one) - i8::from(other < one));
    let later = |place: usize| series[place + 1..].iter();
    let places = series.iter().enumerate();
    let s: f64 = places
        .map(|(place, one)| later(place).map(|other| sign(one, other)).sum::<f64>())
        .sum();
    let pairs = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties = sorted.chunk_by(|one, other| one == other);
    let tied: f64 = ties.map(|group| pairs(group.len() as f64)).sum();
    let variance = (pairs(series.len() as f64) - tied) / 18.0;
    if variance <= 0.0 {
        return 0.0;
    }
    (s.abs() - 1.0).max(0.0) * s.signum() / variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::mix;

    const MS: f64 = 1e6;

    /// Noise of this half width around 1.
    fn noise(seed: u64, index: usize, width: f64) -> f64 {
        let unit = (mix(seed ^ mix(index as u64)) >> 11) as f64 / (1_u64 << 53) as f64;
        1.0 + width * (2.0 * unit - 1.0)
    }

    /// After how many slices the series is taken for steady, and the transient's slices.
    fn steady_after(slices: usize, at: impl Fn(usize) -> (f64, f64)) -> Option<(usize, u64)> {
        let mut steadiness = Steadiness::default();
        (0..slices).find_map(|index| {
            let (per_s, median_ns) = at(index);
            steadiness.open_ns = SLICE_NS;
            steadiness.add(per_s, median_ns);
            let transient_ns = steadiness.transient_ns()?;
            Some((index + 1, transient_ns / SLICE_NS))
        })
    }

    /// Goal: what is steady from the start is known as that after five seconds, or soon.
    #[test]
    fn steady_series_end_the_warm_up_soon() {
        assert_eq!(steady_after(100, |_| (1_000.0, MS)), Some((19, 0)));
        for seed in 0..100 {
            let found = steady_after(120, |index| {
                let rate = 1_000.0 * noise(seed, index, 0.05);
                (rate, MS * noise(seed + 1_000, index, 0.2))
            });
            assert!(
                found.is_some_and(|(slices, _)| slices <= 100),
                "{seed}: {found:?}"
            );
        }
    }

    /// Goal: a transient is waited for, and told: here four seconds of a server that gets faster.
    #[test]
    fn transients_are_cut_off() {
        for seed in 0..100 {
            let found = steady_after(240, |index| {
                let left = (-(index as f64) / 4.0).exp();
                let rate = 10_000.0 * (1.0 - 0.9 * left) * noise(seed, index, 0.02);
                (
                    rate,
                    MS * (1.0 + 9.0 * left) * noise(seed + 500, index, 0.02),
                )
            });
            let (slices, transient) = found.unwrap();
            assert!(
                slices >= 16 && transient >= 6,
                "{seed}: {slices} {transient}"
            );
            assert!(
                slices as u64 >= 2 * transient,
                "{seed}: {slices} {transient}"
            );
        }
    }

    /// Goal: what keeps changing never counts as steady, whichever of the two it is.
    #[test]
    fn drifts_and_steps_are_not_steady() {
        for seed in 0..50 {
            let drift = |index: usize| MS * (1.0 + index as f64 / 50.0) * noise(seed, index, 0.02);
            assert_eq!(
                steady_after(240, |index| (1_000.0, drift(index))),
                None,
                "{seed}"
            );
            let fall = |index: usize| 1e4 * 0.97_f64.powi(index as i32) * noise(seed, index, 0.01);
            assert_eq!(steady_after(240, |index| (fall(index), MS)), None, "{seed}");
        }
        // A step just before the end has not been seen through.
        let step = |index: usize| (if index < 8 { 100.0 } else { 1_000.0 }, MS);
        assert!(steady_after(240, step).unwrap().0 >= 16);
    }

    /// Goal: slices with few answers are put together until they say something.
    #[test]
    fn few_answers_make_long_slices() {
        let mut steadiness = Steadiness::default();
        let clocks = |answers: u64| {
            let mut clocks = Clocks::default();
            clocks.response.record_many(1_000_000, answers);
            clocks
        };
        for _ in 0..8 {
            steadiness.quarter(SLICE_NS, &clocks(3));
        }
        assert_eq!(steadiness.slices(), 2);
        assert_eq!(steadiness.rates, [12.0, 12.0]);
        assert_eq!(steadiness.transient_ns(), None);
        for _ in 0..20 {
            steadiness.quarter(SLICE_NS, &clocks(0));
        }
        assert_eq!(steadiness.slices(), 2, "silence is no slice");
        for _ in 0..1_000 {
            steadiness.quarter(SLICE_NS, &clocks(100));
        }
        assert_eq!(steadiness.slices(), SLICES_MAX);
    }

    #[test]
    fn the_statistics_are_the_published_ones() {
        // Of n distinct rising values S is n(n-1)/2 and the variance n(n-1)(2n+5)/18.
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        let expected = 44.0 / 125.0_f64.sqrt();
        assert!((trend_z(&rising) - expected).abs() < 1e-9);
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!((trend_z(&falling) + expected).abs() < 1e-9);
        assert_eq!(trend_z(&[7.0; 9]), 0.0);
        assert_eq!(trend_z(&[]), 0.0);
        let mut series = vec![9.0, 5.0, 3.0];
        series.extend([1.0, 2.0].repeat(10));
        assert_eq!(mser(&series), 3);
        assert_eq!(mser(&[4.0; 20]), 0);
    }
}
