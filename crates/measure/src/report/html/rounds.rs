//! Every single run as a dot, one row per candidate: how much runs of the same thing differ is seen
//! before any statistics. Then the same round by round, because a machine that grows warm or busy
//! shows as a slope. Disturbed runs are hollow.

use super::Look;
use super::frame::figure;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, Role, RoundMeasures, RoundStatus};

const WIDTH: f64 = 1020.0;
const LABEL_WIDTH: f64 = 210.0;
const ROW: f64 = 22.0;
const FOOT: f64 = 28.0;
/// Panels of the second figure.
const COLUMNS: usize = 4;
const PANEL_WIDTH: f64 = WIDTH / COLUMNS as f64;
const PANEL_HEIGHT: f64 = 112.0;
const PANEL_HEAD: f64 = 22.0;
const PANEL_LEFT: f64 = 58.0;

/// Both plots of one measure; empty if nobody has it.
pub(super) fn plots(record: &ComparisonRecord, looks: &[Look], measure: Measure) -> String {
    let Some(range) = range(record, measure) else {
        return String::new();
    };
    row_plot(record, looks, measure, range) + &panels(record, looks, measure, range)
}

/// The values with a little room around them.
fn range(record: &ComparisonRecord, measure: Measure) -> Option<(f64, f64)> {
    let values = || {
        record
            .candidates
            .iter()
            .flat_map(|candidate| candidate.values(measure))
    };
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let room = ((high - low) * 0.05).max(high * 0.01);
    Some(((low - room).max(0.0), high + room))
}

fn numbers(record: &ComparisonRecord, measure: Measure) -> String {
    let lines: Vec<String> = record
        .candidates
        .iter()
        .filter_map(|candidate| {
            let median = measure.quantity.unit().format(candidate.median(measure)?);
            Some(format!("{}: median {median}", candidate.name))
        })
        .collect();
    lines.join("; ")
}

fn row_plot(
    record: &ComparisonRecord,
    looks: &[Look],
    measure: Measure,
    (low, high): (f64, f64),
) -> String {
    let height = 8.0 + ROW * record.candidates.len() as f64 + FOOT;
    let bottom = height - FOOT;
    let scale = Scale::linear(low, high, LABEL_WIDTH, WIDTH - 30.0);
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
        let y = 8.0 + ROW * (index as f64 + 0.5);
        svg.name((LABEL_WIDTH - 12.0, y + 4.0), Anchor::End, &candidate.name);
        if let Some(median) = candidate.median(measure) {
            let x = scale.at(median);
            let class = format!("median {}", look.class);
            svg.line(&class, (x, y - 9.0), (x, y + 9.0));
        }
        for (round, value) in runs(candidate, measure) {
            draw_run(&mut svg, *look, (scale.at(value), y), measure, round, value);
        }
    }
    let title = format!("{} of every run", measure.label());
    let svg = svg.finish(&title, &numbers(record, measure));
    figure(&title, "bar: median; hollow: a disturbed run", &svg)
}

fn runs(
    candidate: &CandidateRounds,
    measure: Measure,
) -> impl Iterator<Item = (&RoundMeasures, f64)> {
    let rounds = candidate.rounds.iter();
    rounds.filter_map(move |round| Some((round, round.get(measure)?)))
}

fn draw_run(
    svg: &mut Svg,
    look: Look,
    at: (f64, f64),
    measure: Measure,
    round: &RoundMeasures,
    value: f64,
) {
    let unit = measure.quantity.unit();
    let mut title = format!("round {}: {}", round.round + 1, unit.format(value));
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
    let class = format!("run {fill} {}", look.class);
    svg.dot(&class, at, 3.5, &title);
}

/// A panel for each candidate, all on the same axes, with the baseline behind it.
fn panels(
    record: &ComparisonRecord,
    looks: &[Look],
    measure: Measure,
    (low, high): (f64, f64),
) -> String {
    let rounds = record.candidates.iter().flat_map(|one| &one.rounds);
    let Some(last) = rounds
        .map(|round| round.round)
        .max()
        .filter(|last| *last > 0)
    else {
        return String::new();
    };
    let baseline = record
        .candidates
        .iter()
        .find(|one| one.role == Role::Baseline);
    let rows = record.candidates.len().div_ceil(COLUMNS);
    let mut svg = Svg::new(WIDTH, PANEL_HEIGHT * rows as f64 + 4.0);
    for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
        let left = PANEL_WIDTH * (index % COLUMNS) as f64;
        let top = PANEL_HEIGHT * (index / COLUMNS) as f64;
        let panel = Panel {
            x: Scale::linear(
                0.0,
                f64::from(last),
                left + PANEL_LEFT + 8.0,
                left + PANEL_WIDTH - 14.0,
            ),
            y: Scale::linear(low, high, top + PANEL_HEIGHT - 10.0, top + PANEL_HEAD + 4.0),
            corner: (left, top),
        };
        panel.draw_axes(&mut svg, measure, &candidate.name);
        if let Some(baseline) = baseline {
            svg.path("curve again", &panel.places(baseline, measure));
        }
        let class = format!("curve thin {}", look.class);
        svg.path(&class, &panel.places(candidate, measure));
        for (round, value) in runs(candidate, measure) {
            let at = (panel.x.at(f64::from(round.round)), panel.y.at(value));
            draw_run(&mut svg, *look, at, measure, round, value);
        }
    }
    let title = format!("{} round by round", measure.label());
    let svg = svg.finish(&title, &numbers(record, measure));
    figure(
        &title,
        "from the first round to the last; grey: the baseline in the same rounds",
        &svg,
    )
}

struct Panel {
    x: Scale,
    y: Scale,
    corner: (f64, f64),
}

impl Panel {
    fn draw_axes(&self, svg: &mut Svg, measure: Measure, name: &str) {
        let (left, top) = self.corner;
        svg.name((left + PANEL_LEFT, top + 15.0), Anchor::Start, name);
        let right = left + PANEL_WIDTH - 8.0;
        for tick in self.y.linear_ticks(3) {
            let y = self.y.at(tick);
            svg.line("grid", (left + PANEL_LEFT, y), (right, y));
            let label = measure.quantity.unit().format(tick);
            svg.text(
                "tick",
                (left + PANEL_LEFT - 5.0, y + 4.0),
                Anchor::End,
                &label,
            );
        }
    }

    fn places(&self, candidate: &CandidateRounds, measure: Measure) -> Vec<(f64, f64)> {
        runs(candidate, measure)
            .map(|(round, value)| (self.x.at(f64::from(round.round)), self.y.at(value)))
            .collect()
    }
}
