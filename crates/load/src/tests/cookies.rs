use super::*;

#[test]
fn fields_and_paths_are_found() {
    assert_eq!(
        set_cookie(b"Set-Cookie: a=b; Path=/\r"),
        Some(&b"a=b; Path=/"[..])
    );
    assert_eq!(set_cookie(b"set-cookie:a=b"), Some(&b"a=b"[..]));
    assert_eq!(set_cookie(b"Set-Cookie2: a=b"), None);
    assert_eq!(set_cookie(b"Server: set-cookie:"), None);
    assert_eq!(set_cookie(b"s"), None);
    assert_eq!(path_of(b"GET /a/b?c=/d HTTP/1.1\r\n"), b"/a/b");
    assert_eq!(path_of(b"GET /a/b HTTP/1.1\r\n"), b"/a/b");
    for (path, directory) in [
        ("/", "/"),
        ("/a", "/"),
        ("/a/", "/a"),
        ("/a/b", "/a"),
        ("", "/"),
    ] {
        assert_eq!(
            directory_of(path.as_bytes()),
            directory.as_bytes(),
            "{path}"
        );
    }
}

#[test]
fn plans_are_checked() {
    let plan = |given: &[(&str, &str)]| CookiePlan {
        given: given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    };
    assert_eq!(plan(&[("a", "b"), ("c", "")]).check(), Ok(()));
    for bad in [
        ("", "b"),
        ("a", "b;c"),
        ("a b", "c\n"),
        ("a=b", "c"),
        ("a", &"x".repeat(5_000)),
    ] {
        assert!(plan(&[bad]).check().is_err(), "{bad:?}");
    }
}
