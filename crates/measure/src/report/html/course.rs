//! A run second by second: rate, response times, slip and failures under one another, over the same
//! time, with warm-up shaded.

use super::percentiles::time_ticks;
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use crate::record::{LoadSecond, RunPart};
use crate::units::format_rate;

const WIDTH: f64 = 1020.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 880.0;
const TOP: f64 = 10.0;
const FOOT: f64 = 26.0;
/// More points than this are not told apart.
const POINTS_MAX: usize = 800;
/// Below a tenth of a microsecond a clock's own error is drawn.
const LOW_NS: f64 = 100.0;

/// One point of the course: a second, or several.
struct Point {
    middle_s: f64,
    rate_per_s: f64,
    response_p50: f64,
    response_p99: f64,
    slip_p50: f64,
    slip_p99: f64,
    failed: u64,
}

/// The figures; empty if there are no seconds to draw.
pub(super) fn plots(seconds: &[LoadSecond]) -> String {
    // Answers of the drain came after everything was sent: no rate, and few of them.
    let shown: Vec<&LoadSecond> = seconds
        .iter()
        .filter(|second| second.part != RunPart::Drain)
        .collect();
    if shown.len() < 2 {
        return String::new();
    }
    let stride = shown.len().div_ceil(POINTS_MAX);
    let points: Vec<Point> = shown.chunks(stride).map(point).collect();
    let axis = TimeAxis::of(&shown);
    let curve = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        points
            .iter()
            .map(|point| (point.middle_s, value(point)))
            .collect()
    };
    let mut text = rates(&axis, &curve(|point| point.rate_per_s));
    text += &times(
        &axis,
        "Response time",
        &[
            ("p50", "h0", curve(|point| point.response_p50)),
            ("p99", "h4", curve(|point| point.response_p99)),
        ],
    );
    if points.iter().any(|point| point.slip_p99 > 0.0) {
        text += &times(
            &axis,
            "Slip: sent later than intended",
            &[
                ("p50", "h2", curve(|point| point.slip_p50)),
                ("p99", "h1", curve(|point| point.slip_p99)),
            ],
        );
    }
    if points.iter().any(|point| point.failed > 0) {
        text += &failures(&axis, &points);
    }
    text
}

/// Of several seconds: the mean rate and median, the worst tail, all failures.
fn point(seconds: &[&LoadSecond]) -> Point {
    let first = seconds[0];
    let last = seconds[seconds.len() - 1];
    let end_ns = last.start_ns + last.duration_ns;
    let span_s = (end_ns - first.start_ns).max(1) as f64 / 1e9;
    let requests: u64 = seconds.iter().map(|second| second.requests).sum();
    let mean = |value: fn(&LoadSecond) -> u64| {
        let sum: u64 = seconds.iter().map(|second| value(second)).sum();
        sum as f64 / seconds.len() as f64
    };
    let worst = |value: fn(&LoadSecond) -> u64| {
        seconds
            .iter()
            .map(|second| value(second))
            .max()
            .unwrap_or(0) as f64
    };
    Point {
        middle_s: first.start_ns as f64 / 1e9 + span_s / 2.0,
        rate_per_s: requests as f64 / span_s,
        response_p50: mean(|second| second.response_ns.p50),
        response_p99: worst(|second| second.response_ns.p99),
        slip_p50: mean(|second| second.slip_ns.p50),
        slip_p99: worst(|second| second.slip_ns.p99),
        failed: seconds
            .iter()
            .map(|second| second.errors.total() + second.shed)
            .sum(),
    }
}

/// The time that all figures share.
struct TimeAxis {
    x: Scale,
    warm_up_end_s: f64,
}

impl TimeAxis {
    fn of(seconds: &[&LoadSecond]) -> Self {
        let end_s = |second: &LoadSecond| (second.start_ns + second.duration_ns) as f64 / 1e9;
        let whole_s = seconds.last().map_or(1.0, |second| end_s(second));
        let warm_up = seconds
            .iter()
            .filter(|second| second.part == RunPart::WarmUp);
        Self {
            x: Scale::linear(0.0, whole_s, LEFT, RIGHT),
            warm_up_end_s: warm_up.map(|second| end_s(second)).fold(0.0, f64::max),
        }
    }

    /// An empty drawing with time at its foot.
    fn canvas(&self, height: f64) -> Svg {
        let mut svg = Svg::new(WIDTH, height);
        let bottom = height - FOOT;
        if self.warm_up_end_s > 0.0 {
            let width = self.x.at(self.warm_up_end_s) - LEFT;
            svg.rect("band", (LEFT, TOP), (width, bottom - TOP));
            svg.text("tick", (LEFT + 4.0, TOP + 13.0), Anchor::Start, "warm-up");
        }
        for tick in self.x.linear_ticks(10) {
            let x = self.x.at(tick);
            svg.line("grid", (x, TOP), (x, bottom));
            svg.text(
                "tick",
                (x, bottom + 17.0),
                Anchor::Middle,
                &format!("{tick} s"),
            );
        }
        svg
    }

    fn place(&self, y: &Scale, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let place = |(at_s, value): &(f64, f64)| (self.x.at(*at_s), y.at(*value));
        points.iter().map(place).collect()
    }
}

fn figure(title: &str, svg: Svg, curves: &[(&str, &[(f64, f64)])]) -> String {
    let numbers: Vec<String> = curves
        .iter()
        .filter_map(|(name, points)| {
            let values = || points.iter().map(|point| point.1);
            let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
            Some(format!("{name} from {low:.0} to {high:.0}"))
        })
        .collect();
    let svg = svg.finish(
        &format!("{title}, over the time of the run"),
        &numbers.join("; "),
    );
    super::frame::figure(title, "", &svg)
}

fn rates(axis: &TimeAxis, points: &[(f64, f64)]) -> String {
    const HEIGHT: f64 = 190.0;
    let highest = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let y = Scale::linear(0.0, highest * 1.1, HEIGHT - FOOT, TOP);
    let mut svg = axis.canvas(HEIGHT);
    for tick in y.linear_ticks(4) {
        svg.line("grid", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        let label = format_rate(tick);
        svg.text("tick", (LEFT - 8.0, y.at(tick) + 4.0), Anchor::End, &label);
    }
    svg.path("curve h0", &axis.place(&y, points));
    figure("Right answers per second", svg, &[("per second", points)])
}

/// A curve: its name, its hue, its points.
type Curve<'a> = (&'a str, &'a str, Vec<(f64, f64)>);

fn times(axis: &TimeAxis, title: &str, curves: &[Curve<'_>]) -> String {
    const HEIGHT: f64 = 210.0;
    let values = || {
        curves
            .iter()
            .flat_map(|(_, _, points)| points.iter().map(|point| point.1))
    };
    let low = values()
        .filter(|value| *value > 0.0)
        .fold(f64::INFINITY, f64::min);
    let high = values().fold(LOW_NS, f64::max);
    let low = if low.is_finite() {
        low.max(LOW_NS)
    } else {
        LOW_NS
    };
    let y = Scale::logarithmic(low / 1.3, high * 1.3, HEIGHT - FOOT, TOP);
    let mut svg = axis.canvas(HEIGHT);
    time_ticks(&mut svg, &y, (LEFT, RIGHT));
    for (index, (name, hue, points)) in curves.iter().enumerate() {
        let class = format!("curve {hue}");
        svg.path(&class, &axis.place(&y, points));
        let row = TOP + 12.0 + 20.0 * index as f64;
        svg.line(&class, (RIGHT + 14.0, row), (RIGHT + 36.0, row));
        svg.text("label", (RIGHT + 42.0, row + 4.0), Anchor::Start, name);
    }
    let curves: Vec<(&str, &[(f64, f64)])> = curves
        .iter()
        .map(|(name, _, points)| (*name, points.as_slice()))
        .collect();
    figure(title, svg, &curves)
}

fn failures(axis: &TimeAxis, points: &[Point]) -> String {
    const HEIGHT: f64 = 120.0;
    let bottom = HEIGHT - FOOT;
    let most = points.iter().map(|point| point.failed).max().unwrap_or(1);
    let y = Scale::linear(0.0, most as f64 * 1.1, bottom, TOP);
    let mut svg = axis.canvas(HEIGHT);
    for tick in y
        .linear_ticks(2)
        .into_iter()
        .filter(|tick| tick.fract() == 0.0)
    {
        svg.line("grid", (LEFT, y.at(tick)), (RIGHT, y.at(tick)));
        let label = crate::units::format_count(tick);
        svg.text("tick", (LEFT - 8.0, y.at(tick) + 4.0), Anchor::End, &label);
    }
    let width = ((RIGHT - LEFT) / points.len() as f64 * 0.7).clamp(1.0, 24.0);
    for point in points.iter().filter(|point| point.failed > 0) {
        let top = y.at(point.failed as f64);
        let left = axis.x.at(point.middle_s) - width / 2.0;
        svg.rect("bar full h1", (left, top), (width, bottom - top));
    }
    let counts: Vec<(f64, f64)> = points
        .iter()
        .map(|point| (point.middle_s, point.failed as f64))
        .collect();
    figure("Failed or given up", svg, &[("failed", &counts)])
}
