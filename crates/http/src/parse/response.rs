//! The status line, and what a response's fields must say.

use super::request::parse_version;
use super::{FramingFields, Parsed, Stop, byte_at, expect_line_end, parse_fields, skip_empty_line};
use crate::error::ParseError;
use crate::head::{Framing, HeadFields, ResponseHead, Span};
use crate::limits::Limits;
use crate::scan;
use crate::status::StatusCode;

/// Parses the head at the start of `bytes`; `fields` is overwritten.
///
/// One leniency, outside framing: the space before an empty reason phrase may be missing, because
/// widespread servers leave it out.
#[inline]
pub fn parse_response_head(
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<Parsed<ResponseHead>, ParseError> {
    fields.clear();
    let head = &bytes[..bytes.len().min(limits.head_bytes_max)];
    match parse(head, limits, fields) {
        Ok(head) => Ok(Parsed::Complete(head)),
        Err(Stop::End) if head.len() == limits.head_bytes_max => Err(ParseError::HeadTooLong {
            limit_bytes: limits.head_bytes_max,
        }),
        Err(Stop::End) => Ok(Parsed::Partial),
        Err(Stop::Fault(error)) => Err(error),
    }
}

fn parse(bytes: &[u8], limits: &Limits, fields: &mut HeadFields) -> Result<ResponseHead, Stop> {
    let start = skip_empty_line(bytes)?;
    let (version, version_end) = parse_version(bytes, start)?;
    let (status, code_end) = parse_status(bytes, version_end)?;
    let (reason, line_end) = parse_reason(bytes, code_end)?;

    let mut framing_fields = FramingFields::default();
    let head_bytes = parse_fields(bytes, line_end, limits, fields, |name, value| {
        framing_fields
            .visit(name, value.of(bytes))
            .map(|_is_framing_field| ())
    })?;
    let announced = framing_fields.framing(version, Framing::UntilClose)?;
    Ok(ResponseHead {
        status,
        version,
        reason,
        announced,
        offers_keep_alive: framing_fields.keep_alive(version),
        head_bytes,
    })
}

fn parse_status(bytes: &[u8], at: usize) -> Result<(StatusCode, usize), Stop> {
    let text = bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<4>())
        .ok_or(Stop::End)?;
    let [b' ', digits @ ..] = text else {
        return Err(ParseError::BadStatusLine.into());
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(ParseError::BadStatusLine.into());
    }
    let code = digits
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    let status = StatusCode::new(code).ok_or(ParseError::BadStatusLine)?;
    Ok((status, at + text.len()))
}

fn parse_reason(bytes: &[u8], at: usize) -> Result<(Span, usize), Stop> {
    let start = match byte_at(bytes, at)? {
        b' ' => at + 1,
        b'\r' | b'\n' => at,
        _ => return Err(ParseError::BadStatusLine.into()),
    };
    let end = scan::field_value_end(bytes, start);
    Ok((Span::new(start, end), expect_line_end(bytes, end)?))
}
