//! The request line, and checks of a request's fields.

use crate::error::ParseError;
use crate::head::{FieldSpan, Framing, HeadFields, LastHost, RequestHead, Span, Version};
use crate::head_text::ReceivedFields;
use crate::limits::{FIELDS_CAPACITY, Limits};
use crate::method::Method;
use crate::parse;
use crate::scan::{LineEnds, Name, Scanner, Text};

use super::{FramingFields, Stop, byte_at, expect_line_end, skip_empty_line};

/// Heads of requests.
pub(super) struct Grammar;

impl super::Grammar for Grammar {
    type Head = RequestHead;
    const EMPTY: RequestHead = RequestHead::EMPTY;

    #[inline(always)]
    fn parse<S: Scanner>(
        text: Text<'_, S>,
        limits: &Limits,
        fields: &mut HeadFields,
        head: &mut RequestHead,
    ) -> Result<(), Stop> {
        match parse_line(text, head) {
            Ok(line) if line.end - line.start <= limits.request_line_bytes_max => {
                parse_rest(text, &line, limits, fields, head)
            }
            _ => Err(line_stop(text.bytes(), limits)),
        }
    }
}

/// The fields, and what the whole means.
#[inline(always)]
fn parse_rest<S: Scanner>(
    text: Text<'_, S>,
    line: &RequestLine,
    limits: &Limits,
    fields: &mut HeadFields,
    head: &mut RequestHead,
) -> Result<(), Stop> {
    let mut framing_fields = FramingFields::new();
    framing_fields.seen = line.seen;
    head.head_bytes = parse_fields(text, line.end, limits, fields, |fields, line| {
        if line.name.is(b"host") {
            check_host(line.value, &mut fields.last_host)?;
            if framing_fields.is_first_host()? {
                head.authority = line.value_span;
            }
        } else if line.name.is(b"expect") {
            framing_fields.visit_expect(line.value)?;
        } else {
            framing_fields.visit(line)?;
        }
        Ok(())
    })?;
    if framing_fields.seen != FramingFields::HOST {
        head.keep_alive = framing_fields.keep_alive(head.version);
        if framing_fields.is_more_than_host() {
            set_framing(framing_fields, limits, head)?;
        }
    }
    Ok(())
}

/// The framing from the fields, or the missing host.
#[inline(never)]
fn set_framing(
    framing_fields: FramingFields,
    limits: &Limits,
    head: &mut RequestHead,
) -> Result<(), ParseError> {
    if head.version == Version::Http11 && !framing_fields.has(FramingFields::HOST) {
        return Err(ParseError::MissingHost);
    }
    head.framing = framing_fields.framing(head.version, Framing::None)?;
    if let Framing::Length(found_bytes) = head.framing
        && found_bytes > limits.body_bytes_max
    {
        let limit_bytes = limits.body_bytes_max;
        return Err(ParseError::BodyTooLong {
            limit_bytes,
            found_bytes,
        });
    }
    let expects_continue = framing_fields.has(FramingFields::EXPECTS_CONTINUE);
    let has_body = !matches!(head.framing, Framing::None | Framing::Length(0));
    head.expects_continue = expects_continue && has_body && head.version == Version::Http11;
    Ok(())
}

/// Why there is no request line within its limit. Bytes behind the limit must not decide, or the
/// response would depend on how much has come; so only those before it are read again.
#[cold]
fn line_stop(bytes: &[u8], limits: &Limits) -> Stop {
    let limit_bytes = limits.request_line_bytes_max;
    let start = match skip_empty_line(bytes) {
        Ok(start) => start,
        Err(stop) => return stop,
    };
    let line_limit = start + limit_bytes;
    let within = &bytes[..bytes.len().min(line_limit)];
    match parse_line(Text::scalar(within), &mut RequestHead::EMPTY.clone()) {
        Err(Stop::End) if bytes.len() >= line_limit => {
            ParseError::RequestLineTooLong { limit_bytes }.into()
        }
        Err(stop) => stop,
        Ok(_) => unreachable!("a whole request line within its limit is not a stop"),
    }
}

/// Empty is allowed: the target then needs no authority. Clients repeat their host, so the last good
/// one is remembered and compared instead of checked again.
#[inline(always)]
fn check_host(host: &[u8], last_host: &mut LastHost) -> Result<(), ParseError> {
    if last_host.is(host) {
        return Ok(());
    }
    check_new_host(host, last_host)
}

#[cold]
fn check_new_host(host: &[u8], last_host: &mut LastHost) -> Result<(), ParseError> {
    if !host.is_empty() && !parse::is_authority(host) {
        return Err(ParseError::BadHost);
    }
    last_host.remember(host);
    Ok(())
}

/// A request line whose parts are in the head.
struct RequestLine {
    start: usize,
    end: usize,
    /// Initial state of `FramingFields`.
    seen: u8,
}

/// Parses `METHOD SP target SP version CRLF`; returns its spans.
#[inline(always)]
fn parse_line<S: Scanner>(text: Text<'_, S>, head: &mut RequestHead) -> Result<RequestLine, Stop> {
    let bytes = text.bytes();
    let (start, target_start) = if text.has(0, b"GET ") {
        head.method_token = Span::at(0, 3);
        (0, 4)
    } else {
        let token = parse_other_method(bytes, head)?;
        (token.start(), token.end() + 1)
    };
    let ends = text.target_ends(target_start);
    let end = if text.has(ends.target, b" HTTP/1.1\r\n") {
        ends.target + b" HTTP/1.1\r\n".len()
    } else {
        parse_other_version(bytes, target_start, ends.target, head)?
    };
    head.target = Span::new(target_start, ends.target);
    let mut seen = 0;
    if text.has(target_start, b"/") {
        head.path = Span::new(target_start, ends.path);
        if ends.path < ends.target {
            head.query = Some(Span::new(ends.path + 1, ends.target));
        }
    } else {
        parse::split_other_form(bytes, ends.path, head)?;
        if !head.authority.is_empty() {
            seen = FramingFields::AUTHORITY;
        }
    }
    Ok(RequestLine { start, end, seen })
}

/// Any method, behind an empty line or not.
#[inline(never)]
fn parse_other_method(bytes: &[u8], head: &mut RequestHead) -> Result<Span, Stop> {
    let start = skip_empty_line(bytes)?;
    let end = Text::scalar(bytes).token_end(start);
    if byte_at(bytes, end)? != b' ' || end == start {
        return Err(ParseError::BadMethod.into());
    }
    head.method_token = Span::new(start, end);
    head.method = Method::from_token(&bytes[start..end]);
    if head.method == Method::Connect {
        return Err(ParseError::TunnelUnsupported.into());
    }
    Ok(head.method_token)
}

/// The rest of the line after the target.
#[inline(never)]
fn parse_other_version(
    bytes: &[u8],
    target_start: usize,
    target_end: usize,
    head: &mut RequestHead,
) -> Result<usize, Stop> {
    match byte_at(bytes, target_end)? {
        b' ' if target_end > target_start => {}
        b'\r' | b'\n' if target_end > target_start => return Err(ParseError::BadVersion.into()),
        _ => return Err(ParseError::BadTarget.into()),
    }
    let (version, version_end) = parse_version(bytes, target_end + 1)?;
    head.version = version;
    head.keep_alive = version == Version::Http11;
    match byte_at(bytes, version_end)? {
        b'\r' | b'\n' => expect_line_end(bytes, version_end),
        _ => Err(ParseError::BadVersion.into()),
    }
}

/// `HTTP/` DIGIT `.` DIGIT; returns the position after it.
#[inline(always)]
pub(super) fn parse_version(bytes: &[u8], at: usize) -> Result<(Version, usize), Stop> {
    let Some(text) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
        return Err(cut_version(bytes.get(at..).unwrap_or_default()));
    };
    const HTTP_1_1: u64 = u64::from_le_bytes(*b"HTTP/1.1");
    const HTTP_1_0: u64 = u64::from_le_bytes(*b"HTTP/1.0");
    let version = match u64::from_le_bytes(*text) {
        HTTP_1_1 => Version::Http11,
        HTTP_1_0 => Version::Http10,
        _ => other_version(*text)?,
    };
    Ok((version, at + text.len()))
}

/// Fewer bytes than a version has: to be waited for, if they may begin one.
#[cold]
fn cut_version(text: &[u8]) -> Stop {
    let may_be = |(&found, &expected): (&u8, &u8)| match expected {
        b'0' => found.is_ascii_digit(),
        _ => found == expected,
    };
    match text.iter().zip(b"HTTP/0.0").all(may_be) {
        true => Stop::End,
        false => ParseError::BadVersion.into(),
    }
}

/// A higher minor version is read by the rules of the highest that is known (RFC 9110 2.5).
#[cold]
fn other_version(text: [u8; 8]) -> Result<Version, ParseError> {
    match text {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Version::Http11),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(ParseError::UnsupportedVersion)
        }
        _ => Err(ParseError::BadVersion),
    }
}

// Field lines, of heads and of trailers.

/// Whether a field that the parser uses may begin so: Connection, Content-Length, Expect, Host and Transfer-Encoding.
/// Most begin otherwise and cost nothing more. Other bytes may share a place with one of these, but no letter does.
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

/// The line at `at`, whose value is empty, or in more or less white space, or which is the last one received. `None` is
/// the empty line; a stop means that it is no field line, or not complete.
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

/// Why the line at `at` is not a field line, or not complete: the first invalid byte decides, whatever comes after it.
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

/// Reads the fields of a trailer section: the joined [`crate::BodyStep::trailer`] parts of a body that is complete.
/// `fields` is overwritten; its spans are of `trailer`.
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
    // Fields that were found stay there even without an empty line at the end.
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
