//! Every measure of every candidate in one table: the evidence in full.

use crate::record::{
    BlockCheck, CandidateRounds, ComparisonRecord, Measure, MeasureComparisons, Quantity,
    RegressionBy, RegressionQuestion, Role, Unit,
};
use crate::report::find;
use crate::report::terminal::shell_quoted;
use crate::statistics::{Comparison, Direction, Estimate};
use crate::units::{format_duration_ns, format_three_digits, format_utc};

use super::page::forest_of;
use super::scroll;
use super::{Look, escape, prose};

/// The topic of a measure: the table's groups, the most reliable last.
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

/// A table under its column headings; `rows` is finished HTML.
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

// The commands that repeat a comparison, as a shell takes them.

/// The comparison with the random choices that were drawn, the page again, and the check against it.
pub(super) fn to_repeat(record: &ComparisonRecord) -> Vec<String> {
    if record.command.is_empty() {
        return Vec::new();
    }
    let mut words = record.command.clone();
    let own = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let is_seed = |word: &String| word == "--seed" || word.starts_with("--seed=");
    if !words[..own].iter().any(is_seed) {
        // Before the `--` that begins the user's command.
        words.splice(
            own..own,
            ["--seed".to_owned(), record.settings.seed.to_string()],
        );
    }
    vec![
        format!("{}   # the same order of runs", line(&words)),
        "millpond report millpond-report/results.json   # this page again".to_owned(),
        format!(
            "{}   # did it become worse since?",
            line(&with_baseline(&record.command))
        ),
    ]
}

fn with_baseline(command: &[String]) -> Vec<String> {
    let mut words = command.to_vec();
    let own = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let flags = ["--baseline", "results.json"].map(str::to_owned);
    words.splice(own..own, flags);
    words
}

/// Words as one line for a POSIX shell.
fn line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
    words.join(" ")
}

// What slices show beside what uninterrupted blocks of the same processes show.

/// Empty if there were no blocks.
pub(super) fn section(record: &ComparisonRecord) -> String {
    let rows: String = record
        .candidates
        .iter()
        .flat_map(|one| {
            one.block_checks
                .iter()
                .map(|check| blocks_row(&one.name, check))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "candidate",
        "requests",
        "throughput: blocks / slices",
        "CPU time: blocks / slices",
        "page faults per request: slices, blocks",
        "madvise calls per request: slices, blocks",
        "figures come from",
    ];
    format!(
        "<p>Throughput and CPU time are measured in slices of {}, and the other candidates stand still \
         meanwhile. What a server or an allocator does by the clock would come too often then. So every round \
         also has an uninterrupted block of {} per candidate. Below, each candidate's ratio to the baseline in \
         blocks is divided by its ratio in slices: 1 means that both tell the same. Where the interval \
         excludes 1 after correction for all candidates, the figures come from blocks alone.</p>{}",
        format_duration_ns(record.settings.slice_ns as f64),
        format_duration_ns(record.settings.block_ns as f64),
        with_head("Slices against uninterrupted blocks", &head, &rows)
    )
}

fn blocks_row(name: &str, check: &BlockCheck) -> String {
    let ratio = |estimate: Option<Estimate>| match estimate {
        Some(Estimate { ratio, low, high }) => format!("{ratio:.3} [{low:.3}, {high:.3}]"),
        None => "too few rounds".to_owned(),
    };
    let count = |count: Option<f64>| count.map_or("\u{2013}".to_owned(), format_three_digits);
    let pair = |slices, blocks| format!("{}, {}", count(slices), count(blocks));
    let cells = [
        check.operation.label().to_owned(),
        ratio(check.throughput),
        ratio(check.cpu_time),
        pair(check.minor_faults_in_slices, check.minor_faults_in_blocks),
        pair(check.madvise_calls_in_slices, check.madvise_calls_in_blocks),
        if check.is_used { "blocks" } else { "both" }.to_owned(),
    ];
    let cells: String = cells
        .iter()
        .map(|cell| format!("<td>{}</td>", escape(cell)))
        .collect();
    format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(name))
}

// The change of each candidate since an earlier record.

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

#[cfg(test)]
#[path = "tests/commands.rs"]
mod commands_tests;
