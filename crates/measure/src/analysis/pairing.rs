//! Runs of the same round, side by side.

use super::{Design, trust};
use crate::record::{CandidateRounds, Measure};
use crate::statistics::{PairedRounds, RoundPair, Rule};

/// The rule of decision for measures of one quantity; `None` for an empty list.
pub(super) fn rule(measures: &[Measure], design: Design) -> Option<Rule> {
    let quantity = measures.first()?.quantity;
    debug_assert!(measures.iter().all(|measure| measure.quantity == quantity));
    let label = if let [single] = measures {
        single.label()
    } else {
        quantity.label().to_owned()
    };
    Some(Rule {
        label,
        direction: quantity.direction(),
        margin: design.margins.of(quantity),
        looks: design.looks,
    })
}

/// The rounds in which both have all of `measures`; several are taken as their geometric mean, so
/// that a ratio in one counts as much as the same ratio in another.
pub(super) fn pair(
    candidate: &CandidateRounds,
    baseline: &CandidateRounds,
    measures: &[Measure],
) -> PairedRounds {
    let pairs: Vec<RoundPair> = candidate
        .rounds
        .iter()
        .filter_map(|round| {
            Some(RoundPair {
                candidate: geometric_mean(measures, |measure| round.get(measure))?,
                baseline: geometric_mean(measures, |m| baseline.value(round.round, m))?,
            })
        })
        .collect();
    let trouble = trust::trouble(candidate, baseline, measures, pairs.len());
    PairedRounds {
        candidate: candidate.name.clone(),
        baseline: baseline.name.clone(),
        pairs,
        trouble,
    }
}

/// `None` if one is missing. A single value comes back unchanged, to the last bit.
fn geometric_mean(measures: &[Measure], value: impl Fn(Measure) -> Option<f64>) -> Option<f64> {
    if let [single] = measures {
        return value(*single);
    }
    let mut sum_of_logs = 0.0;
    for &measure in measures {
        sum_of_logs += value(measure)?.ln();
    }
    Some((sum_of_logs / measures.len() as f64).exp())
}
