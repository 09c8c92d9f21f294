use super::*;
use crate::ndjson::{Line, write_line};
use crate::record::Head;
use proptest::prelude::*;

proptest! {
    /// Goal: a written line is read as the same entity.
    #[test]
    fn lines_round_trip(
        id in proptest::collection::vec(any::<u8>(), 1..40),
        content_type in prop_oneof![
            Just(b"text/plain".to_vec()),
            "[!-~\u{80}-\u{ff}]{0,20}".prop_map(|text| text.chars().map(|c| c as u32 as u8).collect()),
        ],
        content_encoding in prop_oneof![Just(Vec::new()), Just(b"br".to_vec())],
        value in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "[ -~\u{0}-\u{20}é]{0,40}".prop_map(String::into_bytes),
        ],
        version in 0..VERSION_US_MAX << 11,
        expires_ms in prop_oneof![Just(0), 1..9_999_999_999_000_u64],
    ) {
        let version = Version(version);
        let head = Head {
            version,
            expires_ms,
            content_type: &content_type,
            content_encoding: &content_encoding,
        };
        let mut line = Vec::new();
        write_line(&Line::Entity { id: &id, head, value: &value }, &mut line).unwrap();
        let expected = ParsedEntity {
            id, version: Some(version), content_type, content_encoding, expires_ms, value,
        };
        prop_assert_eq!(parse_line(&line).unwrap(), ParsedLine::Entity(expected));
    }
}

/// Goal: last lines are known; whatever else changes what a line means is refused for its own reason.
#[test]
fn lines_are_understood_or_refused() {
    let end = |skipped| ParsedLine::End { skipped };
    for (line, expected) in [
        (r#"{"end":true}"#, end(0)),
        (r#"{"end":true,"skipped":3}"#, end(3)),
        (r#"{"next":"a"}"#, ParsedLine::Next),
        (r#" {"next_base64":"/w=="} "#, ParsedLine::Next),
    ] {
        assert_eq!(parse_line(line.as_bytes()).unwrap(), expected, "{line}");
    }
    let long = format!(r#"{{"id":"{}","value":""}}"#, "a".repeat(1025));
    for (line, part) in [
        ("", "EOF"),
        ("a", "expected"),
        ("[]", "not understood"),
        (r#"{"id":"a","value":"b"} x"#, "trailing"),
        (r#"{"id":"a","value":"b","ttl":3}"#, "unknown field `ttl`"),
        (r#"{"id":"a","id":"b","value":"c"}"#, "duplicate field"),
        (r#"{"id":"a"}"#, "neither value"),
        (r#"{"value":"a"}"#, "neither id"),
        (r#"{"id":"","value":""}"#, "0 bytes"),
        (&long, "1025 bytes"),
        (r#"{"id":"a","id_base64":"YQ==","value":"b"}"#, "both id"),
        (r#"{"id":"a","value_base64":"YQ"}"#, "padding"),
        (
            r#"{"id":"a","value":"b","etag":"0123456789abcdef"}"#,
            "etag",
        ),
        (
            r#"{"id":"a","value":"b","etag":"\"ffffffffffffffff\""}"#,
            "etag",
        ),
        (r#"{"id":"a","value":"b","expires":-1}"#, "expires"),
        (r#"{"id":"a","value":"b","expires":1e20}"#, "expires"),
        (r#"{"id":"a","value":"b","end":true}"#, "last line"),
        (r#"{"end":false}"#, "last line"),
        (r#"{"skipped":1}"#, "last line"),
        (
            r#"{"id":"a","value":"b","type":"a\r\nHost: b"}"#,
            "Content-Type",
        ),
    ] {
        let error = parse_line(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{line}: {error}");
    }
}
