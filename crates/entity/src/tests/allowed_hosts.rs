use super::*;

/// Goal: names that were given, addresses and localhost are allowed, with any port and case; nothing that is like
/// one is.
#[test]
fn hosts_are_allowed_by_name() {
    let hosts = AllowedHosts::new(["store.example", ".Internal"]).unwrap();
    for allowed in [
        "",
        "store.example",
        "STORE.example:8080",
        "store.example.",
        "a.internal",
        "a.b.internal:1",
        "localhost",
        "localhost:8080",
        "127.0.0.1",
        "10.0.0.1:80",
        "[::1]",
        "[::1]:8080",
    ] {
        assert!(hosts.allow(allowed.as_bytes()), "{allowed}");
        assert!(AllowedHosts::default().allow(allowed.as_bytes()));
    }
    for other in [
        "evil.example",
        "store.example.evil.example",
        "xstore.example",
        "internal",
        ".internal",
        "ainternal",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.1",
        "2130706433",
        "[::1",
        "::1",
        "[evil]",
    ] {
        assert!(!hosts.allow(other.as_bytes()), "{other}");
        assert!(AllowedHosts::default().allow(other.as_bytes()));
    }
    for name in ["", ".", "..a", "a:80", "http://a", "a/b", "a b", "*"] {
        assert!(AllowedHosts::new([name]).is_err(), "{name}");
    }
}
