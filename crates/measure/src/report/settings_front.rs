//! Settings of one allocator on a terminal: what each changes, and the lines that set those on the front. The words for
//! the page are here too.

use super::deploy;
use super::terminal::paint;
use super::terminal::wrapped;
use crate::record::{ComparisonRecord, SettingAnswer, SettingEffect, SettingsFront};
use crate::statistics::{Comparison, Verdict};
use crate::units::{format_bytes, format_change, format_duration_ns, format_percent};

/// Settings that are longer have a line of their own.
pub(super) const NAME_COLUMNS_MAX: usize = 32;
/// A sentence on a comment line is no longer than this, whatever the width.
const COMMENT: &str = "  # ";

/// The section; empty of a comparison that is not one of settings.
pub(super) fn text(record: &ComparisonRecord, width: usize, colour: bool) -> String {
    let Some(found) = &record.analysis.settings_front else {
        return String::new();
    };
    let title = format!(
        "\nWhich setting of {} ({} against {}):\n",
        found.allocator,
        memory_title(found),
        "CPU per request"
    );
    let summary = wrapped(&format!("  {}", found.sentence), width, "    ");
    let marks = wrapped(
        "  * on the front: the default, and what certainly needs less of one than it, unless another of these needs as \
         little of both, by the estimates. \u{b1}: how far the interval reaches; same: within the margin; ?: undecided",
        width,
        "    ",
    );
    title + &summary + "\n" + &table(found, colour) + &marks + &lines_to_paste(record, found, width)
}

/// The name of the measure for memory.
pub(super) fn memory_title(found: &SettingsFront) -> String {
    match found.memory.first() {
        None => "memory".to_owned(),
        Some(first) => match first.quantity.label() {
            "after the burst" => "memory after the burst".to_owned(),
            label => label.to_owned(),
        },
    }
}

/// One axis of the default: its value, or a dash where it is a mean of several.
pub(super) fn of_default(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// One axis of a setting: `-38 % ±2`, `same ±1.2 %`, `? -3 to +9 %`.
pub(super) fn cell(one: Option<&Comparison>) -> String {
    let Some((one, estimate)) = one.and_then(|one| Some((one, one.estimate()?))) else {
        return "-".to_owned();
    };
    let half = (estimate.high - estimate.ratio).max(estimate.ratio - estimate.low);
    let furthest = (estimate.low - 1.0).abs().max((estimate.high - 1.0).abs());
    match one.verdict {
        Verdict::Better | Verdict::Worse => format!(
            "{} \u{b1}{}",
            format_change(estimate.ratio),
            format_percent(half).trim_end_matches(" %")
        ),
        Verdict::Equivalent => format!("same \u{b1}{}", format_percent(furthest)),
        Verdict::Undecided { .. } if one.is_blind() => "? few rounds".to_owned(),
        Verdict::Undecided { .. } => format!(
            "? {} to {}",
            format_change(estimate.low).trim_end_matches(" %"),
            format_change(estimate.high)
        ),
        Verdict::NotTrusted { .. } => "! not trusted".to_owned(),
    }
}

/// The verdict on a setting beside its numbers.
pub(super) fn verdict(one: &SettingAnswer) -> &'static str {
    match (one.effect, one.is_on_front) {
        (SettingEffect::Default, true) => "default, front",
        (SettingEffect::Changes, true) => "front",
        (SettingEffect::Changes, false) if one.has_gain() => "dominated",
        (SettingEffect::Changes, false) => "no gain",
        (other, _) => other.label(),
    }
}

fn table(found: &SettingsFront, colour: bool) -> String {
    let cells = |one: &SettingAnswer| match one.effect {
        SettingEffect::Default => [
            of_default(found.default_memory_bytes, format_bytes),
            of_default(found.default_cpu_ns, format_duration_ns),
        ],
        _ => [&one.memory, &one.cpu].map(|axis| cell(axis.as_ref())),
    };
    let length = |text: &str| text.chars().count();
    let column = |place: usize, head: &str| {
        let all = found.settings.iter().map(|one| length(&cells(one)[place]));
        all.max().unwrap_or(0).max(length(head))
    };
    let heads = ["memory", "CPU/req"];
    let widths = [column(0, heads[0]), column(1, heads[1])];
    let names = found.settings.iter().map(|one| length(&one.setting));
    let name_width = names
        .filter(|&it| it <= NAME_COLUMNS_MAX)
        .max()
        .unwrap_or(9)
        .max(9);
    let mut text = format!(
        "  {:<name_width$}  {:>a$}  {:>b$}\n",
        "setting",
        heads[0],
        heads[1],
        a = widths[0],
        b = widths[1]
    );
    for one in &found.settings {
        let mark = if one.is_on_front { "* " } else { "  " };
        text += mark;
        text += &format!("{:<name_width$}", one.setting);
        if length(&one.setting) > name_width {
            text += &format!("\n  {:name_width$}", "");
        }
        let axes = [&one.memory, &one.cpu];
        for ((cell, width), axis) in cells(one).iter().zip(widths).zip(axes) {
            let verdict = axis.as_ref().map(|axis| &axis.verdict);
            text += "  ";
            text += &paint(&format!("{cell:>width$}"), verdict, colour);
        }
        text += &format!("  {}", verdict(one));
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Each member of the front, as a unit file and a Dockerfile have it.
fn lines_to_paste(record: &ComparisonRecord, found: &SettingsFront, width: usize) -> String {
    let title =
        "The front as lines of a unit file ([Service]) or a Dockerfile, the least memory first:";
    let mut text = format!("\n{}", wrapped(title, width, "  "));
    for one in found.on_front() {
        text += &wrapped(&format!("{COMMENT}{}", comment(one)), width, COMMENT);
        for line in lines(record, one) {
            text += &format!("  {line}\n");
        }
    }
    if let Some(preload) = preloaded(record) {
        text += &wrapped(&format!("  {preload}"), width, "    ");
    }
    text
}

/// Its kind and its effect.
pub(super) fn comment(one: &SettingAnswer) -> String {
    if one.effect == SettingEffect::Default {
        return format!("{}: nothing to set", one.setting);
    }
    let mut text = format!(
        "{} ({}): {}",
        one.setting, one.what_it_changes, one.sentence
    );
    if !one.alike.is_empty() {
        text += &format!("; not distinguished from {}", one.alike.join("; "));
    }
    text
}

/// The lines that set it; none for the default.
pub(super) fn lines(record: &ComparisonRecord, one: &SettingAnswer) -> Vec<String> {
    let deployment = deploy::beside_baseline(record, &one.candidate);
    let deployment = deployment.filter(|_| one.effect != SettingEffect::Default);
    deployment.map_or_else(Vec::new, |it| {
        let mut lines = it.systemd();
        lines.push(it.docker());
        lines
    })
}

/// The objects that all of them need besides, the default too; `None` for a server's own allocator.
pub(super) fn preloaded(record: &ComparisonRecord) -> Option<String> {
    let baseline = deploy::of_baseline(record)?;
    Some(format!(
        "All were measured with {}; a server that links this allocator needs only the lines above.",
        baseline.shell()
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{CandidateRounds, Library, Measure, Quantity, Role};
    use crate::report::terminal::{TerminalOptions, render};

    fn comparison(ratio: f64, verdict: Verdict) -> Comparison {
        Comparison {
            ratio: Some(ratio),
            ..Comparison::planted(ratio / 1.01, ratio * 1.01, verdict)
        }
    }

    fn answer(setting: &str, memory: f64, verdict: Verdict) -> SettingAnswer {
        let effect = match verdict {
            Verdict::Better => SettingEffect::Changes,
            Verdict::Undecided { .. } => SettingEffect::Undecided,
            _ => SettingEffect::Nothing,
        };
        SettingAnswer {
            candidate: format!("jemalloc:{setting}"),
            setting: setting.to_owned(),
            what_it_changes: "one arena".to_owned(),
            effect,
            is_on_front: effect == SettingEffect::Changes,
            memory: Some(comparison(memory, verdict)),
            cpu: Some(comparison(1.001, Verdict::Equivalent)),
            sentence: "memory less".to_owned(),
            ..SettingAnswer::default()
        }
    }

    fn candidate(one: &SettingAnswer) -> CandidateRounds {
        let is_default = one.effect == SettingEffect::Default;
        let conf = format!("MALLOC_CONF={}", one.setting.replace('=', ":"));
        CandidateRounds {
            name: one.candidate.clone(),
            allocator: one.candidate.clone(),
            role: match is_default {
                true => Role::Baseline,
                false => Role::Candidate,
            },
            library: Some(Library {
                path: "/lib/libjemalloc.so.2".to_owned(),
                ..Library::default()
            }),
            environment: (!is_default).then_some(conf).into_iter().collect(),
            what_it_changes: one.what_it_changes.clone(),
            ..CandidateRounds::default()
        }
    }

    /// Three settings of an invented comparison.
    pub(in crate::report) fn record() -> ComparisonRecord {
        let default = SettingAnswer {
            candidate: "jemalloc".to_owned(),
            setting: "(default)".to_owned(),
            effect: SettingEffect::Default,
            is_on_front: true,
            ..SettingAnswer::default()
        };
        let long = "background_thread=true,dirty_decay_ms=1000";
        let settings = vec![
            default,
            answer("narenas=1", 0.62, Verdict::Better),
            answer(long, 1.002, Verdict::Equivalent),
            answer("<b>", 1.03, Verdict::Undecided { rounds_needed: 9 }),
        ];
        let mut record = ComparisonRecord::new("1");
        record.candidates = settings.iter().map(candidate).collect();
        record.analysis.settings_front = Some(SettingsFront {
            allocator: "jemalloc".to_owned(),
            memory: vec![Measure::whole(Quantity::MemoryAfterWork)],
            cpu: vec![Measure::whole(Quantity::CpuTime)],
            default_memory_bytes: Some(4e7),
            default_cpu_ns: None,
            front: vec!["jemalloc:narenas=1".to_owned(), "jemalloc".to_owned()],
            sentence: "Of 3 settings of jemalloc 1 changes memory.".to_owned(),
            settings,
        });
        record
    }

    /// Goal: in 80 columns each setting has its numbers and its verdict, the front is marked, and its lines can be pasted;
    /// the library is said once.
    #[test]
    fn settings_are_a_table_and_lines_to_paste() {
        let options = TerminalOptions {
            width: 80,
            ..TerminalOptions::default()
        };
        let text = render(&record(), &options);
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        for part in [
            "Which setting of jemalloc (memory against CPU per request)",
            "* (default)",
            "* narenas=1 -38 % \u{b1}0.6 same \u{b1}1.1 % front",
            "dirty_decay_ms=1000 same \u{b1}1.2 % same \u{b1}1.1 % changes nothing",
            "? +2 to +4 % same \u{b1}1.1 % undecided",
            "# (default): nothing to set",
            "All were measured with LD_PRELOAD=/lib/libjemalloc.so.2",
        ] {
            assert!(words.contains(part), "{part}: {text}");
        }
        let pasted = "\n  Environment=\"MALLOC_CONF=narenas:1\"\n  ENV MALLOC_CONF=\"narenas:1\"\n";
        assert!(text.contains(pasted), "{text}");
        assert_eq!(text.matches("LD_PRELOAD").count(), 1, "{text}");
        let (start, _) = text.split_once("Left out").unwrap_or((&text, ""));
        assert!(
            start.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    /// Goal: a comparison of allocators has no such section, and keeps the lines that it had.
    #[test]
    fn other_comparisons_have_no_settings() {
        let mut record = record();
        record.analysis.settings_front = None;
        assert_eq!(text(&record, 80, false), "");
        assert!(!render(&record, &TerminalOptions::default()).contains("Which setting"));
    }
}
