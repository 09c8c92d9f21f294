use super::*;

/// Goal: a list is what it says, and what would carry requests past the proxy is refused.
#[test]
fn lists_are_read() {
    for text in ["websocket", "websocket,irc/6.9", "a,b,c,d,e,f,g,h"] {
        assert_eq!(text.parse::<UpgradeProtocols>().unwrap().to_string(), text);
    }
    for (text, part) in [
        ("", "no protocol"),
        ("websocket,", "no protocol"),
        ("web socket", "no protocol"),
        ("h2c", "unchecked"),
        ("websocket, HTTP/2.0", "unchecked"),
        ("TLS/1.0", "unchecked"),
        ("a,b,c,d,e,f,g,h,i", "at most 8"),
    ] {
        let error = text.parse::<UpgradeProtocols>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
