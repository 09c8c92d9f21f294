//! Ratios with their intervals, one line each, and the band within which a difference counts as
//! none. A mark whose interval stays clear of the line at 1 is a difference; one whose interval
//! lies inside the band is none.

use super::Look;
use super::svg::Scale;
use super::svg::{Anchor, Form, Svg};
use super::{figure, wide_figure};
use crate::report::least_confidence;
use crate::statistics::{Comparison, Verdict};
use crate::units::{format_confidence, format_percent};

const HEAD: f64 = 8.0;
const FOOT: f64 = 26.0;

/// Where a form has the parts of a row: beside one another, or the name above its interval.
struct Layout {
    form: Form,
    left: f64,
    right: f64,
    row: f64,
    /// Of the interval, below the row's top.
    middle: f64,
}

impl Layout {
    fn of(form: Form) -> Self {
        Self {
            form,
            left: form.pick(210.0, 10.0),
            right: form.pick(720.0, 204.0),
            row: form.pick(22.0, 44.0),
            middle: form.pick(11.0, 31.0),
        }
    }
}

/// One line of the plot.
pub(super) struct Row<'a> {
    pub(super) label: String,
    pub(super) look: Look,
    pub(super) comparison: &'a Comparison,
}

/// The plot of one measure; empty if there is nothing to draw.
pub(super) fn plot(title: &str, against: &str, rows: &[Row<'_>], higher_is_better: bool) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let words = Words::of(title, against, rows, higher_is_better);
    figure(title, &words.hint, |form| words.draw(form, rows))
}

/// The same for what a table says already: without a form for phones.
pub(super) fn repeated(
    title: &str,
    against: &str,
    rows: &[Row<'_>],
    higher_is_better: bool,
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let words = Words::of(title, against, rows, higher_is_better);
    let svg = words.draw(Form::Wide, rows);
    // The table's cells say the same when pointed at.
    wide_figure(title, &words.hint, &without_titles(&svg))
}
/// Without what dots say when pointed at.
fn without_titles(svg: &str) -> String {
    let mut parts = svg.split("><title>");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("</title></circle>") {
            Some((_, rest)) => text = text + "/>" + rest,
            None => text = text + "><title>" + part,
        }
    }
    text
}

/// The text around a drawing.
struct Words {
    label: String,
    hint: String,
    numbers: String,
    margin: f64,
}

impl Words {
    fn of(title: &str, against: &str, rows: &[Row<'_>], higher_is_better: bool) -> Self {
        let margin = rows.first().map_or(0.0, |first| first.comparison.margin);
        let better = if higher_is_better {
            "right is better"
        } else {
            "left is better"
        };
        let numbers: Vec<&str> = rows
            .iter()
            .map(|row| row.comparison.sentence.as_str())
            .collect();
        Self {
            label: format!("{title}: ratios with intervals"),
            hint: format!(
                "ratio to {against}, {better}; band: \u{b1}{} counts as equal{}",
                format_percent(margin),
                confidence(rows)
            ),
            numbers: numbers.join("; "),
            margin,
        }
    }

    fn draw(&self, form: Form, rows: &[Row<'_>]) -> String {
        drawing(form, rows, self.margin).finish(&self.label, &self.numbers)
    }
}

/// The confidence of the intervals: the least sure of them.
fn confidence(rows: &[Row<'_>]) -> String {
    let least = least_confidence(rows.iter().map(|row| row.comparison));
    least.map_or_else(String::new, |least| {
        format!("; intervals of {}", format_confidence(least))
    })
}

fn drawing(form: Form, rows: &[Row<'_>], margin: f64) -> Svg {
    let layout = Layout::of(form);
    let height = HEAD + layout.row * rows.len() as f64 + FOOT;
    let scale = axis(rows, margin, layout.left, layout.right);
    let bottom = height - FOOT;
    let mut svg = Svg::new(form, height);
    let (band_low, band_high) = (scale.at(1.0 / (1.0 + margin)), scale.at(1.0 + margin));
    svg.rect(
        "band",
        (band_low, HEAD),
        (band_high - band_low, bottom - HEAD),
    );
    for tick in scale.ratio_ticks(40.0) {
        let x = scale.at(tick);
        svg.line(
            if tick == 1.0 { "one" } else { "grid" },
            (x, HEAD),
            (x, bottom),
        );
        svg.text(
            "tick",
            (x, bottom + 15.0),
            Anchor::Middle,
            &format!("{tick}x"),
        );
    }
    for (index, row) in rows.iter().enumerate() {
        let top = HEAD + layout.row * index as f64;
        draw_row(&mut svg, row, &scale, &layout, top);
    }
    svg
}

/// Wide enough for every interval and for the band, but an interval without end does not squeeze
/// the others together.
fn axis(rows: &[Row<'_>], margin: f64, from: f64, to: f64) -> Scale {
    let (mut low, mut high) = (1.0 / (1.0 + 2.0 * margin), 1.0 + 2.0 * margin);
    for estimate in rows.iter().filter_map(|row| row.comparison.estimate()) {
        low = low.min(estimate.low).min(estimate.ratio);
        high = high.max(estimate.high).max(estimate.ratio);
    }
    let low = low.max(0.05) / 1.02;
    let high = high.min(20.0) * 1.02;
    Scale::logarithmic(low, high, from, to)
}

fn draw_row(svg: &mut Svg, row: &Row<'_>, scale: &Scale, layout: &Layout, top: f64) {
    let y = top + layout.middle;
    let comparison = row.comparison;
    let trusted = !matches!(comparison.verdict, Verdict::NotTrusted { .. });
    if let Some(estimate) = comparison.estimate() {
        let faded = if trusted { "" } else { " faded" };
        let class = format!("ci {}{faded}", row.look.class);
        let (low, high) = (scale.at(estimate.low), scale.at(estimate.high));
        svg.line(&class, (low, y), (high, y));
        for (end, value) in [(low, estimate.low), (high, estimate.high)] {
            // No end mark where the interval leaves the picture.
            if scale.shows(value) {
                svg.line(&class, (end, y - 4.0), (end, y + 4.0));
            }
        }
        let fill = if row.look.hollow { "hollow" } else { "full" };
        let class = format!("dot {fill} {}{faded}", row.look.class);
        svg.dot(
            &class,
            (scale.at(estimate.ratio), y),
            4.5,
            &comparison.sentence,
        );
    }
    draw_words(svg, row, layout, top);
}

fn draw_words(svg: &mut Svg, row: &Row<'_>, layout: &Layout, top: f64) {
    let verdict = match &row.comparison.verdict {
        Verdict::Undecided { rounds_needed } => format!("undecided, ~{rounds_needed} more rounds"),
        other => other.label().to_owned(),
    };
    let verdict = short(&verdict);
    let class = row.comparison.verdict.label().replace(' ', "-");
    let class = format!("verdict v-{class}");
    let figures = row.comparison.ratio_text();
    let base = top + layout.middle + 4.0;
    match layout.form {
        Form::Wide => {
            svg.name((layout.left - 12.0, base), Anchor::End, &row.label);
            svg.text("num", (layout.right + 12.0, base), Anchor::Start, &figures);
            svg.text(
                &class,
                (layout.right + 172.0, base),
                Anchor::Start,
                &verdict,
            );
        }
        Form::Narrow => {
            let (right, above) = (layout.form.width() - 2.0, top + 14.0);
            svg.name((2.0, above), Anchor::Start, &row.label);
            svg.text(&class, (right, above), Anchor::End, &verdict);
            svg.text("num", (right, base), Anchor::End, &figures);
        }
    }
}

/// The short form that fits beside the numbers.
fn short(verdict: &str) -> String {
    verdict
        .replace("undecided, ~", "? +")
        .replace(" more rounds", " rounds")
}
