//! A run second by second: rate, response times, send delay and failures under one another, over the same
//! time, with warm-up shaded.

use super::curves::time_ticks;
use super::svg::Scale;
use super::svg::Strip;
use super::svg::{Anchor, Form, Svg};
use crate::record::{LoadSecond, RunPart};
use crate::units::format_rate;

const FOOT: f64 = 26.0;
/// More points than this cannot be distinguished.
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
    // Responses of the drain came after everything was sent: no rate, and few of them.
    let shown: Vec<&LoadSecond> = seconds
        .iter()
        .filter(|second| second.part != RunPart::Drain)
        .collect();
    if shown.len() < 2 {
        return String::new();
    }
    let stride = shown.len().div_ceil(POINTS_MAX);
    let points: Vec<Point> = shown.chunks(stride).map(point).collect();
    let run = Run::of(&shown);
    let curve = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        points
            .iter()
            .map(|point| (point.middle_s, value(point)))
            .collect()
    };
    let mut text = rates(run, &curve(|point| point.rate_per_s));
    text += &times(
        run,
        "Response time",
        &[
            ("p50", "h0", curve(|point| point.response_p50)),
            ("p99", "h4", curve(|point| point.response_p99)),
        ],
    );
    if points.iter().any(|point| point.slip_p99 > 0.0) {
        text += &times(
            run,
            "Send delay: sent later than intended",
            &[
                ("p50", "h2", curve(|point| point.slip_p50)),
                ("p99", "h1", curve(|point| point.slip_p99)),
            ],
        );
    }
    if points.iter().any(|point| point.failed > 0) {
        text += &failures(run, &points);
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
#[derive(Clone, Copy)]
struct Run {
    whole_s: f64,
    warm_up_end_s: f64,
}

impl Run {
    fn of(seconds: &[&LoadSecond]) -> Self {
        let end_s = |second: &LoadSecond| (second.start_ns + second.duration_ns) as f64 / 1e9;
        let warm_up = seconds
            .iter()
            .filter(|second| second.part == RunPart::WarmUp);
        Self {
            whole_s: seconds.last().map_or(1.0, |second| end_s(second)),
            warm_up_end_s: warm_up.map(|second| end_s(second)).fold(0.0, f64::max),
        }
    }
}

/// Time along the foot of a drawing.
struct TimeAxis {
    form: Form,
    height: f64,
    area: Strip,
    x: Scale,
    run: Run,
}

impl TimeAxis {
    fn of(form: Form, run: Run, height: f64) -> Self {
        let area = Strip::of(form, height, FOOT);
        Self {
            form,
            height,
            x: Scale::linear(0.0, run.whole_s, area.left, area.right),
            area,
            run,
        }
    }

    /// An empty drawing with time at its foot.
    fn canvas(&self) -> Svg {
        let mut svg = Svg::new(self.form, self.height);
        let (left, top, bottom) = (self.area.left, self.area.top, self.area.bottom);
        if self.run.warm_up_end_s > 0.0 {
            let width = self.x.at(self.run.warm_up_end_s) - left;
            svg.rect("band", (left, top), (width, bottom - top));
            svg.text("tick", (left + 4.0, top + 13.0), Anchor::Start, "warm-up");
        }
        for tick in self.x.linear_ticks(self.form.pick(10, 5)) {
            let x = self.x.at(tick);
            svg.line("grid", (x, top), (x, bottom));
            svg.text(
                "tick",
                (x, bottom + 17.0),
                Anchor::Middle,
                &format!("{tick} s"),
            );
        }
        svg
    }

    /// A line across, and the number at its left end.
    fn level(&self, svg: &mut Svg, y: f64, label: &str) {
        svg.line("grid", (self.area.left, y), (self.area.right, y));
        svg.text("tick", (self.area.left - 8.0, y + 4.0), Anchor::End, label);
    }

    fn place(&self, y: &Scale, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let place = |(at_s, value): &(f64, f64)| (self.x.at(*at_s), y.at(*value));
        points.iter().map(place).collect()
    }
}

fn figure(title: &str, curves: &[(&str, &[(f64, f64)])], draw: impl Fn(Form) -> Svg) -> String {
    let numbers: Vec<String> = curves
        .iter()
        .filter_map(|(name, points)| {
            let values = || points.iter().map(|point| point.1);
            let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
            Some(format!("{name} from {low:.0} to {high:.0}"))
        })
        .collect();
    let (label, numbers) = (
        format!("{title}, over the time of the run"),
        numbers.join("; "),
    );
    super::figure(title, "", |form| draw(form).finish(&label, &numbers))
}

fn rates(run: Run, points: &[(f64, f64)]) -> String {
    let highest = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let draw = |form| {
        let axis = TimeAxis::of(form, run, 190.0);
        let y = Scale::linear(0.0, highest * 1.1, axis.area.bottom, axis.area.top);
        let mut svg = axis.canvas();
        for tick in y.linear_ticks(4) {
            axis.level(&mut svg, y.at(tick), &format_rate(tick));
        }
        svg.path("curve h0", &axis.place(&y, points));
        svg
    };
    figure(
        "Right responses per second",
        &[("per second", points)],
        draw,
    )
}

/// A curve: its name, its hue, its points.
type Curve<'a> = (&'a str, &'a str, Vec<(f64, f64)>);

fn times(run: Run, title: &str, curves: &[Curve<'_>]) -> String {
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
    let draw = |form| {
        let axis = TimeAxis::of(form, run, 210.0);
        let area = &axis.area;
        let y = Scale::logarithmic(low / 1.3, high * 1.3, area.bottom, area.top);
        let mut svg = axis.canvas();
        time_ticks(&mut svg, &y, (area.left, area.right));
        for (index, (name, hue, points)) in curves.iter().enumerate() {
            let class = format!("curve {hue}");
            svg.path(&class, &axis.place(&y, points));
            area.entry(&mut svg, index, &class, name);
        }
        svg
    };
    let curves: Vec<(&str, &[(f64, f64)])> = curves
        .iter()
        .map(|(name, _, points)| (*name, points.as_slice()))
        .collect();
    figure(title, &curves, draw)
}

fn failures(run: Run, points: &[Point]) -> String {
    let most = points.iter().map(|point| point.failed).max().unwrap_or(1);
    let counts: Vec<(f64, f64)> = points
        .iter()
        .map(|point| (point.middle_s, point.failed as f64))
        .collect();
    let draw = |form| {
        let axis = TimeAxis::of(form, run, 120.0);
        let (area, mut svg) = (&axis.area, axis.canvas());
        let y = Scale::linear(0.0, most as f64 * 1.1, area.bottom, area.top);
        let ticks = y.linear_ticks(2).into_iter();
        for tick in ticks.filter(|tick| tick.fract() == 0.0) {
            axis.level(&mut svg, y.at(tick), &crate::units::format_count(tick));
        }
        let width = ((area.right - area.left) / points.len() as f64 * 0.7).clamp(1.0, 24.0);
        for &(at_s, failed) in counts.iter().filter(|(_, failed)| *failed > 0.0) {
            let top = y.at(failed);
            let left = axis.x.at(at_s) - width / 2.0;
            svg.rect("bar full h1", (left, top), (width, area.bottom - top));
        }
        svg
    };
    figure("Failed or dropped", &[("failed", &counts)], draw)
}
