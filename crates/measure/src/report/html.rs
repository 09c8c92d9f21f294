//! One HTML file that a person reads from top to bottom: answers, evidence, circumstances, data.
//!
//! Nothing is fetched and nothing runs: the drawings are SVG made here, the style is inline, a
//! content security policy forbids everything else. Opens from `file://`, prints, follows the
//! reader's light or dark setting; every drawing is there twice, for a wide page and for a phone, and the
//! style shows one. The raw record stands at the end of the file, so that the
//! numbers can be analysed again from the report alone.

mod frame;
mod commands;
mod memory_course;
mod phases;
mod settings_front;
mod heap;
mod flames;
mod legend;
mod svg;
mod scale;
mod forest;
mod curves;
mod rounds;
mod bars;
mod blocks;
mod table;
mod page;
mod percentiles;
mod course;
mod load_page;
mod regression;

pub use load_page::{LoadPage, render as render_load};
pub use page::render;

use crate::record::{ComparisonRecord, PoolSetting, Role};

/// What all pages look like.
const STYLE: &str = include_str!("html/style.css");

/// Text made safe for HTML, attributes included.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

/// The same for running text: a number and its percent sign stay on one line.
fn prose(text: &str) -> String {
    escape(text).replace(" %", "\u{a0}%")
}

/// How a candidate looks in every drawing: hue by allocator, dashes or a hollow mark without pools,
/// grey for the baseline's double.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Look {
    /// CSS class that sets `--c`.
    class: &'static str,
    /// Without pools.
    hollow: bool,
}

const HUES: [&str; 8] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];

/// The looks of all candidates, in order.
fn looks(record: &ComparisonRecord) -> Vec<Look> {
    let mut allocators: Vec<&str> = Vec::new();
    let mut looks = Vec::with_capacity(record.candidates.len());
    for candidate in &record.candidates {
        let known = allocators
            .iter()
            .position(|name| *name == candidate.allocator);
        let place = known.unwrap_or(allocators.len());
        if known.is_none() {
            allocators.push(&candidate.allocator);
        }
        let again = candidate.role == Role::BaselineAgain;
        let class = if again {
            "again"
        } else {
            HUES[place % HUES.len()]
        };
        looks.push(Look {
            class,
            hollow: candidate.pools == Some(PoolSetting::Off),
        });
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::STYLE;

    /// Goal: paper wins over the screens' rules. While its rules came first, printed tables kept their
    /// scroll bars and were cut at the edge of the sheet.
    #[test]
    fn the_rules_for_paper_come_last() {
        let last = STYLE.rfind("@media").map(|start| &STYLE[start..]);
        assert!(last.is_some_and(|rules| rules.starts_with("@media print {")));
    }
}
