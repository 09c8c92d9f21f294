//! From rounds to an answer: how large a difference is, how sure one can be, what it takes to know.
//!
//! `analysis` pairs the runs of each round and asks [`compare_all`]. The differences are
//! `d = ln(candidate) - ln(baseline)` of the same round, so that what disturbed a whole round drops out. Estimate:
//! [`hodges_lehmann`]; interval: exact signed-rank ([`signed_rank_interval`]); p: exact sign-flip permutation
//! ([`sign_flip_p`]); several candidates: [`holm`]; "the same": two one-sided tests, done as inclusion of the 90 %
//! interval in the margin; several interim analyses of data that grow: [`InterimAnalyses`]; two sessions, whose rounds
//! are not paired: [`rank_sum_p`]. The power of the rounds is simulated: [`detectable`].

mod rank_sum;
mod signed_rank;
mod sign_flip;
mod distributions;
mod power;
mod verdict;
mod decision;

pub(crate) use decision::{Evidence, is_constant};
pub use decision::{PairedRounds, RoundPair, Rule, compare_all, compare_rounds};
pub use distributions::{at_least_p, inverse_normal};
pub use power::{
    Claims, EQUIVALENCE_CONFIDENCE, Found, POWER_DETECTABLE, SIGNIFICANCE, Sizes, can_claim,
    detectable, rounds_needed, smallest_rounds, width_ratio,
};
pub use rank_sum::{rank_sum_p, shift, shift_interval};
pub use sign_flip::sign_flip_p;
pub use signed_rank::{
    Interval, hodges_lehmann, signed_rank_distribution, signed_rank_interval, walsh_averages,
};
pub use verdict::holm;
pub use verdict::{Comparison, Direction, Estimate, Verdict, needs_text};
pub use verdict::{InterimAnalyses, interim_rounds};
pub(crate) use verdict::{TwoSamples, correct_for_all};

/// The middle of the values (mean of the two middle ones); reorders them. `None` if there are none.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[middle]
    } else {
        midpoint(values[middle - 1], values[middle])
    })
}

/// Halfway between two values, also when they are the same infinity; opposite infinities cancel.
fn midpoint(a: f64, b: f64) -> f64 {
    if a == b {
        return a;
    }
    let middle = f64::midpoint(a, b);
    if middle.is_nan() { 0.0 } else { middle }
}

#[cfg(test)]
#[path = "tests/statistics.rs"]
mod tests;
