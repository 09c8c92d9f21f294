//! A flame graph as a part of a page: the boxes alone. The page has a style of its own, runs no script,
//! and says in words what the picture shows.

use super::difference::{Difference, look_of_two};
use super::svg::{Drawing, Look, Place, look_of_one, percent};
use super::tree::Frame;
use super::{Stacks, Unit};

/// Narrower boxes are stripes.
const BOX_WIDTH_MIN: f64 = 1.0;

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
        width_min: if has_titles { BOX_WIDTH_MIN } else { 2.0 },
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the boxes fill the width, run nothing, and say on a phone only what can be read.
    #[test]
    fn boxes_alone() {
        let stacks = Stacks::parse_folded("a;b<u8> 3\na;c 1\n").unwrap();
        let found = still(&stacks, Unit::Bytes, 400.0, true);
        assert_eq!(found.height, 34.0);
        for part in [
            "width=\"399.50\"",
            "width=\"299.50\"",
            "<title>b&lt;u8&gt;\n3 B",
        ] {
            assert!(found.elements.contains(part), "{part}: {}", found.elements);
        }
        for part in ["script", "class", "tabindex"] {
            assert!(!found.elements.contains(part), "{part}");
        }
        let narrow = still(&stacks, Unit::Bytes, 10.0, false).elements;
        assert!(
            !narrow.contains("<title>") && !narrow.contains("<text"),
            "{narrow}"
        );
        let what = Difference {
            title: "",
            before: "x",
            after: "y",
            unit: Unit::Bytes,
            weight_per_sample: 1.0,
        };
        let both = still_difference(&stacks, &stacks, &what, 400.0, true);
        assert!(
            both.elements.contains("<title>a\n4 B \u{2192} 4 B</title>"),
            "{}",
            both.elements
        );
    }
}
