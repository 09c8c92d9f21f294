//! The few shapes the drawings are made of.

use std::fmt::Write;

use super::escape;

/// Letters that fit in front of a row.
const NAME_MAX: usize = 27;

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
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
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

    /// `title` is shown when the pointer rests on the dot.
    pub(super) fn dot(&mut self, class: &str, centre: (f64, f64), radius: f64, title: &str) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\"><title>{}</title></circle>",
            centre.0,
            centre.1,
            escape(title)
        ));
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

    /// The name of a candidate: shortened to what the column holds, in full for the pointer.
    pub(super) fn name(&mut self, at: (f64, f64), anchor: Anchor, name: &str) {
        if name.chars().count() <= NAME_MAX {
            return self.text("label", at, anchor, name);
        }
        // The end tells apart what the beginning has in common: with pools, without pools.
        let letters: Vec<char> = name.chars().collect();
        let (head, tail) = (NAME_MAX / 2 - 1, NAME_MAX / 2 + 1);
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

    /// The element. A screen reader says `label`, and then the numbers that the picture shows.
    pub(super) fn finish(self, label: &str, numbers: &str) -> String {
        format!(
            "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {w:.0} {h:.0}\" width=\"{w:.0}\" \
             height=\"{h:.0}\"><title>{}</title><desc>{}</desc>{}</svg>",
            escape(label),
            escape(label),
            escape(numbers),
            self.body,
            w = self.width,
            h = self.height
        )
    }
}
