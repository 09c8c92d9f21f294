//! The request target: its four forms (RFC 9112 3.2), and what a host may look like.

use crate::error::ParseError;
use crate::head::{RequestHead, Span};
use crate::method::Method;
use crate::scan;

/// Digits of the largest port.
pub(crate) const PORT_DIGITS_MAX: usize = 5;

/// Takes a target apart that does not begin with a slash. Its bytes are all known to be target bytes; `path_end` is where its first `?` is, or its end.
#[cold]
pub(super) fn split_other_form(
    bytes: &[u8],
    path_end: usize,
    head: &mut RequestHead,
) -> Result<(), ParseError> {
    let (start, end) = (head.target.start(), head.target.end());
    let target = head.target.of(bytes);
    if target == b"*" {
        if head.method != Method::Options {
            return Err(ParseError::BadTarget);
        }
        head.path = head.target;
        return Ok(());
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
    let authority_start = start + scheme_bytes;
    let path_start = authority_start + authority_bytes;
    head.authority = Span::new(authority_start, path_start);
    head.path = Span::new(path_start, path_end);
    head.query = (path_end < end).then(|| Span::new(path_end + 1, end));
    Ok(())
}

/// `uri-host [ ":" port ]` without user information, not empty.
pub(crate) fn is_authority(text: &[u8]) -> bool {
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
        Some((b':', port)) => port.len() <= PORT_DIGITS_MAX && port.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

fn is_ipv6_text(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}
