//! Ratios with their intervals, one line each, and the band within which a difference counts as
//! none. A mark whose interval stays clear of the line at 1 is a difference; one whose interval
//! lies inside the band is none.

use super::Look;
use super::frame::figure;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::statistics::{Comparison, Verdict};
use crate::units::format_percent;

const WIDTH: f64 = 1020.0;
const LABEL_WIDTH: f64 = 210.0;
const TEXT_WIDTH: f64 = 300.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 8.0;
const FOOT: f64 = 26.0;

/// One line of the plot.
pub(super) struct Row<'a> {
    pub(super) label: String,
    pub(super) look: Look,
    pub(super) comparison: &'a Comparison,
}

/// The plot of one measure; empty if there is nothing to draw.
pub(super) fn plot(title: &str, against: &str, rows: &[Row<'_>], higher_is_better: bool) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let margin = first.comparison.margin;
    let height = HEAD + ROW * rows.len() as f64 + FOOT;
    let right = WIDTH - TEXT_WIDTH;
    let scale = axis(rows, margin, LABEL_WIDTH, right);
    let bottom = height - FOOT;
    let mut svg = Svg::new(WIDTH, height);
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
        let y = HEAD + ROW * (index as f64 + 0.5);
        draw_row(&mut svg, row, &scale, y, right);
    }
    let better = if higher_is_better {
        "right is better"
    } else {
        "left is better"
    };
    let margin_text = format_percent(margin);
    let numbers: Vec<&str> = rows
        .iter()
        .map(|row| row.comparison.sentence.as_str())
        .collect();
    figure(
        title,
        &format!("ratio to {against}, {better}; band: \u{b1}{margin_text} counts as equal"),
        &svg.finish(
            &format!("{title}: ratios with intervals"),
            &numbers.join("; "),
        ),
    )
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

fn draw_row(svg: &mut Svg, row: &Row<'_>, scale: &Scale, y: f64, right: f64) {
    svg.name((LABEL_WIDTH - 12.0, y + 4.0), Anchor::End, &row.label);
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
    let verdict = match &comparison.verdict {
        Verdict::Undecided { rounds_needed } => format!("undecided, ~{rounds_needed} more rounds"),
        other => other.label().to_owned(),
    };
    svg.text(
        "num",
        (right + 12.0, y + 4.0),
        Anchor::Start,
        &comparison.ratio_text(),
    );
    let class = format!("verdict v-{}", comparison.verdict.label().replace(' ', "-"));
    svg.text(
        &class,
        (right + 172.0, y + 4.0),
        Anchor::Start,
        &short(&verdict),
    );
}

/// What fits beside the numbers.
fn short(verdict: &str) -> String {
    verdict
        .replace("undecided, ~", "? +")
        .replace(" more rounds", " rounds")
}
