//! What became of each candidate since an earlier record.

use super::page::forest_of;
use super::{Look, escape, prose};
use crate::record::{ComparisonRecord, RegressionBy, RegressionQuestion};
use crate::units::format_utc;

/// The answer, beside the others; empty without an earlier record.
pub(super) fn answer(record: &ComparisonRecord) -> String {
    let Some(regression) = &record.regression else {
        return String::new();
    };
    let class = if regression.regressed || !regression.is_judged() {
        "card wide untrusted"
    } else {
        "card wide"
    };
    let mut text = format!(
        "<div class=\"{class}\"><p class=\"q\">Since the earlier record of {} (millpond {}{}, {} \
         rounds)?</p><p>{}</p>",
        format_utc(regression.earlier_started_unix_s),
        escape(&regression.earlier_version),
        regression
            .earlier_commit
            .as_ref()
            .map_or_else(String::new, |commit| format!(" {}", escape(commit))),
        regression.earlier_rounds,
        prose(&regression.sentence)
    );
    if !regression.warnings.is_empty() {
        let lines = regression.warnings.iter();
        let lines: String = lines
            .map(|one| format!("<li>{}</li>", prose(one)))
            .collect();
        text += &format!("<ul>{lines}</ul>");
    }
    text + "</div>\n"
}

/// One plot for each question.
pub(super) fn plots(record: &ComparisonRecord, looks: &[Look]) -> String {
    let Some(regression) = &record.regression else {
        return String::new();
    };
    let mut text: String = regression
        .questions
        .iter()
        .map(|question| plot(record, looks, question))
        .collect();
    if !text.is_empty() {
        text += "<p class=\"hint\">Rounds of two sessions are not paired: the estimate is the \
                 Hodges-Lehmann shift of two samples, the interval and p are those of the exact rank-sum \
                 test, corrected over all comparisons here together (Holm). What a clock has a part in is \
                 compared as ratios to the baseline of the same round, so that the machine\u{2019}s drift \
                 cancels; memory and instructions are compared as they are.</p>";
    }
    text
}

fn plot(record: &ComparisonRecord, looks: &[Look], question: &RegressionQuestion) -> String {
    let Some(first) = question.measures.first() else {
        return String::new();
    };
    let labels: Vec<String> = question.measures.iter().map(|one| one.label()).collect();
    let by = match question.by {
        RegressionBy::Ratio => " relative to the baseline",
        RegressionBy::Value => "",
    };
    let title = format!("{}{by}, now over then", labels.join(" and "));
    let direction = first.quantity.direction();
    forest_of(record, looks, &title, &question.comparisons, direction)
}
