//! What slices tell beside what uninterrupted blocks of the same processes tell.

use super::escape;
use super::table::with_head;
use crate::record::{BlockCheck, ComparisonRecord};
use crate::statistics::Estimate;
use crate::units::{format_duration_ns, format_three_digits};

/// Empty if there were no blocks.
pub(super) fn section(record: &ComparisonRecord) -> String {
    let rows: String = record
        .candidates
        .iter()
        .flat_map(|one| one.block_checks.iter().map(|check| row(&one.name, check)))
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

fn row(name: &str, check: &BlockCheck) -> String {
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
