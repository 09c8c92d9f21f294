//! Every measure of every candidate in one table: the evidence in full.

use super::escape;
use crate::record::{ComparisonRecord, Role};
use crate::report::find;

/// Measures down, candidates across, so that further measures never widen the page.
pub(super) fn all_measures(record: &ComparisonRecord) -> String {
    let mut text =
        String::from("<div class=\"scroll\"><table><thead><tr><th>median over rounds</th>");
    for candidate in &record.candidates {
        text += &format!("<th>{}</th>", escape(&candidate.name));
    }
    text += "</tr></thead><tbody>";
    for detail in &record.analysis.details {
        let measure = detail.measure;
        text += &format!("<tr><th>{}</th>", escape(&measure.label()));
        for candidate in &record.candidates {
            let value = candidate.median(measure).map_or_else(
                || "\u{2013}".to_owned(),
                |value| measure.quantity.unit().format(value),
            );
            match find(&detail.comparisons, &candidate.name) {
                Some(comparison) if candidate.median(measure).is_some() => {
                    let class = comparison.verdict.label().replace(' ', "-");
                    text += &format!(
                        "<td title=\"{}\">{}<br><span class=\"v-{class}\">{}</span></td>",
                        escape(&comparison.sentence),
                        escape(&value),
                        escape(&relation(comparison.ratio, comparison.verdict.label()))
                    );
                }
                _ => {
                    let note = if candidate.role == Role::Baseline {
                        "baseline"
                    } else {
                        ""
                    };
                    text += &format!(
                        "<td>{}<br><span class=\"hint\">{note}</span></td>",
                        escape(&value)
                    );
                }
            }
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
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

/// Two columns, name and value.
pub(super) fn facts(lines: &[(String, String)]) -> String {
    let mut text = String::from("<table class=\"facts\">");
    for (name, value) in lines {
        text += &format!(
            "<tr><th>{}</th><td>{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    text + "</table>"
}
