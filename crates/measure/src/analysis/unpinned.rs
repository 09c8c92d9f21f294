//! Memory of servers that may use all CPUs beside that of those bound to some: allocators and runtimes size themselves by
//! the CPUs that they see.

use super::{Field, pairing, trust};
use crate::record::{
    CandidateRounds, Measure, MeasureComparisons, Quantity, QuestionVerdict, UnpinnedMemory,
};
use crate::statistics::{Comparison, PairedRounds, RoundPair, Verdict, compare_all};
use crate::units::format_bytes;

/// Every candidate's memory both ways, if that of one is proved to differ by more than the margin; in the order of
/// reports. `memory`: the answer for bound servers. `details`: every measure.
pub(super) fn differences(
    field: &Field<'_>,
    memory: &QuestionVerdict,
    details: &[MeasureComparisons],
) -> Vec<UnpinnedMemory> {
    let Some(&pinned) = memory.measures.first().filter(|_| memory.trusted) else {
        return Vec::new();
    };
    let unpinned = Measure::whole(Quantity::UnpinnedMemory);
    let Some(rule) = pairing::rule(&[unpinned], field.design) else {
        return Vec::new();
    };
    let table = field.compare(&[pinned]);
    let reason = trust::self_difference_reason(field, &table);
    let measured: Vec<&CandidateRounds> = field
        .entrants()
        .filter(|one| one.median(unpinned).is_some())
        .collect();
    let pairs: Vec<PairedRounds> = measured
        .iter()
        .map(|one| {
            let mut rounds = both_ways(one, pinned, unpinned);
            rounds.trouble = rounds.trouble.or_else(|| reason.clone());
            rounds
        })
        .collect();
    let found = compare_all(&pairs, &rule);
    let is_proved = |one: &Comparison| matches!(one.verdict, Verdict::Better | Verdict::Worse);
    if !found.iter().any(is_proved) {
        return Vec::new();
    }
    let of_all = details.iter().find(|one| one.measure == unpinned);
    let described = measured
        .iter()
        .zip(&found)
        .filter_map(|(candidate, change)| {
            let mut comparisons = of_all.into_iter().flat_map(|all| &all.comparisons);
            let against = comparisons.find(|one| one.candidate == candidate.name);
            describe(change, against, &field.baseline.name)
        });
    described.collect()
}

/// The rounds of one candidate: on all CPUs against bound.
fn both_ways(candidate: &CandidateRounds, pinned: Measure, unpinned: Measure) -> PairedRounds {
    let rounds = candidate.rounds.iter();
    let pairs: Vec<RoundPair> = rounds
        .filter_map(|round| {
            Some(RoundPair {
                candidate: round.get(unpinned)?,
                baseline: round.get(pinned).filter(|&bytes| bytes > 0.0)?,
            })
        })
        .collect();
    PairedRounds {
        trouble: trust::trouble(candidate, candidate, &[pinned, unpinned], pairs.len()),
        candidate: candidate.name.clone(),
        baseline: candidate.name.clone(),
        pairs,
    }
}

/// One line. `change`: on all CPUs against bound. `against`: the baseline, both on all CPUs.
fn describe(
    change: &Comparison,
    against: Option<&Comparison>,
    baseline: &str,
) -> Option<UnpinnedMemory> {
    let (on_all, bound) = (change.candidate_value?, change.baseline_value?);
    let mut sentence = format!(
        "{} needs {} where it may use all CPUs, {} bound to the server's: {} ({})",
        change.candidate,
        format_bytes(on_all),
        format_bytes(bound),
        change.ratio_text(),
        label(&change.verdict),
    );
    if let Some(against) = against {
        sentence += &format!(
            "; against {baseline} there {} ({})",
            against.ratio_text(),
            against.verdict.label()
        );
    }
    Some(UnpinnedMemory {
        candidate: change.candidate.clone(),
        pinned_bytes: bound as u64,
        unpinned_bytes: on_all as u64,
        sentence: sentence + ".",
    })
}

/// Neither way is the better one.
fn label(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "less",
        Verdict::Worse => "more",
        other => other.label(),
    }
}
