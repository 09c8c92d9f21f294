use super::*;

/// Goal: only paths of the same server are followed, and nothing that could end a request line.
#[test]
fn redirects_lead_to_paths() {
    for (location, path) in [
        (&b"/a?b=c"[..], Some(&b"/a?b=c"[..])),
        (b"/a#part", Some(b"/a")),
        (b"/", Some(b"/")),
        (b"//other.test/a", None),
        (b"http://other.test/a", None),
        (b"a", None),
        (b"", None),
        (b"/a b", None),
        (b"/a\xe4", None),
    ] {
        let found = path_of(FieldValue::known(location)).map(RequestTarget::as_bytes);
        assert_eq!(found, path, "{}", location.escape_ascii());
    }
}
