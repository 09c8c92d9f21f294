//! Upstreams that are not there, that say nonsense, or that stop in the middle.

use super::*;
use crate::support::refusing_port;

type Script = fn(&mut TcpStream);

/// Faults of an upstream, and the error a client gets.
const FAILURES: [(&str, Script, u16, &str); 7] = [
    (
        "closes at once",
        |_| {},
        502,
        "first_byte reused=false arrived=true begun=false",
    ),
    (
        "closes in the head",
        |stream| {
            read_head(stream);
            stream.write_all(b"HTTP/1.1 200").unwrap();
        },
        502,
        "first_byte reused=false arrived=true begun=true",
    ),
    (
        "says nothing",
        wait_for_end,
        504,
        "first_byte reused=false arrived=true begun=false",
    ),
    (
        "is no HTTP",
        |stream| {
            read_head(stream);
            stream.write_all(b"SSH-2.0-mill\r\n\r\n").unwrap();
            wait_for_end(stream);
        },
        502,
        "first_byte reused=false arrived=true begun=true",
    ),
    (
        "has two lengths",
        |stream| {
            read_head(stream);
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nab";
            stream.write_all(head).unwrap();
            wait_for_end(stream);
        },
        502,
        "first_byte reused=false arrived=true begun=true",
    ),
    (
        "has length and chunks",
        |stream| {
            read_head(stream);
            let head =
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head).unwrap();
            wait_for_end(stream);
        },
        502,
        "first_byte reused=false arrived=true begun=true",
    ),
    (
        "switches protocols",
        |stream| {
            read_head(stream);
            let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
            stream.write_all(head).unwrap();
            wait_for_end(stream);
        },
        502,
        "first_byte reused=false arrived=true begun=true",
    ),
];

/// Goal: each way to fail has its phase, its status and the truth about what arrived.
#[test]
fn failures_say_what_happened() {
    for driver in drivers() {
        for (name, script, status, text) in FAILURES {
            let (address, _) = scripted(move |_, mut stream| script(&mut stream));
            let mut timeouts = Timeouts::default();
            if name == "says nothing" {
                timeouts.first_byte_ns = SHORT_NS;
            }
            let scene = relay(driver, vec![address], timeouts);
            let response = scene
                .server
                .connect()
                .ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                (response.status, &*response.text()),
                (status, text),
                "{name}"
            );
        }
        let (refusing, _bound) = refusing_port();
        let scene = relay(driver, vec![refusing], Timeouts::default());
        let response = scene
            .server
            .connect()
            .ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = "connect reused=false arrived=false begun=false";
        assert_eq!((response.status, &*response.text()), (502, text));
    }
}

/// Goal: a response that stops in its body is cut for the client, never completed; by close, reset of
/// framing, or silence.
#[test]
fn broken_bodies_are_cut() {
    for driver in drivers() {
        for (name, body, stays) in [
            ("short", "Content-Length: 10\r\n\r\nabc", false),
            ("silent", "Content-Length: 10\r\n\r\nabc", true),
            (
                "bad chunk",
                "Transfer-Encoding: chunked\r\n\r\n3\r\nabcX",
                true,
            ),
            (
                "no last chunk",
                "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                false,
            ),
        ] {
            let (address, _) = scripted(move |_, mut stream| {
                read_head(&mut stream);
                let answer = format!("HTTP/1.1 200 OK\r\n{body}");
                stream.write_all(answer.as_bytes()).unwrap();
                if stays {
                    wait_for_end(&mut stream);
                }
            });
            let mut timeouts = Timeouts::default();
            if name == "silent" {
                timeouts.between_bytes_ns = SHORT_NS;
            }
            let scene = relay(driver, vec![address], timeouts);
            let mut client = scene.server.connect();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let rest = client.rest();
            let text = String::from_utf8_lossy(&rest);
            assert!(
                text.contains("200 OK") && text.contains("abc"),
                "{name}: {text}"
            );
            assert!(!text.ends_with("0\r\n\r\n"), "{name}: {text}");
            let failures = scene.log().failures;
            assert_eq!(failures.len(), 1, "{name}");
            assert_eq!(failures[0].phase, Phase::BetweenBytes, "{name}");
            assert!(!failures[0].may_repeat(Method::Get), "{name}");
            assert_eq!(failures[0].is_timeout(), name == "silent");
        }
    }
}

/// Goal: leftovers on a used connection never reach the next exchange: bytes after a response, a close that was
/// announced, a response before its request was whole, each end the connection.
#[test]
fn dirty_connections_are_not_used_again() {
    for driver in drivers() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ] {
            let (address, accepted) = scripted(move |_, mut stream| {
                while read_head(&mut stream) {
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
            let scene = relay(driver, vec![address], Timeouts::default());
            let mut client = scene.server.connect();
            for _ in 0..5 {
                assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").text(), "ok");
            }
            assert_eq!(accepted.load(Ordering::Relaxed), 5, "{answer}");
        }
        let (address, accepted) = scripted(|_, mut stream| {
            while read_head(&mut stream) {
                let early = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
                stream.write_all(early).unwrap();
            }
        });
        let scene = relay(driver, vec![address], Timeouts::default());
        for _ in 0..3 {
            let mut client = scene.server.connect();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
            assert_eq!(client.response().status, 403);
        }
        assert_eq!(accepted.load(Ordering::Relaxed), 3);
        assert!(
            scene
                .log()
                .reports
                .iter()
                .all(|report| !report.is_request_complete)
        );
    }
}
