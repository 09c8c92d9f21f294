//! Memory of servers that may use all CPUs beside that of those bound to some: allocators and runtimes size themselves by
//! the CPUs that they see.

use super::{Field, pairing, trust};
use crate::record::{
    CandidateRounds, Measure, MeasureComparisons, Quantity, QuestionVerdict, UnpinnedMemory,
};
use crate::statistics::{Comparison, Rule, TwoSamples, Verdict, correct_for_all};
use crate::units::format_bytes;

/// Every candidate's memory both ways, if that of one is proved to differ and does so by more than the margin; in the
/// order of reports. `memory`: the answer for bound servers. `details`: every measure.
///
/// Both ways are processes of their own, so they are two samples and not pairs: a claim takes fewer processes on all
/// CPUs than there are rounds (four beside eight rounds, where seven are compared).
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
    let reason = trust::self_difference_reason(field, &field.compare(&[pinned]));
    let measured = field
        .entrants()
        .filter(|one| one.median(unpinned).is_some());
    let mut samples: Vec<TwoSamples> = measured
        .map(|one| both_ways(one, pinned, unpinned, &rule, reason.as_ref()))
        .collect();
    correct_for_all(samples.iter_mut().collect());
    let found: Vec<Comparison> = samples.iter().map(TwoSamples::judge).collect();
    if !found.iter().any(is_worth_a_line) {
        return Vec::new();
    }
    let of_all = details.iter().find(|one| one.measure == unpinned);
    let described = found.iter().filter_map(|change| {
        let mut comparisons = of_all.into_iter().flat_map(|all| &all.comparisons);
        let against = comparisons.find(|one| one.candidate == change.candidate);
        describe(change, against, &field.baseline.name)
    });
    described.collect()
}

/// A difference that is proved and larger than the margin.
fn is_worth_a_line(change: &Comparison) -> bool {
    let is_proved = matches!(change.verdict, Verdict::Better | Verdict::Worse);
    let size = change.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    is_proved && size > change.margin.ln_1p()
}

/// One candidate: on all CPUs against bound.
fn both_ways(
    candidate: &CandidateRounds,
    pinned: Measure,
    unpinned: Measure,
    rule: &Rule,
    reason: Option<&String>,
) -> TwoSamples {
    let logarithms = |measure: Measure| -> Vec<f64> {
        let values = candidate.values(measure).into_iter();
        values.filter(|&bytes| bytes > 0.0).map(f64::ln).collect()
    };
    let (values, reference_values) = (logarithms(unpinned), logarithms(pinned));
    let fewest = values.len().min(reference_values.len());
    let trouble = trust::trouble(candidate, candidate, &[pinned, unpinned], fewest);
    TwoSamples {
        name: candidate.name.clone(),
        reference: "bound to the server's CPUs".to_owned(),
        relative_to: None,
        values,
        reference_values,
        rule: rule.clone(),
        trouble: trouble.or_else(|| reason.cloned()),
        medians: [unpinned, pinned].map(|measure| candidate.median(measure)),
        missing: "it was not measured both ways",
        p: 1.0,
        p_adjusted: 1.0,
        family: 1,
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
