//! Upstreams whose responses could be read in two ways, or that send more responses than requests: no client gets a
//! response to another request.

use super::{RawUpstream, proxy};
use millpond_http::Limits;
use std::sync::atomic::Ordering;

/// Bytes after each response below, in the same send.
const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

/// Method, response, the status that the client gets, whether its response may end early.
const ANSWERS: [(&str, &str, u16, bool); 21] = [
    ("GET", "200 OK\r\nContent-Length: 4\r\n\r\ngood", 200, false),
    ("GET", "200 OK\r\nContent-Length: 0\r\n\r\n", 200, false),
    ("GET", "204 No Content\r\n\r\n", 204, false),
    (
        "GET",
        "304 Not Modified\r\nContent-Length: 4\r\n\r\n",
        304,
        false,
    ),
    ("HEAD", "200 OK\r\nContent-Length: 4\r\n\r\n", 200, false),
    (
        "HEAD",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        200,
        false,
    ),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
        200,
        false,
    ),
    (
        "GET",
        "200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\ngood",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nContent-Length: 4, 4\r\n\r\ngood",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nContent-Length: +4\r\n\r\ngood",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nContent-Length : 4\r\n\r\ngood",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nContent-Length:\r\n 4\r\n\r\ngood",
        502,
        false,
    ),
    ("GET", "200 OK\nContent-Length: 4\n\ngood", 502, false),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding: gzip\r\n\r\ngood",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        502,
        false,
    ),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\ngood\r\n0\r\n\r\n",
        200,
        true,
    ),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngoodness\r\n0\r\n\r\n",
        200,
        true,
    ),
    (
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;a\n\r\ngood\r\n0\r\n\r\n",
        200,
        true,
    ),
    (
        "GET",
        "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        502,
        false,
    ),
];

/// Goal: an unsolicited response after any response reaches no client: the connection is not used again, and no byte of
/// it is part of the response before.
#[test]
fn answers_to_nothing_go_to_nobody() {
    for (method, answer, status, may_end_early) in ANSWERS {
        let first = format!("HTTP/1.1 {answer}{EVIL}");
        let upstream = RawUpstream::start(move |peer, index| {
            while peer.head().is_some() {
                match index {
                    0 => peer.send(&first),
                    _ => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"),
                }
            }
        });
        let (server, _control) = proxy(&[upstream.address], Limits::default(), |config| {
            config.tries_max = 1;
        });
        let mut client = server.connect();
        client.send(format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        let got = String::from_utf8(client.rest()).unwrap();
        let expected = format!("HTTP/1.1 {status} ");
        assert!(got.starts_with(&expected), "{answer:?}: {got}");
        assert!(!got.contains("evil"), "{answer:?}: {got}");
        let is_whole = !got.to_lowercase().contains("transfer-encoding")
            || method == "HEAD"
            || got.ends_with("0\r\n\r\n");
        assert_eq!(is_whole, !may_end_early, "{answer:?}: {got}");
        for _ in 0..2 {
            let next = server.connect().ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                (next.status, next.text()),
                (200, "fine".to_owned()),
                "{answer:?}"
            );
        }
        assert_eq!(upstream.connections.load(Ordering::SeqCst), 2, "{answer:?}");
    }
}

/// Goal: an upstream that responds before it has got the whole request, and then parses the rest as the next one, gets
/// no further request over that connection.
#[test]
fn an_early_answer_ends_the_connection() {
    const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for is_chunked in [false, true] {
        let upstream = RawUpstream::start(|peer, _| {
            while let Some(head) = peer.head() {
                let path = head.split(' ').nth(1).unwrap();
                let length = path.len();
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}"
                ));
            }
        });
        let (server, _control) = proxy(&[upstream.address], Limits::default(), |_| {});
        let mut client = server.connect();
        client.send(match is_chunked {
            false => "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n",
            true => "POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n",
        });
        let answer = client.response();
        assert_eq!((answer.status, answer.text()), (200, "/early".to_owned()));
        // It may be read to its end, or not at all, but only as what it is: the body of before.
        let _ = std::io::Write::write_all(&mut client.stream, HIDDEN.as_bytes());
        for path in ["/a", "/b"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(server.connect().ask(request).text(), path);
        }
        assert_eq!(upstream.connections.load(Ordering::SeqCst), 2);
    }
}
