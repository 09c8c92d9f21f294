//! One HTML file that a person reads from top to bottom: answers, evidence, circumstances, data.
//!
//! Nothing is fetched and nothing runs: the drawings are SVG made here, the style is inline, a
//! content security policy forbids everything else. Opens from `file://`, prints, follows the
//! reader's light or dark setting; every drawing is there twice, for a wide page and for a phone, and the
//! style shows one. The raw record stands at the end of the file, so that the
//! numbers can be analysed again from the report alone.

mod memory_course;
mod phases;
mod heap;
mod svg;
mod forest;
mod curves;
mod rounds;
mod table;
mod page;
mod course;
mod load_page;

use std::fmt::Write;

use serde::Serialize;
use svg::Form;

use crate::record::{ComparisonRecord, PoolSetting, Role};

pub use load_page::{LoadPage, render as render_load};
pub use page::render;

/// The style of all pages.
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

/// How a candidate is drawn everywhere: hue by allocator, dashes or a hollow mark without pools,
/// grey for the baseline's double.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Look {
    /// CSS class that sets `--c`.
    class: &'static str,
    /// Without pools.
    hollow: bool,
}

const HUES: [&str; 8] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];

/// The styles of all candidates, in order.
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

// The common frame of every page: the head with its policy, landmarks, sections that a reader can jump to, figures in
// two forms, tables that can be scrolled with the keyboard, and the record at the end.

/// A page under construction.
#[derive(Debug)]
struct Page {
    text: String,
    sections: Vec<(String, String)>,
}

impl Page {
    /// Begins a page. `lead` stands before the list of sections: the answers.
    fn new(title: &str, header: &str, lead: &str) -> Self {
        let mut text = String::with_capacity(256 * 1024);
        text += "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                 style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
                 <meta name=\"color-scheme\" content=\"light dark\">";
        text += &format!(
            "<title>{}</title>\n<style>\n{STYLE}</style></head><body>\
             <a class=\"skip\" href=\"#answers\">Skip to the answers</a>\n\
             <header>{header}</header>\n<main>\n\
             <section id=\"answers\" tabindex=\"-1\" aria-label=\"Answers\">{lead}</section>\n",
            escape(title)
        );
        Self {
            text,
            sections: Vec::new(),
        }
    }

    /// How long the page would be now, with its record.
    fn len_with(&self, record: &impl Serialize) -> usize {
        self.text.len() + data("", record).len()
    }

    /// Adds a section; nothing at all instead of a heading with nothing below.
    fn section(&mut self, title: &str, body: String) {
        if !body.is_empty() {
            self.sections.push((title.to_owned(), body));
        }
    }

    /// The whole file. `record` is what the page was made of, as a data block named `id`.
    fn finish(self, id: &str, record: &impl Serialize) -> String {
        let mut text = self.text;
        text += "<nav aria-label=\"Sections\"><ul>";
        for (title, _) in &self.sections {
            let _ = write!(
                text,
                "<li><a href=\"#{}\">{}</a></li>",
                anchor(title),
                escape(title)
            );
        }
        text += "</ul></nav>\n";
        for (title, body) in &self.sections {
            let anchor = anchor(title);
            let _ = writeln!(
                text,
                "<section aria-labelledby=\"{anchor}\"><h2 id=\"{anchor}\">{}</h2>{body}</section>",
                escape(title)
            );
        }
        text += "</main>\n";
        text += &data(id, record);
        text + "</body></html>\n"
    }
}

/// A title as the name of a place.
fn anchor(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

/// The record, so that the numbers can be analysed again from the page alone. `<` is written as an
/// escape: no name can end the script element.
fn data(id: &str, record: &impl Serialize) -> String {
    let json = serde_json::to_string(record).unwrap_or_else(|_| "null".to_owned());
    format!(
        "<script type=\"application/json\" id=\"{id}\">{}</script>\n",
        json.replace('<', "\\u003c")
    )
}

/// A drawing in both forms under its caption.
fn figure(title: &str, hint: &str, draw: impl Fn(Form) -> String) -> String {
    let hint = if hint.is_empty() {
        String::new()
    } else {
        format!(" <span class=\"hint\">{}</span>", prose(hint))
    };
    format!(
        "<figure><figcaption>{}{hint}</figcaption>{}{}</figure>",
        escape(title),
        draw(Form::Wide),
        draw(Form::Narrow)
    )
}

/// A drawing that repeats a table, for wide pages only.
fn wide_figure(title: &str, hint: &str, svg: &str) -> String {
    format!(
        "<figure class=\"desk\"><figcaption>{} <span class=\"hint\">{}</span></figcaption>{svg}</figure>",
        escape(title),
        prose(hint)
    )
}

/// Content that is wider than a narrow screen and cannot be drawn again: a table. It takes the keyboard's focus.
fn scroll(title: &str, body: &str) -> String {
    format!(
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{}\">{body}</div>",
        escape(title)
    )
}

#[cfg(test)]
#[path = "tests/html.rs"]
mod tests;
