//! How two candidates stand to each other, read from the comparisons of both with the baseline.
//!
//! There is one set of comparisons for each measure: that of the table. Against the baseline its verdict holds. Two
//! candidates are distinguished by their two intervals alone: what lies between their furthest ends is where their own
//! ratio can lie. That is more cautious than a comparison of the two would be, needs no other correction, and can be
//! checked on the page.

use std::fmt;

use crate::record::{
    CandidateRounds, Measure, MeasureComparisons, PoolSetting, PoolsEffect, QuestionVerdict, Role,
    Verdicts,
};
use crate::statistics::{
    Comparison, Direction, PairedRounds, SIGNIFICANCE, Verdict, compare_all, median, needs_text,
    width_ratio,
};
use crate::units::format_percent;

use super::question::{LATENCY, MEMORY, Question, THROUGHPUT, measures_of};
use super::{Design, Field, question, settings_front, trust};

/// The proved relation of one candidate to another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Better,
    Worse,
    /// The same within the margin.
    Equivalent,
    Open,
}

impl Standing {
    const fn reversed(self) -> Self {
        match self {
            Self::Better => Self::Worse,
            Self::Worse => Self::Better,
            same => same,
        }
    }

    const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Better => Self::Better,
            Verdict::Worse => Self::Worse,
            Verdict::Equivalent => Self::Equivalent,
            Verdict::Undecided { .. } | Verdict::NotTrusted { .. } => Self::Open,
        }
    }
}

/// Of `one` against `other`, each by its comparison with the baseline; `None` is the baseline itself.
pub(super) fn standing(
    one: Option<&Comparison>,
    other: Option<&Comparison>,
    direction: Direction,
) -> Standing {
    match (one, other) {
        (None, None) => Standing::Equivalent,
        (Some(one), None) => Standing::of(&one.verdict),
        (None, Some(other)) => Standing::of(&other.verdict).reversed(),
        (Some(one), Some(other)) => by_intervals(one, other, direction),
    }
}

fn by_intervals(one: &Comparison, other: &Comparison, direction: Direction) -> Standing {
    let (Some(own), Some(its)) = (one.estimate(), other.estimate()) else {
        return Standing::Open;
    };
    if !is_sure(one) || !is_sure(other) {
        return Standing::Open;
    }
    let (low, high) = (own.low / its.high, own.high / its.low);
    let margin = 1.0 + one.margin;
    if low >= 1.0 / margin && high <= margin {
        return Standing::Equivalent;
    }
    let higher = match direction {
        Direction::HigherIsBetter => Standing::Better,
        Direction::LowerIsBetter => Standing::Worse,
    };
    if low > 1.0 {
        higher
    } else if high < 1.0 {
        higher.reversed()
    } else {
        Standing::Open
    }
}

/// Whether the interval is one: of fewer rounds it is the range of what was seen.
fn is_sure(one: &Comparison) -> bool {
    match one.verdict {
        Verdict::NotTrusted { .. } => false,
        Verdict::Undecided { .. } => one.confidence >= 1.0 - SIGNIFICANCE - 1e-12,
        Verdict::Better | Verdict::Worse | Verdict::Equivalent => true,
    }
}

// The effect of memory pools: pools on against pools off, under each allocator.

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
        .all_candidates()
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
    let Some(rule) = trust::rule(measures, field.design) else {
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
            let mut rounds = trust::pair(on, off, measures);
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

// What a question's rounds can show, and what they leave open: the line below its answer, and the
// reason to go on with rounds or to stop.

/// More that are undecided are not named one by one.
const NAMED_MAX: usize = 5;

/// A verdict that is undecided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenVerdict {
    /// `throughput`, `latency` or `memory`; of settings `CPU per request` too.
    pub question: &'static str,
    /// The candidate.
    pub candidate: String,
}

impl fmt::Display for OpenVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.question, self.candidate)
    }
}

/// The verdicts of the three questions that more rounds could still decide.
///
/// Untrusted comparisons are not among them: more rounds on a busy machine are as busy. Nor is the baseline's double,
/// whose work is done when it is not called different; unless it is all there is.
#[must_use]
pub fn open_verdicts(candidates: &[CandidateRounds], design: Design) -> Vec<OpenVerdict> {
    let Some(field) = Field::new(candidates, design) else {
        return Vec::new();
    };
    let verdicts = question::answer_all(&field);
    let has_others = field.all_candidates().count() > 1;
    // Settings are judged by it, where it does not stand for throughput already.
    let cpu = settings_front::is_asked(&field).then(|| question::answer(&field, &question::CPU));
    let cpu = cpu.filter(|cpu| cpu.measures != verdicts.throughput.measures);
    let cpu = cpu.iter().map(|answer| ("CPU per request", answer));
    let mut open = Vec::new();
    for (question, answer) in by_name(&verdicts).into_iter().chain(cpu) {
        let asked = answer
            .comparisons
            .iter()
            .filter(|one| !(has_others && field.is_baseline_again(&one.candidate)));
        let undecided = asked.filter(|one| matches!(one.verdict, Verdict::Undecided { .. }));
        open.extend(undecided.map(|one| OpenVerdict {
            question,
            candidate: one.candidate.clone(),
        }));
    }
    open
}

fn by_name(verdicts: &Verdicts) -> [(&'static str, &QuestionVerdict); 3] {
    [
        ("throughput", &verdicts.throughput),
        ("latency", &verdicts.latency),
        ("memory", &verdicts.memory),
    ]
}

/// How wide a question's intervals will be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedWidth {
    /// `throughput`, `latency` or `memory`.
    pub question: &'static str,
    /// Of the middle one of its intervals: 0.02 is +-2 %.
    pub typical: f64,
    /// Of the widest, which a single round that went wrong makes wide after a few rounds.
    pub widest: f64,
    /// The margin of equality. Up to half of it, every verdict will be decided.
    pub margin: f64,
}

/// How wide the intervals of the three questions will be after `rounds` rounds, if all are like those so far; nothing
/// about a question that has no interval yet.
#[must_use]
pub fn expected_widths(
    candidates: &[CandidateRounds],
    design: Design,
    rounds: usize,
) -> Vec<ExpectedWidth> {
    let Some(field) = Field::new(candidates, design) else {
        return Vec::new();
    };
    let verdicts = question::answer_all(&field);
    let expected = by_name(&verdicts)
        .into_iter()
        .filter_map(|(question, answer)| {
            let judged = answer
                .comparisons
                .iter()
                .filter(|one| !matches!(one.verdict, Verdict::NotTrusted { .. }));
            let widths = judged.filter_map(|one| expected_width(one, rounds, design));
            let mut widths: Vec<f64> = widths.collect();
            let widest = widths.iter().copied().reduce(f64::max)?;
            let margin = answer.comparisons.first()?.margin;
            Some(ExpectedWidth {
                question,
                typical: median(&mut widths)?,
                widest,
                margin,
            })
        });
    expected.collect()
}

fn expected_width(comparison: &Comparison, rounds: usize, design: Design) -> Option<f64> {
    let (low, high) = (comparison.low?, comparison.high?);
    let half_width = (high / low).ln() / 2.0;
    let ratio = width_ratio(comparison.rounds as usize, rounds, design.looks);
    half_width
        .is_finite()
        .then(|| (half_width * ratio).exp_m1())
}

/// The smallest difference that would have shown, the margin, and what is undecided. Empty if nothing
/// was compared.
pub(super) fn resolution_sentence(field: &Field<'_>, comparisons: &[Comparison]) -> String {
    let judged: Vec<&Comparison> = comparisons
        .iter()
        .filter(|one| !field.is_baseline_again(&one.candidate) || comparisons.len() == 1)
        .filter(|one| !matches!(one.verdict, Verdict::NotTrusted { .. }))
        .collect();
    let Some(first) = judged.first() else {
        return String::new();
    };
    let mut parts = vec![shown(&judged)];
    parts.push(format!(
        "up to {} counts as the same",
        format_percent(first.margin)
    ));
    let open: Vec<(&str, String)> = judged.iter().filter_map(|one| still_open(one)).collect();
    if !open.is_empty() {
        parts.push(format!("undecided: {}", listed(&open)));
    }
    parts.join("; ") + "."
}

/// The range of the detectable differences.
fn shown(judged: &[&Comparison]) -> String {
    let rounds = judged.iter().map(|one| one.rounds).max().unwrap_or(0);
    let word = if rounds == 1 { "round" } else { "rounds" };
    let shares: Vec<f64> = judged
        .iter()
        .filter_map(|one| one.detectable)
        .filter(|share| share.is_finite())
        .collect();
    let Some(least) = shares.iter().copied().reduce(f64::min) else {
        return format!("{rounds} {word} cannot show any difference");
    };
    let most = shares.iter().copied().fold(least, f64::max);
    let (least, most) = (format_percent(least), format_percent(most));
    let range = if least == most {
        least
    } else {
        format!("{least} to {most} (depending on the candidate)")
    };
    format!("{rounds} {word} find differences of {range} with a chance of 80 %")
}

/// The undecided comparisons and the needs of each; many that need the same are counted instead of named.
fn listed(open: &[(&str, String)]) -> String {
    if open.len() <= NAMED_MAX {
        let each = open.iter().map(|(name, needs)| format!("{name} ({needs})"));
        return each.collect::<Vec<_>>().join(", ");
    }
    let mut by_need: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, needs) in open {
        match by_need.iter_mut().find(|(known, _)| known == needs) {
            Some((_, names)) => names.push(name),
            None => by_need.push((needs, vec![name])),
        }
    }
    let each = by_need.iter().map(|(needs, names)| match &names[..] {
        [name] => format!("{name} ({needs})"),
        names => format!("{} candidates (each {needs})", names.len()),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The needs of an undecided comparison.
fn still_open(comparison: &Comparison) -> Option<(&str, String)> {
    let Verdict::Undecided { rounds_needed } = comparison.verdict else {
        return None;
    };
    Some((comparison.candidate.as_str(), needs_text(rounds_needed)))
}

#[cfg(test)]
#[path = "tests/standing.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/resolution.rs"]
mod resolution_tests;
