//! Each candidate's heap use: counts in a table, sizes and lifetimes as small bars.

use crate::flamegraph::{Difference, Stacks, Still, still, still_difference};
use crate::record::{
    ComparisonRecord, FlameGraph, FlameKind, HeapProfile, LifetimeClass, SizeClass,
};
use crate::units::{capitalised, format_bytes, format_count, format_duration_ns, format_percent};

use super::figure;
use super::svg::{Anchor, Form, Scale, Svg};
use super::table::with_head;
use super::{Look, escape, prose};

const PANEL_HEIGHT: f64 = 130.0;
const HEAD: f64 = 22.0;
/// Of `4.00 KiB`.
const LABEL_WIDTH: f64 = 46.0;
const FOOT: f64 = 24.0;

/// A candidate with its profile.
type Profiled<'a> = (&'a str, Look, &'a HeapProfile);

/// Table and both drawings; empty if no heap was examined.
pub(super) fn section(record: &ComparisonRecord, looks: &[Look]) -> String {
    let profiles: Vec<Profiled<'_>> = record
        .candidates
        .iter()
        .zip(looks)
        .filter_map(|(one, look)| Some((one.name.as_str(), *look, one.heap.as_ref()?)))
        .collect();
    if profiles.is_empty() {
        return String::new();
    }
    table(&profiles) + &sizes(&profiles) + &lifetimes(&profiles)
}

fn table(profiles: &[Profiled<'_>]) -> String {
    let head = [
        "candidate",
        "calls per request",
        "bytes per request",
        "freed by another thread",
        "live at the end",
        "most alive",
        "anonymous memory",
        "for each live byte",
    ];
    let mut rows = String::new();
    for (name, _, heap) in profiles {
        let per_request = |count: u64| count as f64 / heap.requests.max(1) as f64;
        let dash = || "\u{2013}".to_owned();
        let cells = [
            format_count(per_request(heap.allocations + heap.reallocations)),
            format_bytes(per_request(heap.requested_bytes)),
            heap.cross_thread_share.map_or_else(dash, format_percent),
            format_bytes(heap.live_bytes as f64),
            format_bytes(heap.peak_live_bytes as f64),
            heap.anonymous_bytes
                .map_or_else(dash, |bytes| format_bytes(bytes as f64)),
            heap.fragmentation
                .map_or_else(dash, |ratio| format!("{ratio:.2}x")),
        ];
        let cells: String = cells
            .iter()
            .map(|cell| format!("<td>{}</td>", escape(cell)))
            .collect();
        rows += &format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(name));
    }
    with_head(
        "The heap, counted in a run of its own; live bytes and lifetimes from samples",
        &head,
        &rows,
    )
}

/// A bar: where it begins on its axis of doublings, and its height.
type Bar = (u32, f64);

/// Sums by doublings of what the class begins with.
fn octaves(classes: impl Iterator<Item = (u64, f64)>) -> Vec<Bar> {
    let mut bars: std::collections::BTreeMap<u32, f64> = std::collections::BTreeMap::new();
    for (from, weight) in classes {
        *bars.entry(from.max(1).ilog2()).or_default() += weight;
    }
    bars.into_iter().collect()
}

fn sizes(profiles: &[Profiled<'_>]) -> String {
    let bars = |heap: &HeapProfile| {
        let per_request = 1.0 / heap.requests.max(1) as f64;
        let class = |one: &SizeClass| (one.from_bytes, one.calls as f64 * per_request);
        octaves(heap.sizes.iter().map(class))
    };
    panels(
        profiles,
        "Sizes asked for",
        "calls per request, by doublings of the size",
        bars,
        |value| format_bytes(value).replace(".0 ", " "),
    )
}

fn lifetimes(profiles: &[Profiled<'_>]) -> String {
    let bars = |heap: &HeapProfile| {
        let all: f64 = heap.lifetimes.iter().map(|one| one.blocks).sum();
        let class = |one: &LifetimeClass| (one.from_ns, one.blocks / all.max(1e-9));
        octaves(heap.lifetimes.iter().map(class))
    };
    panels(
        profiles,
        "How long blocks lived",
        "share of blocks that were given back, by doublings of the time",
        bars,
        |value| format_duration_ns(value).replace(".00", ""),
    )
}

fn panels(
    profiles: &[Profiled<'_>],
    title: &str,
    hint: &str,
    bars: impl Fn(&HeapProfile) -> Vec<Bar>,
    unit: impl Fn(f64) -> String,
) -> String {
    let all: Vec<Vec<Bar>> = profiles.iter().map(|(_, _, heap)| bars(heap)).collect();
    let each = || all.iter().flatten();
    let highest = each().map(|(_, height)| *height).fold(0.0, f64::max);
    let (Some(first), Some(last)) = (
        each().map(|(octave, _)| *octave).min(),
        each().map(|(octave, _)| *octave).max(),
    ) else {
        return String::new();
    };
    let mut numbers = Vec::new();
    for ((name, _, _), bars) in profiles.iter().zip(&all) {
        let top_bar = bars.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        numbers.extend(top_bar.map(|(octave, _)| {
            let from = unit(2.0_f64.powi(*octave as i32));
            format!("{name}: most from {from} on")
        }));
    }
    let numbers = numbers.join("; ");
    let axes = Axes {
        first,
        last,
        highest,
        unit: &unit,
    };
    figure(title, hint, |form| {
        axes.draw(form, profiles, &all).finish(title, &numbers)
    })
}

/// The common part of all panels.
struct Axes<'a> {
    first: u32,
    last: u32,
    highest: f64,
    unit: &'a dyn Fn(f64) -> String,
}

impl Axes<'_> {
    fn draw(&self, form: Form, profiles: &[Profiled<'_>], all: &[Vec<Bar>]) -> Svg {
        let columns = form.pick(3, 2);
        let width = form.width() / columns as f64;
        let rows = profiles.len().div_ceil(columns);
        let mut svg = Svg::new(form, PANEL_HEIGHT * rows as f64);
        for (index, ((name, look, _), bars)) in profiles.iter().zip(all).enumerate() {
            let left = width * (index % columns) as f64 + form.pick(12.0, 4.0);
            let top = PANEL_HEIGHT * (index / columns) as f64;
            let right = left + width - form.pick(34.0, 14.0);
            let x = Scale::linear(f64::from(self.first), f64::from(self.last + 1), left, right);
            let bottom = top + PANEL_HEIGHT - FOOT;
            let y = Scale::linear(0.0, self.highest, bottom, top + HEAD + 4.0);
            svg.name_within((left, top + 15.0), Anchor::Start, name, form.pick(27, 23));
            svg.line("one", (left, bottom), (right, bottom));
            let width = x.at(f64::from(self.first) + 0.86) - x.at(f64::from(self.first));
            for (octave, height) in bars {
                let corner = (x.at(f64::from(*octave)), y.at(*height));
                let class = format!("bar full {}", look.class);
                svg.rect(&class, corner, (width, bottom - corner.1));
            }
            self.draw_ticks(&mut svg, &x, (right, bottom), form.pick(4, 2));
        }
        svg
    }

    fn draw_ticks(&self, svg: &mut Svg, x: &Scale, (right, bottom): (f64, f64), count: u32) {
        let step = (self.last - self.first).div_ceil(count).max(1);
        for octave in (self.first..=self.last).step_by(step as usize) {
            let label = (self.unit)(2.0_f64.powi(octave as i32));
            let at = x.at(f64::from(octave));
            let (at, anchor) = match at + LABEL_WIDTH > right {
                true => (right, Anchor::End),
                false => (at, Anchor::Start),
            };
            svg.text("tick", (at, bottom + 15.0), anchor, &label);
        }
    }
}

// Where time and memory went: of each kind the difference between the baseline and the others first,
// then each by itself, and the heaviest functions as a table.

/// Functions that a table names.
const FUNCTIONS_MAX: usize = 10;

/// Frames of each graph that are tried, until all fit: a box and its name are three hundred bytes.
const FRAMES: [usize; 6] = [200, 140, 100, 60, 35, 20];

/// All graphs, in at most `bytes_max` bytes; empty if none were taken.
pub(super) fn flames_section(record: &ComparisonRecord, bytes_max: usize) -> String {
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

/// The own weight of each function, under each candidate.
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
