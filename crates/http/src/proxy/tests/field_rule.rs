use super::*;
use crate::limits::Limits;
use crate::parse::{Parsed, parse_request_head};

/// Goal: every field of RFC 9110 7.6.1 is dropped in any case and spelling, and its neighbours
/// are not.
#[test]
fn rules_know_every_spelling() {
    for name in [
        "Upgrade",
        "Keep-Alive",
        "keep_alive",
        "Transfer-Encoding",
        "transfer_encoding",
        "Content-Length",
        "CONTENT_LENGTH",
        "Proxy-Connection",
        "proxy_authorization",
        "Proxy",
        "Expect",
        "HTTP2-Settings",
        "X_Forwarded_For",
        "X-Forwarded_Host",
        "x_forwarded_proto",
        "X_Forwarded_Port",
        "x_real-ip",
        "Max_Forwards",
    ] {
        assert_eq!(FieldRule::of(name.as_bytes()), FieldRule::Drop, "{name}");
    }
    for (name, rule) in [
        ("X-Forwarded-For", FieldRule::ForwardedFor),
        ("X-Forwarded-Port", FieldRule::ForwardedOther),
        ("x-real-ip", FieldRule::ForwardedOther),
        ("vIA", FieldRule::Via),
        ("connection", FieldRule::Connection),
        ("te", FieldRule::Te),
        ("TRAILER", FieldRule::Trailer),
    ] {
        assert_eq!(FieldRule::of(name.as_bytes()), rule, "{name}");
    }
    for name in [
        "Accept",
        "Content-Type",
        "Trailers",
        "Proximity",
        "X-Forward",
        "Cookie",
        "ETag",
    ] {
        assert_eq!(FieldRule::of(name.as_bytes()), FieldRule::PassOn, "{name}");
    }
}

/// Goal: only the one word says it, wherever it stands in the list.
#[test]
fn trailers_are_welcome_where_te_says_so() {
    for (value, is_welcome) in [
        ("trailers", true),
        ("gzip;q=0.5, Trailers ", true),
        ("gzip", false),
        ("trailers;q=0", false),
        ("", false),
    ] {
        assert_eq!(welcomes_trailers(value.as_bytes()), is_welcome, "{value}");
    }
}

/// Goal: the options of all Connection fields are found, and a flood of them is refused.
#[test]
fn nominated_fields_are_found() {
    let mut fields = HeadFields::new();
    let mut parse = |head: &str| {
        let parsed = parse_request_head(head.as_bytes(), &Limits::default(), &mut fields);
        assert!(matches!(parsed, Ok(Parsed::Complete(_))), "{head}");
        fields.clone()
    };
    let head =
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-One ,\r\nConnection: Upgrade\r\n\r\n";
    let found = parse(head);
    let nominated = Nominated::of(head.as_bytes(), &found).unwrap();
    assert!(
        nominated.has(b"x-one")
            && nominated.has(b"X_One")
            && nominated.has(b"upgrade")
            && nominated.has_upgrade
    );
    assert!(!nominated.has(b"close") && !nominated.has(b"x-two"));
    assert!(nominated.has_fields);
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, upgrade, keep-alive\r\n\r\n";
    let found = parse(head);
    let nominated = Nominated::of(head.as_bytes(), &found).unwrap();
    assert!(nominated.has(b"te") && !nominated.has_fields);
    let many: Vec<String> = (0..=OPTIONS_MAX).map(|n| format!("x{n}")).collect();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n",
        many.join(",")
    );
    assert!(Nominated::of(head.as_bytes(), &parse(&head)).is_err());
}
