use super::*;

/// Goal: no name leads out of the directory.
#[test]
fn names_stay_in_the_directory() {
    let of = |name: &[u8]| path_of(Path::new("/backups"), name);
    for name in ["monday", "2026-11-23", "a.b_c"] {
        assert_eq!(of(name.as_bytes()), Some(Path::new("/backups").join(name)));
    }
    let long = [b'a'; NAME_BYTES_MAX + 1];
    for name in [
        &b""[..],
        b".",
        b"..",
        b"../a",
        b"a/b",
        b"/a",
        b"%2e",
        b"a b",
        b"-a",
        &long,
    ] {
        assert_eq!(of(name), None, "{}", String::from_utf8_lossy(name));
    }
}
