//! The meaning of versions, ends of bodies and repeated fields, by RFC 9110 and 9112.

use super::{RawUpstream, proxy};
use millpond_http::Limits;
use std::io::{ErrorKind, Read};

/// How a response ends early, as the upstream sends it.
const CUT: [&str; 3] = [
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwo",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "Content-Length: 50\r\n\r\nhello",
];

/// A client of HTTP/1.0 takes the end of the connection for the end of the body.
///
/// Goal: a response that ends early has no end that a client could take for a good one: chunks without the last,
/// fewer bytes than announced, or a reset where the end of the connection is that of the body.
#[test]
fn an_answer_that_is_cut_is_seen_to_be_cut() {
    for cut in CUT {
        let upstream = RawUpstream::start(move |peer, _| {
            if peer.head().is_some() {
                peer.send(format!("HTTP/1.1 200 OK\r\n{cut}"));
            }
        });
        for version in ["1.0", "1.1"] {
            let (server, _control) = proxy(&[upstream.address], Limits::default(), |config| {
                config.ejection.failures_max = 0;
            });
            let mut client = server.connect();
            client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
            let mut bytes = Vec::new();
            let end = client.stream.read_to_end(&mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            let is_reset = end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
            let is_seen = is_reset
                || text.contains("Content-Length: 50")
                || text.contains("chunked") && !text.ends_with("0\r\n\r\n");
            assert!(is_seen, "{version} {cut:?}: {text:?}");
        }
    }
}

/// Goal: a whole response of an upstream that says HTTP/1.2 passes, and a request of HTTP/1.2 is one of 1.1; other
/// major versions are refused.
#[test]
fn a_higher_minor_version_is_1_1() {
    for (told, status) in [("1.2", 200), ("1.9", 200), ("2.0", 502), ("0.9", 502)] {
        let upstream = RawUpstream::start(move |peer, _| {
            while let Some(head) = peer.head() {
                assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
                peer.send(format!("HTTP/{told} 200 OK\r\nContent-Length: 2\r\n\r\nok"));
            }
        });
        let (server, _control) = proxy(&[upstream.address], Limits::default(), |_| {});
        let mut client = server.connect();
        let answer = client.ask("GET / HTTP/1.2\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, status, "{told}");
        let refused = client.ask("GET / HTTP/3.0\r\nHost: a\r\n\r\n");
        assert_eq!(refused.status, 505);
    }
}

/// Goal: an application sees one Date, and no field that Connection names in either spelling.
#[test]
fn repeated_dates_and_nominated_fields_end_here() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            assert!(!head.to_lowercase().contains("mine"), "{head}");
            peer.send(
                "HTTP/1.1 200 OK\r\nDate: a\r\nConnection: X-Mine\r\nX_Mine: 1\r\nX-Mine: 2\r\n\
                 Date: b\r\nContent-Length: 0\r\n\r\n",
            );
        }
    });
    let (server, _control) = proxy(&[upstream.address], Limits::default(), |_| {});
    let mut client = server.connect();
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: x_mine, close\r\nX-Mine: 1\r\nx_Mine: 2\r\n\r\n",
    );
    let text = String::from_utf8(client.rest()).unwrap();
    assert_eq!(text.matches("Date: ").count(), 1, "{text}");
    assert!(
        text.contains("Date: a\r\n") && !text.to_lowercase().contains("mine"),
        "{text}"
    );
}
