//! The examples do what they say: their services, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "the other test program uses the rest")]
#[path = "http/support.rs"]
mod support;
#[path = "../examples/json.rs"]
mod json;
#[path = "../examples/quickstart.rs"]
mod quickstart;
#[path = "../examples/upload.rs"]
mod upload;
#[path = "../examples/upstream.rs"]
mod upstream;

use millpond_http::{Handler, Limits, Plaintext};
use std::sync::atomic::AtomicU64;
use support::TestServer;

/// Goal: routes, parameters and escapes.
#[test]
fn json_answers_with_json() {
    let server = TestServer::with_limits(Limits::default(), |_| json::Json::new().unwrap());
    let mut client = server.connect();
    let mut ask = |line: &str, body: &str| {
        let length = body.len();
        let response = client.ask(format!(
            "{line} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(response.header("content-type"), Some("application/json"));
        (response.status, response.text())
    };
    assert_eq!(
        ask("GET /hello/you", ""),
        (200, "{\"hello\":\"you\"}\n".to_owned())
    );
    let odd = ask("POST /echo", "a \"b\" \\ \n é");
    assert_eq!(
        odd,
        (
            200,
            "{\"echo\":\"a \\\"b\\\" \\\\ \\u000a é\"}\n".to_owned()
        )
    );
    assert_eq!(ask("DELETE /echo", "").0, 405);
    assert_eq!(ask("GET /hello", "").0, 404);
}

/// Goal: state is shared, parameters are decoded, JSON goes in and out, and mistakes have their status.
#[test]
fn quickstart_answers_with_json() {
    let served = AtomicU64::new(0);
    let served: &'static AtomicU64 = Box::leak(Box::new(served));
    let server = TestServer::with_limits(Limits::default(), move |_| {
        Handler::new(move |request, response| quickstart::answer(request, response, served))
    });
    let mut client = server.connect();
    let mut ask = |line: &str, body: &str| {
        let length = body.len();
        let response = client.ask(format!(
            "{line} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        (response.status, response.text())
    };
    let first = ask("GET /hello?a=b&name=you+%26+me", "");
    assert_eq!(
        first,
        (200, "{\"hello\":\"you & me\",\"request\":1}".to_owned())
    );
    let second = ask("GET /hello", "").1;
    assert_eq!(second, "{\"hello\":\"world\",\"request\":2}");
    assert_eq!(ask("POST /echo", "[1, {}]"), (200, "[1,{}]".to_owned()));
    assert_eq!(ask("POST /echo", "[1, {").0, 400);
    assert_eq!(ask("DELETE /echo", "").0, 404);
}

/// Goal: an upload is counted and hashed part by part, as the same bytes at once would be.
#[test]
fn upload_counts_and_hashes() {
    let server = TestServer::with_limits(Limits::default(), |start| {
        upload::Uploads::new(start.pool_mode)
    });
    let mut client = server.connect();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\nfoo\r\n");
    client.send("3\r\nbar\r\n0\r\n\r\n");
    let response = client.response();
    // FNV-1a's published hash of "foobar".
    assert_eq!(
        (response.status, &*response.text()),
        (201, "6 bytes, 85944171f73967e8\n")
    );
    let body = vec![b'x'; 3_000_000];
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert!(client.response().text().starts_with("3000000 bytes, "));
}

/// Goal: the upstream's response comes back, over kept connections; one that is gone is 502.
#[test]
fn upstream_answers_come_back() {
    let upstream = TestServer::to_be_gone(Limits::default(), |_| Plaintext);
    let address = upstream.address.into();
    let server = TestServer::with_limits(Limits::default(), move |start| {
        upstream::service(&start, &address)
    });
    let mut client = server.connect();
    for _ in 0..3 {
        let response = client.ask("GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((response.status, &*response.text()), (200, "Hello, World!"));
        assert_eq!(
            client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status,
            404
        );
    }
    let text = upstream
        .connect()
        .ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .text();
    let accepted = "millpond_http_connections_accepted_total{shard=\"0\"} 2";
    assert!(
        text.contains(accepted),
        "one for six calls, one for this: {text}"
    );
    drop(upstream);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 502);
}
