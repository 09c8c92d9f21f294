//! Every single run as a dot, one row per candidate: how much runs of the same thing differ is seen
//! before any statistics. Then the same round by round, because a machine that grows warm or busy
//! shows as a slope. Disturbed runs are hollow.

use super::Look;
use super::figure;
use super::svg::Scale;
use super::svg::{Anchor, Form, Svg};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, Role, RoundMeasures, RoundStatus};

const HEAD: f64 = 8.0;
const FOOT: f64 = 28.0;
/// Panels of the second figure.
const PANEL_HEIGHT: f64 = 112.0;
const PANEL_HEAD: f64 = 22.0;

/// Both plots of one measure; empty if no candidate has it.
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
    range: (f64, f64),
) -> String {
    let title = format!("{} of every run", measure.label());
    let numbers = numbers(record, measure);
    figure(&title, "bar: median; hollow: a disturbed run", |form| {
        rows(form, record, looks, measure, range).finish(&title, &numbers)
    })
}

fn rows(
    form: Form,
    record: &ComparisonRecord,
    looks: &[Look],
    measure: Measure,
    (low, high): (f64, f64),
) -> Svg {
    // On a phone the name stands above the dots.
    let (row, middle, left) = form.pick((22.0, 11.0, 210.0), (40.0, 28.0, 12.0));
    let height = HEAD + row * record.candidates.len() as f64 + FOOT;
    let bottom = height - FOOT;
    let scale = Scale::linear(low, high, left, form.width() - form.pick(30.0, 12.0));
    let unit = measure.quantity.unit();
    let mut svg = Svg::new(form, height);
    for tick in scale.linear_ticks(form.pick(7, 4)) {
        let x = scale.at(tick);
        svg.line("grid", (x, HEAD), (x, bottom));
        let anchor = if x + 30.0 > form.width() {
            Anchor::End
        } else if x < 24.0 {
            Anchor::Start
        } else {
            Anchor::Middle
        };
        svg.text("tick", (x, bottom + 16.0), anchor, &unit.format(tick));
    }
    for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
        let top = HEAD + row * index as f64;
        let y = top + middle;
        match form {
            Form::Wide => svg.name((left - 12.0, y + 4.0), Anchor::End, &candidate.name),
            Form::Narrow => svg.name((2.0, top + 14.0), Anchor::Start, &candidate.name),
        }
        if let Some(median) = candidate.median(measure) {
            let x = scale.at(median);
            let class = format!("median {}", look.class);
            svg.line(&class, (x, y - 9.0), (x, y + 9.0));
        }
        for (round, value) in runs(candidate, measure) {
            draw_run(&mut svg, *look, (scale.at(value), y), measure, round, value);
        }
    }
    svg
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
    range: (f64, f64),
) -> String {
    let rounds = record.candidates.iter().flat_map(|one| &one.rounds);
    let Some(last) = rounds
        .map(|round| round.round)
        .max()
        .filter(|last| *last > 0)
    else {
        return String::new();
    };
    let title = format!("{} round by round", measure.label());
    let numbers = numbers(record, measure);
    let hint = "from the first round to the last; grey: the baseline in the same rounds";
    figure(&title, hint, |form| {
        let places = Places { form, range, last };
        places.draw(record, looks, measure).finish(&title, &numbers)
    })
}

/// Where panels are, and what their axes show.
struct Places {
    form: Form,
    range: (f64, f64),
    last: u32,
}

impl Places {
    fn draw(&self, record: &ComparisonRecord, looks: &[Look], measure: Measure) -> Svg {
        let columns = self.form.pick(4, 2);
        let baseline = record
            .candidates
            .iter()
            .find(|one| one.role == Role::Baseline);
        let rows = record.candidates.len().div_ceil(columns);
        let mut svg = Svg::new(self.form, PANEL_HEIGHT * rows as f64 + 4.0);
        for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
            let panel = self.panel(index % columns, index / columns, columns);
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
        svg
    }

    fn panel(&self, column: usize, row: usize, columns: usize) -> Panel {
        let width = self.form.width() / columns as f64;
        let (left, top) = (width * column as f64, PANEL_HEIGHT * row as f64);
        let axis = left + self.form.pick(58.0, 54.0);
        let (low, high) = self.range;
        Panel {
            x: Scale::linear(0.0, f64::from(self.last), axis + 8.0, left + width - 14.0),
            y: Scale::linear(low, high, top + PANEL_HEIGHT - 10.0, top + PANEL_HEAD + 4.0),
            axis,
            right: left + width - 8.0,
            // Where columns are narrow, names begin at their edge.
            name: (self.form.pick(axis, left + 4.0), top + 15.0),
            letters_max: self.form.pick(27, 23),
        }
    }
}

struct Panel {
    x: Scale,
    y: Scale,
    /// Where the plot begins, right of the numbers.
    axis: f64,
    right: f64,
    name: (f64, f64),
    letters_max: usize,
}

impl Panel {
    fn draw_axes(&self, svg: &mut Svg, measure: Measure, name: &str) {
        svg.name_within(self.name, Anchor::Start, name, self.letters_max);
        for tick in self.y.linear_ticks(3) {
            let y = self.y.at(tick);
            svg.line("grid", (self.axis, y), (self.right, y));
            let label = measure.quantity.unit().format(tick);
            svg.text("tick", (self.axis - 5.0, y + 4.0), Anchor::End, &label);
        }
    }

    fn places(&self, candidate: &CandidateRounds, measure: Measure) -> Vec<(f64, f64)> {
        runs(candidate, measure)
            .map(|(round, value)| (self.x.at(f64::from(round.round)), self.y.at(value)))
            .collect()
    }
}
