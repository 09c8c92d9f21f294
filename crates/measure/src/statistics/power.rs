//! The power of so many rounds, and how many it takes to decide, by simulation of the procedure itself.
//!
//! The formulas of textbooks hold for means of many normal values. Here it is ranks of 6 to 30 rounds, a
//! part of the error for each candidate and each interim analysis, "equivalent" before "better", and a spread that is
//! known from the same few rounds: by formula, what was said to be found in 80 % was found in 23 to 57 %. So
//! the verdicts of [`DRAWS`] normal samples with a spread of 1 are worked out once for each number of
//! rounds, comparisons and analyses, from a fixed seed, and kept: a few milliseconds each.
//!
//! The spread of real rounds is measured by the width of their own interval, divided by the widths that the
//! simulated samples have, each of them in turn. That carries the error of the estimate into the answer, and
//! follows heavy tails, because the interval does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{InterimAnalyses, Interval, inverse_normal, rank_sum, signed_rank, walsh_averages};

/// The chance of a false claim one accepts, over all comparisons of one measure together.
pub const SIGNIFICANCE: f64 = 0.05;
/// The confidence of the interval that has to lie within the margin for "equivalent": two one-sided
/// tests at 5 % each (Schuirmann 1987; Berger & Hsu 1996).
pub const EQUIVALENCE_CONFIDENCE: f64 = 0.90;
/// The chance with which the quoted detectable difference is found.
pub const POWER_DETECTABLE: f64 = 0.80;
/// The chance with which the advised number of rounds decides: a little more than what is asked of it,
/// because only comparisons that the first rounds left undecided are advised.
const POWER_PLANNED: f64 = 0.85;
/// More rounds than anybody runs; the advice stops here.
const ROUNDS_MAX: usize = 9_999;
/// Simulated samples of each kind; each stands for its mirror image as well.
const DRAWS: usize = 1_000;
/// Beyond so many rounds, intervals shrink with the root of their number and nothing else changes.
const SIMULATED_ROUNDS_MAX: usize = 40;
/// How far away the sample is whose width each sample is judged with. Even, so that mirror images meet.
const OFFSET: usize = 202;

/// The data of a comparison, by their number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Sizes {
    /// So many rounds of both.
    Paired(usize),
    /// So many runs now and so many in an earlier record.
    Apart(usize, usize),
}

impl Sizes {
    /// The nearest that is simulated, and what its intervals are to be multiplied by.
    fn simulated(self) -> (Self, f64) {
        let most = |count: usize| count.min(SIMULATED_ROUNDS_MAX);
        let ratio = |wanted: f64, there: f64| (wanted / there).sqrt();
        let share = |count: usize| 1.0 / count.max(1) as f64;
        match self {
            Self::Paired(count) => {
                let scale = ratio(share(count), share(most(count)));
                (Self::Paired(most(count)), scale)
            }
            Self::Apart(now, earlier) => {
                let there = share(most(now)) + share(most(earlier));
                let scale = ratio(share(now) + share(earlier), there);
                (Self::Apart(most(now), most(earlier)), scale)
            }
        }
    }

    /// More rounds, where the earlier record stays as it is.
    fn with(self, rounds: usize) -> Self {
        match self {
            Self::Paired(_) => Self::Paired(rounds),
            Self::Apart(_, earlier) => Self::Apart(rounds, earlier),
        }
    }

    /// Rounds of this record.
    pub(crate) const fn rounds(self) -> usize {
        match self {
            Self::Paired(rounds) | Self::Apart(rounds, _) => rounds,
        }
    }
}

/// Which claims are made from the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claims {
    /// Comparisons that are judged together.
    pub comparisons: usize,
    /// How often the data are analysed.
    pub looks: InterimAnalyses,
    /// Logarithm of what counts as the same.
    pub margin: f64,
}

/// The data of one comparison, as logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The estimate.
    pub effect: f64,
    /// The interval that has to lie within the margin for "equivalent".
    pub equivalence: Interval,
}

impl Found {
    fn half_width(&self) -> f64 {
        (self.equivalence.high - self.equivalence.low) / 2.0
    }
}

/// Of a sample around 0 with a spread of 1.
#[derive(Clone, Copy, Debug)]
struct Sample {
    centre: f64,
    /// A difference is claimed if this leaves out 0.
    claim: (f64, f64),
    /// They are equivalent if this lies within the margin.
    same: (f64, f64),
}

impl Sample {
    fn half_width(&self) -> f64 {
        (self.same.1 - self.same.0) / 2.0
    }

    fn mirrored(self) -> Self {
        let mirror = |(low, high): (f64, f64)| (-high, -low);
        Self {
            centre: -self.centre,
            claim: mirror(self.claim),
            same: mirror(self.same),
        }
    }

    fn decides(&self, effect: f64, sigma: f64, margin: f64) -> bool {
        let at = |end: f64| effect + sigma * end;
        at(self.claim.0) > 0.0
            || at(self.claim.1) < 0.0
            || (at(self.same.0) >= -margin && at(self.same.1) <= margin)
    }
}

/// The smallest log difference that such data show with a chance of [`POWER_DETECTABLE`]: that is called
/// better or worse, and not equivalent. `None` if no difference could be, or the spread has no bound.
#[must_use]
pub fn detectable(found: &Found, sizes: Sizes, claims: Claims) -> Option<f64> {
    let width = found.half_width();
    if !width.is_finite() || !can_claim(sizes, claims) {
        return None;
    }
    if width <= 0.0 {
        return Some(claims.margin);
    }
    let (samples, scale) = samples(sizes, claims);
    let (margin, mean) = (claims.margin / width, mean_half_width(&samples));
    let others = samples.iter().cycle().skip(OFFSET);
    let mut needed: Vec<f64> = samples
        .iter()
        .zip(others)
        .map(|(sample, other)| {
            let width = shrunk(other.half_width(), mean, scale);
            let seen = -sample.claim.0 / width;
            let unlike = margin - sample.same.1 / width;
            seen.max(unlike)
        })
        .collect();
    let place = (needed.len() as f64 * POWER_DETECTABLE).ceil() as usize;
    let (_, chosen, _) = needed.select_nth_unstable_by(place.saturating_sub(1), f64::total_cmp);
    Some(*chosen * width)
}

/// Rounds in all, more than there are, that decide with a chance of 85 % whether it is a
/// difference or equivalent.
#[must_use]
pub fn rounds_needed(found: &Found, sizes: Sizes, claims: Claims) -> usize {
    let (width, least) = (found.half_width(), sizes.rounds() + 1);
    let claimable = (least..=ROUNDS_MAX).find(|&rounds| can_claim(sizes.with(rounds), claims));
    let first = claimable.unwrap_or(ROUNDS_MAX);
    if width <= 0.0 || !width.is_finite() || !found.effect.is_finite() {
        return first;
    }
    // What the true value may be, judging by what was found: as far from it as each sample is from its own.
    let (samples_here, scale) = samples(sizes, claims);
    let mean = mean_half_width(&samples_here);
    let truths: Vec<(f64, f64)> = samples_here
        .iter()
        .map(|sample| {
            let sigma = width / (shrunk(sample.half_width(), mean, scale) * scale);
            (found.effect - sigma * scale * sample.centre, sigma)
        })
        .collect();
    let is_enough = |rounds: usize| {
        let (samples, scale) = samples(sizes.with(rounds), claims);
        let others = samples.iter().cycle().skip(OFFSET);
        let decided = truths
            .iter()
            .zip(others)
            .filter(|((effect, sigma), one)| one.decides(*effect, sigma * scale, claims.margin));
        decided.count() as f64 >= POWER_PLANNED * truths.len() as f64
    };
    let (mut too_few, mut enough) = (first.saturating_sub(1), first);
    while !is_enough(enough) {
        if enough >= ROUNDS_MAX {
            return ROUNDS_MAX;
        }
        (too_few, enough) = (enough, (enough + enough / 3 + 1).min(ROUNDS_MAX));
    }
    while enough - too_few > 1 {
        let middle = usize::midpoint(too_few, enough);
        if is_enough(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    enough
}

/// The average factor for the half width of a comparison's interval, where there are `to` paired rounds instead of
/// `from`.
#[must_use]
pub fn width_ratio(from: usize, to: usize, looks: InterimAnalyses) -> f64 {
    // The claim of a comparison that stands alone is made by its interval.
    let claims = Claims {
        comparisons: 1,
        looks,
        margin: 0.0,
    };
    let mean = |rounds| {
        let (samples, scale) = samples(Sizes::Paired(rounds), claims);
        let widths = samples.iter().map(|sample| sample.claim.1 - sample.claim.0);
        widths.sum::<f64>() / samples.len() as f64 * scale
    };
    mean(to) / mean(from)
}

/// The fewest rounds with which an exact test can claim anything at all: `2 / 2^R`, times the
/// number of comparisons, has to get below 5 %, and a 95 % interval must exist.
#[must_use]
pub fn smallest_rounds(comparisons: usize) -> usize {
    let comparisons = comparisons.max(1) as f64;
    (6..)
        .find(|&rounds| 2.0_f64.powi(1 - rounds) * comparisons <= SIGNIFICANCE)
        .unwrap_or(6) as usize
}

/// Whether the exact test could claim a difference of such data, however far apart they were.
#[must_use]
pub fn can_claim(sizes: Sizes, claims: Claims) -> bool {
    let parts = claims.comparisons.max(1) * claims.looks.count();
    match sizes {
        Sizes::Paired(rounds) => rounds >= smallest_rounds(parts),
        Sizes::Apart(now, earlier) => {
            rank_sum::smallest_p(now, earlier) * parts as f64 <= SIGNIFICANCE
        }
    }
}

/// The half width of a sample's interval, where more rounds than were simulated make it nearer to the
/// mean of all; not yet scaled by itself.
fn shrunk(half_width: f64, mean: f64, scale: f64) -> f64 {
    mean + (half_width - mean) * scale
}

fn mean_half_width(samples: &[Sample]) -> f64 {
    samples.iter().map(Sample::half_width).sum::<f64>() / samples.len() as f64
}

/// The key of the simulated samples: sizes, comparisons, analyses.
type Key = (Sizes, usize, usize);

/// The simulated samples for such data, and what their intervals are to be multiplied by.
fn samples(sizes: Sizes, claims: Claims) -> (Arc<Vec<Sample>>, f64) {
    static KEPT: Mutex<BTreeMap<Key, Arc<Vec<Sample>>>> = Mutex::new(BTreeMap::new());
    let (sizes, scale) = sizes.simulated();
    let key = (sizes, claims.comparisons.max(1), claims.looks.count());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let samples = kept
        .entry(key)
        .or_insert_with(|| Arc::new(simulate(sizes, claims)));
    (Arc::clone(samples), scale)
}

fn simulate(sizes: Sizes, claims: Claims) -> Vec<Sample> {
    let looks = claims.looks;
    let level = 1.0 - looks.significance() / claims.comparisons.max(1) as f64;
    let dropped = |confidence: f64| match sizes {
        Sizes::Paired(rounds) => signed_rank::signed_rank_dropped(rounds, confidence).0,
        Sizes::Apart(now, earlier) => rank_sum::dropped(now, earlier, confidence).0,
    };
    let (claim, same) = (dropped(level), dropped(looks.equivalence_confidence()));
    let mut state = 0x6d69_6c6c_706f_6e64;
    let mut draw = |count: usize| -> Vec<f64> { (0..count).map(|_| normal(&mut state)).collect() };
    (0..DRAWS)
        .flat_map(|_| {
            let ordered = match sizes {
                Sizes::Paired(rounds) => walsh_averages(&draw(rounds)),
                Sizes::Apart(now, earlier) => rank_sum::differences(&draw(now), &draw(earlier)),
            };
            let last = ordered.len() - 1;
            let ends = |dropped: usize| (ordered[dropped], ordered[last - dropped]);
            let sample = Sample {
                centre: f64::midpoint(ordered[last / 2], ordered[ordered.len() / 2]),
                claim: ends(claim),
                same: ends(same),
            };
            [sample, sample.mirrored()]
        })
        .collect()
}

/// The next normal variable: a uniform one of splitmix64 (Steele, Lea & Flood, OOPSLA 2014) through the
/// quantiles.
fn normal(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    inverse_normal(((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64)
}

#[cfg(test)]
#[path = "tests/power.rs"]
mod tests;
