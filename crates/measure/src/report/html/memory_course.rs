//! Resident memory over time, all candidates on one clock: zero is the moment in which each server began
//! to serve. Runs do the same work, so a faster one is through it earlier.

use super::Look;
use super::frame::figure;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, MemoryCourse, Quantity};
use crate::units::{format_bytes, format_duration_ns};

const WIDTH: f64 = 1020.0;
const LEFT: f64 = 76.0;
const LEGEND_WIDTH: f64 = 245.0;
const TOP: f64 = 12.0;
const ROW: f64 = 20.0;
const FOOT: f64 = 34.0;
const MIB: f64 = 1024.0 * 1024.0;

/// The typical run of each candidate; empty if no memory was sampled.
pub(super) fn plot(record: &ComparisonRecord, looks: &[Look]) -> String {
    let courses: Vec<(&str, Look, &MemoryCourse)> = record
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
    let height = (ROW * courses.len() as f64).max(260.0) + TOP + FOOT;
    let (bottom, right) = (height - FOOT, WIDTH - LEGEND_WIDTH);
    let x = Scale::linear(0.0, longest_s.max(0.001), LEFT, right);
    let y = Scale::linear(0.0, most / MIB * 1.05, bottom, TOP);
    let mut svg = Svg::new(WIDTH, height);
    for tick in y.linear_ticks(5) {
        svg.line("grid", (LEFT, y.at(tick)), (right, y.at(tick)));
        let label = format!("{tick} MiB");
        svg.text("tick", (LEFT - 8.0, y.at(tick) + 4.0), Anchor::End, &label);
    }
    for tick in x.linear_ticks(8) {
        svg.line("grid", (x.at(tick), TOP), (x.at(tick), bottom));
        let label = format_duration_ns(tick * 1e9)
            .replace(".00", "")
            .replace("0.00ns", "0 s");
        svg.text("tick", (x.at(tick), bottom + 17.0), Anchor::Middle, &label);
    }
    let mut numbers = Vec::new();
    for (index, (name, look, course)) in courses.iter().enumerate() {
        let places: Vec<(f64, f64)> = course
            .points()
            .map(|(at_s, bytes)| (x.at(at_s), y.at(bytes / MIB)))
            .collect();
        let dash = if look.hollow { " dash" } else { "" };
        let class = format!("curve {}{dash}", look.class);
        svg.path(&class, &places);
        let row = TOP + 10.0 + ROW * index as f64;
        svg.line(&class, (right + 18.0, row), (right + 44.0, row));
        svg.name((right + 50.0, row + 4.0), Anchor::Start, name);
        let peak = course.points().map(|(_, bytes)| bytes).fold(0.0, f64::max);
        let end = course.points().last().map_or(0.0, |(_, bytes)| bytes);
        let (peak, end) = (format_bytes(peak), format_bytes(end));
        numbers.push(format!("{name}: at most {peak}, at the end {end}"));
    }
    let title = "Resident memory over time";
    let hint = "since each server began to serve; of each candidate the run whose memory after work is \
                nearest to its median";
    figure(title, hint, &svg.finish(title, &numbers.join("; ")))
}

/// The run that is nearest to the candidate's median.
fn typical(candidate: &CandidateRounds) -> Option<&MemoryCourse> {
    let after_work = Measure::whole(Quantity::RssAfterWork);
    let median = candidate.median(after_work)?;
    let runs = candidate.rounds.iter().filter_map(|run| {
        let distance = (run.get(after_work)? - median).abs();
        Some((distance, run.memory_course.as_ref()?))
    });
    runs.min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, course)| course)
}
