//! Heads of requests and responses: RFC 9112 to the letter, one pass, borrowed offsets.
//!
//! On the path: `connection` hands over received bytes; out come spans into those bytes, or a fault
//! with its status code. Nothing is allocated and nothing is copied.
//!
//! The cursor only moves forward and every decision depends on bytes before it, so a head cut at
//! any byte ends in the same answer once the rest has come: running off the end is `Partial`.
//!
//! Absent on purpose: leniency. Bare LF, folded fields, space before a colon, repeated or listed
//! lengths, and every transfer coding that is not exactly `chunked` are refused, because two
//! parsers that repair them differently can be made to disagree on where a request starts.

mod request;
mod response;
mod target;

pub use request::parse_request_head;
pub use response::parse_response_head;

use crate::error::ParseError;
use crate::head::{FieldSpan, Framing, HeadFields, Span, Version};
use crate::limits::Limits;
use crate::scan;

/// What parsing a prefix of a stream gives when nothing is wrong with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed<T> {
    /// The head is complete.
    Complete(T),
    /// Its end has not come yet.
    Partial,
}

/// Why the cursor stopped before the end of the head.
enum Stop {
    /// Out of bytes.
    End,
    Fault(ParseError),
}

impl From<ParseError> for Stop {
    fn from(error: ParseError) -> Self {
        Self::Fault(error)
    }
}

/// The byte at the cursor, or the end of what has come.
#[inline]
fn byte_at(bytes: &[u8], at: usize) -> Result<u8, Stop> {
    bytes.get(at).copied().ok_or(Stop::End)
}

/// Skips the one empty line a client may send before a request or response (RFC 9112 2.2).
#[inline]
fn skip_empty_line(bytes: &[u8]) -> Result<usize, Stop> {
    match byte_at(bytes, 0)? {
        b'\r' => expect_line_end(bytes, 0),
        b'\n' => Err(ParseError::BareLineFeed.into()),
        _ => Ok(0),
    }
}

/// Checks for CRLF at the cursor and returns the position after it.
#[inline]
fn expect_line_end(bytes: &[u8], at: usize) -> Result<usize, Stop> {
    match byte_at(bytes, at)? {
        b'\r' => {}
        b'\n' => return Err(ParseError::BareLineFeed.into()),
        _ => return Err(ParseError::BadFieldValue.into()),
    }
    if byte_at(bytes, at + 1)? != b'\n' {
        return Err(ParseError::BareCarriageReturn.into());
    }
    Ok(at + 2)
}

/// Parses field lines up to and including the empty line; returns the position after it.
#[inline(always)]
fn parse_fields(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    fields: &mut HeadFields,
    mut on_field: impl FnMut(&[u8], Span) -> Result<(), ParseError>,
) -> Result<usize, Stop> {
    let mut at = start;
    loop {
        let name_end = scan::token_end(bytes, at);
        match byte_at(bytes, name_end)? {
            b':' if name_end > at => {}
            b'\r' | b'\n' if name_end == at => return expect_line_end(bytes, at),
            other => return Err(bad_name(other, name_end == at, fields.is_empty()).into()),
        }
        let mut value_start = name_end + 1;
        while matches!(byte_at(bytes, value_start)?, b' ' | b'\t') {
            value_start += 1;
        }
        let line_end = scan::field_value_end(bytes, value_start);
        let next = expect_line_end(bytes, line_end)?;
        let mut value_end = line_end;
        while value_end > value_start && matches!(bytes[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        let value = Span::new(value_start, value_end);
        let field = FieldSpan {
            name: Span::new(at, name_end),
            value,
        };
        if fields.len() >= limits.fields_max || !fields.push(field) {
            return Err(ParseError::TooManyFields {
                limit: limits.fields_max,
            }
            .into());
        }
        on_field(&bytes[at..name_end], value)?;
        at = next;
    }
}

/// Reads the fields of a trailer section: the joined [`crate::BodyStep::trailer`] parts of a body
/// that is complete. `fields` is overwritten and speaks of `trailer`.
///
/// The decoder has checked every line, so a fault means that something else was handed in.
pub fn parse_trailer_fields(
    trailer: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<(), ParseError> {
    fields.clear();
    match parse_fields(trailer, 0, limits, fields, |_name, _value| Ok(())) {
        Ok(_) => Ok(()),
        // No empty line ends it, so the end of the bytes does, behind a whole line.
        Err(Stop::End) if trailer.is_empty() || trailer.ends_with(b"\r\n") => Ok(()),
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

/// What the fields that decide framing and reuse said, gathered while they pass by.
#[derive(Default)]
struct FramingFields {
    content_length: Option<u64>,
    is_chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
}

impl FramingFields {
    /// Looks at one field; false when it is none of ours.
    #[inline]
    fn visit(&mut self, name: &[u8], value: &[u8]) -> Result<bool, ParseError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => self.visit_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.visit_content_length(value)?;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.visit_transfer_encoding(value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn visit_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.says_close |= option.eq_ignore_ascii_case(b"close");
            self.says_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn visit_content_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if self.content_length.is_some() {
            return Err(ParseError::DuplicateContentLength);
        }
        self.content_length = Some(parse_content_length(value)?);
        Ok(())
    }

    fn visit_transfer_encoding(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if self.is_chunked {
            return Err(ParseError::BadTransferEncoding);
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.is_chunked = true;
            return Ok(());
        }
        let is_token = !value.is_empty() && value.iter().all(|&byte| scan::is_token(byte));
        if is_token && !value.eq_ignore_ascii_case(b"identity") {
            return Err(ParseError::UnknownTransferCoding);
        }
        Err(ParseError::BadTransferEncoding)
    }

    /// RFC 9112 6.3, with the cases it leaves to us refused.
    fn framing(&self, version: Version, otherwise: Framing) -> Result<Framing, ParseError> {
        match (self.is_chunked, self.content_length) {
            (true, Some(_)) => Err(ParseError::LengthAndTransferEncoding),
            (true, None) if version == Version::Http10 => {
                Err(ParseError::TransferEncodingInOldVersion)
            }
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(otherwise),
        }
    }

    /// RFC 9112 9.3: `close` wins over `keep-alive`; the default is the version's.
    fn keep_alive(&self, version: Version) -> bool {
        !self.says_close && (version == Version::Http11 || self.says_keep_alive)
    }
}

/// 1*DIGIT and nothing else: no sign, no list, no `0x`, no overflow.
fn parse_content_length(value: &[u8]) -> Result<u64, ParseError> {
    if value.is_empty() {
        return Err(ParseError::BadContentLength);
    }
    let mut length = 0_u64;
    for &byte in value {
        if byte == b',' {
            return Err(ParseError::DuplicateContentLength);
        }
        if !byte.is_ascii_digit() {
            return Err(ParseError::BadContentLength);
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
            .ok_or(ParseError::BadContentLength)?;
    }
    Ok(length)
}
