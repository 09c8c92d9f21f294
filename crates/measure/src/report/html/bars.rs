//! Memory as bars from zero: here, unlike with ratios, the absolute size is what one pays for.

use super::Look;
use super::frame::figure;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, Quantity};
use crate::units::format_bytes;

const WIDTH: f64 = 1020.0;
const LABEL_WIDTH: f64 = 210.0;
const VALUE_WIDTH: f64 = 190.0;
const ROW: f64 = 24.0;
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
    let height = 8.0 + ROW * record.candidates.len() as f64 + FOOT;
    let bottom = height - FOOT;
    // In MiB, so that ticks are round where the reader counts.
    let scale = Scale::linear(0.0, largest / MIB * 1.02, LABEL_WIDTH, WIDTH - VALUE_WIDTH);
    let mut svg = Svg::new(WIDTH, height);
    for tick in scale.linear_ticks(6) {
        svg.line("grid", (scale.at(tick), 8.0), (scale.at(tick), bottom));
        svg.text(
            "tick",
            (scale.at(tick), bottom + 16.0),
            Anchor::Middle,
            &format!("{tick} MiB"),
        );
    }
    for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
        draw_row(&mut svg, candidate, *look, &scale, 8.0 + ROW * index as f64);
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
    let svg = svg.finish("resident memory per candidate", &numbers.join("; "));
    figure(
        "Resident memory",
        &format!("bar:{work}; line: the peak"),
        &svg,
    )
}

fn draw_row(svg: &mut Svg, candidate: &CandidateRounds, look: Look, scale: &Scale, y: f64) {
    svg.name((LABEL_WIDTH - 12.0, y + 16.0), Anchor::End, &candidate.name);
    let mut values = Vec::new();
    if let Some(value) = candidate.median(RSS) {
        let fill = if look.hollow {
            "bar hollow"
        } else {
            "bar full"
        };
        let width = scale.at(value / MIB) - LABEL_WIDTH;
        svg.rect(
            &format!("{fill} {}", look.class),
            (LABEL_WIDTH, y + 4.0),
            (width, ROW - 8.0),
        );
        values.push(format_bytes(value));
    }
    if let Some(value) = candidate.median(PEAK) {
        let x = scale.at(value / MIB);
        svg.line(
            &format!("median {}", look.class),
            (x, y + 3.0),
            (x, y + ROW - 3.0),
        );
        values.push(format!("peak {}", format_bytes(value)));
    }
    let text = values.join(", ");
    svg.text(
        "num",
        (WIDTH - VALUE_WIDTH + 12.0, y + 16.0),
        Anchor::Start,
        &text,
    );
}
