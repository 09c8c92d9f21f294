//! Where time and memory went: of each kind the difference between the baseline and the others first,
//! then each by itself, and the heaviest functions as a table.

use super::frame::figure;
use super::svg::{Form, Svg};
use super::table::with_head;
use super::{escape, prose};
use crate::flamegraph::{Difference, Stacks, Still, still, still_difference};
use crate::record::{ComparisonRecord, FlameGraph, FlameKind};
use crate::units::{capitalised, format_count, format_percent};

/// Functions that a table names.
const FUNCTIONS_MAX: usize = 10;

/// Frames of each graph that are tried, until all fit: a box and its name are three hundred bytes.
const FRAMES: [usize; 6] = [200, 140, 100, 60, 35, 20];

/// All graphs, in at most `bytes_max` bytes; empty if none were taken.
pub(super) fn section(record: &ComparisonRecord, bytes_max: usize) -> String {
    let fits = |frames: &usize| {
        let text = of_frames(record, *frames);
        (text.len() <= bytes_max).then_some(text)
    };
    let found = FRAMES.iter().find_map(fits);
    found.unwrap_or_else(|| introduction(record, 0))
}

fn introduction(record: &ComparisonRecord, frames: usize) -> String {
    let Some(first) = record.flame_graphs.first() else {
        return String::new();
    };
    let shown = if frames > 0 {
        format!("Shown are the {frames} widest frames of each;")
    } else {
        "The page has no room left to show them;".to_owned()
    };
    let directory = first.directory.split('/').next().unwrap_or_default();
    format!(
        "<p class=\"hint\">{}</p>",
        prose(&format!(
            "Runs of their own after the rounds, with the same requests for each, which count nowhere \
             else. A box is as wide as what was seen in the function and in all that it called; the \
             outermost is on top. {shown} the directory {directory} beside this page \
             has all of them, to enlarge and to search, and as .folded text and .pb.gz for go tool pprof."
        ))
    )
}

fn of_frames(record: &ComparisonRecord, frames: usize) -> String {
    let mut text = introduction(record, frames);
    for kind in FlameKind::ALL {
        let graphs = record.flame_graphs.iter().filter(|one| one.kind == kind);
        let graphs: Vec<(&FlameGraph, Stacks)> = graphs
            .map(|one| (one, one.stacks().widest(frames)))
            .collect();
        text += &of_kind(kind, &graphs);
    }
    text
}

fn of_kind(kind: FlameKind, graphs: &[(&FlameGraph, Stacks)]) -> String {
    let mut text = heaviest(kind, graphs);
    if let Some((before, others)) = graphs.split_first() {
        for after in others {
            text += &difference(kind, before, after);
        }
    }
    for (graph, stacks) in graphs {
        text += &single(kind, graph, stacks);
    }
    text
}

/// What each function took itself, under each candidate.
fn heaviest(kind: FlameKind, graphs: &[(&FlameGraph, Stacks)]) -> String {
    let mut names: Vec<(&str, f64)> = Vec::new();
    for function in graphs.iter().flat_map(|(graph, _)| &graph.heaviest) {
        match names.iter_mut().find(|(name, _)| *name == function.name) {
            Some((_, most)) => *most = most.max(function.own_share),
            None => names.push((&function.name, function.own_share)),
        }
    }
    if names.is_empty() {
        return String::new();
    }
    names.sort_by(|one, other| other.1.total_cmp(&one.1));
    names.truncate(FUNCTIONS_MAX);
    let share = |graph: &FlameGraph, name: &str| {
        let mut functions = graph.heaviest.iter();
        functions.find(|one| one.name == name).map_or_else(
            || "\u{2013}".to_owned(),
            |one| format_percent(one.own_share),
        )
    };
    let mut rows = String::new();
    for (name, _) in &names {
        let cells: String = graphs
            .iter()
            .map(|(graph, _)| format!("<td>{}</td>", escape(&share(graph, name))))
            .collect();
        let name = escape(name);
        rows += &format!("<tr><th scope=\"row\" class=\"function\">{name}</th>{cells}</tr>");
    }
    let candidates = graphs.iter().map(|(graph, _)| graph.candidate.as_str());
    let head: Vec<&str> = std::iter::once("function").chain(candidates).collect();
    let caption = format!(
        "{}: the functions that took most themselves, as shares of each candidate's whole",
        capitalised(kind.label())
    );
    with_head(&caption, &head, &rows)
}

fn single(kind: FlameKind, graph: &FlameGraph, stacks: &Stacks) -> String {
    if stacks.is_empty() {
        return String::new();
    }
    let title = format!("{} of {}", capitalised(kind.label()), graph.candidate);
    let (total, samples) = (stacks.total(), graph.samples);
    let whole = match kind {
        FlameKind::CpuTime => String::new(),
        FlameKind::AllocatedBytes => format!("{}, from ", kind.unit().format(total)),
    };
    let hint = format!(
        "{whole}{} samples; {}",
        format_count(samples as f64),
        graph.note
    );
    let heaviest: Vec<String> = graph
        .heaviest
        .iter()
        .map(|one| format!("{} {}", one.name, format_percent(one.own_share)))
        .collect();
    let numbers = format!("most in the functions themselves: {}", heaviest.join("; "));
    figure(&title, &hint, |form| {
        let found = still(stacks, kind.unit(), form.width(), form == Form::Wide);
        picture(form, &found, &title, &numbers)
    })
}

fn difference(
    kind: FlameKind,
    (before, one): &(&FlameGraph, Stacks),
    (after, other): &(&FlameGraph, Stacks),
) -> String {
    if one.is_empty() || other.is_empty() {
        return String::new();
    }
    let unit = kind.unit();
    let samples = (before.samples + after.samples).max(1) as f64;
    let weight_per_sample = match kind {
        FlameKind::CpuTime => 1.0,
        FlameKind::AllocatedBytes => (one.total() + other.total()) as f64 / samples,
    };
    let what = Difference {
        title: "",
        before: &before.candidate,
        after: &after.candidate,
        unit,
        weight_per_sample,
    };
    let title = format!(
        "{}: {} against {}",
        capitalised(kind.label()),
        after.candidate,
        before.candidate
    );
    let hint = format!(
        "red: more under {}; blue: less; pale: no more than the noise of sampling",
        after.candidate
    );
    let numbers = format!(
        "{} {}, {} {}",
        before.candidate,
        unit.format(one.total()),
        after.candidate,
        unit.format(other.total())
    );
    figure(&title, &hint, |form| {
        let found = still_difference(one, other, &what, form.width(), form == Form::Wide);
        picture(form, &found, &title, &numbers)
    })
}

fn picture(form: Form, found: &Still, title: &str, numbers: &str) -> String {
    let mut svg = Svg::new(form, found.height);
    svg.elements("<g class=\"flame\">");
    svg.elements(&found.elements);
    svg.elements("</g>");
    svg.finish(title, numbers)
}
