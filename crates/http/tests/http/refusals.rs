//! Everything a server must refuse, over real sockets: the status, then the end.

use crate::support::{Echo, PATIENCE, TestServer};
use millpond_http::{LimitValues, Limits, Plaintext};
use std::io::{ErrorKind, Read, Write};

const MILLISECOND_NS: u64 = 1_000_000;

fn assert_refused(server: &TestServer, what: &str, bytes: &[u8], status: u16) {
    let mut client = server.connect();
    let response = client.ask(bytes);
    assert_eq!(
        (response.status, response.header("connection")),
        (status, Some("close")),
        "{what}"
    );
    assert!(
        response.text().ends_with('\n') && response.text().len() > 10,
        "{what}: a sentence"
    );
    client.expect_end();
}

/// Goal: chunk tricks are refused where they occur, with a response to the request before them.
#[test]
fn malformed_chunks_are_refused() {
    let server = TestServer::with_limits(Limits::default(), |_| Echo);
    for body in [
        "0x5\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhelloX\r\n",
        "5 \r\nhello",
        ";a\r\n",
    ] {
        let head = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_refused(&server, body, format!("{head}{body}").as_bytes(), 400);
        // The same when the head came first and the body waits in pooled memory.
        let mut client = server.connect();
        client.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "GET /first\n");
        client.send(head);
        client.send("1\r\na\r\n");
        client.send(body);
        assert_eq!(client.response().status, 400, "{body:?}");
        client.expect_end();
    }
}

/// Goal: each limit on size has its status over the wire.
#[test]
fn size_limits_have_their_statuses() {
    let limits = LimitValues {
        body_bytes_max: 1000,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let long_line = format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000));
    assert_refused(&server, "request line", long_line.as_bytes(), 414);
    let endless_line = format!("GET /{}", "x".repeat(9000));
    assert_refused(
        &server,
        "endless request line",
        endless_line.as_bytes(),
        414,
    );
    let long_head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(17_000));
    assert_refused(&server, "head", long_head.as_bytes(), 431);
    let fields = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "A: b\r\n".repeat(100)
    );
    assert_refused(&server, "fields", fields.as_bytes(), 431);
    let long_body = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n";
    assert_refused(&server, "body", long_body, 413);
    let chunked = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long_chunks = format!("{chunked}1f4\r\n{}\r\n1f5\r\n", "x".repeat(500));
    assert_refused(&server, "chunks", long_chunks.as_bytes(), 413);
    let trailer = format!("{chunked}0\r\nX: {}", "x".repeat(5000));
    assert_refused(&server, "trailer", trailer.as_bytes(), 431);
}

/// Goal: a limit is found however slowly the bytes come, byte by byte included.
#[test]
fn a_trickled_head_reaches_the_same_limits() {
    let limits = LimitValues {
        request_line_bytes_max: 64,
        head_bytes_max: 256,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    for (head, status) in [
        (format!("GET /{}", "x".repeat(100)), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(400)),
            431,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n".to_owned(),
            400,
        ),
    ] {
        let mut client = server.connect();
        for byte in head.as_bytes().chunks(1) {
            // The refusal may come before the last byte; the rest then fails or is discarded.
            if client.stream.write_all(byte).is_err() {
                break;
            }
        }
        assert_eq!(client.response().status, status, "{head}");
    }
}

/// Goal: a response reaches a client that is still sending an ignored body: no reset.
#[test]
fn an_early_refusal_survives_the_rest_of_the_body() {
    let server = TestServer::with_limits(
        LimitValues {
            body_bytes_max: 1000,
            ..LimitValues::default()
        }
        .checked()
        .unwrap(),
        |_| Echo,
    );
    let mut client = server.connect();
    let head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    client.send([&head[..], &[b'x'; 100_000]].concat());
    client.finish();
    assert_eq!(client.response().status, 413);
    client.expect_end();
}

/// Goal: an unused connection closes silently. When exactly is asked of the simulator, here and
/// below.
#[test]
fn idle_connections_close() {
    let limits = LimitValues {
        idle_timeout_ns: 100 * MILLISECOND_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Plaintext);
    server.connect().expect_end();
}

/// Goal: a head that does not end in time is refused although bytes keep coming.
#[test]
fn slow_heads_time_out() {
    let limits = LimitValues {
        head_timeout_ns: 300 * MILLISECOND_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Plaintext);
    let mut slow = server.connect();
    slow.send("GET / HT");
    slow.stream
        .set_read_timeout(Some(std::time::Duration::from_millis(20)))
        .unwrap();
    let mut first_byte = [0];
    loop {
        match slow.stream.read(&mut first_byte) {
            Ok(count) => break assert_eq!((count, first_byte[0]), (1, b'H')),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        // The whole head has the deadline, not each read. Bytes long after it meet a closed connection, after the
        // response.
        let _ = slow.stream.write(b"X");
    }
    slow.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    if let Err(error) = slow.stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    assert!(rest.starts_with(b"TTP/1.1 408 "), "{}", rest.escape_ascii());
}

/// Goal: a body below the minimum rate is refused, one above it is not: of that the first bytes, which come
/// with the head, earn more time than any machine needs for the rest.
#[test]
fn slow_bodies_time_out() {
    let limits = LimitValues {
        body_grace_ns: 200 * MILLISECOND_NS,
        body_rate_bytes_per_s_min: 10,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let mut client = server.connect();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(client.response().status, 408);
    client.expect_end();
    let mut head = server.connect();
    head.send("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(head.response_to_head().status, 408);
    head.expect_end();

    let mut client = server.connect();
    let head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n";
    client.send([&head[..], &vec![b'x'; 3_000_000]].concat());
    assert_eq!(client.response().body.len(), 3_000_006);
}

/// Goal: one connection more than allowed gets 503 and Retry-After; when one leaves, the next is served.
#[test]
fn one_connection_too_many_gets_503() {
    let limits = LimitValues {
        connections_max: 2,
        // No connection is idle for so long, so none makes room.
        idle_timeout_min_ns: 3600 * 1000 * MILLISECOND_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Plaintext);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = server.connect();
    let mut second = server.connect();
    assert_eq!(
        (first.ask(request).status, second.ask(request).status),
        (200, 200)
    );
    let mut third = server.connect();
    let response = third.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (503, Some("close"))
    );
    assert_eq!(response.header("retry-after"), Some("1"));
    third.expect_end();
    assert_eq!(first.ask(request).status, 200, "the others do not notice");
    first.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(first.response().status, 200);
    first.expect_end();
    let mut next = server.connect();
    assert_eq!(next.ask(request).status, 200);
}
