use super::*;
use crate::record::Version;
use proptest::prelude::*;
use serde_json::Value;

/// The line, written in rooms of that size.
fn written(line: &Line<'_>, room_bytes: usize) -> Vec<u8> {
    let (mut place, mut all) = (LinePlace::default(), Vec::new());
    let mut room = vec![0; room_bytes];
    while !place.is_complete() {
        let filled_bytes = place.fill(line, &mut room);
        assert!(filled_bytes > 0 || place.is_complete(), "no way on");
        all.extend_from_slice(&room[..filled_bytes]);
    }
    all
}

/// One of the two fields of that name.
fn bytes(line: &Value, name: &str) -> Option<Vec<u8>> {
    let coded = line.get(format!("{name}_base64"));
    let text = line.get(name);
    assert!(coded.is_none() || text.is_none(), "{line}");
    match coded {
        Some(coded) => Some(STANDARD.decode(coded.as_str().unwrap()).unwrap()),
        None => Some(text?.as_str()?.as_bytes().to_vec()),
    }
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..40),
        "[ -~\u{0}-\u{20}\"\\\\é]{1,40}".prop_map(String::into_bytes),
    ]
}

proptest! {
    /// Goal: another JSON parser reads every line as what was stored, whatever it is and in whatever pieces it was
    /// encoded; it is one line.
    #[test]
    fn lines_are_read_as_what_was_stored(
        id in some_bytes(),
        value in some_bytes(),
        content_type in prop_oneof![
            Just(Vec::new()),
            Just(b"Text/HTML; charset=utf-8".to_vec()),
            Just(b"application/problem+json".to_vec()),
            some_bytes(),
        ],
        content_encoding in prop_oneof![Just(Vec::new()), Just(b"gzip".to_vec()), some_bytes()],
        expires_ms in prop_oneof![Just(0), 1..1_u64 << 50],
        room_bytes in ROOM_BYTES_MIN..200,
    ) {
        let (content_type, content_encoding) = (&*content_type, &*content_encoding);
        let head = Head { version: Version(7), expires_ms, content_type, content_encoding };
        let line = Line::Entity { id: &id, head, value: &value };
        let text = written(&line, room_bytes);
        prop_assert_eq!(text.iter().position(|&byte| byte == b'\n'), Some(text.len() - 1));
        let parsed: Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(bytes(&parsed, "id"), Some(id));
        prop_assert_eq!(bytes(&parsed, "value"), Some(value));
        prop_assert_eq!(bytes(&parsed, "type").unwrap_or_default(), content_type);
        prop_assert_eq!(bytes(&parsed, "encoding").unwrap_or_default(), content_encoding);
        prop_assert_eq!(&parsed["etag"], "\"0000000000000007\"");
        let expires = parsed.get("expires").map_or(0.0, |number| number.as_f64().unwrap());
        prop_assert_eq!((expires * 1000.0).round() as u64, expires_ms);
    }
}

/// Goal: a value is text by its type alone, if it is UTF-8 and short; the documented rule.
#[test]
fn values_are_text_by_their_type() {
    let is_text = |content_type: &str, value: &[u8]| {
        let head = Head {
            version: Version(1),
            expires_ms: 0,
            content_type: content_type.as_bytes(),
            content_encoding: b"",
        };
        is_sent_as_text(&head, value)
    };
    for text in [
        "text/plain",
        "TEXT/x;a=b",
        "application/json ; a",
        "a/b+JSON",
    ] {
        assert!(is_text(text, "é".as_bytes()), "{text}");
        assert!(!is_text(text, b"\xff"), "{text}");
    }
    for other in ["", "text", "application/octet-stream", "json", "+jso"] {
        assert!(!is_text(other, b"a"), "{other}");
    }
    assert!(is_text("text/plain", &[b'a'; TEXT_BYTES_MAX]));
    assert!(!is_text("text/plain", &[b'a'; TEXT_BYTES_MAX + 1]));
}

/// Goal: the last line says how the response ended.
#[test]
fn last_lines() {
    assert_eq!(written(&Line::End, 6), b"{\"end\":true}\n");
    assert_eq!(written(&Line::Next(b"a\""), 6), b"{\"next\":\"a\\\"\"}\n");
    assert_eq!(
        written(&Line::Next(b"\xff"), 6),
        b"{\"next_base64\":\"/w==\"}\n"
    );
}
