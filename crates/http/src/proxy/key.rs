//! What of a request decides its way: the key that is hashed, and how far it may still go.

use super::balance::{Balance, HashKey};
use super::keyed_hash::hash;
use crate::method::Method;
use crate::request::Request;

/// The hash of the key, if upstreams are chosen by one and the request has it.
pub(super) fn key_hash(balance: &Balance, request: &Request<'_>) -> Option<u64> {
    let Balance::Hash(key) = balance else {
        return None;
    };
    let value = match key {
        HashKey::Path => Some(request.path()),
        HashKey::Header(name) => request.header(name),
        HashKey::Cookie(name) => cookie(request, name.as_bytes()),
    };
    value.map(hash)
}

/// Value of the first cookie with this name, which has a case (RFC 6265 5.3).
fn cookie<'h>(request: &Request<'h>, name: &[u8]) -> Option<&'h [u8]> {
    let is_cookies = |field: &(&[u8], &[u8])| field.0.eq_ignore_ascii_case(b"cookie");
    for (_, cookies) in request.headers().filter(is_cookies) {
        for pair in cookies.split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
            let value = pair
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(b"="));
            if value.is_some() {
                return value;
            }
        }
    }
    None
}

/// `Max-Forwards`, of the methods that have it (RFC 9110 7.6.2). One that is no number is passed on.
pub(super) fn forwards_left(request: &Request<'_>) -> Option<u32> {
    if !matches!(request.method, Method::Options | Method::Trace) {
        return None;
    }
    let text = std::str::from_utf8(request.header("max-forwards")?).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A larger one than fits is as good as the largest.
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadFields;
    use crate::limits::Limits;
    use crate::parse::{Parsed, parse_request_head};
    use crate::request::RequestBody;

    fn with<R>(text: &str, look: impl FnOnce(&Request<'_>) -> R) -> R {
        let mut fields = HeadFields::new();
        let bytes = text.as_bytes();
        let Ok(Parsed::Complete(head)) = parse_request_head(bytes, &Limits::default(), &mut fields)
        else {
            panic!("{text}");
        };
        look(&Request {
            method: head.method,
            bytes,
            head: &head,
            fields: &fields,
            body: RequestBody::Received(&[]),
        })
    }

    /// Goal: the key is the path without the query, the field in any case, the cookie among others.
    #[test]
    fn keys_are_found() {
        let text = "GET /a?b HTTP/1.1\r\nHost: h\r\nX-User: u\r\nCookie: xid=0; id=7\r\ncookie: id=8\r\n\r\n";
        for (balance, expected) in [
            ("hash:path", Some("/a")),
            ("hash:header:x-user", Some("u")),
            ("hash:header:absent", None),
            ("hash:cookie:id", Some("7")),
            ("hash:cookie:ID", None),
            ("round-robin", None),
        ] {
            let balance: Balance = balance.parse().unwrap();
            let found = with(text, |request| key_hash(&balance, request));
            assert_eq!(
                found,
                expected.map(|text| hash(text.as_bytes())),
                "{balance}"
            );
        }
    }

    /// Goal: only OPTIONS and TRACE count down.
    #[test]
    fn forwards_are_counted_for_two_methods() {
        for (method, value, expected) in [
            ("OPTIONS", "3", Some(3)),
            ("TRACE", "0", Some(0)),
            ("GET", "0", None),
            ("TRACE", "x", None),
            ("TRACE", "99999999999", Some(u32::MAX)),
            ("TRACE", "", None),
        ] {
            let text = format!("{method} / HTTP/1.1\r\nHost: h\r\nMax-Forwards: {value}\r\n\r\n");
            assert_eq!(with(&text, forwards_left), expected, "{method} {value}");
        }
    }
}
