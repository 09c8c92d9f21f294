use super::*;

/// Goal: weights are those of RFC 9110, and a type that is not named has none.
#[test]
fn preferences_are_weighed() {
    for (accept, lines, chunks) in [
        ("*/*", 0, 0),
        ("application/x-ndjson", 1000, 0),
        ("text/html, Application/X-NDJSON;v=1; q=0.25,*/*", 250, 0),
        ("application/x-ndjson;q=0", 0, 0),
        (
            "application/x-ndjson;q=0.5,application/octet-stream;q=0.501",
            500,
            501,
        ),
        ("application/x-ndjson;q=1.000", 1000, 0),
        ("application/x-ndjson;q=1.001", 0, 0),
        ("application/x-ndjson;q=.5, application/x-ndjsonl", 0, 0),
        ("application/x-ndjson;q=0.1234", 0, 0),
        ("application/x-ndjson;q=", 0, 0),
    ] {
        let found = (
            quality(accept.as_bytes(), NDJSON),
            quality(accept.as_bytes(), OCTETS),
        );
        assert_eq!(found, (lines, chunks), "{accept}");
    }
}

/// Goal: a limit is a number from 1 on, in digits alone.
#[test]
fn limits_are_digits() {
    assert_eq!(limit(b"1").map(NonZeroU64::get), Some(1));
    assert_eq!(
        limit(b"18446744073709551615").map(NonZeroU64::get),
        Some(u64::MAX)
    );
    for bad in [
        &b""[..],
        b"0",
        b"+1",
        b"-1",
        b" 1",
        b"1e3",
        b"18446744073709551616",
        b"%31",
    ] {
        assert_eq!(limit(bad), None, "{bad:?}");
    }
}
