//! PROXY headers, read and written: vectors made by hand from the specification (haproxy's
//! `proxy-protocol.txt`), and whatever else can be written in its grammar, cut at every byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::Peer;
use millpond_io::proxy_protocol::{
    Ends, PROXY_HEAD_BYTES_MAX, ProxyHead, ProxyHeadFailure, ProxyHeadText, ProxyProtocol,
    parse_proxy_head,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Section 2.2, written out.
const V2: [u8; 12] = [
    0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A,
];

fn v2(version_command: u8, family: u8, told: &[u8]) -> Vec<u8> {
    let length = u16::try_from(told.len()).unwrap();
    let mut head = V2.to_vec();
    head.extend([version_command, family]);
    head.extend(length.to_be_bytes());
    head.extend(told);
    head
}

fn ends(source: &str, destination: &str) -> Option<Ends> {
    let inet = |text: &str| Peer::Inet(text.parse().unwrap());
    Some(Ends {
        source: inet(source),
        destination: inet(destination),
    })
}

/// Whatever follows a head, and wherever it is cut, it says the same, and a part of it says nothing.
fn assert_says(head: &[u8], version: ProxyProtocol, ends: Option<Ends>) {
    let expected = ProxyHead {
        version,
        ends,
        head_bytes: head.len(),
    };
    for cut in 0..head.len() {
        let part = parse_proxy_head(&head[..cut]);
        assert_eq!(part, Ok(None), "{cut} of {}", head.escape_ascii());
    }
    for behind in [
        &b""[..],
        b"\r\n",
        b"PROXY ",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 300],
    ] {
        let all = [head, behind].concat();
        assert_eq!(
            parse_proxy_head(&all),
            Ok(Some(expected)),
            "{}",
            all.escape_ascii()
        );
    }
}

/// Wherever it is cut: it is refused, at the latest when it is whole, and never taken.
fn assert_refused(head: &[u8], failure: ProxyHeadFailure) {
    let mut is_refused = false;
    for cut in 0..=head.len() {
        match parse_proxy_head(&head[..cut]) {
            Ok(None) => assert!(!is_refused, "{}", head.escape_ascii()),
            Err(error) => {
                assert_eq!(error, failure, "{}", head.escape_ascii());
                is_refused = true;
            }
            Ok(taken) => panic!("{}: {taken:?}", head.escape_ascii()),
        }
    }
    assert!(is_refused, "{}", head.escape_ascii());
}

/// Goal: the lines of section 2.1, its longest ones included, parse to the right addresses.
#[test]
fn lines_of_version_1_are_read() {
    let six = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let widest = format!("PROXY UNKNOWN {six} {six} 65535 65535\r\n");
    assert_eq!(widest.len(), 107, "as the specification counts");
    for (line, expected) in [
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            ends("255.255.255.255:65535", "255.255.255.255:65535"),
        ),
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            ends("192.168.0.1:56324", "192.168.0.11:443"),
        ),
        (
            &format!("PROXY TCP6 {six} {six} 65535 65535\r\n"),
            ends(&format!("[{six}]:65535"), &format!("[{six}]:65535")),
        ),
        (
            "PROXY TCP6 ::1 2001:DB8::a 0 8080\r\n",
            ends("[::1]:0", "[2001:db8::a]:8080"),
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN whatever \rstands here\r\n", None),
        (&widest, None),
    ] {
        assert_says(line.as_bytes(), ProxyProtocol::V1, expected);
    }
}

/// Goal: lines that section 2.1 does not allow are refused, however similar to valid ones.
#[test]
fn lines_that_are_none_are_refused() {
    use ProxyHeadFailure::{Malformed, Missing, TooLong};
    for line in [
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        "PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 00 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 -2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8  2\r\n",
        "PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP6 1::2::3 ::1 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY TCP6 [::1] ::1 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY tcp4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY \r\n",
        "PROXY TCP4 1.2.3.4\t5.6.7.8 1 2\r\n",
    ] {
        assert_refused(line.as_bytes(), Malformed);
    }
    assert_refused(b"PROXY TCP4 1.2.3.4 \xff 1 2\r\n", Malformed);
    for line in [
        "GET / HTTP/1.1\r\n",
        "PROXYTCP4",
        "proxy TCP4",
        " PROXY",
        "\r\n\r\nPROXY",
        "\x16\x03\x01",
    ] {
        assert_refused(line.as_bytes(), Missing);
    }
    let endless = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert_eq!(endless.len(), 108);
    assert_refused(endless.as_bytes(), TooLong);
    assert_refused(&[b"PROXY TCP4 ", &[b'1'; 200][..]].concat(), TooLong);
}

const FOUR: [u8; 12] = [192, 168, 0, 1, 10, 0, 0, 11, 0xdc, 0x04, 0x01, 0xbb];

fn six() -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), Ipv6Addr::LOCALHOST);
    [&from.octets()[..], &to.octets(), &[0, 80, 0x1f, 0x90]].concat()
}

/// Goal: the blocks of section 2.2, with extensions or without, parse to the right addresses.
#[test]
fn blocks_of_version_2_are_read() {
    let four = ends("192.168.0.1:56324", "10.0.0.11:443");
    let alpn_and_noop = [1, 0, 2, b'h', b'2', 4, 0, 0];
    let mut unix = vec![0; 216];
    unix[..9].copy_from_slice(b"/run/a.so");
    let unix_ends = Some(Ends {
        source: Peer::Unix,
        destination: Peer::Unix,
    });
    for (head, expected) in [
        (v2(0x21, 0x11, &FOUR), four),
        (v2(0x21, 0x11, &[&FOUR[..], &alpn_and_noop].concat()), four),
        (
            v2(0x21, 0x21, &six()),
            ends("[2001:db8::1]:80", "[::1]:8080"),
        ),
        (v2(0x21, 0x31, &unix), unix_ends),
        (v2(0x21, 0x00, &[]), None),
        (v2(0x21, 0x00, &[9; 33]), None),
        // LOCAL: the block is discarded, whatever its family.
        (v2(0x20, 0x00, &[]), None),
        (v2(0x20, 0x11, &FOUR), None),
        (v2(0x20, 0xee, &[1, 2, 3]), None),
        (v2(0x20, 0x00, &[7; PROXY_HEAD_BYTES_MAX - 16]), None),
    ] {
        assert_says(&head, ProxyProtocol::V2, expected);
    }
}

/// Goal: a block that is cut by its own length, or of a kind that cannot be, is refused as soon as
/// that can be seen.
#[test]
fn blocks_that_are_none_are_refused() {
    use ProxyHeadFailure::{Malformed, Missing, TooLong, Unsupported};
    for (head, failure) in [
        (v2(0x21, 0x11, &FOUR[..11]), Malformed),
        (v2(0x21, 0x21, &six()[..35]), Malformed),
        (v2(0x21, 0x31, &[0; 215]), Malformed),
        (v2(0x21, 0x11, &[&FOUR[..], &[1]].concat()), Malformed),
        (v2(0x21, 0x11, &[&FOUR[..], &[1, 0, 1]].concat()), Malformed),
        (
            v2(0x21, 0x11, &[&FOUR[..], &[1, 0xff, 0xff, 0]].concat()),
            Malformed,
        ),
        (v2(0x21, 0x12, &FOUR), Unsupported),
        (v2(0x21, 0x22, &six()), Unsupported),
        (v2(0x21, 0x01, &FOUR), Unsupported),
        (v2(0x21, 0x41, &FOUR), Unsupported),
        (v2(0x22, 0x11, &FOUR), Unsupported),
        (v2(0x11, 0x11, &FOUR), Unsupported),
        (v2(0x31, 0x11, &FOUR), Unsupported),
        (v2(0x20, 0x00, &[0; PROXY_HEAD_BYTES_MAX - 15]), TooLong),
        (v2(0x21, 0x11, &[0; 0xffff]), TooLong),
        (b"\r\n\r\n\0\r\nQUIT\r".to_vec(), Missing),
    ] {
        assert_refused(&head, failure);
    }
    let at_once = parse_proxy_head(&v2(0x21, 0x11, &[0; 0xffff])[..16]);
    assert_eq!(at_once, Err(TooLong), "nobody waits for what is not taken");
}

fn any_ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let four = any::<[u8; 4]>().prop_map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
    let six = any::<[u16; 8]>().prop_map(|mut parts| {
        // Some with zeroes to be left out; none that is an IPv4 address in disguise.
        parts[0] |= 0x2000;
        parts[1] &= parts[2];
        IpAddr::from(Ipv6Addr::from(parts))
    });
    let at = |(ip, port)| SocketAddr::new(ip, port);
    let four = (four, any::<u16>()).prop_map(at);
    let six = (six, any::<u16>()).prop_map(at);
    prop_oneof![
        (four.clone(), four.clone()),
        (six.clone(), six.clone()),
        (four, six)
    ]
}

/// A head as the specification describes it, by other means than ours.
fn oracle_head(version: ProxyProtocol, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let wide = |address: SocketAddr| match address.ip() {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    match (version, from.ip(), to.ip()) {
        (ProxyProtocol::V1, IpAddr::V4(a), IpAddr::V4(b)) => {
            format!("PROXY TCP4 {a} {b} {} {}\r\n", from.port(), to.port()).into_bytes()
        }
        (ProxyProtocol::V1, ..) => {
            let (a, b) = (wide(from), wide(to));
            format!("PROXY TCP6 {a} {b} {} {}\r\n", from.port(), to.port()).into_bytes()
        }
        (ProxyProtocol::V2, IpAddr::V4(a), IpAddr::V4(b)) => {
            v2(0x21, 0x11, &[&a.octets()[..], &b.octets(), &ports].concat())
        }
        (ProxyProtocol::V2, ..) => {
            let (a, b) = (wide(from).octets(), wide(to).octets());
            v2(0x21, 0x21, &[&a[..], &b, &ports].concat())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Goal: a written header follows the specification, and parses back to its addresses; with two families both ends
    /// are in the wider one.
    #[test]
    fn heads_are_written_as_they_are_read((from, to) in any_ends(), is_v2: bool) {
        let version = if is_v2 { ProxyProtocol::V2 } else { ProxyProtocol::V1 };
        let told = Ends { source: Peer::Inet(from), destination: Peer::Inet(to) };
        let text = ProxyHeadText::passed_on(version, told);
        prop_assert_eq!(text.as_bytes(), oracle_head(version, from, to));
        let head = parse_proxy_head(text.as_bytes()).unwrap().unwrap();
        let read = head.ends.unwrap();
        for (read, meant) in [(read.source, from), (read.destination, to)] {
            let Peer::Inet(read) = read else { panic!("{read:?}") };
            prop_assert_eq!((read.ip().to_canonical(), read.port()), (meant.ip(), meant.port()));
        }
        assert_says(text.as_bytes(), version, head.ends);
    }

    /// Goal: more bytes never change what was decided, and never bring back what was refused.
    #[test]
    fn decisions_stand(
        (from, to) in any_ends(),
        is_v2: bool,
        at in any::<prop::sample::Index>(),
        byte: u8,
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let version = if is_v2 { ProxyProtocol::V2 } else { ProxyProtocol::V1 };
        let mut bytes = oracle_head(version, from, to);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.extend(behind);
        let mut decided = None;
        for cut in 0..=bytes.len() {
            let now = parse_proxy_head(&bytes[..cut]);
            match &decided {
                None if now != Ok(None) => decided = Some(now),
                None => {}
                Some(before) => prop_assert_eq!(before, &now),
            }
        }
        if let Some(Ok(Some(head))) = decided {
            prop_assert!(head.head_bytes <= bytes.len());
        }
    }
}

/// Goal: a client without a usable address is sent as unknown, and a probe as our own connection.
#[test]
fn the_nameless_are_written_as_such() {
    let unix = Ends {
        source: Peer::Unix,
        destination: Peer::Unix,
    };
    let passed_on = |version| ProxyHeadText::passed_on(version, unix);
    let own = ProxyHeadText::own;
    for (text, expected) in [
        (passed_on(ProxyProtocol::V1), b"PROXY UNKNOWN\r\n".to_vec()),
        (own(ProxyProtocol::V1), b"PROXY UNKNOWN\r\n".to_vec()),
        (passed_on(ProxyProtocol::V2), v2(0x21, 0x00, &[])),
        (own(ProxyProtocol::V2), v2(0x20, 0x00, &[])),
    ] {
        assert_eq!(text.as_bytes(), expected);
        assert_eq!(parse_proxy_head(&expected).unwrap().unwrap().ends, None);
    }
}
