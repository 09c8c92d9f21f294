//! Entries as lines of text: combined, which every log tool reads, or JSON.
//!
//! What a peer sent stands in a line in one way only, the same in both formats: printable ASCII as
//! it is, every other byte, the quote and the backslash as `\xHH`. So no peer can end a line or a
//! field, send a terminal a command, or be mistaken for another's bytes; and whatever tool reads a
//! line need know no escapes to find its fields. A text that was cut ends in `\...`, which nothing
//! sent can look like.

use super::calendar::Moment;
use super::entry::{CutText, Entry};
use super::relayed::{Fault, Relayed};
use crate::proxy::Failure;
use std::io::Write;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AccessLogFormat {
    /// Apache's and nginx's `combined`.
    #[default]
    Combined,
    /// The same, and behind it what became of a request that was passed on.
    CombinedUpstream,
    /// One JSON object a line.
    Json,
}

impl std::str::FromStr for AccessLogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "combined" => Ok(Self::Combined),
            "combined-upstream" => Ok(Self::CombinedUpstream),
            "json" => Ok(Self::Json),
            _ => Err("it is combined, combined-upstream or json"),
        }
    }
}

impl std::fmt::Display for AccessLogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Combined => "combined",
            Self::CombinedUpstream => "combined-upstream",
            Self::Json => "json",
        })
    }
}

/// Appends an entry as a line. `unix_ms` is when it started.
pub(super) fn write_line(
    out: &mut Vec<u8>,
    format: AccessLogFormat,
    entry: &Entry<'_>,
    shard: usize,
    unix_ms: u64,
) {
    let moment = Moment::of_unix_ms(unix_ms);
    match format {
        AccessLogFormat::Combined => write_combined(out, entry, &moment),
        AccessLogFormat::CombinedUpstream => {
            write_combined(out, entry, &moment);
            write_combined_upstream(out, entry);
        }
        AccessLogFormat::Json => write_json(out, entry, shard, &moment),
    }
    out.push(b'\n');
}

fn write_combined(out: &mut Vec<u8>, entry: &Entry<'_>, moment: &Moment) {
    write_peer(out, entry);
    out.extend_from_slice(b" - - [");
    moment.write_combined(out);
    out.extend_from_slice(b"] \"");
    write_request_line(out, entry, b"\\");
    out.extend_from_slice(b"\" ");
    write_number(out, u64::from(entry.outcome.status));
    out.push(b' ');
    write_number(out, entry.outcome.body_bytes);
    for text in [entry.referer(), entry.user_agent()] {
        out.extend_from_slice(b" \"");
        match text {
            Some(text) => write_text(out, text, b"\\"),
            None => out.push(b'-'),
        }
        out.push(b'"');
    }
}

/// Six more fields: the name, tries, three times in microseconds, whose fault.
fn write_combined_upstream(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let Some(relayed) = &entry.relayed else {
        out.extend_from_slice(b" \"-\" - - - - -");
        return;
    };
    if relayed.name().is_empty() {
        out.extend_from_slice(b" \"-\" - - - - ");
        return out.extend_from_slice(relayed.fault.map_or("-", Fault::as_str).as_bytes());
    }
    out.extend_from_slice(b" \"");
    write_text(out, whole(relayed.name()), b"\\");
    out.push(b'"');
    for value in [
        u32::from(relayed.tries),
        relayed.connect_us,
        relayed.first_byte_us,
        relayed.total_us,
    ] {
        out.push(b' ');
        write_number(out, u64::from(value));
    }
    out.push(b' ');
    out.extend_from_slice(relayed.fault.map_or("-", Fault::as_str).as_bytes());
}

fn write_json_upstream(out: &mut Vec<u8>, relayed: &Relayed) {
    if relayed.name().is_empty() {
        out.extend_from_slice(b",\"upstream\":null");
    } else {
        out.extend_from_slice(b",\"upstream\":\"");
        write_text(out, whole(relayed.name()), b"\\\\");
        out.push(b'"');
    }
    for (name, value) in [
        ("tries", u32::from(relayed.tries)),
        ("connect_us", relayed.connect_us),
        ("first_byte_us", relayed.first_byte_us),
        ("upstream_us", relayed.total_us),
    ] {
        write_json_number(out, name, u64::from(value));
    }
    for (name, word) in [
        ("fault", relayed.fault.map(Fault::as_str)),
        ("error", relayed.failure.map(Failure::error)),
        ("cause", relayed.failure.map(Failure::cause)),
        ("detail", relayed.failure.map(Failure::sentence)),
    ] {
        write_json_word(out, name, word);
    }
}

/// A word of ours, which needs no escapes.
fn write_json_word(out: &mut Vec<u8>, name: &str, word: Option<&str>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    match word {
        Some(word) => {
            out.push(b'"');
            out.extend_from_slice(word.as_bytes());
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

fn whole(bytes: &[u8]) -> CutText<'_> {
    CutText {
        bytes,
        is_cut: false,
    }
}

fn write_json(out: &mut Vec<u8>, entry: &Entry<'_>, shard: usize, moment: &Moment) {
    out.extend_from_slice(b"{\"time\":\"");
    moment.write_iso(out);
    out.extend_from_slice(b"\",\"peer\":\"");
    write_peer(out, entry);
    out.push(b'"');
    let (asker, outcome) = (&entry.asker, &entry.outcome);
    for (name, value) in [
        (
            "port",
            entry.address().map_or(0, |(_, port)| u64::from(port)),
        ),
        ("shard", shard as u64),
        ("connection", asker.connection),
        ("request_number", u64::from(asker.request)),
    ] {
        write_json_number(out, name, value);
    }
    out.extend_from_slice(b",\"request\":\"");
    write_request_line(out, entry, b"\\\\");
    out.push(b'"');
    write_json_number(out, "status", u64::from(outcome.status));
    write_json_number(out, "body_bytes", outcome.body_bytes);
    write_json_number(out, "duration_us", outcome.duration_ns / 1000);
    out.extend_from_slice(match outcome.is_complete {
        true => b",\"complete\":true",
        false => b",\"complete\":false",
    });
    for (name, text) in [
        ("referer", entry.referer()),
        ("user_agent", entry.user_agent()),
    ] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        match text {
            Some(text) => {
                out.push(b'"');
                write_text(out, text, b"\\\\");
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    if let Some(relayed) = &entry.relayed {
        write_json_upstream(out, relayed);
    }
    out.push(b'}');
}

fn write_json_number(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    write_number(out, value);
}

fn write_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn write_peer(out: &mut Vec<u8>, entry: &Entry<'_>) {
    // Writing to a Vec cannot fail.
    let _ = match entry.address() {
        Some((address, _)) => write!(out, "{address}"),
        None => write!(out, "unix:"),
    };
}

/// The line as it was sent; `-` for a peer that said nothing.
fn write_request_line(out: &mut Vec<u8>, entry: &Entry<'_>, backslash: &[u8]) {
    let line = entry.line();
    match line.bytes {
        [] => out.push(b'-'),
        _ => write_text(out, line, backslash),
    }
    out.extend_from_slice(entry.version().as_bytes());
}

/// A peer's bytes; `backslash` is how the format writes one.
fn write_text(out: &mut Vec<u8>, text: CutText<'_>, backslash: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    let mut rest = text.bytes;
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(backslash);
        let digits = [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ];
        out.extend_from_slice(&[b'x', digits[0], digits[1]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    if text.is_cut {
        out.extend_from_slice(backslash);
        out.extend_from_slice(b"...");
    }
}
