use super::*;

/// Goal: each way to say it means the same moment, and the parameter counts.
#[test]
fn every_way_is_understood() {
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(expiry_ms(None, None), Ok(0));
    assert_eq!(expiry_ms(None, Some(date)), Ok(784_111_777_000));
    assert_eq!(
        expiry_ms(Some(b"784111777"), Some(b"x")),
        Ok(784_111_777_000)
    );
    assert_eq!(expiry_ms(Some(b"0"), None), Ok(1), "long ago, not never");
    assert_eq!(
        date_of(784_111_777_000).to_string().as_bytes(),
        date,
        "what is sent is what was given"
    );
    for text in [&b"+60"[..], b"%2B60", b"%2b60"] {
        let (before, end, after) = (now_ms(), expiry_ms(Some(text), None), now_ms());
        assert!((before + 60_000..=after + 60_000).contains(&end.unwrap()));
    }
}

/// Goal: nothing else is.
#[test]
fn all_else_is_refused() {
    for text in [
        "",
        "+",
        "-1",
        "1.5",
        "1e9",
        "+ 1",
        "soon",
        "253402300800",
        "99999999999999999999",
    ] {
        assert_eq!(
            expiry_ms(Some(text.as_bytes()), None),
            Err(ExpiryError),
            "{text}"
        );
    }
    for text in ["0", "", "tomorrow", "1994-11-06"] {
        assert_eq!(
            expiry_ms(None, Some(text.as_bytes())),
            Err(ExpiryError),
            "{text}"
        );
    }
}
