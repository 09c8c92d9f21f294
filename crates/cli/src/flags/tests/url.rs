use super::*;

/// Goal: every part lands where it belongs, with the defaults of RFC 9110.
#[test]
fn urls_are_taken_apart() {
    for (text, authority, host_field, path) in [
        (
            "http://127.0.0.1:8080/a/b?c=d#e",
            "127.0.0.1:8080",
            "127.0.0.1:8080",
            "/a/b?c=d",
        ),
        ("http://localhost", "localhost:80", "localhost", "/"),
        ("http://localhost?x=1", "localhost:80", "localhost", "/?x=1"),
        ("http://[::1]:81/", "[::1]:81", "[::1]:81", "/"),
        ("http://[::1]", "[::1]:80", "[::1]", "/"),
    ] {
        let url = Url::parse(text).unwrap();
        let parts = (
            url.authority.as_str(),
            url.host_field.as_str(),
            url.path.as_str(),
        );
        assert_eq!(parts, (authority, host_field, path), "{text}");
    }
}

/// Goal: a user name becomes the field of RFC 7617, and is shown nowhere.
#[test]
fn a_user_name_is_an_authorization() {
    for (user, value) in [
        // The example of RFC 7617, section 2.
        (
            "Aladdin:open%20sesame",
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        ),
        ("me", "Basic bWU6"),
        ("a%40b:c:d", "Basic YUBiOmM6ZA=="),
    ] {
        let text = format!("http://{user}@host:81/x?y=@");
        let url = Url::parse(&text).unwrap();
        assert_eq!(url.authorization.as_deref(), Some(value));
        assert_eq!(
            (&url.authority[..], &url.host_field[..]),
            ("host:81", "host:81")
        );
        assert_eq!(without_user(&text), "http://host:81/x?y=@");
    }
    assert_eq!(Url::parse("http://host/@").unwrap().authorization, None);
}

#[test]
fn https_has_its_own_port() {
    let url = Url::parse("https://localhost/a").unwrap();
    assert!(url.is_tls && !Url::parse("http://localhost/a").unwrap().is_tls);
    assert_eq!(
        (&url.authority[..], url.host()),
        ("localhost:443", "localhost")
    );
    assert_eq!(Url::parse("https://[::1]:9/").unwrap().host(), "[::1]");
}

/// Goal: an invalid URL is refused with the reason, not guessed at.
#[test]
fn wrong_urls_are_refused_with_the_reason() {
    for (text, part) in [
        ("127.0.0.1:8080", "begin with http:// or https://"),
        ("ftp://a/", "begin with http://"),
        ("http://", "names no host"),
        ("http://:80/", "names no host"),
        ("http://[::1/", "names no host"),
        ("http://a:0/", "port"),
        ("http://a:99999/", "port"),
        ("http://a:/", "port"),
        ("http://me:%zz@a/", "two digits"),
        ("http://me:%4@a/", "two digits"),
        ("http://me@/", "names no host"),
        ("http://a/b c", "blank"),
        ("http://a/\r\nX: y", "blank"),
    ] {
        let error = Url::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
