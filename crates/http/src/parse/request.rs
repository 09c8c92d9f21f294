//! The request line, and what a request's fields must say.

use super::target::{self, Target};
use super::{FramingFields, Parsed, Stop, byte_at, expect_line_end, parse_fields, skip_empty_line};
use crate::error::ParseError;
use crate::head::{Framing, HeadFields, RequestHead, Span, Version};
use crate::limits::Limits;
use crate::method::Method;
use crate::scan;

/// Parses the head at the start of `bytes`; `fields` is overwritten.
///
/// Call again with more bytes after `Partial`. A fault is final.
#[inline(always)]
pub fn parse_request_head(
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<Parsed<RequestHead>, ParseError> {
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

/// The parts of `METHOD SP target SP version CRLF`.
struct RequestLine {
    method_token: Span,
    method: Method,
    target: Span,
    /// Where the target's first `?` is.
    query_mark: Option<usize>,
    version: Version,
    end: usize,
}

/// Inlined, like all up to the server's loop: a head is a table of offsets, and moving it through
/// three results costs as much as parsing a field.
#[inline(always)]
fn parse(bytes: &[u8], limits: &Limits, fields: &mut HeadFields) -> Result<RequestHead, Stop> {
    let start = skip_empty_line(bytes)?;
    let line_limit = start + limits.request_line_bytes_max;
    let line = match parse_line(&bytes[..bytes.len().min(line_limit)], start) {
        Err(Stop::End) if bytes.len() >= line_limit => {
            let limit_bytes = limits.request_line_bytes_max;
            return Err(ParseError::RequestLineTooLong { limit_bytes }.into());
        }
        line => line?,
    };
    let Target {
        path,
        query,
        authority,
    } = target::split(bytes, line.method, line.target, line.query_mark)?;

    let mut framing_fields = FramingFields::default();
    let mut host = None;
    let mut expects_continue = false;
    let head_bytes = parse_fields(bytes, line.end, limits, fields, |name, value| {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                let earlier = host.replace(value);
                if earlier.is_some() {
                    return Err(ParseError::DuplicateHost);
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !value.of(bytes).eq_ignore_ascii_case(b"100-continue") {
                    return Err(ParseError::UnknownExpectation);
                }
                expects_continue = true;
            }
            10 | 14 | 17 => {
                framing_fields.visit(name, value.of(bytes))?;
            }
            _ => {}
        }
        Ok(())
    })?;

    match host {
        Some(host) => check_host(host.of(bytes), fields)?,
        None if line.version == Version::Http11 => return Err(ParseError::MissingHost.into()),
        None => {}
    }
    let framing = framing_fields.framing(line.version, Framing::None)?;
    if let Framing::Length(found_bytes) = framing
        && found_bytes > limits.body_bytes_max
    {
        return Err(ParseError::BodyTooLong {
            limit_bytes: limits.body_bytes_max,
            found_bytes,
        }
        .into());
    }
    let has_body = !matches!(framing, Framing::None | Framing::Length(0));
    Ok(RequestHead {
        method: line.method,
        method_token: line.method_token,
        target: line.target,
        path,
        query,
        authority: authority.or(host).unwrap_or_default(),
        version: line.version,
        framing,
        keep_alive: framing_fields.keep_alive(line.version),
        expects_continue: expects_continue && has_body && line.version == Version::Http11,
        head_bytes,
    })
}

/// Empty is allowed: the target then needs no authority. Clients repeat their host, so the last
/// good one is remembered and compared instead of checked again.
#[inline]
fn check_host(host: &[u8], fields: &mut HeadFields) -> Result<(), ParseError> {
    if fields.is_last_host(host) {
        return Ok(());
    }
    if !host.is_empty() && !target::is_authority(host) {
        return Err(ParseError::BadHost);
    }
    fields.remember_host(host);
    Ok(())
}

#[inline(always)]
fn parse_line(bytes: &[u8], start: usize) -> Result<RequestLine, Stop> {
    let (method, method_end) = parse_method(bytes, start)?;
    let target_start = method_end + 1;
    let path_end = scan::path_end(bytes, target_start);
    let (query_mark, target_end) = match byte_at(bytes, path_end)? {
        b'?' => (Some(path_end), scan::target_end(bytes, path_end + 1)),
        _ => (None, path_end),
    };
    match byte_at(bytes, target_end)? {
        b' ' if target_end > target_start => {}
        b'\r' | b'\n' if target_end > target_start => return Err(ParseError::BadVersion.into()),
        _ => return Err(ParseError::BadTarget.into()),
    }
    let (version, version_end) = parse_version(bytes, target_end + 1)?;
    let end = match byte_at(bytes, version_end)? {
        b'\r' | b'\n' => expect_line_end(bytes, version_end)?,
        _ => return Err(ParseError::BadVersion.into()),
    };
    Ok(RequestLine {
        method_token: Span::new(start, method_end),
        method,
        target: Span::new(target_start, target_end),
        query_mark,
        version,
        end,
    })
}

/// The method and the position of the space after it; the most frequent one costs one comparison.
#[inline(always)]
fn parse_method(bytes: &[u8], start: usize) -> Result<(Method, usize), Stop> {
    if bytes[start..].starts_with(b"GET ") {
        return Ok((Method::Get, start + 3));
    }
    let end = scan::token_end(bytes, start);
    if byte_at(bytes, end)? != b' ' || end == start {
        return Err(ParseError::BadMethod.into());
    }
    Ok((Method::from_token(&bytes[start..end]), end))
}

/// `HTTP/` DIGIT `.` DIGIT; returns the position after it.
#[inline]
pub(super) fn parse_version(bytes: &[u8], at: usize) -> Result<(Version, usize), Stop> {
    let Some(text) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
        return Err(Stop::End);
    };
    const HTTP_1_1: u64 = u64::from_le_bytes(*b"HTTP/1.1");
    const HTTP_1_0: u64 = u64::from_le_bytes(*b"HTTP/1.0");
    let version = match u64::from_le_bytes(*text) {
        HTTP_1_1 => Version::Http11,
        HTTP_1_0 => Version::Http10,
        _ => return Err(bad_version(*text).into()),
    };
    Ok((version, at + text.len()))
}

#[cold]
fn bad_version(text: [u8; 8]) -> ParseError {
    match text {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            ParseError::UnsupportedVersion
        }
        _ => ParseError::BadVersion,
    }
}
