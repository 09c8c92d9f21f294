use super::*;

/// Goal: loopback in each of its forms is local, and nothing else is.
#[test]
fn loopback_is_local() {
    let peer = |text: &str| Peer::Inet(text.parse().unwrap());
    for local in [
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert!(is_local(peer(local)), "{local}");
    }
    assert!(is_local(Peer::Unix));
    for remote in [
        "10.0.0.1:1",
        "[fe80::1]:1",
        "[::ffff:10.0.0.1]:1",
        "0.0.0.0:1",
    ] {
        assert!(!is_local(peer(remote)), "{remote}");
    }
}
