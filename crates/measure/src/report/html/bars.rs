//! Memory as bars from zero: here, unlike with ratios, the absolute size is what one pays for.

use super::Look;
use super::frame::figure;
use super::scale::Scale;
use super::svg::{Anchor, Form, Svg};
use crate::record::{CandidateRounds, ComparisonRecord, Measure, Quantity};
use crate::units::format_bytes;

const HEAD: f64 = 8.0;
const FOOT: f64 = 28.0;
const MIB: f64 = 1024.0 * 1024.0;

/// What is drawn: what the processes keep by themselves; of old records, and where that could not be read, RSS.
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
