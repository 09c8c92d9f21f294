//! Where a plot has the names of its curves: beside it, or on a phone below or above it.

use super::Look;
use super::svg::{Anchor, Form, Svg};

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

/// How a candidate's curve looks.
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
