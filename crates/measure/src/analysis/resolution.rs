//! What a question's rounds can show, and what they leave open: the line below its answer, and the
//! reason to go on with rounds or to stop.

use std::fmt;

use super::{Design, Field, question, settings_front};
use crate::record::{CandidateRounds, QuestionVerdict, Verdicts};
use crate::statistics::{Comparison, Verdict, median, needs_text, width_ratio};
use crate::units::format_percent;

/// More that are undecided are not named one by one.
const NAMED_MAX: usize = 5;

/// A verdict that is undecided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenVerdict {
    /// `throughput`, `latency` or `memory`; of settings `CPU per request` too.
    pub question: &'static str,
    /// Of whom.
    pub candidate: String,
}

impl fmt::Display for OpenVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.question, self.candidate)
    }
}

/// The verdicts of the three questions that more rounds could still decide.
///
/// What is not to be trusted is not among them: more rounds on a busy machine are as busy. Nor is the
/// baseline's double, whose work is done when it is not called different; unless it is all there is.
#[must_use]
pub fn open_verdicts(candidates: &[CandidateRounds], design: Design) -> Vec<OpenVerdict> {
    let Some(field) = Field::new(candidates, design) else {
        return Vec::new();
    };
    let verdicts = question::answer_all(&field);
    let has_others = field.entrants().count() > 1;
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
    /// What counts as the same. Up to half of it, every verdict will be decided.
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
pub(super) fn sentence(field: &Field<'_>, comparisons: &[Comparison]) -> String {
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

/// What is undecided and what each needs; many that need the same are counted instead of named.
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

/// What an undecided comparison needs.
fn still_open(comparison: &Comparison) -> Option<(&str, String)> {
    let Verdict::Undecided { rounds_needed } = comparison.verdict else {
        return None;
    };
    Some((comparison.candidate.as_str(), needs_text(rounds_needed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen settings that all needed seven more rounds filled a card of the page.
    ///
    /// Goal: a few are named; of many, those that need the same are counted, and none is lost.
    #[test]
    fn many_that_need_the_same_are_counted() {
        let needs = |rounds: u32| format!("needs about {rounds} more rounds");
        let few = [("a", needs(7)), ("b", needs(7))];
        assert_eq!(
            listed(&few),
            "a (needs about 7 more rounds), b (needs about 7 more rounds)"
        );
        let mut many = vec![("x", needs(41))];
        for name in ["a", "b", "c", "d", "e"] {
            many.push((name, needs(7)));
        }
        assert_eq!(
            listed(&many),
            "x (needs about 41 more rounds), 5 candidates (each needs about 7 more rounds)"
        );
    }
}
