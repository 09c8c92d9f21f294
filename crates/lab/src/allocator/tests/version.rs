use super::*;

#[test]
fn names_and_banners_hold_versions() {
    let name = |name: &str| of_name(Path::new(name));
    assert_eq!(
        name("/lib/libtcmalloc.so.4.5.10").as_deref(),
        Some("4.5.10")
    );
    assert_eq!(name("/lib/libx.so"), None);
    let banner = "Debian GLIBC 2.36-9+deb12u13) stable release version 2.36.";
    assert_eq!(
        parse_banner(banner).as_deref(),
        Some("2.36 (Debian GLIBC 2.36-9+deb12u13)")
    );
    assert_eq!(parse_banner("no banner"), None);
}

/// Goal: a version is compared by its numbers, part by part, as far as the user wrote them.
#[test]
fn versions_are_compared_by_numbers() {
    for (told, wanted) in [
        ("5.3.0-1 (libjemalloc2)", "5.3.0"),
        ("5.3.0-1 (libjemalloc2)", "5.3"),
        ("2.0.9+ds-2", "2.0.9"),
        ("3.4.3", "3.4.3"),
        ("3.4.3", "nightly"),
        ("unknown", "1.2"),
    ] {
        assert!(is_of(told, wanted), "{told} {wanted}");
    }
    for (told, wanted) in [("5.3.1", "5.3.0"), ("5.30.0", "5.3"), ("3.3.2", "3.4.3")] {
        assert!(!is_of(told, wanted), "{told} {wanted}");
    }
}

/// Goal: an object that has its version in it says it under any name.
#[test]
fn some_objects_have_their_version_in_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.so");
    for (contents, version) in [
        (
            &b"\x7fELF\x00\xff5.3.1\x005.3.0-0-g54eaed1d8b56b1aa\x00"[..],
            Some("5.3.0"),
        ),
        (b"a\x00gperftools 2.10\x00", Some("2.10")),
        (b"a\x005.3.0-0\x00", None),
    ] {
        fs::write(&path, contents).unwrap();
        assert_eq!(of_contents(&path).as_deref(), version);
    }
}

/// Goal: the C library of this very process is found and its version is known.
#[test]
fn the_c_library_tells_its_version() {
    assert!(c_library().is_some_and(|path| path.is_file()));
    let version = of_c_library().unwrap();
    assert!(version.starts_with("2."), "{version}");
}
