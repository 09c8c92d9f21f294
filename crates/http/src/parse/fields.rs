//! Field lines, of heads and of trailers.

use super::{Stop, expect_line_end};
use crate::error::ParseError;
use crate::head::{FieldSpan, HeadFields, Span};
use crate::head_text::ReceivedFields;
use crate::limits::{FIELDS_CAPACITY, Limits};
use crate::scan::{LineEnds, Name, Scanner, Text};

/// Whether a field that means something to the parser may begin so: Connection, Content-Length,
/// Expect, Host and Transfer-Encoding. Most begin otherwise and cost nothing more. Other bytes may
/// share a place with one of these, but no letter does.
#[inline(always)]
fn is_watched(first: u8) -> bool {
    const fn places(letter: u8) -> u64 {
        1 << (letter % 64) | 1 << (letter.to_ascii_lowercase() % 64)
    }
    const FIRST: u64 = places(b'C') | places(b'E') | places(b'H') | places(b'T');
    FIRST >> (u32::from(first) % 64) & 1 != 0
}

/// Parses field lines up to and including the empty line; returns the position after it. `on_field`
/// is called for those that may be watched.
#[inline(always)]
pub(super) fn parse_fields<'b, S: Scanner>(
    text: Text<'b, S>,
    start: usize,
    limits: &Limits,
    fields: &mut HeadFields,
    mut on_field: impl FnMut(&mut HeadFields, &FieldLine<'b>) -> Result<(), ParseError>,
) -> Result<usize, Stop> {
    let bytes = text.bytes();
    let limit = limits.fields_max;
    let mut count = 0;
    let mut at = start;
    loop {
        let (line, next) = match text.usual_line(at) {
            Ok(line) => {
                let value_span = Span::at(line.ends.name + 2, line.value.len());
                let (name, value, ends) = (line.name, line.value, line.ends);
                let line_parts = FieldLine {
                    name,
                    value,
                    value_span,
                    ends,
                };
                (line_parts, line.next)
            }
            Err(ends) => match unusual_line(bytes, at, ends, count == 0) {
                Ok(Some(line)) => (line, &[0; 2]),
                Ok(None) => break,
                Err(stop) => {
                    fields.set_len(count.min(FIELDS_CAPACITY));
                    return Err(stop);
                }
            },
        };
        let field = FieldSpan {
            name: Span::at(at, line.name.len()),
            value: line.value_span,
        };
        // Limits that allow more than the table holds are those of `Limits::with_response_heads`.
        if count >= limit || !fields.put(count, field) && limit <= FIELDS_CAPACITY {
            return Err(too_many_fields(limits));
        }
        count += 1;
        if is_watched(line.name.first()) {
            on_field(fields, &line)?;
        }
        at = line.ends.line + 2;
        if next == b"\r\n" {
            break;
        }
    }
    fields.set_len(count.min(FIELDS_CAPACITY));
    Ok(at + 2)
}

#[cold]
#[inline(never)]
fn too_many_fields(limits: &Limits) -> Stop {
    let limit = limits.fields_max;
    ParseError::TooManyFields { limit }.into()
}

/// One line, taken apart.
pub(super) struct FieldLine<'b> {
    pub(super) name: Name<'b>,
    pub(super) value: &'b [u8],
    pub(super) value_span: Span,
    ends: LineEnds,
}

/// The line at `at`, whose value is empty, or in more or less white space, or which is the last that
/// has come. `None` is the empty line; a stop says that it is no line at all, or not yet.
#[inline(never)]
fn unusual_line(
    bytes: &[u8],
    at: usize,
    ends: LineEnds,
    is_first_field: bool,
) -> Result<Option<FieldLine<'_>>, Stop> {
    if bytes.get(at..at + 2) == Some(b"\r\n") {
        return Ok(None);
    }
    let line = bytes.get(..ends.line).unwrap_or_default();
    let is_whole = bytes.get(ends.line..ends.line + 2) == Some(b"\r\n");
    match Text::scalar(line).name(at, ends.name) {
        Some(name) if is_whole && line.get(ends.name) == Some(&b':') => {
            let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t');
            let start = ends.name + 1;
            let value = &line[start..];
            let before = value.iter().take_while(is_space).count();
            let behind = value[before..].iter().rev().take_while(is_space).count();
            let (start, end) = (start + before, ends.line - behind);
            Ok(Some(FieldLine {
                name,
                value: &line[start..end],
                value_span: Span::new(start, end),
                ends,
            }))
        }
        _ => Err(field_line_stop(bytes, at, is_first_field)),
    }
}

/// Why the line at `at` is no field line, or not yet: the first of its bytes that cannot stand says
/// so, whatever comes after it.
#[cold]
fn field_line_stop(bytes: &[u8], at: usize, is_first_field: bool) -> Stop {
    let text = Text::scalar(bytes);
    let ends = LineEnds {
        name: text.token_end(at),
        line: text.value_end(at),
    };
    let Some(&found) = bytes.get(ends.name) else {
        return Stop::End;
    };
    let line_end = match found {
        b':' if ends.name > at => ends.line,
        b'\r' | b'\n' if ends.name == at => at,
        _ => return bad_name(found, ends.name == at, is_first_field).into(),
    };
    match expect_line_end(bytes, line_end) {
        Err(stop) => stop,
        Ok(_) => unreachable!("whole field lines and the empty line are not stops"),
    }
}

/// Reads the fields of a trailer section: the joined [`crate::BodyStep::trailer`] parts of a body
/// that is complete. `fields` is overwritten and speaks of `trailer`.
///
/// The decoder has checked every line, so a fault means that something else was handed in, or with other
/// limits.
pub fn parse_trailer_fields<'t>(
    trailer: &'t [u8],
    limits: &Limits,
    fields: &'t mut HeadFields,
) -> Result<ReceivedFields<'t>, ParseError> {
    if trailer.len() > limits.trailer_bytes_max {
        fields.clear();
        return Err(ParseError::TrailerTooLong {
            limit_bytes: limits.trailer_bytes_max,
        });
    }
    let text = Text::scalar(trailer);
    // What is found stays there even when no empty line ends it.
    match parse_fields(text, 0, limits, fields, |_fields, _line| Ok(())) {
        Ok(_) => Ok(ReceivedFields::new(trailer, fields)),
        // No empty line ends it, so the end of the bytes does, behind a whole line.
        Err(Stop::End) if trailer.is_empty() || trailer.ends_with(b"\r\n") => {
            Ok(ReceivedFields::new(trailer, fields))
        }
        Err(Stop::End) => Err(ParseError::BadFieldValue),
        Err(Stop::Fault(error)) => Err(error),
    }
}

#[cold]
fn bad_name(found: u8, name_is_empty: bool, is_first_field: bool) -> ParseError {
    match found {
        b' ' | b'\t' if name_is_empty && is_first_field => ParseError::LeadingWhitespace,
        b' ' | b'\t' if name_is_empty => ParseError::FoldedField,
        b' ' | b'\t' => ParseError::SpaceBeforeColon,
        _ => ParseError::BadFieldName,
    }
}
