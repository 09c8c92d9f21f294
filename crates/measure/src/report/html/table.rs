//! Every measure of every candidate in one table: the evidence in full.

use super::escape;
use super::frame::scroll;
use crate::record::{
    CandidateRounds, ComparisonRecord, Measure, MeasureComparisons, Quantity, Role, Unit,
};
use crate::report::find;
use crate::statistics::{Comparison, Direction};

/// What a measure is about: the table's groups, in the order in which they can be believed last to
/// first.
const GROUPS: [&str; 4] = [
    "Throughput and latency",
    "Memory",
    "Work and its causes, per request",
    "Of the load program",
];

fn group_of(quantity: Quantity) -> usize {
    match (quantity, quantity.unit()) {
        (Quantity::Custom(_), _) => 3,
        (Quantity::HeapCalls | Quantity::HeapBytes, _) => 2,
        (Quantity::Mappings, _) | (_, Unit::Bytes | Unit::Ratio) => 1,
        (_, Unit::Count) => 2,
        (Quantity::CpuTime | Quantity::UserCpu | Quantity::SystemCpu, _) => 2,
        _ => 0,
    }
}

/// Measures down, candidates across, so that further measures never widen the page. The colder or
/// warmer a cell, the more it differs; nothing is coloured that the verdict does not carry.
pub(super) fn all_measures(record: &ComparisonRecord) -> String {
    let mut text = String::new();
    for (index, title) in GROUPS.iter().enumerate() {
        let details = record.analysis.details.iter();
        let rows: String = details
            .filter(|detail| group_of(detail.measure.quantity) == index)
            .map(|detail| row(record, detail))
            .collect();
        if !rows.is_empty() {
            let columns = record.candidates.len() + 1;
            text += &format!(
                "</tbody><tbody><tr><th class=\"group\" scope=\"rowgroup\" colspan=\"{columns}\">\
                 {title}</th></tr>{rows}"
            );
        }
    }
    let names = record.candidates.iter().map(|one| one.name.as_str());
    let head: Vec<&str> = std::iter::once("median over rounds").chain(names).collect();
    with_head("Every measure of every candidate", &head, &text)
}

fn row(record: &ComparisonRecord, detail: &MeasureComparisons) -> String {
    let measure = detail.measure;
    let mut text = format!("<tr><th scope=\"row\">{}</th>", escape(&measure.label()));
    for candidate in &record.candidates {
        let comparison = find(&detail.comparisons, &candidate.name);
        text += &cell(candidate, measure, comparison);
    }
    text + "</tr>"
}

fn cell(candidate: &CandidateRounds, measure: Measure, comparison: Option<&Comparison>) -> String {
    let Some(median) = candidate.median(measure) else {
        return "<td>\u{2013}</td>".to_owned();
    };
    // An estimate, because its hardware counter was shared.
    let about = if candidate.is_scaled(measure) {
        "~"
    } else {
        ""
    };
    let value = format!("{about}{}", measure.quantity.unit().format(median));
    let Some(comparison) = comparison else {
        let note = if candidate.role == Role::Baseline {
            "baseline"
        } else {
            ""
        };
        return format!(
            "<td>{}<br><span class=\"hint\">{note}</span></td>",
            escape(&value)
        );
    };
    let label = match comparison.rounds {
        1 => "counted once",
        _ => comparison.verdict.label(),
    };
    let class = label.replace(' ', "-");
    format!(
        "<td{} title=\"{}\">{}<br><span class=\"v-{class}\">{}</span></td>",
        heat(comparison, measure.quantity.direction()),
        escape(&comparison.sentence),
        escape(&value),
        escape(&relation(comparison.ratio, label))
    )
}

/// A background for a difference: three strengths, from the margin to ten times as much.
fn heat(comparison: &Comparison, direction: Direction) -> String {
    let Some(ratio) = comparison.ratio.filter(|ratio| *ratio > 0.0) else {
        return String::new();
    };
    if !comparison.verdict.is_difference() {
        return String::new();
    }
    let size = ratio.ln().abs() / comparison.margin.ln_1p().max(1e-9);
    let strength = if size > 10.0 {
        3
    } else if size > 3.0 {
        2
    } else {
        1
    };
    let good = (ratio > 1.0) == (direction == Direction::HigherIsBetter);
    let way = if good { "good" } else { "bad" };
    format!(" class=\"{way} heat{strength}\"")
}

fn relation(ratio: Option<f64>, label: &str) -> String {
    let short = match label {
        "equivalent" => "equal",
        "undecided" => "?",
        "not trusted" => "not trusted",
        other => other,
    };
    match ratio {
        Some(ratio) => format!("{ratio:.2}x {short}"),
        None => short.to_owned(),
    }
}

/// A table under its column heads; `rows` is finished HTML.
pub(super) fn with_head(caption: &str, head: &[&str], rows: &str) -> String {
    let head: String = head
        .iter()
        .map(|name| format!("<th scope=\"col\">{}</th>", escape(name)))
        .collect();
    let table = format!(
        "<table><caption>{}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>",
        escape(caption)
    );
    scroll(caption, &table.replace("<tbody></tbody>", ""))
}

/// Two columns, name and value.
pub(super) fn facts(caption: &str, lines: &[(String, String)]) -> String {
    let mut text = format!(
        "<table class=\"facts\"><caption>{}</caption><tbody>",
        escape(caption)
    );
    for (name, value) in lines {
        text += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    text + "</tbody></table>"
}
