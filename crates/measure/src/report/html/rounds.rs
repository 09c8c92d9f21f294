//! Every single run as a dot, one line per candidate: how much runs of the same thing differ is
//! seen before any statistics. Disturbed runs are hollow.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::{Look, escape};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, RoundStatus};

const WIDTH: f64 = 1020.0;
const LABEL_WIDTH: f64 = 210.0;
const ROW: f64 = 22.0;
const FOOT: f64 = 28.0;

/// The plot of one measure; empty if nobody has it.
pub(super) fn plot(record: &ComparisonRecord, looks: &[Look], measure: Measure) -> String {
    let all: Vec<f64> = record
        .candidates
        .iter()
        .flat_map(|candidate| candidate.values(measure))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let (low, high) = all
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), &value| {
            (low.min(value), high.max(value))
        });
    let room = ((high - low) * 0.05).max(high * 0.01);
    let height = 8.0 + ROW * record.candidates.len() as f64 + FOOT;
    let bottom = height - FOOT;
    let scale = Scale::linear(
        (low - room).max(0.0),
        high + room,
        LABEL_WIDTH,
        WIDTH - 30.0,
    );
    let unit = measure.quantity.unit();
    let mut svg = Svg::new(WIDTH, height);
    for tick in scale.linear_ticks(7) {
        svg.line("grid", (scale.at(tick), 8.0), (scale.at(tick), bottom));
        svg.text(
            "tick",
            (scale.at(tick), bottom + 16.0),
            Anchor::Middle,
            &unit.format(tick),
        );
    }
    for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
        draw_row(
            &mut svg,
            candidate,
            *look,
            measure,
            &scale,
            8.0 + ROW * (index as f64 + 0.5),
        );
    }
    format!(
        "<figure><figcaption>{} of every run <span class=\"hint\">bar: median; hollow: a disturbed \
         run</span></figcaption>{}</figure>",
        escape(&measure.label()),
        svg.finish(&format!("{} of every run", measure.label()))
    )
}

fn draw_row(
    svg: &mut Svg,
    candidate: &CandidateRounds,
    look: Look,
    measure: Measure,
    scale: &Scale,
    y: f64,
) {
    svg.name((LABEL_WIDTH - 12.0, y + 4.0), Anchor::End, &candidate.name);
    if let Some(median) = candidate.median(measure) {
        let x = scale.at(median);
        svg.line(
            &format!("median {}", look.class),
            (x, y - 9.0),
            (x, y + 9.0),
        );
    }
    for round in &candidate.rounds {
        let Some(value) = round.get(measure) else {
            continue;
        };
        let mut title = format!(
            "round {}: {}",
            round.round + 1,
            measure.quantity.unit().format(value)
        );
        for flag in &round.noise {
            title += &format!("; {}", flag.kind.label());
        }
        if round.status == RoundStatus::Interrupted {
            title += "; interrupted";
        }
        let fill = if round.noise.is_empty() {
            "full"
        } else {
            "hollow"
        };
        svg.dot(
            &format!("run {fill} {}", look.class),
            (scale.at(value), y),
            3.5,
            &title,
        );
    }
}
