//! What memory does from phase to phase, in sentences and one table.

use super::{escape, prose, table};
use crate::record::{ComparisonRecord, MemoryParts, PhasesAnswer, RoundsEstimate};
use crate::units::{format_bytes, format_duration_ns};

/// Empty of a comparison without phases.
pub(super) fn section(record: &ComparisonRecord) -> String {
    let answers = &record.analysis.phases;
    if answers.is_empty() {
        return String::new();
    }
    let sentences: String = answers
        .iter()
        .map(|one| {
            let heap = match one.heap_sentence.is_empty() {
                true => String::new(),
                false => format!(" {}", prose(&without_name(one))),
            };
            format!("<li>{}{heap}</li>", prose(&one.sentence))
        })
        .collect();
    let hint = "Intervals are over rounds, each of which starts every candidate anew; medians over the cycles of a \
                round. Peak and floor are of what the processes keep by themselves. Live and retained are of a run of \
                its own, in which the heap is traced.";
    format!(
        "<ul>{sentences}</ul>{}<p class=\"hint\">{hint}</p>{}",
        figures(record),
        parts(record)
    )
}

/// What memory is made of at the end of each phase, and which of it ends a process.
fn parts(record: &ComparisonRecord) -> String {
    let Some(plan) = &record.settings.phases else {
        return String::new();
    };
    let head = [
        "candidate, at the end of",
        "anonymous",
        "of it lazily freed",
        "of it huge pages",
        "swapped",
        "shared",
        "mapped files",
        "kernel",
        "working set",
        "mappings",
    ];
    let mut rows = String::new();
    for one in &record.analysis.phases {
        for (place, parts) in one.ends_parts.iter().enumerate() {
            if *parts == MemoryParts::default() {
                continue;
            }
            let bytes = [
                parts.anonymous_bytes,
                parts.lazy_free_bytes,
                parts.huge_page_bytes,
                parts.swapped_bytes,
                parts.shared_bytes,
                parts.file_bytes,
                parts.kernel_bytes,
                parts.working_set_bytes,
            ];
            let mut cells: Vec<String> = bytes
                .iter()
                .map(|part| part.map_or_else(dash, |part| format_bytes(part as f64)))
                .collect();
            cells.push(parts.mappings.map_or_else(dash, |count| count.to_string()));
            let cells: String = cells
                .iter()
                .map(|cell| format!("<td>{cell}</td>"))
                .collect();
            let name = format!("{}, {}", one.candidate, plan.label(place));
            rows += &format!(
                "<tr><th scope=\"row\" class=\"name\">{}</th>{cells}</tr>",
                escape(&name)
            );
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let note = "What ends a process: under a limit the kernel first takes back mapped files and lazily freed pages; it \
                kills once what it cannot take back reaches the limit, that is anonymous memory without the lazily \
                freed, shared memory and the kernel's own. Kubernetes evicts by the working set: all that counts \
                against the limit, without files (and lazily freed pages) that were not used lately. Swapped memory is \
                in neither.";
    let table = table::with_head("What memory is made of, by medians", &head, &rows);
    format!("{table}<p class=\"hint\">{note}</p>")
}

/// The second sentence follows one that has the name already.
fn without_name(answer: &PhasesAnswer) -> String {
    let sentence = answer.heap_sentence.as_str();
    let rest = sentence.strip_prefix(&format!("{}: ", answer.candidate));
    let rest = rest.unwrap_or(sentence);
    let mut letters = rest.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn figures(record: &ComparisonRecord) -> String {
    let Some(plan) = &record.settings.phases else {
        return String::new();
    };
    let labels = (0..plan.phases.len()).map(|place| format!("end of {}", plan.label(place)));
    let mut head = vec!["candidate".to_owned()];
    head.extend(labels);
    head.extend(
        [
            "peak",
            "after the burst",
            "time to fall",
            "growth per cycle",
            "live",
            "retained",
        ]
        .map(str::to_owned),
    );
    let mut rows = String::new();
    for one in &record.analysis.phases {
        let bytes = |estimate: Option<RoundsEstimate>| cell(estimate, format_bytes);
        let mut cells: Vec<String> = one.ends_bytes.iter().map(|end| bytes(*end)).collect();
        cells.extend([
            bytes(one.peak_bytes),
            bytes(one.floor_bytes),
            cell(one.reached_ns, format_duration_ns),
            bytes(one.growth_bytes),
        ]);
        let live = one.live_bytes.map(|live| live as f64);
        let retained = one.live_bytes.zip(one.malloc_bytes);
        let retained = retained.map(|(live, malloc)| malloc.saturating_sub(live) as f64);
        cells.extend([live, retained].map(|bytes| bytes.map_or_else(dash, format_bytes)));
        rows += &format!(
            "<tr><th scope=\"row\" class=\"name\">{}</th>",
            escape(&one.candidate)
        );
        for cell in cells {
            rows += &format!("<td>{cell}</td>");
        }
        rows += "</tr>";
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table::with_head(
        "Memory at the end of each phase, and what is left of a burst",
        &head,
        &rows,
    )
}

fn dash() -> String {
    "-".to_owned()
}

fn cell(estimate: Option<RoundsEstimate>, format: impl Fn(f64) -> String) -> String {
    estimate.map_or_else(dash, |one| {
        let [value, low, high] = [one.value, one.low, one.high].map(format);
        format!("{value}<br><small>{low} to {high}</small>")
    })
}
