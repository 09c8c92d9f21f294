//! What every page has around its content: the head with its policy, landmarks, sections that a reader
//! can jump to, figures in two forms, tables that can be scrolled with the keyboard, and the record at
//! the end.

use std::fmt::Write;

use serde::Serialize;

use super::svg::Form;
use super::{STYLE, escape};

/// A page under construction.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    sections: Vec<(String, String)>,
}

impl Page {
    /// Begins a page. `lead` stands before the list of sections: the answers.
    pub(super) fn new(title: &str, header: &str, lead: &str) -> Self {
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
    pub(super) fn len_with(&self, record: &impl Serialize) -> usize {
        self.text.len() + data("", record).len()
    }

    /// Adds a section; nothing at all instead of a heading with nothing below.
    pub(super) fn section(&mut self, title: &str, body: String) {
        if !body.is_empty() {
            self.sections.push((title.to_owned(), body));
        }
    }

    /// The whole file. `record` is what the page was made of, as a data block named `id`.
    pub(super) fn finish(self, id: &str, record: &impl Serialize) -> String {
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
pub(super) fn figure(title: &str, hint: &str, draw: impl Fn(Form) -> String) -> String {
    let hint = if hint.is_empty() {
        String::new()
    } else {
        format!(" <span class=\"hint\">{}</span>", super::prose(hint))
    };
    format!(
        "<figure><figcaption>{}{hint}</figcaption>{}{}</figure>",
        escape(title),
        draw(Form::Wide),
        draw(Form::Narrow)
    )
}

/// A drawing that repeats a table, for wide pages only.
pub(super) fn wide_figure(title: &str, hint: &str, svg: &str) -> String {
    format!(
        "<figure class=\"desk\"><figcaption>{} <span class=\"hint\">{}</span></figcaption>{svg}</figure>",
        escape(title),
        super::prose(hint)
    )
}

/// What is wider than a narrow screen and cannot be drawn anew: a table. It takes the keyboard's focus.
pub(super) fn scroll(title: &str, body: &str) -> String {
    format!(
        "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{}\">{body}</div>",
        escape(title)
    )
}
