//! The few shapes the drawings are made of.

use std::fmt::Write;

use crate::record::{CandidateRounds, ComparisonRecord, Measure, Quantity};
use crate::units::format_bytes;

use super::figure;
use super::{Look, escape};

/// Letters that fit in front of a row.
const NAME_MAX: usize = 27;

/// The two forms of every drawing: one for paper and the screens of desks, one for phones. The style
/// shows one of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Wide,
    Narrow,
}

impl Form {
    /// Pixels at 100 %; a phone has about as many as the narrow form.
    pub(super) fn width(self) -> f64 {
        self.pick(1020.0, 360.0)
    }

    /// The value for one of both.
    pub(super) fn pick<T>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }

    pub(super) fn class(self) -> &'static str {
        self.pick("wide", "narrow")
    }
}

/// Which side of its point a text stands on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under construction. Coordinates are in pixels at 100 %.
#[derive(Debug)]
pub(super) struct Svg {
    form: Form,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(form: Form, height: f64) -> Self {
        Self {
            form,
            height,
            body: String::new(),
        }
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.body
            .write_fmt(arguments)
            .expect("writing into a String cannot fail");
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1.max(0.0)
        ));
    }

    /// `title` is shown when the pointer rests on the dot; a phone has none.
    pub(super) fn dot(&mut self, class: &str, centre: (f64, f64), radius: f64, title: &str) {
        let (x, y) = centre;
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\""
        ));
        if self.form == Form::Wide && !title.is_empty() {
            self.push(format_args!("><title>{}</title></circle>", escape(title)));
        } else {
            self.push(format_args!("/>"));
        }
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        ));
    }

    /// A text that reads upwards and begins at its point.
    pub(super) fn text_upwards(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        self.push(format_args!(
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{}</text>",
            escape(text)
        ));
    }

    /// Finished elements.
    pub(super) fn elements(&mut self, elements: &str) {
        self.body.push_str(elements);
    }

    /// The name of a candidate: shortened to what the column holds, in full for the pointer.
    pub(super) fn name(&mut self, at: (f64, f64), anchor: Anchor, name: &str) {
        self.name_within(at, anchor, name, NAME_MAX);
    }

    /// The same where so many letters fit.
    pub(super) fn name_within(
        &mut self,
        at: (f64, f64),
        anchor: Anchor,
        name: &str,
        letters_max: usize,
    ) {
        if name.chars().count() <= letters_max {
            return self.text("label", at, anchor, name);
        }
        // The end distinguishes what the beginning has in common: with pools, without pools.
        let letters: Vec<char> = name.chars().collect();
        let (head, tail) = (letters_max / 2 - 1, letters_max / 2 + 1);
        let short: String = letters[..head]
            .iter()
            .chain(std::iter::once(&'\u{2026}'))
            .chain(&letters[letters.len() - tail..])
            .collect();
        self.push(format_args!("<g><title>{}</title>", escape(name)));
        self.text("label", at, anchor, &short);
        self.push(format_args!("</g>"));
    }

    /// A line through all points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut data = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            write!(data, "{command}{x:.1} {y:.1}").expect("writing into a String cannot fail");
        }
        self.push(format_args!("<path class=\"{class}\" d=\"{data}\"/>"));
    }

    /// The element. A screen reader says `label`, and then the numbers that the picture shows; on a phone
    /// it finds those in the tables.
    pub(super) fn finish(self, label: &str, numbers: &str) -> String {
        let label = escape(label);
        let described = match self.form {
            Form::Wide => format!("<title>{label}</title><desc>{}</desc>", escape(numbers)),
            Form::Narrow => String::new(),
        };
        format!(
            "<svg role=\"img\" aria-label=\"{label}\" class=\"{}\" viewBox=\"0 0 {w:.0} {h:.0}\" \
             width=\"{w:.0}\" height=\"{h:.0}\">{described}{}</svg>",
            self.form.class(),
            self.body,
            w = self.form.width(),
            h = self.height
        )
    }
}

// From a value to a pixel, and where the ticks go.

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// `low..high` onto the pixels `from..to`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self {
            low,
            high,
            from,
            to,
            logarithmic: false,
        }
    }

    /// The same with equal ratios at equal distances; both ends must be positive.
    pub(super) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 2.0 };
        Self {
            low: low.ln(),
            high: high.ln(),
            from,
            to,
            logarithmic: true,
        }
    }

    /// The pixel of a value; outside the axis it sticks to the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.max(f64::MIN_POSITIVE).ln()
        } else {
            value
        };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Whether the value lies on the axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        let value = if self.logarithmic { value.ln() } else { value };
        let slack = 1e-9 * (self.high - self.low).abs();
        value >= self.low - slack && value <= self.high + slack
    }

    /// Round values (1, 2 or 5 times a power of ten), about `count` of them.
    pub(super) fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let raw = (self.high - self.low) / count.max(1) as f64;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * magnitude)
            .find(|step| *step >= raw * 0.999)
            .unwrap_or(raw);
        let first = (self.low / step).ceil() as i64;
        (first..)
            .map(|index| index as f64 * step)
            .take_while(|value| *value <= self.high + step * 1e-9)
            .take(50)
            .collect()
    }

    /// Ticks of a time axis: 1, 2, 5 per decade, or the decades alone where those would crowd.
    pub(super) fn decade_ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        let factors: &[f64] = if (high / low).log10() > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        (first..=last)
            .flat_map(|power| {
                factors
                    .iter()
                    .map(move |factor| factor * 10_f64.powi(power))
            })
            .filter(|value| self.shows(*value))
            .collect()
    }

    /// Ticks of a ratio axis around 1, at least `gap` pixels apart; 1 always among them.
    pub(super) fn ratio_ticks(&self, gap: f64) -> Vec<f64> {
        // The more telling ones first: what comes later only fills what is still free.
        const WANTED: [f64; 31] = [
            1.0, 0.5, 2.0, 0.1, 10.0, 0.25, 4.0, 0.8, 1.25, 0.9, 1.1, 1.5, 0.67, 0.7, 1.4, 0.6,
            1.2, 0.95, 1.05, 3.0, 0.33, 0.2, 5.0, 1.02, 0.98, 1.03, 0.97, 1.01, 0.99, 1.005, 0.995,
        ];
        let mut ticks: Vec<f64> = Vec::new();
        for value in WANTED.into_iter().filter(|value| self.shows(*value)) {
            let free = |other: &f64| (self.at(*other) - self.at(value)).abs() >= gap;
            if ticks.iter().all(free) {
                ticks.push(value);
            }
        }
        ticks.sort_by(f64::total_cmp);
        ticks
    }
}

// Where a plot has the names of its curves: beside it, or on a phone below or above it.

const TOP: f64 = 12.0;
const ROW: f64 = 20.0;
/// Room for names beside the plot.
const WIDTH: f64 = 245.0;

/// Where the plot is, and where its names.
pub(super) struct Legend {
    form: Form,
    entries: usize,
    /// Below the plot, for its axis.
    foot: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Legend {
    /// A plot of at least `height`, with the names of `entries` curves. `foot`: room for its axis.
    pub(super) fn of(form: Form, height: f64, foot: f64, entries: usize) -> Self {
        let beside = ROW * entries as f64;
        Self {
            form,
            entries,
            foot,
            left: form.pick(76.0, 62.0),
            right: form.width() - form.pick(WIDTH, 8.0),
            top: TOP,
            bottom: TOP + form.pick(height.max(beside), 220.0),
        }
    }

    /// An empty drawing that holds both.
    pub(super) fn canvas(&self) -> Svg {
        let names = self.form.pick(0.0, ROW * self.entries as f64 + 6.0);
        Svg::new(self.form, self.bottom + self.foot + names)
    }

    /// The name of the curve at `index`, with a piece of its line.
    pub(super) fn entry(&self, svg: &mut Svg, index: usize, class: &str, name: &str) {
        let row = ROW * index as f64;
        let (x, y) = match self.form {
            Form::Wide => (self.right + 18.0, self.top + 10.0 + row),
            Form::Narrow => (8.0, self.bottom + self.foot + 10.0 + row),
        };
        svg.line(class, (x, y), (x + 26.0, y));
        svg.name((x + 32.0, y + 4.0), Anchor::Start, name);
    }
}

/// How a candidate's curve is drawn.
pub(super) fn curve_class(look: Look) -> String {
    let dash = if look.hollow { " dash" } else { "" };
    format!("curve {}{dash}", look.class)
}

/// A plot with the short names of a few curves: beside it, or on a phone above it.
pub(super) struct Strip {
    form: Form,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Strip {
    /// In a drawing of `height`; `foot`: room for the axis.
    pub(super) fn of(form: Form, height: f64, foot: f64) -> Self {
        Self {
            form,
            left: form.pick(76.0, 64.0),
            right: form.pick(880.0, 348.0),
            top: form.pick(10.0, 24.0),
            bottom: height - foot,
        }
    }

    /// The name of the curve at `index`, with a piece of its line.
    pub(super) fn entry(&self, svg: &mut Svg, index: usize, class: &str, name: &str) {
        let (x, y) = match self.form {
            Form::Wide => (self.right + 14.0, self.top + 12.0 + ROW * index as f64),
            Form::Narrow => (self.left + 96.0 * index as f64, 10.0),
        };
        svg.line(class, (x, y), (x + 22.0, y));
        svg.text("label", (x + 28.0, y + 4.0), Anchor::Start, name);
    }
}

// Memory as bars from zero: here, unlike with ratios, the absolute size is what one pays for.

const HEAD: f64 = 8.0;
const FOOT: f64 = 28.0;
const MIB: f64 = 1024.0 * 1024.0;

/// The drawn values: the processes' private memory; of old records, and where that could not be read, RSS.
struct Shown {
    title: &'static str,
    after_work: Measure,
    peak: Measure,
}

const PRIVATE: Shown = Shown {
    title: "Memory",
    after_work: Measure::whole(Quantity::MemoryAfterWork),
    peak: Measure::whole(Quantity::PeakMemory),
};
const RESIDENT: Shown = Shown {
    title: "Resident memory",
    after_work: Measure::whole(Quantity::RssAfterWork),
    peak: Measure::whole(Quantity::PeakRss),
};

/// Memory after the fixed work (bar) and at its peak (line); empty if not measured.
pub(super) fn plot(record: &ComparisonRecord, looks: &[Look]) -> String {
    let largest_of = |shown: &Shown| {
        let candidates = record.candidates.iter();
        let values =
            candidates.flat_map(|one| [shown.after_work, shown.peak].map(|it| one.median(it)));
        values.flatten().fold(0.0_f64, f64::max)
    };
    let shown = match largest_of(&PRIVATE) > 0.0 {
        true => &PRIVATE,
        false => &RESIDENT,
    };
    let largest = largest_of(shown);
    if largest == 0.0 {
        return String::new();
    }
    let work = record.settings.memory_requests;
    let work = if work == 0 {
        " after the last phase".to_owned()
    } else {
        format!(
            " after the same {} requests",
            crate::units::format_count(work as f64)
        )
    };
    let numbers: Vec<String> = record
        .candidates
        .iter()
        .filter_map(|one| {
            let bytes = one.median(shown.after_work)?;
            Some(format!("{}: {}", one.name, format_bytes(bytes)))
        })
        .collect();
    let numbers = numbers.join("; ");
    let hint = format!("bar:{work}; line: the peak");
    let name = format!("{} per candidate", shown.title.to_lowercase());
    figure(shown.title, &hint, |form| {
        drawing(form, record, looks, (shown, largest)).finish(&name, &numbers)
    })
}

fn drawing(
    form: Form,
    record: &ComparisonRecord,
    looks: &[Look],
    (shown, largest): (&Shown, f64),
) -> Svg {
    // On a phone names and numbers stand above the bars.
    let (row, left, right) = form.pick((24.0, 210.0, 830.0), (42.0, 10.0, 346.0));
    let height = HEAD + row * record.candidates.len() as f64 + FOOT;
    let bottom = height - FOOT;
    // In MiB, so that ticks are round where the reader counts.
    let scale = Scale::linear(0.0, largest / MIB * 1.02, left, right);
    let mut svg = Svg::new(form, height);
    for tick in scale.linear_ticks(form.pick(6, 4)) {
        let x = scale.at(tick);
        svg.line("grid", (x, HEAD), (x, bottom));
        let anchor = if x < 20.0 {
            Anchor::Start
        } else {
            Anchor::Middle
        };
        svg.text("tick", (x, bottom + 16.0), anchor, &format!("{tick} MiB"));
    }
    for (index, (candidate, look)) in record.candidates.iter().zip(looks).enumerate() {
        let top = HEAD + row * index as f64;
        let bar = top + form.pick(4.0, 20.0);
        let values = [shown.after_work, shown.peak].map(|measure| candidate.median(measure));
        draw_bar(&mut svg, values, *look, &scale, bar);
        draw_words(&mut svg, form, (candidate, values), (top, left, right));
    }
    svg
}

/// As tall as a letter.
const BAR: f64 = 16.0;

/// After the work, and at the peak.
type Values = [Option<f64>; 2];

fn draw_bar(svg: &mut Svg, [after_work, peak]: Values, look: Look, scale: &Scale, top: f64) {
    if let Some(value) = after_work {
        let fill = if look.hollow {
            "bar hollow"
        } else {
            "bar full"
        };
        let left = scale.at(0.0);
        svg.rect(
            &format!("{fill} {}", look.class),
            (left, top),
            (scale.at(value / MIB) - left, BAR),
        );
    }
    if let Some(value) = peak {
        let x = scale.at(value / MIB);
        let class = format!("median {}", look.class);
        svg.line(&class, (x, top - 1.0), (x, top + BAR + 1.0));
    }
}

fn draw_words(
    svg: &mut Svg,
    form: Form,
    (candidate, values): (&CandidateRounds, Values),
    (top, left, right): (f64, f64, f64),
) {
    let [after_work, peak] = values.map(|value| value.map(format_bytes));
    match form {
        Form::Wide => {
            let peak = peak.map(|peak| format!("peak {peak}"));
            let text: Vec<String> = after_work.into_iter().chain(peak).collect();
            let base = top + 16.0;
            svg.name((left - 12.0, base), Anchor::End, &candidate.name);
            svg.text("num", (right + 12.0, base), Anchor::Start, &text.join(", "));
        }
        Form::Narrow => {
            let text: Vec<String> = after_work.into_iter().chain(peak).collect();
            let (end, base) = (form.width() - 2.0, top + 14.0);
            svg.name((2.0, base), Anchor::Start, &candidate.name);
            svg.text("num", (end, base), Anchor::End, &text.join(" / "));
        }
    }
}

#[cfg(test)]
#[path = "tests/scale.rs"]
mod scale_tests;
