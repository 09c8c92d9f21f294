//! The percentiles of a run's three clocks, as HdrHistogram draws them: each further nine has the
//! same room, and times are on a logarithmic axis, or slip would not be seen beside response.

use super::curves::{PERCENTILES, nines};
use super::frame::figure;
use super::legend::Strip;
use super::load_page::LoadPage;
use super::scale::Scale;
use super::svg::{Anchor, Form, Svg};
use crate::histogram::LatencyHistogram;
use crate::units::format_duration_ns;

const HEIGHT: f64 = 360.0;
const FOOT: f64 = 44.0;
/// Below a tenth of a microsecond a clock's own error is drawn.
const LOW_NS: f64 = 100.0;

/// The figure; empty if there are no samples.
pub(super) fn plot(page: &LoadPage<'_>) -> String {
    let count = page.response.count();
    if count == 0 {
        return String::new();
    }
    // In a closed loop nothing is intended: response and service are one, and slip is nothing.
    let clocks: Vec<(&str, &str, &LatencyHistogram)> = if page.slip.max() == 0 {
        vec![("response = service", "h0", page.response)]
    } else {
        vec![
            ("response", "h0", page.response),
            ("service", "h2", page.service),
            ("slip", "h1", page.slip),
        ]
    };
    let numbers: Vec<String> = clocks
        .iter()
        .map(|(name, _, clock)| {
            let [p50, p99] = [50.0, 99.0].map(|percent| clock.percentile(percent) as f64);
            let (p50, p99) = (format_duration_ns(p50), format_duration_ns(p99));
            format!("{name}: half within {p50}, 99 % within {p99}")
        })
        .collect();
    let numbers = numbers.join("; ");
    let hint = format!(
        "the last point is the longest of {} answers",
        crate::units::format_count(count as f64)
    );
    figure("Time over percentile", &hint, |form| {
        drawing(form, count, &clocks).finish("times over percentile", &numbers)
    })
}

fn drawing(form: Form, count: u64, clocks: &[(&str, &str, &LatencyHistogram)]) -> Svg {
    let area = Strip::of(form, HEIGHT, FOOT);
    let x = Scale::linear(0.0, (count as f64).log10().max(1.0), area.left, area.right);
    let y = time_axis(clocks.iter().map(|(_, _, clock)| *clock), &area);
    let mut svg = Svg::new(form, HEIGHT);
    for (percent, label) in PERCENTILES {
        let place = nines(percent, u64::MAX);
        if x.shows(place) {
            let at = x.at(place);
            svg.line("grid", (at, area.top), (at, area.bottom));
            svg.text("tick", (at, area.bottom + 18.0), Anchor::Middle, label);
        }
    }
    time_ticks(&mut svg, &y, (area.left, area.right));
    for (index, (name, hue, clock)) in clocks.iter().enumerate() {
        let points: Vec<(f64, f64)> = clock
            .spectrum(10)
            .iter()
            .map(|point| {
                let place = nines(point.percent, count);
                (x.at(place), y.at((point.value_ns as f64).max(LOW_NS)))
            })
            .collect();
        let class = format!("curve {hue}");
        svg.path(&class, &points);
        area.entry(&mut svg, index, &class, name);
    }
    svg
}

fn time_axis<'a>(clocks: impl Iterator<Item = &'a LatencyHistogram>, area: &Strip) -> Scale {
    let (mut low, mut high) = (f64::INFINITY, LOW_NS);
    for clock in clocks {
        low = low.min(clock.min() as f64);
        high = high.max(clock.max() as f64);
    }
    Scale::logarithmic(low.max(LOW_NS) / 1.2, high * 1.2, area.bottom, area.top)
}

/// Lines across at round times.
pub(super) fn time_ticks(svg: &mut Svg, y: &Scale, (left, right): (f64, f64)) {
    for tick in y.decade_ticks() {
        svg.line("grid", (left, y.at(tick)), (right, y.at(tick)));
        let label = format_duration_ns(tick)
            .replace(".00", "")
            .replace(".0 ", " ");
        svg.text("tick", (left - 8.0, y.at(tick) + 4.0), Anchor::End, &label);
    }
}
