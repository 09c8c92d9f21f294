//! Fields behind a body, through the proxy, both ways: which arrive, where, and as what.

use super::others::OtherServer;
use super::{RawPeer, RawUpstream, proxy};
use crate::support::{RawClient, TestServer};
use millpond_http::Limits;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::atomic::Ordering;

/// Two that pass, around two that do not; each has its own line, whatever white space it came with.
const SENT: &str = "X-Sum:7\r\nAuthorization: x\r\nx_forwarded_for: 10.0.0.1\r\nEmpty:\t \r\n";
const PASSED: &str = "X-Sum: 7\r\nEmpty: \r\n";

/// A body in one chunk, with these lines behind it.
fn chunked(body: &str, trailers: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n{trailers}\r\n", body.len())
}

fn plain(upstream: &RawUpstream) -> TestServer {
    proxy(&[upstream.address], Limits::default(), |_| {}).0
}

/// A chunked body as sent, with all bytes after it up to the empty line.
fn body_of(peer: &mut RawPeer, head: &str) -> String {
    match head.contains("Transfer-Encoding: chunked\r\n") {
        // It has one empty line, behind its end.
        true => peer.head().unwrap(),
        false => String::new(),
    }
}

/// Responds with what it saw, as a body in chunks, and with trailers behind it; `fields` in its head.
fn echoing(fields: &'static str) -> RawUpstream {
    RawUpstream::start(move |peer, _| {
        while let Some(head) = peer.head() {
            let body = body_of(peer, &head);
            let seen = format!("{head}{body}");
            let answer = chunked(&seen, SENT);
            peer.send(format!(
                "HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n{answer}"
            ));
        }
    })
}

/// Goal: those that may pass arrive, each on a line of its own, on both sides; nothing of the others
/// does; the connections of both sides go on.
#[test]
fn trailers_pass_in_chunks() {
    let upstream = echoing("Trailer: X-Sum\r\n");
    let server = plain(&upstream);
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum, Empty\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            chunked("body", SENT)
        ));
        let answer = client.response();
        assert_eq!(answer.header("trailer"), Some("X-Sum"), "{}", answer.head);
        let text = answer.text();
        let expected = format!("\r\n\r\n4\r\nbody\r\n0\r\n{PASSED}\r\n");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("Trailer: X-Sum, Empty\r\n"), "{text}");
        // Behind the body, as the client read them.
        let passed = PASSED.replace("\r\n", "\n");
        assert!(text.ends_with(&format!("\r\n\r\n{passed}")), "{text}");
        assert!(!text.contains("Authorization") && !text.contains("10.0.0.1"));
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1);
}

/// Goal: no trailers, and no announcement of any, if the message's Connection names a field, in either direction; the
/// body still arrives.
#[test]
fn nominated_fields_leave_no_trailers() {
    let upstream = echoing("Connection: x-sum\r\nTrailer: X-Sum\r\n");
    let server = plain(&upstream);
    let mut client = server.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: X-Sum\r\nTrailer: X-Sum\r\n\
         Transfer-Encoding: chunked\r\n\r\n{}",
        chunked("body", SENT)
    ));
    let answer = client.response();
    let text = answer.text();
    assert!(
        text.ends_with("\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        "{}{text}",
        answer.head
    );
    assert!(!text.contains("X-Sum") && !answer.head.contains("X-Sum"));
}

/// Goal: a client that says TE: trailers is spoken for, as one option of a Connection of ours; others
/// are not, nor is one of HTTP/1.0, which gets the body and nothing behind it.
#[test]
fn the_wish_for_trailers_reaches_the_upstream() {
    let upstream = echoing("");
    let server = plain(&upstream);
    for (fields, version, is_wish) in [
        ("TE: trailers\r\nConnection: TE\r\n", "1.1", true),
        ("TE: gzip;q=0.5, Trailers\r\n", "1.1", true),
        ("TE: gzip\r\n", "1.1", false),
        ("", "1.1", false),
        ("TE: trailers\r\n", "1.0", false),
    ] {
        let mut client = server.connect();
        client.send(format!(
            "GET / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"
        ));
        let answer = String::from_utf8(client.rest()).unwrap();
        let case = format!("{fields:?} {version}: {answer}");
        let wish = "TE: trailers\r\nConnection: TE\r\n";
        assert_eq!(answer.contains(wish), is_wish, "{case}");
        assert!(!answer.contains("gzip"), "{case}");
        let is_new = version == "1.1";
        assert_eq!(
            answer.ends_with(&format!("\r\n0\r\n{PASSED}\r\n")),
            is_new,
            "{case}"
        );
        assert_eq!(answer.contains("X-Sum"), is_new, "{case}");
    }
}

/// Goal: trailers that frame or route, or that are too many, are the upstream's fault where it sends
/// them, and cut the response; the client is not given an end that was not there.
#[test]
fn bad_trailers_of_an_upstream_cut_its_answer() {
    for bad in [
        "Content-Length: 5\r\n".to_owned(),
        "Host: b\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n".to_owned(),
        "X: y\rZ: z\r\n".to_owned(),
        "X: y\nZ: z\r\n".to_owned(),
        " X: y\r\n".to_owned(),
        format!("X: {}\r\n", "y".repeat(5000)),
        "X: y\r\n".repeat(129),
    ] {
        let sent = bad.clone();
        let upstream = RawUpstream::start(move |peer, _| {
            peer.head().unwrap();
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.send(chunked("body", &sent));
            peer.rest();
        });
        let server = plain(&upstream);
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        // Refused before its head has left, or cut behind it.
        let is_refused = answer.starts_with("HTTP/1.1 502 ");
        assert!(is_refused || !answer.contains("\r\n0\r\n"), "{answer}");
        assert!(!answer.contains("X: y") && !answer.contains("Host: b"));
    }
}

/// Goal: Python and node, as upstreams, see what was sent behind the body, and not in the head.
#[test]
fn servers_by_others_see_trailers_as_trailers() {
    let others = [Some(OtherServer::python()), OtherServer::node()];
    for upstream in others.into_iter().flatten() {
        let (server, _control) = proxy(
            std::slice::from_ref(&upstream.address),
            Limits::default(),
            |_| {},
        );
        let mut client: RawClient = server.connect();
        let answer = client.ask(format!(
            "PUT /last HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            chunked("body", SENT)
        ));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let seen = upstream.seen();
        let last: &Value = seen.last().unwrap();
        assert_eq!(last["body"], "body", "{last}");
        assert_eq!(last["trailers"], json!([["X-Sum", "7"], ["Empty", ""]]));
        assert!(!last["fields"].to_string().contains("Sum"), "{last}");
    }
}

/// Goal: Python's client, which reads trailers and forgets them, goes on over the same connection.
#[test]
fn a_client_by_others_reads_past_trailers() {
    let upstream = echoing("");
    let server = plain(&upstream);
    let script = "\
import http.client, sys
connection = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))
for _ in range(3):
    connection.request('PUT', '/', body=iter([b'bo', b'dy']), encode_chunked=True,
                       headers={'Transfer-Encoding': 'chunked'})
    answer = connection.getresponse()
    print(answer.status, answer.read().decode().endswith('dy\\r\\n0\\r\\n\\r\\n'))
";
    let port = server.address.port().to_string();
    let output = Command::new("python3")
        .args(["-c", script, &port])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text, "200 True\n".repeat(3), "{errors}");
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1);
}
