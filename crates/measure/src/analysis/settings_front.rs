//! Settings of one allocator: what each changes, and the front of memory against CPU per request.
//!
//! Reads the comparisons with the default that the table has, with their correction for so many candidates, and adds no
//! test of its own. On the front by estimates is only a candidate that certainly needs less of one than the default, and the default: a
//! setting that changes nothing is the default with noise, and one whose price is proved and whose gain is not is no choice;
//! either would stand on a front of estimates half of the times by chance.

use super::Field;
use super::question::{self, CPU};
use super::standing::{Standing, standing};
use crate::record::{
    CandidateRounds, Measure, QuestionVerdict, Role, SettingAnswer, SettingEffect, SettingsFront,
};
use crate::statistics::{Comparison, Direction, Verdict, needs_text};
use crate::units::{format_change, format_percent};

/// The name of the default among settings.
const DEFAULT: &str = "(default)";

/// Whether these are settings of one allocator, each of which says what it changes.
pub(super) fn is_asked(field: &Field<'_>) -> bool {
    field.all().any(|one| !one.what_it_changes.is_empty())
}

/// `None` of a comparison that is not one of settings. `memory`: the answer to that question.
pub(super) fn of(field: &Field<'_>, memory: &QuestionVerdict) -> Option<SettingsFront> {
    if !is_asked(field) {
        return None;
    }
    let cpu = question::answer(field, &CPU);
    let default = field.baseline;
    let is_setting =
        |one: &&CandidateRounds| one.role == Role::Candidate && !one.what_it_changes.is_empty();
    let find = |all: &QuestionVerdict, name: &str| {
        let mut all = all.comparisons.iter();
        all.find(|one| one.candidate == name).cloned()
    };
    let mut settings = vec![SettingAnswer {
        candidate: default.name.clone(),
        setting: DEFAULT.to_owned(),
        effect: SettingEffect::Default,
        ..SettingAnswer::default()
    }];
    settings.extend(field.all_candidates().filter(is_setting).map(|one| {
        let (memory, cpu) = (find(memory, &one.name), find(&cpu, &one.name));
        SettingAnswer {
            candidate: one.name.clone(),
            setting: setting_of(&one.allocator).to_owned(),
            what_it_changes: one.what_it_changes.clone(),
            effect: effect(memory.as_ref(), cpu.as_ref()),
            sentence: sentence(memory.as_ref(), cpu.as_ref()),
            memory,
            cpu,
            ..SettingAnswer::default()
        }
    }));
    let value = |measures: &[Measure]| match measures {
        [single] => default.median(*single),
        _ => None,
    };
    let mut found = SettingsFront {
        allocator: default.allocator.clone(),
        default_memory_bytes: value(&memory.measures),
        default_cpu_ns: value(&cpu.measures),
        memory: memory.measures.clone(),
        cpu: cpu.measures,
        front: mark_front(&mut settings),
        settings,
        sentence: String::new(),
    };
    found.sentence = summary(&found);
    Some(found)
}

/// `narenas=2` of `jemalloc:narenas=2`, and `+trim=30s` of `glibc+trim=30s`.
fn setting_of(allocator: &str) -> &str {
    match allocator.find([':', '+']) {
        Some(at) if allocator[at..].starts_with(':') => &allocator[at + 1..],
        Some(at) => &allocator[at..],
        None => allocator,
    }
}

fn effect(memory: Option<&Comparison>, cpu: Option<&Comparison>) -> SettingEffect {
    let both: Vec<&Verdict> = [memory, cpu]
        .into_iter()
        .flatten()
        .map(|one| &one.verdict)
        .collect();
    if both.iter().any(|verdict| verdict.is_difference()) {
        SettingEffect::Changes
    } else if both
        .iter()
        .any(|one| matches!(one, Verdict::NotTrusted { .. }))
    {
        SettingEffect::NotTrusted
    } else if both.len() == 2 && both.iter().all(|one| **one == Verdict::Equivalent) {
        SettingEffect::Nothing
    } else {
        SettingEffect::Undecided
    }
}

/// `memory -38 % [-40 %, -36 %], CPU within ±1.3 %`
fn sentence(memory: Option<&Comparison>, cpu: Option<&Comparison>) -> String {
    let parts: Vec<String> = [("memory", memory), ("CPU", cpu)]
        .into_iter()
        .map(|(name, one)| match one {
            Some(one) => format!("{name} {}", change(one)),
            None => format!("{name} not measured"),
        })
        .collect();
    let parts = parts.join(", ");
    match effect(memory, cpu) {
        SettingEffect::Nothing => format!("changes nothing: {parts}"),
        SettingEffect::Undecided => {
            let needed = [memory, cpu].into_iter().flatten();
            let needed = needed.filter_map(|one| match one.verdict {
                Verdict::Undecided { rounds_needed } => Some(rounds_needed),
                _ => None,
            });
            match needed.max() {
                Some(rounds) => format!("undecided: {parts}; {}", needs_text(rounds)),
                None => format!("undecided: {parts}"),
            }
        }
        _ => parts,
    }
}

/// The text on one of both.
fn change(one: &Comparison) -> String {
    let Some(estimate) = one.estimate() else {
        return "not measured".to_owned();
    };
    let [ratio, low, high] = [estimate.ratio, estimate.low, estimate.high];
    let within = format_percent((low - 1.0).abs().max((high - 1.0).abs()));
    match &one.verdict {
        Verdict::Better | Verdict::Worse => format!(
            "{} [{}, {}]",
            format_change(ratio),
            format_change(low),
            format_change(high)
        ),
        Verdict::Equivalent => format!("within \u{b1}{within}"),
        Verdict::Undecided { .. } if one.is_blind() => "not told by so few rounds".to_owned(),
        Verdict::Undecided { .. } => format!(
            "undecided within {} to {}",
            format_change(low),
            format_change(high)
        ),
        Verdict::NotTrusted { reason } => format!("not to be trusted ({reason})"),
    }
}

/// Where a setting that is a choice lies: its memory and CPU against the default's. `None` where one of both is not known,
/// or not to be trusted, or nothing is shown to be gained.
fn place(one: &SettingAnswer) -> Option<(f64, f64)> {
    let ratio = |comparison: &Option<Comparison>| {
        let comparison = comparison.as_ref()?;
        let is_trusted = !matches!(comparison.verdict, Verdict::NotTrusted { .. });
        comparison.ratio.filter(|_| is_trusted)
    };
    match one.effect {
        SettingEffect::Default => Some((1.0, 1.0)),
        _ if !one.has_gain() => None,
        _ => Some((ratio(&one.memory)?, ratio(&one.cpu)?)),
    }
}

/// Whether `one` needs no more of both than `other`, and less of one.
fn dominates(one: (f64, f64), other: (f64, f64)) -> bool {
    one.0 <= other.0 && one.1 <= other.1 && one != other
}

/// Marks the settings on the front, and which of those the intervals do not distinguish; returns their names, the least
/// memory first.
fn mark_front(settings: &mut [SettingAnswer]) -> Vec<String> {
    let places: Vec<Option<(f64, f64)>> = settings.iter().map(place).collect();
    let is_best = |at: (f64, f64)| {
        let mut others = places.iter().flatten();
        !others.any(|&other| dominates(other, at))
    };
    let mut front: Vec<(usize, (f64, f64))> = places
        .iter()
        .enumerate()
        .filter_map(|(index, at)| Some((index, (*at)?)))
        .filter(|&(_, at)| is_best(at))
        .collect();
    front.sort_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
    for &(index, _) in &front {
        let others = front.iter().map(|&(other, _)| other);
        let alike = others.filter(|&other| other != index && is_alike(settings, index, other));
        let alike: Vec<String> = alike.map(|other| settings[other].setting.clone()).collect();
        settings[index].alike = alike;
        settings[index].is_on_front = true;
    }
    let names = front.iter();
    names
        .map(|&(index, _)| settings[index].candidate.clone())
        .collect()
}

/// Whether neither memory nor CPU distinguishes two settings.
fn is_alike(settings: &[SettingAnswer], one: usize, other: usize) -> bool {
    let (one, other) = (&settings[one], &settings[other]);
    let is_told = |a: &Option<Comparison>, b: &Option<Comparison>| {
        let found = standing(a.as_ref(), b.as_ref(), Direction::LowerIsBetter);
        matches!(found, Standing::Better | Standing::Worse)
    };
    !is_told(&one.memory, &other.memory) && !is_told(&one.cpu, &other.cpu)
}

/// How many do what, and which are on the front.
fn summary(found: &SettingsFront) -> String {
    let count = |effect| {
        let all = found.settings.iter();
        all.filter(|one| one.effect == effect).count()
    };
    let of = |effect, one: &str, many: &str| match count(effect) {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let changes = "memory or CPU per request";
    let parts: Vec<String> = [
        of(
            SettingEffect::Changes,
            &format!("changes {changes}"),
            &format!("change {changes}"),
        ),
        of(SettingEffect::Nothing, "changes nothing", "change nothing"),
        of(SettingEffect::Undecided, "is undecided", "are undecided"),
        of(
            SettingEffect::NotTrusted,
            "is not to be trusted",
            "are not to be trusted",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let tried = found.settings.len().saturating_sub(1);
    let allocator = &found.allocator;
    let mut text = match tried {
        1 => format!("Of 1 setting of {allocator} {}.", parts.join(", ")),
        _ => format!("Of {tried} settings of {allocator} {}.", parts.join(", ")),
    };
    let names: Vec<&str> = found.on_front().map(|one| one.setting.as_str()).collect();
    let is_default_best = found
        .on_front()
        .any(|one| one.effect == SettingEffect::Default);
    text += &match names.as_slice() {
        [_] if is_default_best => {
            " Nothing is shown to be a better choice than the default.".to_owned()
        }
        [only] => format!(" {only} needs the least of both."),
        _ => format!(
            " To choose from, the least memory first: {}.",
            names.join("; ")
        ),
    };
    text
}

#[cfg(test)]
#[path = "tests/settings_front.rs"]
mod tests;
