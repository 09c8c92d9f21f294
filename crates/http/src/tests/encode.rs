use super::*;
use crate::head_text::FieldName;
use millpond_mempool::PoolMode;

/// Goal: the longest head of each kind fits in the room that is reserved for it, exactly: an
/// append past the room panics.
#[test]
fn the_longest_heads_fit_in_their_room() {
    let blocks = BlockPool::new("test", PoolMode::Off);
    let standing_lines = &FixedHeaderLines::new();
    for code in StatusCode::CODE_MIN..=StatusCode::CODE_MAX {
        for persistence in [
            Persistence::Silent,
            Persistence::KeepAlive,
            Persistence::Close,
        ] {
            let status = StatusCode::new(code).unwrap();
            let parts = ResponseParts {
                status,
                standing_lines,
                content_type: Some(FieldValue::from_static("a/b")),
                fields: &[(FieldName::from_static("X"), FieldValue::from_static("y"))],
                given: GivenLines::NONE,
                persistence,
                body: b"body",
                is_head: false,
            };
            let mut output = Buffer::new();
            encode_response(&mut output, &blocks, &parts).unwrap();
            let text = String::from_utf8(output.to_vec()).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {code} ")), "{text}");
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert_eq!(body, if status.forbids_body() { "" } else { "body" });
            assert_eq!(
                head.contains("Content-Length: 4"),
                !status.forbids_body(),
                "{head}"
            );
            assert_eq!(
                head.contains("Connection"),
                persistence != Persistence::Silent
            );
            assert!(head.lines().any(|line| line == "X: y"), "{head}");
            assert!(!head.contains("\r\n\r\n"), "{head}");
            // All but the digits of a longer length, the field and the content type.
            assert!(
                head.len() - 10 + DIGITS_MAX <= RESPONSE_FIXED_BYTES_MAX,
                "{head}"
            );
        }
    }
}
