//! Memory over time, all candidates on one clock: zero is the moment in which each server began
//! to serve. Runs do the same work, so a faster one is through it earlier; what it is at is marked.

use super::Look;
use super::figure;
use super::svg::Scale;
use super::svg::{Anchor, Form, Svg};
use super::svg::{Legend, curve_class};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, MemoryCourse, Quantity};
use crate::units::{format_bytes, format_duration_ns};

const HEIGHT: f64 = 260.0;
const FOOT: f64 = 34.0;
/// Of a small letter.
const LETTER: f64 = 6.4;
const MIB: f64 = 1024.0 * 1024.0;

/// The typical run of each candidate; empty if no memory was sampled.
pub(super) fn plot(record: &ComparisonRecord, looks: &[Look]) -> String {
    let courses: Vec<NamedCourse<'_>> = record
        .candidates
        .iter()
        .zip(looks)
        .filter_map(|(candidate, look)| Some((candidate.name.as_str(), *look, typical(candidate)?)))
        .collect();
    let points = || courses.iter().flat_map(|(_, _, course)| course.points());
    let longest_s = points().map(|(at_s, _)| at_s).fold(0.0, f64::max);
    let most = points().map(|(_, bytes)| bytes).fold(0.0, f64::max);
    if most == 0.0 {
        return String::new();
    }
    let mut numbers = Vec::new();
    for (name, _, course) in &courses {
        let peak = course.points().map(|(_, bytes)| bytes).fold(0.0, f64::max);
        let end = course.points().last().map_or(0.0, |(_, bytes)| bytes);
        let (peak, end) = (format_bytes(peak), format_bytes(end));
        numbers.push(format!("{name}: at most {peak}, at the end {end}"));
    }
    let numbers = numbers.join("; ");
    let is_private = courses.iter().all(|(_, _, course)| course.is_private());
    let title = match is_private {
        true => "Memory over time",
        false => "Resident memory over time",
    };
    let mut hint =
        "since each server began to serve; of each candidate the run whose memory after work \
                    is nearest to its median"
            .to_owned();
    if record.settings.phases.is_some() {
        "of each candidate the run whose memory after the bursts is nearest to its median, without the waits while \
         others were under load"
            .clone_into(&mut hint);
    }
    let shaded = courses.iter().find(|(_, _, it)| !it.phases.is_empty());
    if let Some((name, _, _)) = shaded {
        hint += &format!(
            "; bands: the phases of {name}; a tick on a curve: the next phase of that candidate began"
        );
    }
    figure(title, &hint, |form| {
        drawing(form, &courses, longest_s, most).finish(title, &numbers)
    })
}

/// A candidate's name and style with its course.
type NamedCourse<'a> = (&'a str, Look, &'a MemoryCourse);

fn drawing(form: Form, courses: &[NamedCourse<'_>], longest_s: f64, most: f64) -> Svg {
    let area = Legend::of(form, HEIGHT, FOOT, courses.len());
    let x = Scale::linear(0.0, longest_s.max(0.001), area.left, area.right);
    let y = Scale::linear(0.0, most / MIB * 1.05, area.bottom, area.top);
    let mut svg = area.canvas();
    if let Some((_, _, course)) = courses.iter().find(|(_, _, it)| !it.phases.is_empty()) {
        draw_bands(&mut svg, course, &x, &area);
    }
    for tick in y.linear_ticks(5) {
        let at = y.at(tick);
        svg.line("grid", (area.left, at), (area.right, at));
        let label = format!("{tick} MiB");
        svg.text("tick", (area.left - 8.0, at + 4.0), Anchor::End, &label);
    }
    for tick in x.linear_ticks(form.pick(8, 4)) {
        let at = x.at(tick);
        svg.line("grid", (at, area.top), (at, area.bottom));
        let label = match tick {
            0.0 => "0 s".to_owned(),
            tick => format_duration_ns(tick * 1e9).replace(".00", ""),
        };
        svg.text("tick", (at, area.bottom + 17.0), Anchor::Middle, &label);
    }
    for (index, (name, look, course)) in courses.iter().enumerate() {
        let places: Vec<(f64, f64)> = course
            .points()
            .map(|(at_s, bytes)| (x.at(at_s), y.at(bytes / MIB)))
            .collect();
        let class = curve_class(*look);
        svg.path(&class, &places);
        for phase in &course.phases {
            let at_s = phase.from_ns as f64 / 1e9;
            let (at, level) = (x.at(at_s), y.at(course.bytes_at(at_s) / MIB));
            let class = format!("ci {}", look.class);
            svg.line(&class, (at, level - 4.0), (at, level + 4.0));
        }
        area.entry(&mut svg, index, &class, name);
    }
    svg
}

/// The phases behind the curves, every other one shaded, with their names where there is room: along
/// the top, or upwards.
fn draw_bands(svg: &mut Svg, course: &MemoryCourse, x: &Scale, area: &Legend) {
    for (index, phase) in course.phases.iter().enumerate() {
        let [from, to] = [phase.from_ns, phase.to_ns].map(|at_ns| x.at(at_ns as f64 / 1e9));
        if index % 2 == 0 {
            svg.rect(
                "band",
                (from, area.top),
                (to - from, area.bottom - area.top),
            );
        }
        let needed = LETTER * phase.name.chars().count() as f64 + 6.0;
        if to - from >= needed {
            let at = (f64::midpoint(from, to), area.top + 13.0);
            svg.text("tick", at, Anchor::Middle, &phase.name);
        } else if to - from >= 12.0 {
            let at = (f64::midpoint(from, to) + 4.0, area.bottom - 6.0);
            svg.text_upwards("tick", at, &phase.name);
        }
    }
}

/// The run that is nearest to the candidate's median.
fn typical(candidate: &CandidateRounds) -> Option<&MemoryCourse> {
    let known = [
        Quantity::FloorAfterBurst,
        Quantity::MemoryAfterWork,
        Quantity::RssAfterWork,
    ]
    .map(Measure::whole);
    let after_work = known
        .into_iter()
        .find(|measure| candidate.median(*measure).is_some())?;
    let median = candidate.median(after_work)?;
    let runs = candidate.rounds.iter().filter_map(|run| {
        let distance = (run.get(after_work)? - median).abs();
        Some((distance, run.memory_course.as_ref()?))
    });
    runs.min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, course)| course)
}
