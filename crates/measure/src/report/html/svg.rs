//! The few shapes the drawings are made of.

use std::fmt::Write;

use super::escape;

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

    /// What differs between both.
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
        // The end tells apart what the beginning has in common: with pools, without pools.
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
