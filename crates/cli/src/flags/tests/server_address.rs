use super::*;

/// Goal: the form of curl's flag is understood, with IPv6 on either side; a mapping for another server is refused, and
/// not left without effect.
#[test]
fn another_address_may_be_connected_to() {
    for (text, authority, expected) in [
        ("example.com:80:127.0.0.1", "example.com:80", "127.0.0.1:80"),
        (
            "Example.com:80:127.0.0.1:8080",
            "example.com:80",
            "127.0.0.1:8080",
        ),
        ("::127.0.0.1:81", "a:80", "127.0.0.1:81"),
        ("::[::1]:81", "a:80", "[::1]:81"),
        ("[::1]:80:[::2]", "[::1]:80", "[::2]:80"),
        (":443:localhost", "a:443", "localhost:443"),
    ] {
        let other = ConnectTo::parse(text).unwrap();
        assert_eq!(
            other.instead_of(authority).as_deref(),
            Ok(expected),
            "{text}"
        );
    }
    for text in ["", "a", "a:80", "a:80:", "a:x:b", "a:80:b:x", "[::1:80:b"] {
        assert!(ConnectTo::parse(text).is_err(), "{text}");
    }
    let other = ConnectTo::parse("a:80:b").unwrap();
    for authority in ["b:80", "a:81"] {
        assert!(
            other
                .instead_of(authority)
                .unwrap_err()
                .contains("leave both empty")
        );
    }
}
