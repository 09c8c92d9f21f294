use super::*;

/// Goal: a header value cannot carry a second request.
#[test]
fn headers_are_held_to_their_grammar() {
    let field = ("X-A".to_owned(), "b: c".to_owned());
    assert_eq!(parse_header("X-A: b: c "), Ok(field));
    for text in ["", ":", "a b: c", "a: b\r\nc: d", "a\t: b"] {
        assert!(parse_header(text).is_err(), "{text:?}");
    }
}

#[test]
fn sizes_are_one_or_a_range() {
    assert_eq!(parse_sizes("1KiB"), Ok(1_024..=1_024));
    assert_eq!(parse_sizes("0..4KiB"), Ok(0..=4_096));
    for text in ["", "..", "5..1", "1..", "2GiB"] {
        assert!(parse_sizes(text).is_err(), "{text}");
    }
}
