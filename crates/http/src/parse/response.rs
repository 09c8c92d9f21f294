//! The status line, and checks of a response's fields.

use super::FramingFields;
use super::request::parse_fields;
use super::request::parse_version;
use super::{Stop, byte_at, expect_line_end, skip_empty_line};
use crate::error::ParseError;
use crate::head::{Framing, HeadFields, ResponseHead, Span};
use crate::limits::Limits;
use crate::scan::{Scanner, Text};
use crate::status::StatusCode;

/// Heads of responses.
pub(super) struct Grammar;

impl super::Grammar for Grammar {
    type Head = ResponseHead;
    const EMPTY: ResponseHead = ResponseHead::EMPTY;

    #[inline(always)]
    fn parse<S: Scanner>(
        text: Text<'_, S>,
        limits: &Limits,
        fields: &mut HeadFields,
        head: &mut ResponseHead,
    ) -> Result<(), Stop> {
        let bytes = text.bytes();
        let start = skip_empty_line(bytes)?;
        let (version, version_end) = parse_version(bytes, start)?;
        let (status, code_end) = parse_status(bytes, version_end)?;
        let (reason, line_end) = parse_reason(text, code_end)?;
        (head.version, head.status, head.reason) = (version, status, reason);
        let mut framing_fields = FramingFields::new();
        head.head_bytes = parse_fields(text, line_end, limits, fields, |_fields, line| {
            framing_fields.visit(line)
        })?;
        head.announced = framing_fields.framing(version, Framing::UntilClose)?;
        head.offers_keep_alive = framing_fields.keep_alive(version);
        Ok(())
    }
}

#[inline(always)]
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

#[inline(always)]
fn parse_reason<S: Scanner>(text: Text<'_, S>, at: usize) -> Result<(Span, usize), Stop> {
    let bytes = text.bytes();
    let start = match byte_at(bytes, at)? {
        b' ' => at + 1,
        b'\r' | b'\n' => at,
        _ => return Err(ParseError::BadStatusLine.into()),
    };
    let end = text.value_end(start);
    Ok((Span::new(start, end), expect_line_end(bytes, end)?))
}
