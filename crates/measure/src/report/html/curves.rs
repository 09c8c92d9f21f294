//! Latency over percentile: the axis gives each further nine the same room, so that the tail, which
//! users feel, gets as much of the picture as the middle.

use crate::histogram::{LatencyHistogram, LatencySummary, SpectrumPoint};
use crate::record::{ComparisonRecord, LatencyCurve, Operation};
use crate::statistics::median;
use crate::units::format_duration_ns;

use super::figure;
use super::load_page::LoadPage;
use super::svg::{Anchor, Form, Legend, Scale, Strip, Svg, curve_class};
use super::table::with_head;
use super::{Look, escape};

const HEIGHT: f64 = 278.0;
const FOOT: f64 = 40.0;

/// Where the axis has its ticks.
pub(super) const PERCENTILES: [(f64, &str); 6] = [
    (50.0, "50 %"),
    (90.0, "90 %"),
    (99.0, "99 %"),
    (99.9, "99.9 %"),
    (99.99, "99.99 %"),
    (99.999, "99.999 %"),
];

/// How many times rarer than "all": 90 % is 1, 99 % is 2.
pub(super) fn nines(percent: f64, count: u64) -> f64 {
    // The last point (100 %) stands where one sample of all is beyond.
    let beyond = (1.0 - percent / 100.0).max(1.0 / count.max(1) as f64);
    -beyond.log10()
}

/// Below this percentile a curve says how fast the fastest requests are: not the question.
const PERCENT_MIN: f64 = 5.0;

/// Whether a point is drawn.
fn is_shown(point: &SpectrumPoint, count: u64, nines_max: f64) -> bool {
    point.percent >= PERCENT_MIN && nines(point.percent, count) <= nines_max
}

/// A clock: its name in the record, its title, and where it begins.
const CLOCKS: [(&str, &str, &str); 2] = [
    ("response", "response time", "from the intended start"),
    (
        "service",
        "service time",
        "from the actual send: without what waited to be sent",
    ),
];

/// For each operation that has them the response curves and every run's percentiles; the service curves
/// folded away.
pub(super) fn plots(record: &ComparisonRecord, looks: &[Look]) -> String {
    let mut text = String::new();
    let mut service = String::new();
    for operation in Operation::ALL {
        for clock in CLOCKS {
            let curves = curves_of(record, looks, operation, clock.0);
            if curves.is_empty() {
                continue;
            }
            let figure = plot(record, operation, clock, &curves);
            if clock.0 == "response" {
                text += &figure;
            } else {
                service += &figure;
            }
        }
        text += &table(record, operation);
    }
    if !service.is_empty() {
        text += &format!(
            "<details><summary>The same by the service clock, which leaves out what a slow server keeps \
             waiting</summary>{service}</details>"
        );
    }
    text
}

/// A candidate's name and style with its curve.
type NamedCurve<'a> = (&'a str, Look, &'a LatencyCurve);

fn curves_of<'a>(
    record: &'a ComparisonRecord,
    looks: &[Look],
    operation: Operation,
    clock: &str,
) -> Vec<NamedCurve<'a>> {
    record
        .candidates
        .iter()
        .zip(looks)
        .filter_map(|(candidate, look)| {
            let mut curves = candidate.curves.iter();
            let curve = curves.find(|one| one.operation == operation && one.clock == clock)?;
            (!curve.points.is_empty()).then_some((candidate.name.as_str(), *look, curve))
        })
        .collect()
}

/// The basis of verdicts: each run's own percentiles, their median and their range.
fn table(record: &ComparisonRecord, operation: Operation) -> String {
    type Pick = fn(&LatencySummary) -> u64;
    // How many requests a run needs for each: with fewer, none is beyond the percentile and it is the longest.
    let picks: [(&str, u64, Pick); 5] = [
        ("p50", 2, |one| one.p50),
        ("p90", 10, |one| one.p90),
        ("p99", 100, |one| one.p99),
        ("p99.9", 1_000, |one| one.p999),
        ("longest", 1, |one| one.max),
    ];
    let key = format!("{}.response", operation.key());
    let mut rows = String::new();
    for candidate in &record.candidates {
        let runs = candidate.rounds.iter();
        let runs: Vec<&LatencySummary> = runs.filter_map(|run| run.latencies.get(&key)).collect();
        if runs.is_empty() {
            continue;
        }
        rows += &format!("<tr><th scope=\"row\">{}</th>", escape(&candidate.name));
        for (_, requests_min, pick) in picks {
            let counted = runs.iter().filter(|run| run.count >= requests_min);
            rows += &range_cell(counted.map(|run| pick(run) as f64).collect());
        }
        rows += "</tr>";
    }
    if rows.is_empty() {
        return String::new();
    }
    let caption = format!(
        "{} response time of each run: median over runs, and the lowest and highest run",
        operation.label()
    );
    let names = picks.iter().map(|(name, ..)| *name);
    let head: Vec<&str> = std::iter::once("candidate").chain(names).collect();
    with_head(&caption, &head, &rows)
}

/// The median of `values`, and the lowest and highest; a dash without any.
fn range_cell(mut values: Vec<f64>) -> String {
    let Some(middle) = median(&mut values) else {
        return "<td>-</td>".to_owned();
    };
    let ends = [values.first(), values.last()].map(|end| end.copied().unwrap_or(middle));
    let [low, high] = ends.map(format_duration_ns);
    let middle = format_duration_ns(middle);
    format!("<td>{middle}<br><span class=\"hint\">{low}\u{2013}{high}</span></td>")
}

fn plot(
    record: &ComparisonRecord,
    operation: Operation,
    (_, clock, begin): (&str, &str, &str),
    curves: &[NamedCurve<'_>],
) -> String {
    let rate = record
        .settings
        .rate_per_s
        .get(operation.key())
        .map_or_else(String::new, |rate| {
            format!(" at {} for all", crate::units::format_rate(*rate))
        });
    let title = format!("{} {clock}", operation.label());
    let hint = format!(
        "{begin}{rate}; all rounds merged, for the shape only: verdicts use each run's own percentiles"
    );
    let numbers = numbers(curves);
    let label = format!("{title} over percentile");
    figure(&title, &hint, |form| {
        drawing(form, curves).finish(&label, &numbers)
    })
}

fn drawing(form: Form, curves: &[NamedCurve<'_>]) -> Svg {
    let area = Legend::of(form, HEIGHT, FOOT, curves.len());
    let nines_max = nines_shown(curves);
    let x = Scale::linear(0.0, nines_max, area.left, area.right);
    let y = time_axis(curves, nines_max, (area.bottom, area.top));
    let mut svg = area.canvas();
    for (percent, label) in PERCENTILES {
        let place = nines(percent, u64::MAX);
        if x.shows(place) {
            let at = x.at(place);
            svg.line("grid", (at, area.top), (at, area.bottom));
            svg.text("tick", (at, area.bottom + 16.0), Anchor::Middle, label);
        }
    }
    time_ticks(&mut svg, &y, (area.left, area.right));
    for (index, (name, look, curve)) in curves.iter().enumerate() {
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .filter(|point| is_shown(point, curve.count, nines_max))
            .map(|point| {
                (
                    x.at(nines(point.percent, curve.count)),
                    y.at(point.value_ns as f64),
                )
            })
            .collect();
        let class = curve_class(*look);
        svg.path(&class, &points);
        area.entry(&mut svg, index, &class, name);
    }
    svg
}

fn numbers(curves: &[NamedCurve<'_>]) -> String {
    let at = |curve: &LatencyCurve, percent: f64| {
        let mut points = curve.points.iter();
        let point = points.find(|point| point.percent >= percent)?;
        Some(format_duration_ns(point.value_ns as f64))
    };
    let lines: Vec<String> = curves
        .iter()
        .filter_map(|(name, _, curve)| {
            let (p50, p99) = (at(curve, 50.0)?, at(curve, 99.0)?);
            Some(format!("{name}: p50 {p50}, p99 {p99}"))
        })
        .collect();
    lines.join("; ")
}

/// The axis ends where about ten samples of the smallest run are left: beyond, chance draws.
fn nines_shown(curves: &[NamedCurve<'_>]) -> f64 {
    let count = curves
        .iter()
        .map(|(_, _, curve)| curve.count)
        .min()
        .unwrap_or(1);
    ((count as f64 / 10.0).max(10.0)).log10()
}

fn time_axis(curves: &[NamedCurve<'_>], nines_max: f64, (from, to): (f64, f64)) -> Scale {
    let visible = curves.iter().flat_map(|(_, _, curve)| {
        curve
            .points
            .iter()
            .filter(move |point| is_shown(point, curve.count, nines_max))
    });
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for point in visible {
        low = low.min((point.value_ns as f64).max(1.0));
        high = high.max(point.value_ns as f64);
    }
    let low = if low.is_finite() { low } else { 1.0 };
    Scale::logarithmic(low / 1.1, high.max(low) * 1.1, from, to)
}

// The percentiles of a run's three clocks, as HdrHistogram draws them: each further nine has the
// same room, and times are on a logarithmic axis, or the send delay would not be seen beside response.

const PERCENTILES_HEIGHT: f64 = 360.0;
const PERCENTILES_FOOT: f64 = 44.0;
/// Below a tenth of a microsecond a clock's own error is drawn.
const LOW_NS: f64 = 100.0;

/// The figure; empty if there are no samples.
pub(super) fn percentiles_plot(page: &LoadPage<'_>) -> String {
    let count = page.response.count();
    if count == 0 {
        return String::new();
    }
    // In a closed loop nothing is intended: response and service are one, and there is no send delay.
    let clocks: Vec<(&str, &str, &LatencyHistogram)> = if page.slip.max() == 0 {
        vec![("response = service", "h0", page.response)]
    } else {
        vec![
            ("response", "h0", page.response),
            ("service", "h2", page.service),
            ("send delay", "h1", page.slip),
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
        "the last point is the longest of {} responses",
        crate::units::format_count(count as f64)
    );
    figure("Time over percentile", &hint, |form| {
        percentiles_drawing(form, count, &clocks).finish("times over percentile", &numbers)
    })
}

fn percentiles_drawing(form: Form, count: u64, clocks: &[(&str, &str, &LatencyHistogram)]) -> Svg {
    let area = Strip::of(form, PERCENTILES_HEIGHT, PERCENTILES_FOOT);
    let x = Scale::linear(0.0, (count as f64).log10().max(1.0), area.left, area.right);
    let y = percentiles_time_axis(clocks.iter().map(|(_, _, clock)| *clock), &area);
    let mut svg = Svg::new(form, PERCENTILES_HEIGHT);
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

fn percentiles_time_axis<'a>(
    clocks: impl Iterator<Item = &'a LatencyHistogram>,
    area: &Strip,
) -> Scale {
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
