//! Memory as bars from zero: here, unlike with ratios, the absolute size is what one pays for.

use super::Look;
use super::frame::figure;
use super::scale::Scale;
use super::svg::{Anchor, Form, Svg};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, Quantity};
use crate::units::format_bytes;

const HEAD: f64 = 8.0;
const FOOT: f64 = 28.0;
const MIB: f64 = 1024.0 * 1024.0;
const RSS: Measure = Measure::whole(Quantity::RssAfterWork);
const PEAK: Measure = Measure::whole(Quantity::PeakRss);

/// Resident memory after the fixed work (bar) and at its peak (line); empty if not measured.
pub(super) fn plot(record: &ComparisonRecord, looks: &[Look]) -> String {
    let largest = record
        .candidates
        .iter()
        .flat_map(|candidate| [candidate.median(RSS), candidate.median(PEAK)])
        .flatten()
        .fold(0.0_f64, f64::max);
    if largest == 0.0 {
        return String::new();
    }
    let work = record.settings.memory_requests;
    let work = if work == 0 {
        String::new()
    } else {
        format!(
            " after the same {} requests",
            crate::units::format_count(work as f64)
        )
    };
    let numbers: Vec<String> = record
        .candidates
        .iter()
        .filter_map(|one| Some(format!("{}: {}", one.name, format_bytes(one.median(RSS)?))))
        .collect();
    let numbers = numbers.join("; ");
    let hint = format!("bar:{work}; line: the peak");
    figure("Resident memory", &hint, |form| {
        drawing(form, record, looks, largest).finish("resident memory per candidate", &numbers)
    })
}

fn drawing(form: Form, record: &ComparisonRecord, looks: &[Look], largest: f64) -> Svg {
    // On a phone names and numbers stand above the bars.
    let (row, left, right) = form.pick((24.0, 210.0, 830.0), (42.0, 10.0, 346.0));
    let height = HEAD + row * record.candidates.len() as f64 + FOOT;
    let bottom = height - FOOT;
    // In MiB, so that ticks are round where the reader counts.
    let scale = Scale::linear(0.0, largest / MIB * 1.02, left, right);
    let mut svg = Svg::new(form, height);
    for tick in scale.linear_ticks(form.pick(6, 4)) {
        let x = scale.at(tick);
        svg.line("grid", (x, HEAD), (x, bottom));
        let anchor = if x < 20.0 {
            Anchor::Start
        } else {
            Anchor::Middle
        };
        svg.text("tick", (x, bottom + 16.0), anchor, &format!("{tick} MiB"));
    }
    for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
        let top = HEAD + row * index as f64;
        let bar = top + form.pick(4.0, 20.0);
        draw_bar(&mut svg, candidate, *look, &scale, bar);
        draw_words(&mut svg, form, candidate, (top, left, right));
    }
    svg
}

/// As tall as a letter.
const BAR: f64 = 16.0;

fn draw_bar(svg: &mut Svg, candidate: &CandidateRounds, look: Look, scale: &Scale, top: f64) {
    if let Some(value) = candidate.median(RSS) {
        let fill = if look.hollow {
            "bar hollow"
        } else {
            "bar full"
        };
        let left = scale.at(0.0);
        svg.rect(
            &format!("{fill} {}", look.class),
            (left, top),
            (scale.at(value / MIB) - left, BAR),
        );
    }
    if let Some(value) = candidate.median(PEAK) {
        let x = scale.at(value / MIB);
        let class = format!("median {}", look.class);
        svg.line(&class, (x, top - 1.0), (x, top + BAR + 1.0));
    }
}

fn draw_words(
    svg: &mut Svg,
    form: Form,
    candidate: &CandidateRounds,
    (top, left, right): (f64, f64, f64),
) {
    let rss = candidate.median(RSS).map(format_bytes);
    let peak = candidate.median(PEAK).map(format_bytes);
    match form {
        Form::Wide => {
            let peak = peak.map(|peak| format!("peak {peak}"));
            let text: Vec<String> = rss.into_iter().chain(peak).collect();
            let base = top + 16.0;
            svg.name((left - 12.0, base), Anchor::End, &candidate.name);
            svg.text("num", (right + 12.0, base), Anchor::Start, &text.join(", "));
        }
        Form::Narrow => {
            let text: Vec<String> = rss.into_iter().chain(peak).collect();
            let (end, base) = (form.width() - 2.0, top + 14.0);
            svg.name((2.0, base), Anchor::Start, &candidate.name);
            svg.text("num", (end, base), Anchor::End, &text.join(" / "));
        }
    }
}
