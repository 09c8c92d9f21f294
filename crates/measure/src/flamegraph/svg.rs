//! Stacks as a picture: one box per frame, as wide as what was seen below it.
//!
//! Pointing at a box shows its full name and share, which every browser does by itself. A small
//! script inside enlarges the box that is clicked and marks what is searched for; without scripts
//! the picture is the same and prints. Nothing is fetched; the reader's theme decides the colours
//! around the boxes.

use std::fmt::Write;

use crate::units::{format_bytes, format_count};

use super::Stacks;
use super::stacks::Frame;
use super::stacks::{Difference, look_of_two};

const WIDTH: f64 = 1200.0;
const FRAME_HEIGHT: f64 = 17.0;
const MARGIN: f64 = 10.0;
const HEAD_HEIGHT: f64 = 52.0;
/// Of a 12 px font in which all letters are as wide.
const LETTER_WIDTH: f64 = 7.2;
/// Narrower boxes cannot be seen.
const BOX_WIDTH_MIN: f64 = 0.4;
/// Boxes from this share of the whole on can be reached with the keyboard.
const SHARE_WITH_FOCUS: f64 = 0.02;
/// Deeper frames are not drawn: a runaway recursion would make a picture that nothing can open.
const DEPTH_MAX: usize = 400;

const STYLE: &str = include_str!("flamegraph.css");
const SCRIPT: &str = include_str!("flamegraph.js");

/// The unit of the weights.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Samples of a clock.
    Samples,
    /// Bytes.
    Bytes,
    /// Calls.
    Calls,
}

impl Unit {
    /// A weight for people.
    #[must_use]
    pub fn format(self, weight: u64) -> String {
        match self {
            Self::Samples => format!("{weight} samples"),
            Self::Bytes => format_bytes(weight as f64),
            Self::Calls => format!("{} calls", format_count(weight as f64)),
        }
    }

    /// Warm for time, green for memory: two graphs side by side are not taken for each other.
    fn hues(self) -> (u64, u64) {
        match self {
            Self::Samples => (14, 42),
            Self::Bytes => (88, 60),
            Self::Calls => (160, 50),
        }
    }
}

/// The text above the boxes.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The title, in a line.
    pub title: &'a str,
    /// The explanation for the reader, in a line; may be empty.
    pub note: &'a str,
    /// The unit of the weights.
    pub unit: Unit,
}

/// Draws one profile, the outermost frames on top.
#[must_use]
pub fn draw(stacks: &Stacks, picture: &Picture<'_>) -> String {
    let nothing = Stacks::default();
    let root = Frame::root(&nothing, stacks);
    let total = root.after;
    let note = match picture.note {
        "" => picture.unit.format(total),
        note => format!("{}; {note}", picture.unit.format(total)),
    };
    render(
        &root,
        picture.title,
        &note,
        &look_of_one(picture.unit, total),
    )
}

/// The colours of a single profile's boxes.
pub(super) fn look_of_one(unit: Unit, total: u64) -> impl Fn(&str, &Frame<'_>) -> Look {
    let (first, span) = unit.hues();
    move |name, frame| Look {
        fill: colour(name, first, span),
        words: format!(
            "{} ({}), {} in itself",
            unit.format(frame.after),
            percent(frame.after, total),
            percent(frame.own(), total)
        ),
    }
}

/// How one box is drawn, and what its tooltip says below its name.
pub(super) struct Look {
    pub(super) fill: String,
    pub(super) words: String,
}

/// The picture of a tree, whatever its boxes mean.
pub(super) fn render(
    root: &Frame<'_>,
    title: &str,
    note: &str,
    look: &dyn Fn(&str, &Frame<'_>) -> Look,
) -> String {
    let place = Place {
        left: MARGIN,
        top: HEAD_HEIGHT,
        width: WIDTH - 2.0 * MARGIN,
        width_min: BOX_WIDTH_MIN,
        is_alive: true,
        has_titles: true,
    };
    let drawing = Drawing::of(root, place, look);
    let height = HEAD_HEIGHT + drawing.height() + MARGIN;
    let field_left = WIDTH - MARGIN - 250.0;
    let (title, note) = (escaped(title), escaped(note));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"mpflame\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"monospace\" font-size=\"12\" role=\"group\" \
         aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"head\" x=\"{MARGIN}\" y=\"20\" font-size=\"15\">{title}</text>\n\
         <text class=\"note\" x=\"{MARGIN}\" y=\"38\">{note}</text>\n\
         <foreignObject x=\"{field_left}\" y=\"6\" width=\"250\" height=\"26\">\
         <input xmlns=\"http://www.w3.org/1999/xhtml\" type=\"search\" \
         placeholder=\"search (regular expression)\" aria-label=\"search for functions\"/>\
         </foreignObject>\n\
         <text class=\"found\" x=\"{}\" y=\"46\" text-anchor=\"end\"/>\n\
         {}<script><![CDATA[{SCRIPT}]]></script>\n</svg>\n",
        WIDTH - MARGIN,
        drawing.text
    )
}

/// Where the boxes are drawn, and what for.
pub(super) struct Place {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    /// Narrower boxes are left out.
    pub(super) width_min: f64,
    /// Includes the parts for the script and the keyboard.
    pub(super) is_alive: bool,
    /// Includes the tooltips.
    pub(super) has_titles: bool,
}

/// All boxes of a tree.
pub(super) struct Drawing<'a> {
    pub(super) text: String,
    rows: usize,
    total: u64,
    scale: f64,
    place: Place,
    look: &'a dyn Fn(&str, &Frame<'_>) -> Look,
}

impl<'a> Drawing<'a> {
    pub(super) fn of(
        root: &Frame<'_>,
        place: Place,
        look: &'a dyn Fn(&str, &Frame<'_>) -> Look,
    ) -> Self {
        let mut drawing = Self {
            text: String::new(),
            rows: 0,
            total: root.width(),
            scale: place.width / root.width().max(1) as f64,
            place,
            look,
        };
        let left = drawing.place.left;
        drawing.callees(root, left, 0);
        drawing
    }

    /// From the first row to the last.
    pub(super) fn height(&self) -> f64 {
        FRAME_HEIGHT * self.rows as f64
    }

    fn callees(&mut self, frame: &Frame<'_>, left: f64, depth: usize) {
        let mut left = left;
        for (name, callee) in &frame.callees {
            let width = callee.width() as f64 * self.scale;
            if width >= self.place.width_min && depth < DEPTH_MAX {
                self.frame(name, callee, left, width, depth);
                self.callees(callee, left, depth + 1);
            }
            left += width;
        }
    }

    fn frame(&mut self, name: &str, frame: &Frame<'_>, left: f64, width: f64, depth: usize) {
        self.rows = self.rows.max(depth + 1);
        let top = self.place.top + FRAME_HEIGHT * depth as f64;
        let Look { fill, words } = (self.look)(name, frame);
        let is_wide = frame.width() as f64 >= SHARE_WITH_FOCUS * self.total as f64;
        let head = match (self.place.is_alive, is_wide) {
            (false, _) => "<g>",
            (true, false) => "<g class=\"box\">",
            (true, true) => "<g class=\"box\" tabindex=\"0\">",
        };
        let title = if self.place.has_titles {
            format!("<title>{}\n{}</title>", escaped(name), escaped(&words))
        } else {
            String::new()
        };
        let inner = (width - 0.5).max(BOX_WIDTH_MIN);
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "{head}{title}<rect x=\"{left:.2}\" y=\"{top}\" width=\"{inner:.2}\" height=\"16\" rx=\"1\" \
             fill=\"{fill}\"/>"
        );
        if let Some(label) = label(name, width) {
            let (left, baseline) = (left + 2.0, top + 12.0);
            let label = escaped(&label);
            let _ = write!(
                self.text,
                "<text x=\"{left:.2}\" y=\"{baseline}\">{label}</text>"
            );
        }
        self.text.push_str("</g>\n");
    }
}

pub(super) fn percent(part: u64, total: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / total.max(1) as f64)
}

/// As much of the name as fits; nothing where not even three letters do.
fn label(name: &str, width: f64) -> Option<String> {
    let room = (width / LETTER_WIDTH) as usize;
    if room < 3 {
        return None;
    }
    if name.chars().count() <= room {
        return Some(name.to_owned());
    }
    Some(name.chars().take(room - 2).chain("..".chars()).collect())
}

/// The same for the same name; light enough for dark letters.
fn colour(name: &str, first: u64, span: u64) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let part = |shift: u32, span: u64| (hash >> shift) % span;
    format!(
        "hsl({},{}%,{}%)",
        first + part(8, span),
        62 + part(24, 20),
        66 + part(40, 12)
    )
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

// A flame graph as a part of a page: the boxes alone. The page has a style of its own, runs no script,
// and says in words what the picture shows.

/// Narrower boxes are stripes.
const STILL_BOX_WIDTH_MIN: f64 = 1.0;

/// The elements, and the room that they take.
#[derive(Debug)]
pub(crate) struct Still {
    pub(crate) elements: String,
    pub(crate) height: f64,
}

impl Still {
    fn of(drawing: Drawing<'_>) -> Self {
        Self {
            height: drawing.height(),
            elements: drawing.text,
        }
    }
}

fn place(width: f64, has_titles: bool) -> Place {
    Place {
        left: 0.0,
        top: 0.0,
        width,
        width_min: if has_titles { STILL_BOX_WIDTH_MIN } else { 2.0 },
        is_alive: false,
        has_titles,
    }
}

/// One profile.
pub(crate) fn still(stacks: &Stacks, unit: Unit, width: f64, has_titles: bool) -> Still {
    let nothing = Stacks::default();
    let root = Frame::root(&nothing, stacks);
    let total = root.after;
    let whole = look_of_one(unit, total);
    let look = |name: &str, frame: &Frame<'_>| Look {
        words: format!(
            "{} ({})",
            unit.format(frame.after),
            percent(frame.after, total)
        ),
        ..whole(name, frame)
    };
    Still::of(Drawing::of(&root, place(width, has_titles), &look))
}

/// Two of them.
pub(crate) fn still_difference(
    before: &Stacks,
    after: &Stacks,
    what: &Difference<'_>,
    width: f64,
    has_titles: bool,
) -> Still {
    let root = Frame::root(before, after);
    let whole = look_of_two(&root, what);
    let look = |name: &str, frame: &Frame<'_>| Look {
        words: format!(
            "{} \u{2192} {}",
            what.unit.format(frame.before),
            what.unit.format(frame.after)
        ),
        ..whole(name, frame)
    };
    Still::of(Drawing::of(&root, place(width, has_titles), &look))
}

// The widest frames of a profile as a few lines of text: what a record can hold of it.
//
// A line is `DEPTH WEIGHT NAME`, callers before their callees; the weight is what was seen in the frame
// itself and in callees that are left out, so the sum of all lines is the whole.

/// Longer names are cut: a template's arguments can fill a page.
const NAME_MAX: usize = 96;

/// At most `frames_max` lines.
#[must_use]
pub fn outline(stacks: &Stacks, frames_max: usize) -> Vec<String> {
    let nothing = Stacks::default();
    let root = Frame::root(&nothing, stacks);
    let mut widths = Vec::new();
    collect_widths(&root, &mut widths);
    widths.sort_unstable_by(|one, other| other.cmp(one));
    // A frame is never wider than its caller, so what is kept hangs together.
    let least = widths.get(frames_max).map_or(1, |width| width + 1);
    let mut lines = Vec::new();
    write(&root, least, 0, &mut lines);
    lines
}

fn collect_widths(frame: &Frame<'_>, widths: &mut Vec<u64>) {
    for callee in frame.callees.values() {
        widths.push(callee.width());
        collect_widths(callee, widths);
    }
}

fn write(frame: &Frame<'_>, least: u64, depth: usize, lines: &mut Vec<String>) {
    let kept = || frame.callees.iter().filter(|(_, it)| it.width() >= least);
    for (name, callee) in kept() {
        let below: u64 = callee
            .callees
            .values()
            .map(Frame::width)
            .filter(|width| *width >= least)
            .sum();
        let own = callee.width().saturating_sub(below);
        lines.push(format!("{depth} {own} {}", cut(name)));
        write(callee, least, depth + 1, lines);
    }
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    name.chars()
        .take(NAME_MAX - 1)
        .chain(['\u{2026}'])
        .collect()
}

impl Stacks {
    /// The widest frames alone; what was seen in others counts for their callers.
    #[must_use]
    pub(crate) fn widest(&self, frames_max: usize) -> Self {
        from_outline(&outline(self, frames_max))
    }
}

/// The stacks of an outline. A line that is none is passed over: a record may be anybody's.
#[must_use]
pub fn from_outline(lines: &[String]) -> Stacks {
    let mut stacks = Stacks::default();
    let mut path: Vec<&str> = Vec::new();
    for line in lines {
        let mut parts = line.splitn(3, ' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (Some(depth), Some(own)) = (number(), number()) else {
            continue;
        };
        path.truncate(usize::try_from(depth).unwrap_or(usize::MAX));
        path.push(parts.next().unwrap_or_default());
        stacks.add(path.iter().copied(), own);
    }
    stacks
}

#[cfg(test)]
#[path = "tests/svg.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/still.rs"]
mod still_tests;

#[cfg(test)]
#[path = "tests/outline.rs"]
mod outline_tests;
