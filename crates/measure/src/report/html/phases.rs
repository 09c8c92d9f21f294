//! The course of memory from phase to phase, in sentences and one table.

use crate::record::{
    ComparisonRecord, MemoryParts, PhasesAnswer, RoundsEstimate, SettingAnswer, SettingEffect,
    SettingsFront,
};
use crate::report::settings_front as words;
use crate::statistics::{Comparison, Estimate};
use crate::units::{capitalised, format_bytes, format_change, format_duration_ns, format_percent};

use super::figure;
use super::svg::{Anchor, Form, Scale, Svg};
use super::{escape, prose, table};

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

/// What memory is made of at the end of each phase, and which of it ends a process. Parts that no candidate has are
/// left out.
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

// Settings of one allocator on the page: memory against CPU per request as a picture with the front, a table with what
// each changes, and the lines that set those on the front.

const HEAD: f64 = 16.0;
const FOOT: f64 = 44.0;
/// Of the key, beside the picture or below it.
const KEY_ROW: f64 = 20.0;
/// Numbers stand this far from each other at least.
const NUMBER_GAP: f64 = 13.0;

/// Empty of a comparison that is not one of settings.
pub(super) fn settings_front_section(record: &ComparisonRecord) -> String {
    let Some(found) = &record.analysis.settings_front else {
        return String::new();
    };
    let lines = found.on_front().map(|one| {
        let lines = words::lines(record, one).join("\n");
        format!("# {}\n{lines}\n", words::comment(one))
    });
    let lines: Vec<String> = lines.collect();
    let mut text = format!("<p>{}</p>", prose(&found.sentence));
    text += &plot(found);
    text += &rows(found);
    text += "<h3>The front, to paste into a unit file ([Service]) or a Dockerfile</h3>";
    text += &format!("<pre>{}</pre>", escape(lines.join("\n").trim_end()));
    if let Some(preload) = words::preloaded(record) {
        text += &format!("<p class=\"hint\">{}</p>", prose(&preload));
    }
    text
}

fn rows(found: &SettingsFront) -> String {
    let numbers = numbers(found);
    let mut rows = String::new();
    for one in &found.settings {
        let number = numbers
            .iter()
            .find(|(member, _)| member.candidate == one.candidate);
        let number = number.map_or_else(String::new, |(_, number)| number.to_string());
        rows += &format!(
            "<tr><th scope=\"row\" class=\"name\">{}</th><td>{number}</td>",
            escape(&one.setting)
        );
        let values = match one.effect {
            SettingEffect::Default => [
                words::of_default(found.default_memory_bytes, format_bytes),
                words::of_default(found.default_cpu_ns, format_duration_ns),
            ]
            .map(|value| format!("<td>{}</td>", escape(&value))),
            _ => [&one.memory, &one.cpu].map(|axis| settings_front_cell(axis.as_ref())),
        };
        rows += &values.concat();
        rows += &format!(
            "<td class=\"words\">{}</td><td class=\"why\">{}</td></tr>",
            words::verdict(one),
            prose(&one.what_it_changes)
        );
    }
    let memory = words::memory_title(found);
    let head = [
        "setting",
        "front",
        &memory,
        "CPU per request",
        "verdict",
        "what it changes",
    ];
    table::with_head("Each setting against the default", &head, &rows)
}

fn settings_front_cell(one: Option<&Comparison>) -> String {
    let class = one.map_or("", |one| one.verdict.label()).replace(' ', "-");
    let title = one.map_or("", |one| one.sentence.as_str());
    format!(
        "<td class=\"v-{class}\" title=\"{}\">{}</td>",
        escape(title),
        prose(&words::cell(one))
    )
}

/// Members of the front with their numbers in the picture, from 1, the least memory first.
fn numbers(found: &SettingsFront) -> Vec<(&SettingAnswer, usize)> {
    found.on_front().zip(1..).collect()
}

/// Where a setting lies with its intervals, memory and CPU; `None` without both.
fn place(one: &SettingAnswer) -> Option<(Estimate, Estimate)> {
    let none = Estimate {
        ratio: 1.0,
        low: 1.0,
        high: 1.0,
    };
    if one.effect == SettingEffect::Default {
        return Some((none, none));
    }
    Some((
        one.memory.as_ref()?.estimate()?,
        one.cpu.as_ref()?.estimate()?,
    ))
}

fn plot(found: &SettingsFront) -> String {
    // The default alone is no picture.
    if found
        .settings
        .iter()
        .filter(|one| place(one).is_some())
        .count()
        < 2
    {
        return String::new();
    }
    let all: Vec<String> = found
        .settings
        .iter()
        .map(|one| format!("{}: {}", one.setting, one.sentence))
        .collect();
    let margin = margin(found);
    let hint = format!(
        "against the default; left and down is better; line and numbers: the front; grey: not on it; square: within \
         \u{b1}{} of the default",
        format_percent(margin)
    );
    let title = format!(
        "{} against CPU per request",
        capitalised(&words::memory_title(found))
    );
    figure(&title, &hint, |form| {
        drawing(form, found, margin).finish(&title, &all.join("; "))
    })
}

/// The margin of equality.
fn margin(found: &SettingsFront) -> f64 {
    let mut all = found.settings.iter().filter_map(|one| one.memory.as_ref());
    all.next().map_or(0.0, |one| one.margin)
}

/// Both axes of the picture.
struct Axes {
    form: Form,
    x: Scale,
    y: Scale,
    left: f64,
    right: f64,
    bottom: f64,
}

impl Axes {
    fn of(form: Form, found: &SettingsFront, margin: f64) -> Self {
        let (left, right) = form.pick((70.0, 655.0), (44.0, 352.0));
        let bottom = HEAD + form.pick(400.0, 270.0);
        let places: Vec<_> = found.settings.iter().filter_map(place).collect();
        let on = |axis: fn(&(Estimate, Estimate)) -> Estimate, from, to| {
            let ratios = places.iter().map(|one| axis(one).ratio);
            let (mut low, mut high) = (1.0 / (1.0 + 1.5 * margin), 1.0 + 1.5 * margin);
            for ratio in ratios {
                low = low.min(ratio);
                high = high.max(ratio);
            }
            // Room around the outermost dots.
            let room = (high / low).powf(0.06);
            Scale::logarithmic(low.max(0.05) / room, high.min(20.0) * room, from, to)
        };
        Self {
            form,
            x: on(|one| one.0, left, right),
            y: on(|one| one.1, bottom, HEAD),
            left,
            right,
            bottom,
        }
    }

    fn at(&self, memory: f64, cpu: f64) -> (f64, f64) {
        (self.x.at(memory), self.y.at(cpu))
    }

    fn draw(&self, svg: &mut Svg, margin: f64, memory: &str) {
        let (low, high) = (1.0 / (1.0 + margin), 1.0 + margin);
        let (corner, end) = (self.at(low, high), self.at(high, low));
        svg.rect("band", corner, (end.0 - corner.0, end.1 - corner.1));
        let class = |tick: f64| if tick == 1.0 { "one" } else { "grid" };
        for tick in self.x.ratio_ticks(self.form.pick(54.0, 46.0)) {
            let x = self.x.at(tick);
            svg.line(class(tick), (x, HEAD), (x, self.bottom));
            let at = (x, self.bottom + 15.0);
            svg.text("tick", at, Anchor::Middle, &format_change(tick));
        }
        for tick in self.y.ratio_ticks(24.0) {
            let y = self.y.at(tick);
            svg.line(class(tick), (self.left, y), (self.right, y));
            let at = (self.left - 4.0, y + 4.0);
            svg.text("tick", at, Anchor::End, &format_change(tick));
        }
        let middle = f64::midpoint(self.left, self.right);
        svg.text("tick", (middle, self.bottom + 34.0), Anchor::Middle, memory);
        let half = f64::midpoint(HEAD, self.bottom);
        // Half of its length, so that it ends as far from the middle as it begins.
        let at = (self.form.pick(14.0, 9.0), half + 46.0);
        if self.form == Form::Wide {
            svg.text_upwards("tick", at, "CPU per request");
        } else {
            svg.text("tick", (2.0, 10.0), Anchor::Start, "CPU per request");
        }
    }
}

fn drawing(form: Form, found: &SettingsFront, margin: f64) -> Svg {
    let axes = Axes::of(form, found, margin);
    let front = numbers(found);
    let below = form.pick(0.0, KEY_ROW * front.len() as f64 + 6.0);
    let mut svg = Svg::new(form, axes.bottom + FOOT + below);
    axes.draw(&mut svg, margin, &words::memory_title(found));
    let others = found.settings.iter().filter(|one| !one.is_on_front);
    let (default, others): (Vec<_>, Vec<_>) =
        others.partition(|one| one.effect == SettingEffect::Default);
    for one in others {
        if let Some((memory, cpu)) = place(one) {
            let title = format!("{}: {}", one.setting, one.sentence);
            let at = axes.at(memory.ratio, cpu.ratio);
            svg.dot("dot hollow again", at, 4.0, &title);
        }
    }
    draw_front(&mut svg, &axes, &front);
    // Above all that lies around it.
    if !default.is_empty() {
        let (x, y) = axes.at(1.0, 1.0);
        svg.dot("dot full h1", (x, y), 5.0, "the default");
        svg.text("label", (x + 8.0, y - 7.0), Anchor::Start, "default");
    }
    draw_key(&mut svg, &axes, &front);
    svg
}

/// A line from member to member, then their intervals, dots and numbers.
fn draw_front(svg: &mut Svg, axes: &Axes, front: &[(&SettingAnswer, usize)]) {
    let places: Vec<_> = front
        .iter()
        .filter_map(|(one, number)| Some((*one, *number, place(one)?)))
        .collect();
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for (_, _, (memory, cpu)) in &places {
        let at = axes.at(memory.ratio, cpu.ratio);
        // A point with less memory than this member costs as much CPU as the member before.
        steps.extend(steps.last().map(|&(_, y)| (at.0, y)));
        steps.push(at);
    }
    svg.path("curve h0", &steps);
    for (one, _, (memory, cpu)) in &places {
        let (x, y) = axes.at(memory.ratio, cpu.ratio);
        if one.effect != SettingEffect::Default {
            svg.line(
                "ci h0 faded",
                (axes.x.at(memory.low), y),
                (axes.x.at(memory.high), y),
            );
            svg.line(
                "ci h0 faded",
                (x, axes.y.at(cpu.low)),
                (x, axes.y.at(cpu.high)),
            );
        }
        let class = match one.effect {
            SettingEffect::Default => "dot full h1",
            _ => "dot full h0",
        };
        svg.dot(class, (x, y), 5.0, &words::comment(one));
    }
    let dots: Vec<(f64, f64)> = places
        .iter()
        .map(|(_, _, (memory, cpu))| axes.at(memory.ratio, cpu.ratio))
        .collect();
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for ((_, number, _), &dot) in places.iter().zip(&dots) {
        let at = free_place(dot, &dots, &taken);
        svg.text(
            "label",
            (at.0, at.1 + 4.0),
            Anchor::Middle,
            &number.to_string(),
        );
        taken.push(at);
    }
}

/// Beside `dot`, away from other dots and numbers; the first choice where there is no room at all.
fn free_place(dot: (f64, f64), dots: &[(f64, f64)], taken: &[(f64, f64)]) -> (f64, f64) {
    let offsets = [11.0, 19.0, 28.0].into_iter().flat_map(|far| {
        [
            (0.7, -0.7),
            (-0.7, -0.7),
            (0.7, 0.7),
            (-0.7, 0.7),
            (0.0, -1.0),
            (0.0, 1.0),
        ]
        .map(|(x, y)| (dot.0 + x * far, dot.1 + y * far))
    });
    let is_free = |at: &(f64, f64)| {
        let far = |other: &(f64, f64), gap: f64| (at.0 - other.0).hypot(at.1 - other.1) >= gap;
        dots.iter().all(|other| far(other, 9.5)) && taken.iter().all(|other| far(other, NUMBER_GAP))
    };
    let mut offsets = offsets;
    offsets.find(is_free).unwrap_or((dot.0 + 8.0, dot.1 - 8.0))
}

/// Which number is which setting.
fn draw_key(svg: &mut Svg, axes: &Axes, front: &[(&SettingAnswer, usize)]) {
    let (left, top, letters) = axes.form.pick(
        (axes.right + 22.0, HEAD + 14.0, 38),
        (8.0, axes.bottom + FOOT + 8.0, 42),
    );
    for (row, (one, number)) in front.iter().enumerate() {
        let y = top + KEY_ROW * row as f64;
        svg.text("num", (left + 12.0, y), Anchor::End, &number.to_string());
        svg.name_within((left + 20.0, y), Anchor::Start, &one.setting, letters);
    }
}

#[cfg(test)]
#[path = "tests/settings_front.rs"]
mod settings_front_tests;
