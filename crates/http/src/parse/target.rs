//! The request target: its four forms (RFC 9112 3.2), and what a host may look like.

use crate::error::ParseError;
use crate::head::Span;
use crate::method::Method;
use crate::scan;

/// A target taken apart.
pub(super) struct Target {
    /// Empty when an absolute-form target has none.
    pub(super) path: Span,
    pub(super) query: Option<Span>,
    /// Only from the absolute form.
    pub(super) authority: Option<Span>,
}

/// Takes a target apart whose bytes are all known to be target bytes, the first `?` at `query_mark`.
#[inline]
pub(super) fn split(
    bytes: &[u8],
    method: Method,
    span: Span,
    query_mark: Option<usize>,
) -> Result<Target, ParseError> {
    let target = span.of(bytes);
    let start = span.start();
    if method == Method::Connect {
        return Err(ParseError::TunnelUnsupported);
    }
    if target[0] == b'/' {
        return Ok(split_query(span, start, query_mark, None));
    }
    split_other_form(bytes, method, span, query_mark)
}

#[cold]
fn split_other_form(
    bytes: &[u8],
    method: Method,
    span: Span,
    query_mark: Option<usize>,
) -> Result<Target, ParseError> {
    let target = span.of(bytes);
    let start = span.start();
    if target == b"*" {
        if method != Method::Options {
            return Err(ParseError::BadTarget);
        }
        let path = Span::new(start, start + 1);
        return Ok(Target {
            path,
            query: None,
            authority: None,
        });
    }
    let scheme_bytes = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|text| text.eq_ignore_ascii_case(scheme))
        })
        .ok_or(ParseError::BadTarget)?
        .len();
    let rest = &target[scheme_bytes..];
    let authority_bytes = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    if !is_authority(&rest[..authority_bytes]) {
        return Err(ParseError::BadTarget);
    }
    let path_start = start + scheme_bytes + authority_bytes;
    let authority = Span::new(start + scheme_bytes, path_start);
    Ok(split_query(span, path_start, query_mark, Some(authority)))
}

#[inline]
fn split_query(
    target: Span,
    path_start: usize,
    query_mark: Option<usize>,
    authority: Option<Span>,
) -> Target {
    let end = target.end();
    Target {
        path: Span::new(path_start, query_mark.unwrap_or(end)),
        query: query_mark.map(|mark| Span::new(mark + 1, end)),
        authority,
    }
}

/// `uri-host [ ":" port ]` without user information, not empty.
pub(super) fn is_authority(text: &[u8]) -> bool {
    let host_end = if text.first() == Some(&b'[') {
        let Some(bracket) = memchr::memchr(b']', text) else {
            return false;
        };
        if !is_ipv6_text(&text[1..bracket]) {
            return false;
        }
        bracket + 1
    } else {
        let end = text
            .iter()
            .position(|&byte| !scan::is_host(byte))
            .unwrap_or(text.len());
        if end == 0 {
            return false;
        }
        end
    };
    match text[host_end..].split_first() {
        None => true,
        Some((b':', port)) => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

fn is_ipv6_text(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}
