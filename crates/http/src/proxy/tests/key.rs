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
    let text =
        "GET /a?b HTTP/1.1\r\nHost: h\r\nX-User: u\r\nCookie: xid=0; id=7\r\ncookie: id=8\r\n\r\n";
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
