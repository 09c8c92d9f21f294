//! Behavior towards a correct client, over real sockets.

use crate::support::{Echo, MODES, TestServer, config};
use millpond_http::{LimitValues, Limits, Plaintext};

fn echo() -> TestServer {
    TestServer::with_limits(Limits::default(), |_| Echo)
}

/// Goal: the simplest exchange works in every mode of the pools and says all a response must say.
#[test]
fn plaintext_answers_with_a_complete_head() {
    for mode in MODES {
        let server = TestServer::start(config(Limits::default(), mode), |_| Plaintext);
        let mut client = server.connect();
        for _ in 0..3 {
            let response = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "Hello, World!")
            );
            assert_eq!(response.header("content-type"), Some("text/plain"));
            assert_eq!(response.header("content-length"), Some("13"));
            assert_eq!(response.header("connection"), None);
            assert!(
                response
                    .header("date")
                    .is_some_and(|date| date.ends_with(" GMT"))
            );
        }
        assert_eq!(
            client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status,
            404
        );
        let refused = client.ask("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(
            (refused.status, refused.header("allow")),
            (405, Some("GET, HEAD, OPTIONS"))
        );
        drop(client);
        assert_eq!(server.stop().requests, 5);
    }
}

/// Goal: OPTIONS, of a path and of the server, gets the list of methods; a method that no RFC has is 501, another one
/// 405, and all of them list the allowed ones.
#[test]
fn other_methods_are_told_what_is_allowed() {
    let server = TestServer::with_limits(Limits::default(), |_| Plaintext);
    for (line, status) in [
        ("OPTIONS *", 204),
        ("OPTIONS /", 204),
        ("OPTIONS http://a", 204),
        ("BREW /", 501),
        ("get /", 501),
        ("TRACE /", 405),
        ("PATCH /", 405),
    ] {
        let answer = server
            .connect()
            .ask(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let found = (answer.status, answer.header("allow"));
        assert_eq!(found, (status, Some("GET, HEAD, OPTIONS")), "{line}");
    }
}

/// Goal: HEAD announces what GET would send, and sends none of it.
#[test]
fn head_has_no_body() {
    let server = TestServer::with_limits(Limits::default(), |_| Plaintext);
    let mut client = server.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.response_to_head();
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("13"))
    );
    let get = client.response();
    assert_eq!(get.text(), "Hello, World!");
}

/// Goal: an HTTP/1.0 client gets one response and the end, or keep-alive if it asked for that.
#[test]
fn http_1_0_closes_unless_asked() {
    let server = TestServer::with_limits(Limits::default(), |_| Plaintext);
    let mut client = server.connect();
    let response = client.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(
        (response.status, response.header("connection")),
        (200, Some("close"))
    );
    client.expect_end();

    let mut client = server.connect();
    for _ in 0..2 {
        let response = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(
            (response.status, response.header("connection")),
            (200, Some("keep-alive"))
        );
    }
}

/// Goal: `Connection: close` is obeyed, and later requests get no response.
#[test]
fn close_ends_the_connection_after_its_answer() {
    let server = echo();
    let mut client = server.connect();
    let close = "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(format!("{close}GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"));
    let response = client.response();
    assert_eq!(
        (response.text().as_str(), response.header("connection")),
        ("GET /1\n", Some("close"))
    );
    client.expect_end();
}

/// Goal: a client that finished sending still gets all its responses.
#[test]
fn a_half_closed_client_is_answered() {
    let server = echo();
    let mut client = server.connect();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.finish();
    assert_eq!(client.response().text(), "GET /1\n");
    assert_eq!(client.response().text(), "GET /2\n");
    client.expect_end();
}

/// Goal: bodies by length and in chunks arrive whole, empty or large, in one piece or many, and the
/// request behind them is found.
#[test]
fn bodies_arrive_whole() {
    let server = echo();
    let mut client = server.connect();
    let large: Vec<u8> = (0..1_000_003_u32)
        .map(|index| (index % 251) as u8)
        .collect();
    for body in [&b""[..], b"x", &large[..5000], &large] {
        let length = format!(
            "PUT /l HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut chunks =
            b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in body.chunks(40_000) {
            chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            chunks.extend_from_slice(chunk);
            chunks.extend_from_slice(b"\r\n");
        }
        chunks.extend_from_slice(b"0\r\nX-Trailer: dropped\r\n\r\n");
        let next = b"GET /n HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send([length.as_bytes(), body, &chunks, next].concat());
        assert_eq!(client.response().body, [b"PUT /l\n", body].concat());
        assert_eq!(client.response().body, [b"PUT /c\n", body].concat());
        assert_eq!(client.response().text(), "GET /n\n");
    }
}

/// Goal: a stream of requests cut into two sends at any byte gives the same responses.
#[test]
fn requests_cut_at_every_byte_are_answered_alike() {
    let server = echo();
    let stream = b"GET /1?a=b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n\
        PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
        PUT /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n\
        GET /4 HTTP/1.1\r\nHost: a\r\n\r\n";
    let expected = ["GET /1?a=b\n", "PUT /2\nhello", "PUT /3\nabc", "GET /4\n"];
    let mut client = server.connect();
    for cut in 1..stream.len() {
        client.send(&stream[..cut]);
        client.send(&stream[cut..]);
        for text in expected {
            assert_eq!(client.response().text(), text, "cut at {cut}");
        }
    }
}

/// Goal: 100 Continue is sent to a client that waits for it, and only to one.
#[test]
fn continue_is_sent_when_the_body_is_waited_for() {
    let server = echo();
    let mut client = server.connect();
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send(head);
    let interim = client.response();
    assert_eq!(
        (interim.status, interim.header("content-length")),
        (100, None)
    );
    client.send("hello");
    assert_eq!(client.response().text(), "PUT /\nhello");

    client.send(format!("{head}hello"));
    assert_eq!(
        client.response().status,
        200,
        "the body came with the head: no 100"
    );

    let chunked =
        "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(chunked);
    assert_eq!(client.response().status, 100);
    client.send("1\r\nx\r\n0\r\n\r\n");
    assert_eq!(client.response().text(), "PUT /\nx");

    let mut client = server.connect();
    let old = "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send(old);
    client.send("hello");
    assert_eq!(client.response().status, 200, "HTTP/1.0 does not know 100");
}

/// Goal: a client that waits for 100 gets at once the error that its body is too large, before it sends it.
#[test]
fn an_oversized_body_is_refused_instead_of_continued() {
    let limits = LimitValues {
        body_bytes_max: 10,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let mut client = server.connect();
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n";
    let response = client.ask(head);
    assert_eq!(
        (response.status, response.header("connection")),
        (413, Some("close"))
    );
    client.expect_end();
}
