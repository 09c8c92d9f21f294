//! What memory does from phase to phase, in sentences and one table.

use super::{escape, prose, table};
use crate::record::{ComparisonRecord, MemoryParts, PhasesAnswer, RoundsEstimate};
use crate::units::{capitalised, format_bytes, format_duration_ns};

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

/// A column of the table of parts.
type PartColumn = (&'static str, fn(&MemoryParts) -> Option<u64>);

const PARTS: [PartColumn; 8] = [
    ("anonymous", |one| one.anonymous_bytes),
    ("of it lazily freed", |one| one.lazy_free_bytes),
    ("of it huge pages", |one| one.huge_page_bytes),
    ("swapped", |one| one.swapped_bytes),
    ("shared", |one| one.shared_bytes),
    ("mapped files", |one| one.file_bytes),
    ("kernel", |one| one.kernel_bytes),
    ("working set", |one| one.working_set_bytes),
];

/// What memory is made of at the end of each phase, and which of it ends a process. Parts that nobody has are left out.
fn parts(record: &ComparisonRecord) -> String {
    let Some(plan) = &record.settings.phases else {
        return String::new();
    };
    let answers = &record.analysis.phases;
    let all = || answers.iter().flat_map(|one| &one.ends_parts);
    let columns = PARTS
        .iter()
        .filter(|(_, part)| all().any(|one| part(one).unwrap_or(0) > 0));
    let columns: Vec<&PartColumn> = columns.collect();
    if columns.is_empty() {
        return String::new();
    }
    let mut head = vec!["candidate, at the end of"];
    head.extend(columns.iter().map(|(name, _)| *name));
    head.push("mappings");
    let mut rows = String::new();
    for one in answers {
        for (place, parts) in one.ends_parts.iter().enumerate() {
            let name = format!("{}, {}", one.candidate, plan.label(place));
            rows += &format!(
                "<tr><th scope=\"row\" class=\"name\">{}</th>",
                escape(&name)
            );
            for (_, part) in &columns {
                let bytes = part(parts).map_or_else(dash, |part| format_bytes(part as f64));
                rows += &format!("<td>{bytes}</td>");
            }
            let mappings = parts.mappings.map_or_else(dash, |count| count.to_string());
            rows += &format!("<td>{mappings}</td></tr>");
        }
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
    capitalised(rest.unwrap_or(sentence))
}

fn figures(record: &ComparisonRecord) -> String {
    let Some(plan) = &record.settings.phases else {
        return String::new();
    };
    let labels = (0..plan.phases.len()).map(|place| format!("end of {}", plan.label(place)));
    let has_burst = plan.last_burst().is_some();
    let of_bursts = [
        "peak",
        "after the burst",
        "time to fall",
        "growth per cycle",
    ];
    let of_bursts = of_bursts.iter().filter(|_| has_burst);
    let mut head = vec!["candidate".to_owned()];
    head.extend(labels);
    let rest = of_bursts.chain(&["live", "retained"]);
    head.extend(rest.map(|&name| name.to_owned()));
    let mut rows = String::new();
    for one in &record.analysis.phases {
        let bytes = |estimate: Option<RoundsEstimate>| cell(estimate, format_bytes);
        let mut cells: Vec<String> = one.ends_bytes.iter().map(|end| bytes(*end)).collect();
        let of_bursts = [
            bytes(one.peak_bytes),
            bytes(one.floor_bytes),
            cell(one.reached_ns, format_duration_ns),
            bytes(one.growth_bytes),
        ];
        cells.extend(of_bursts.into_iter().filter(|_| has_burst));
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
