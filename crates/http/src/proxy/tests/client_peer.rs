use super::*;

fn peer(text: &str) -> Peer {
    match text {
        "unix" => Peer::Unix,
        text => Peer::Inet(text.parse().unwrap()),
    }
}

/// Goal: networks hold what is in them and nothing else, an IPv4 client of an IPv6 socket too.
#[test]
fn networks_are_matched_by_their_bits() {
    for (network, client, expected) in [
        ("10.0.0.0/8", "10.255.0.1:9", true),
        ("10.0.0.0/8", "11.0.0.1:9", false),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]:9", true),
        ("0.0.0.0/0", "1.2.3.4:9", true),
        ("0.0.0.0/0", "[2001:db8::1]:9", false),
        ("127.0.0.1", "127.0.0.1:9", true),
        ("127.0.0.1", "127.0.0.2:9", false),
        ("2001:db8::/33", "[2001:db8:7fff::1]:9", true),
        ("2001:db8::/33", "[2001:db8:8000::1]:9", false),
        ("unix", "unix", true),
        ("unix", "127.0.0.1:9", false),
        ("::/0", "unix", false),
    ] {
        let trusted: TrustedPeers = network.parse().unwrap();
        let client = ClientPeer::new(peer(client), None, &[trusted]);
        assert_eq!(client.is_trusted, expected, "{network} {client}");
    }
}

/// Goal: a text that is not a network is refused by name.
#[test]
fn what_is_no_network_is_refused() {
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0/8",
        "::/129",
        "localhost",
        "10.0.0.0/-1",
    ] {
        let error = text.parse::<TrustedPeers>().unwrap_err().to_string();
        assert!(error.contains(&format!("{text:?}")), "{error}");
    }
    assert_eq!(
        "10.0.0.1".parse::<TrustedPeers>().unwrap().to_string(),
        "10.0.0.1/32"
    );
}

/// Goal: the longest address fits, and IPv6 is quoted as RFC 7239 wants it.
#[test]
fn addresses_are_written_as_the_fields_want_them() {
    let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:1";
    let client = ClientPeer::new(peer(longest), None, &[]);
    assert_eq!(client.text().len(), 39);
    assert_eq!(client.quotes(), [b"\"[".as_slice(), b"]\""]);
    let client = ClientPeer::new(peer("192.0.2.1:5"), None, &[]);
    assert_eq!(
        (client.text(), client.quotes()[0]),
        (b"192.0.2.1".as_slice(), b"".as_slice())
    );
}
