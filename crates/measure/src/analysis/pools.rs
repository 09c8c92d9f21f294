//! What memory pools change: pools on against pools off, under each allocator.

use super::question::{LATENCY, MEMORY, Question, THROUGHPUT, measures_of};
use super::{Field, pairing, trust};
use crate::record::{CandidateRounds, Measure, MeasureComparisons, PoolSetting, PoolsEffect, Role};
use crate::statistics::{Comparison, PairedRounds, Verdict, compare_all};
use crate::units::format_percent;

/// One entry per allocator that ran both ways, in order of candidates.
pub(super) fn effects(field: &Field<'_>) -> Vec<PoolsEffect> {
    let couples = couples(field);
    let of_question = |question: &Question| {
        let measures = measures_of(field, question.quantities);
        compare_couples(field, &couples, &measures)
    };
    let throughput = of_question(&THROUGHPUT);
    let latency = of_question(&LATENCY);
    let memory = of_question(&MEMORY);
    let details: Vec<(Measure, Vec<Comparison>)> = field
        .measures()
        .into_iter()
        .filter(|measure| measure.quantity.is_judged())
        .map(|measure| (measure, compare_couples(field, &couples, &[measure])))
        .collect();
    couples
        .iter()
        .enumerate()
        .map(|(index, (on, _))| {
            let mut effect = PoolsEffect {
                allocator: on.allocator.clone(),
                throughput: throughput.get(index).cloned(),
                latency: latency.get(index).cloned(),
                memory: memory.get(index).cloned(),
                details: details
                    .iter()
                    .map(|(measure, comparisons)| MeasureComparisons {
                        measure: *measure,
                        comparisons: vec![comparisons[index].clone()],
                    })
                    .collect(),
                sentence: String::new(),
            };
            effect.sentence = sentence(&effect);
            effect
        })
        .collect()
}

/// (on, off) of the same allocator; the baseline's double is left out.
fn couples<'a>(field: &Field<'a>) -> Vec<(&'a CandidateRounds, &'a CandidateRounds)> {
    let find = |allocator: &str, setting| {
        field.all().find(|one| {
            one.role != Role::BaselineAgain
                && one.allocator == allocator
                && one.pools == Some(setting)
        })
    };
    field
        .entrants()
        .filter(|one| one.pools == Some(PoolSetting::On))
        .filter_map(|on| Some((on, find(&on.allocator, PoolSetting::Off)?)))
        .collect()
}

/// A couple with the baseline in it is a comparison of the table already, and has the verdict it has there.
/// The others are a family of their own. If the baseline differs from itself in these measures, so might
/// anything.
fn compare_couples(
    field: &Field<'_>,
    couples: &[(&CandidateRounds, &CandidateRounds)],
    measures: &[Measure],
) -> Vec<Comparison> {
    let Some(rule) = pairing::rule(measures, field.design) else {
        return Vec::new();
    };
    let table = field.compare(measures);
    let reason = trust::self_difference_reason(field, &table);
    let of_table = |(on, off): (&CandidateRounds, &CandidateRounds)| {
        let find = |name: &str| table.iter().find(|one| one.candidate == name);
        if std::ptr::eq(off, field.baseline) {
            return find(&on.name).cloned();
        }
        let is_reversed = std::ptr::eq(on, field.baseline);
        is_reversed.then(|| Some(find(&off.name)?.reversed(&rule.label)))?
    };
    let others: Vec<PairedRounds> = couples
        .iter()
        .filter(|couple| of_table(**couple).is_none())
        .map(|(on, off)| {
            let mut rounds = pairing::pair(on, off, measures);
            rounds.trouble = rounds.trouble.or_else(|| reason.clone());
            rounds
        })
        .collect();
    let mut others = compare_all(&others, &rule).into_iter();
    let all = couples
        .iter()
        .filter_map(|couple| of_table(*couple).or_else(|| others.next()));
    all.collect()
}

fn sentence(effect: &PoolsEffect) -> String {
    let parts: Vec<String> = [
        ("throughput", &effect.throughput),
        ("p99 latency", &effect.latency),
        ("memory", &effect.memory),
    ]
    .into_iter()
    .filter_map(|(what, comparison)| Some(part(what, comparison.as_ref()?)))
    .collect();
    if parts.is_empty() {
        return format!("{}: not measured.", effect.allocator);
    }
    format!("{}: with pools {}.", effect.allocator, parts.join(", "))
}

fn part(what: &str, comparison: &Comparison) -> String {
    match &comparison.verdict {
        Verdict::Better | Verdict::Worse => {
            let figures = comparison.ratio_text();
            format!("{what} is {} ({figures})", comparison.verdict.label())
        }
        Verdict::Equivalent => {
            format!(
                "{what} is the same within {}",
                format_percent(comparison.margin)
            )
        }
        Verdict::Undecided { rounds_needed } => {
            format!(
                "{what} is undecided ({}, {rounds_needed} more rounds)",
                comparison.ratio_text()
            )
        }
        Verdict::NotTrusted { .. } => format!("{what} is not to be trusted"),
    }
}
