use super::*;
use std::time::Duration;

/// Goal: the line is the RFC's example for the RFC's example time, byte for byte.
#[test]
fn the_date_is_an_imf_fixdate() {
    let mut lines = FixedHeaderLines::new();
    lines.write(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
    let given = |server, date| GivenLines { server, date };
    assert_eq!(lines.lines(GivenLines::NONE), LINES.as_bytes());
    assert_eq!(lines.lines(given(true, false)), lines.date_line());
    assert_eq!(lines.lines(given(false, true)), SERVER_LINE.as_bytes());
    assert_eq!(lines.lines(given(true, true)), b"");
    assert_eq!(lines.after_ok(), [OK_LINE, LINES].concat().as_bytes());
    let head = lines
        .ok_head(Some(FieldValue::from_static("a/b")), 12)
        .unwrap();
    let end = "Content-Type: a/b\r\nContent-Length: 12\r\n\r\n";
    assert_eq!(head, [OK_LINE, LINES, end].concat().as_bytes());
}

/// Goal: whatever the head before was like, and whenever the date changes, a head is the one
/// that was asked for; the longest fits.
#[test]
fn a_remembered_head_is_no_other() {
    let mut lines = FixedHeaderLines::new();
    let longest = FieldValue::known(&[b'x'; CONTENT_TYPE_BYTES_MAX]);
    let too_long = FieldValue::known(&[b'x'; CONTENT_TYPE_BYTES_MAX + 1]);
    let types = [None, Some(FieldValue::TEXT_PLAIN), Some(longest), None];
    let lengths = [0, 9, 10, usize::MAX, 7];
    let mut second = 0;
    for content_type in types {
        for (content_length, repeats) in lengths.into_iter().zip([1, 2, 3, 1, 2]) {
            for _ in 0..repeats {
                second += 1;
                lines.refresh(second * 2 * SECOND_NS);
                let after_ok = lines.after_ok().to_vec();
                let head = lines.ok_head(content_type, content_length).unwrap();
                let mut expected = after_ok;
                if let Some(text) = content_type {
                    expected.extend([b"Content-Type: ", text.as_bytes(), b"\r\n"].concat());
                }
                write!(expected, "Content-Length: {content_length}\r\n\r\n").unwrap();
                assert_eq!(head, expected);
                assert_eq!(lines.ok_head(Some(too_long), 1), None);
            }
        }
    }
}

/// Goal: within one second the text is reused, after it the wall clock is asked again.
#[test]
fn refresh_rewrites_only_a_stale_text() {
    let mut lines = FixedHeaderLines::new();
    lines.refresh(SECOND_NS);
    lines.text[0] = b'#';
    lines.refresh(SECOND_NS);
    assert_eq!(lines.after_ok()[0], b'#');
    lines.refresh(3 * SECOND_NS);
    assert_eq!(lines.after_ok()[0], b'H');
}
