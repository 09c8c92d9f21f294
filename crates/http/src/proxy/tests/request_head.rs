//! Fields upstreams get for the clients' fields.

use super::*;
use crate::head::RequestHead;
use crate::limits::Limits;
use crate::parse::{Parsed, parse_request_head};
use crate::proxy::client_peer::TrustedPeers;
use crate::request::RequestBody;
use millpond_io::Peer;
use millpond_mempool::PoolMode;
use proptest::prelude::*;

const TRUSTED: &str = "10.0.0.0/8";

struct Asked<'a> {
    peer: &'a str,
    host: Option<&'a [u8]>,
    is_tls: bool,
    fields: &'a str,
    upgrades: bool,
}

const PLAIN: Asked<'static> = Asked {
    peer: "192.0.2.1:5",
    host: None,
    is_tls: false,
    fields: "none",
    upgrades: false,
};

fn parse(bytes: &[u8], fields: &mut HeadFields) -> Option<RequestHead> {
    match parse_request_head(bytes, &Limits::default(), fields) {
        Ok(Parsed::Complete(head)) => Some(head),
        _ => None,
    }
}

/// The head that goes to the upstream.
fn rewrite(text: &[u8], asked: &Asked<'_>) -> Option<Vec<u8>> {
    let mut fields = HeadFields::new();
    let head = parse(text, &mut fields)?;
    let bytes = &text[..head.head_bytes];
    let request = Request {
        method: head.method,
        bytes,
        head: &head,
        fields: &fields,
        body: RequestBody::Received(&[]),
    };
    let nominated = Nominated::of(bytes, &fields).ok()?;
    let trusted: [TrustedPeers; 1] = [TRUSTED.parse().unwrap()];
    let client = ClientPeer::new(Peer::Inet(asked.peer.parse().unwrap()), None, &trusted);
    let allowed = match asked.upgrades {
        true => "websocket,echo".parse().unwrap(),
        false => UpgradeProtocols::default(),
    };
    let upgrade = wanted_protocol(&request, &nominated, &allowed);
    let via_name = ViaName::of_bits(0);
    let way = RequestWay {
        via_name: &via_name,
        client: Some(&client),
        is_tls: asked.is_tls,
        fields: asked.fields.parse().unwrap(),
        upgrade,
        max_forwards: None,
        changes: &FieldChanges::default(),
    };
    let blocks = BlockPool::new("test", PoolMode::Off);
    let head = encode_request_head(&blocks, &request, &nominated, &way).unwrap();
    let host = asked.host.map_or(head.client_host(), Authority::known);
    Some(head.with_host(&blocks, host).unwrap().to_vec())
}

fn lines(text: &str, asked: &Asked<'_>) -> Vec<String> {
    let rewritten = rewrite(text.as_bytes(), asked).unwrap();
    let rewritten = String::from_utf8(rewritten).unwrap();
    let rewritten = rewritten.strip_suffix("\r\n").unwrap();
    rewritten.split("\r\n").map(str::to_owned).collect()
}

/// Goal: the text written at once equals the text of its parts.
#[test]
fn what_is_written_at_once_is_what_the_parts_are() {
    let text = b"GET /a HTTP/1.0\r\nHost: h:1\r\n\r\n";
    for (peer, is_tls) in [("192.0.2.1:5", false), ("[2001:db8::1]:9", true)] {
        let mut fields = HeadFields::new();
        let head = parse(text, &mut fields).unwrap();
        let request = Request {
            method: head.method,
            bytes: text,
            head: &head,
            fields: &fields,
            body: RequestBody::Received(&[]),
        };
        let client = ClientPeer::new(Peer::Inet(peer.parse().unwrap()), None, &[]);
        let way = RequestWay {
            via_name: &ViaName::of_bits(0),
            client: Some(&client),
            is_tls,
            fields: ForwardedFields::default(),
            upgrade: None,
            max_forwards: None,
            changes: &FieldChanges::default(),
        };
        let blocks = BlockPool::new("test", PoolMode::Off);
        let write = |act: &dyn Fn(&mut HeadWriter<'_>)| {
            let mut output = Buffer::with_capacity(&blocks, 1024).unwrap();
            act(&mut HeadWriter {
                output: &mut output,
                head: text,
                fields: &fields,
            });
            String::from_utf8(output.to_vec()).unwrap()
        };
        let at_once = write(&|writer| writer.write_own_at_once(&request, &way, &client));
        let by_parts = write(&|writer| writer.write_own_by_parts(&request, &way, Seen::default()));
        assert_eq!(at_once, by_parts);
        assert!(
            at_once.starts_with("Via: 1.0 millpond-0000000000000000\r\nForwarded: for="),
            "{at_once}"
        );
    }
}

/// An application reads `X_Forwarded_For` and `X-Forwarded-For` as one variable, and a broken quote made the
/// proxy's own element a part of the client's.
///
/// Goal: text from a trusted peer's client never replaces the proxy's own element.
#[test]
fn a_client_says_nothing_through_a_trusted_peer() {
    let head = "GET / HTTP/1.1\r\nHost: h\r\nX_Forwarded_For: 6.6.6.6\r\nX_Forwarded_Host: evil\r\n\
                X-Forwarded_Proto: https\r\nX_Real_IP: 6.6.6.6\r\nForwarded: for=\"x\r\n\
                Forwarded: for=7.7.7.7\r\n\r\n";
    let asked = Asked {
        peer: "10.0.0.1:5",
        fields: "both",
        ..PLAIN
    };
    let expected = [
        "GET / HTTP/1.1",
        "Host: h",
        "Via: 1.1 millpond-0000000000000000",
        "Forwarded: for=unknown, for=7.7.7.7, for=10.0.0.1;proto=http;host=\"h\"",
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: h",
    ];
    assert_eq!(lines(head, &asked), expected);
}

/// One row of the table "what clients and trusted peers may say" of docs/reference/proxy.md: a line that is sent, and
/// the lines of that kind that the upstream gets from a client, and from a trusted peer.
struct Row {
    documented: &'static str,
    sent: &'static str,
    from_client: &'static [&'static str],
    from_trusted: &'static [&'static str],
}

/// The proxy's own fields, without `for` of its element.
const OWN_ELEMENT_END: &str = ";proto=http;host=\"h\"";

const ROWS: [Row; 9] = [
    Row {
        documented: "`Forwarded`",
        sent: "Forwarded: for=1.1.1.1;proto=https",
        from_client: &["Forwarded: for=OWN"],
        from_trusted: &["Forwarded: for=1.1.1.1;proto=https, for=OWN"],
    },
    Row {
        documented: "a malformed element of `Forwarded`",
        sent: "Forwarded: for=\"1.1.1.1, for=2.2.2.2",
        from_client: &["Forwarded: for=OWN"],
        from_trusted: &["Forwarded: for=unknown, for=OWN"],
    },
    Row {
        documented: "`X-Forwarded-For`",
        sent: "X-Forwarded-For: 1.1.1.1",
        from_client: &["X-Forwarded-For: OWN"],
        from_trusted: &["X-Forwarded-For: 1.1.1.1, OWN"],
    },
    Row {
        documented: "`X-Forwarded-Proto`",
        sent: "X-Forwarded-Proto: https",
        from_client: &["X-Forwarded-Proto: http"],
        from_trusted: &["X-Forwarded-Proto: https"],
    },
    Row {
        documented: "`X-Forwarded-Host`",
        sent: "X-Forwarded-Host: other",
        from_client: &["X-Forwarded-Host: h"],
        from_trusted: &["X-Forwarded-Host: other"],
    },
    Row {
        documented: "`X-Real-IP`, other `X-Forwarded-*`",
        sent: "X-Forwarded-Port: 99",
        from_client: &[],
        from_trusted: &["X-Forwarded-Port: 99"],
    },
    Row {
        documented: "any of these with `_` for `-`",
        sent: "X_Forwarded-Port: 99",
        from_client: &[],
        from_trusted: &[],
    },
    Row {
        documented: "any of these that `Connection` names",
        sent: "X-Forwarded-For: 1.1.1.1\r\nConnection: X_Forwarded_For",
        from_client: &["X-Forwarded-For: OWN"],
        from_trusted: &["X-Forwarded-For: OWN"],
    },
    Row {
        documented: "`Via`",
        sent: "Via: 1.1 a",
        from_client: &["Via: 1.1 a, 1.1 millpond-0000000000000000"],
        from_trusted: &["Via: 1.1 a, 1.1 millpond-0000000000000000"],
    },
];

/// Goal: each row of the documented table holds, and there is no row without a test.
#[test]
fn what_is_documented_of_trusted_peers_holds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/proxy.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("| field | from a client |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with("| "));
    let documented: Vec<&str> = rows.map(|row| row.split(" | ").next().unwrap()).collect();
    let tested: Vec<String> = ROWS
        .iter()
        .map(|row| format!("| {}", row.documented))
        .collect();
    assert_eq!(documented, tested);
    for row in ROWS {
        for (peer, expected) in [
            ("192.0.2.1", row.from_client),
            ("10.0.0.1", row.from_trusted),
        ] {
            let asked = Asked {
                peer: &format!("{peer}:5"),
                fields: "both",
                ..PLAIN
            };
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", row.sent);
            let name = row.sent.split(':').next().unwrap().replace('_', "-");
            let mut found = lines(&head, &asked);
            found.retain(|line| line.split(':').next() == Some(&name));
            let own = |line: &&str| {
                let line = line.replace("OWN", peer);
                match line.starts_with("Forwarded") {
                    true => line + OWN_ELEMENT_END,
                    false => line,
                }
            };
            let expected: Vec<String> = expected.iter().map(own).collect();
            assert_eq!(found, expected, "{} from {peer}", row.documented);
        }
    }
}

/// Goal: framing and hop-by-hop fields are gone, those nominated too, the others stay in order; but that
/// trailers are welcome is said again.
#[test]
fn only_end_to_end_fields_pass() {
    let head = "POST /a?b HTTP/1.1\r\nAccept:x\r\nHost: h:1\r\nConnection: X-Mine, close\r\n\
                X-Mine: 1\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\nCookie: c\r\n\
                Keep-Alive: 5\r\nProxy-Authorization: p\r\nUpgrade: h2c\r\ncontent_length: 3\r\n\r\n";
    let expected = [
        "POST /a?b HTTP/1.1",
        "Host: h:1",
        "Accept: x",
        "Cookie: c",
        "Via: 1.1 millpond-0000000000000000",
        // Said anew, for this connection.
        "TE: trailers",
        "Connection: TE",
    ];
    assert_eq!(lines(head, &PLAIN), expected);
}

/// Goal: the client's fields about itself count only if its peer is trusted; lists become one line.
#[test]
fn the_word_of_strangers_is_not_passed_on() {
    let head = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1\r\nX_Forwarded_For: 2.2.2.2\r\n\
                Forwarded: for=3.3.3.3\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 4.4.4.4\r\nVia: 1.0 a\r\n\r\n";
    let stranger = Asked {
        fields: "both",
        ..PLAIN
    };
    let expected = [
        "GET / HTTP/1.1",
        "Host: h",
        "Via: 1.0 a, 1.1 millpond-0000000000000000",
        "Forwarded: for=192.0.2.1;proto=http;host=\"h\"",
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: h",
    ];
    assert_eq!(lines(head, &stranger), expected);
    let friend = Asked {
        peer: "10.1.1.1:5",
        is_tls: true,
        fields: "both",
        ..PLAIN
    };
    let expected = [
        "GET / HTTP/1.1",
        "Host: h",
        "X-Forwarded-Proto: https",
        "X-Real-IP: 4.4.4.4",
        "Via: 1.0 a, 1.1 millpond-0000000000000000",
        "Forwarded: for=3.3.3.3, for=10.1.1.1;proto=https;host=\"h\"",
        "X-Forwarded-For: 1.1.1.1, 10.1.1.1",
        "X-Forwarded-Host: h",
    ];
    assert_eq!(lines(head, &friend), expected);
    let v6 = Asked {
        peer: "[2001:db8::1]:5",
        fields: "standard",
        ..PLAIN
    };
    let found = lines("GET / HTTP/1.1\r\nHost: h\r\n\r\n", &v6);
    assert_eq!(
        found.last().unwrap(),
        "Forwarded: for=\"[2001:db8::1]\";proto=http;host=\"h\""
    );
}

/// Goal: every form of target becomes the origin's, and the authority of an absolute one the Host.
#[test]
fn targets_become_origin_form() {
    for (line, host, expected) in [
        (
            "GET http://other:8/p?q HTTP/1.1",
            "h",
            ["GET /p?q HTTP/1.1", "Host: other:8"],
        ),
        (
            "GET http://other HTTP/1.1",
            "h",
            ["GET / HTTP/1.1", "Host: other"],
        ),
        ("OPTIONS * HTTP/1.1", "h", ["OPTIONS * HTTP/1.1", "Host: h"]),
        (
            "OPTIONS http://other HTTP/1.1",
            "h",
            ["OPTIONS * HTTP/1.1", "Host: other"],
        ),
        (
            "OPTIONS /x HTTP/1.1",
            "h",
            ["OPTIONS /x HTTP/1.1", "Host: h"],
        ),
        ("BREW /pot HTTP/1.1", "h", ["BREW /pot HTTP/1.1", "Host: h"]),
    ] {
        let head = format!("{line}\r\nHost: {host}\r\n\r\n");
        assert_eq!(lines(&head, &PLAIN)[..2], expected, "{line}");
    }
    let renamed = Asked {
        host: Some(b"origin:80"),
        ..PLAIN
    };
    assert_eq!(
        lines("GET / HTTP/1.0\r\n\r\n", &renamed)[1..],
        ["Host: origin:80", "Via: 1.0 millpond-0000000000000000"]
    );
}

/// Goal: another protocol is requested only where that is allowed, and never with a body.
#[test]
fn upgrades_pass_by_choice() {
    let head = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Key: k\r\n\r\n";
    let has_upgrade = |lines: &[String]| {
        lines
            .iter()
            .any(|line| line.to_lowercase().contains("upgrade"))
    };
    assert!(!has_upgrade(&lines(head, &PLAIN)));
    let allowed = Asked {
        upgrades: true,
        ..PLAIN
    };
    let found = lines(head, &allowed);
    assert_eq!(
        found[found.len() - 2..],
        ["Connection: Upgrade", "Upgrade: websocket"]
    );
    let with_body = head
        .replace("GET", "POST")
        .replace("Sec-WebSocket-Key: k", "Content-Length: 1");
    assert!(!has_upgrade(&lines(&with_body, &allowed)));
}

fn any_line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}",
        proptest::sample::select(vec![
            "Connection",
            "connection_",
            "Content-Length",
            "Transfer_Encoding",
            "X-Forwarded-For",
            "Via",
            "Forwarded",
            "Upgrade",
            "TE",
            "Expect",
            "Proxy-X",
            "Cookie",
        ])
        .prop_map(str::to_owned),
    ];
    let value = prop_oneof![
        "[ -~]{0,40}",
        proptest::sample::select(vec!["close", "upgrade", "te, x", "chunked", "5", "a, b",])
            .prop_map(str::to_owned)
    ];
    (name, value).prop_map(|(name, value)| format!("{name}:{value}\r\n"))
}

proptest! {
    /// Goal: whatever a client sends that is a request, the head for the upstream (with its empty
    /// line) is one sound request without a body, for the same method, path and query, with one
    /// Host and without any field about the connection; and the room reserved was enough, since
    /// an append past it panics.
    #[test]
    fn what_goes_on_is_one_sound_request(
        fields in proptest::collection::vec(any_line(), 0..20),
        path in "/[a-z/%0-9A-F]{0,10}",
        choice in 0..4_usize,
    ) {
        let text = format!("PUT {path}?q HTTP/1.1\r\nHost: h\r\n{}\r\n", fields.concat());
        let asked = Asked {
            peer: ["10.0.0.1:1", "[2001:db8:1:1:1:1:1:1]:9"][choice % 2],
            fields: ["both", "none", "x", "standard"][choice],
            upgrades: true,
            ..PLAIN
        };
        if let Some(mut rewritten) = rewrite(text.as_bytes(), &asked) {
            rewritten.extend_from_slice(b"\r\n");
            let mut found = HeadFields::new();
            let head = parse(&rewritten, &mut found);
            prop_assert!(head.is_some(), "{}", String::from_utf8_lossy(&rewritten));
            let head = head.unwrap();
            prop_assert_eq!(head.head_bytes, rewritten.len());
            prop_assert_eq!(head.framing, Framing::None);
            prop_assert!(head.keep_alive);
            prop_assert_eq!(head.path.of(&rewritten), path.as_bytes());
            let names = found.spans().iter().map(|field| field.name.of(&rewritten));
            let rules: Vec<_> = names.map(FieldRule::of).collect();
            prop_assert_eq!(rules.iter().filter(|&&rule| rule == FieldRule::Host).count(), 1);
            prop_assert!(!rules.contains(&FieldRule::Connection));
            prop_assert!(!rules.contains(&FieldRule::Drop));
        }
    }
}
