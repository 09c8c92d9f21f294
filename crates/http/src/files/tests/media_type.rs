use super::*;
use proptest::prelude::*;

/// Goal: the last extension of the last segment decides, in any case; a dot file has none.
#[test]
fn the_end_of_the_name_decides() {
    for (name, expected) in [
        ("index.html", "text/html; charset=utf-8"),
        ("a/b.css/c.JPEG", "image/jpeg"),
        ("a.html/b", UNKNOWN),
        ("a.tar.gz", "application/gzip"),
        ("site.webmanifest", "application/manifest+json"),
        (".html", UNKNOWN),
        ("a.", UNKNOWN),
        ("a.html ", UNKNOWN),
        ("", UNKNOWN),
        ("a.averylongextension", UNKNOWN),
    ] {
        assert_eq!(
            media_type(name.as_bytes()).as_bytes(),
            expected.as_bytes(),
            "{name}"
        );
    }
    assert_eq!(EXTENSION_BYTES_MAX, "webmanifest".len());
}

proptest! {
    /// Goal: any bytes have a type that may stand in a field.
    #[test]
    fn any_name_has_a_type(name in proptest::collection::vec(any::<u8>(), 0..40)) {
        let name = media_type(&name);
        prop_assert_eq!(FieldValue::new(&name), Ok(name));
    }
}
