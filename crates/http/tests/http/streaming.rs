//! Bodies in parts, both ways, over real sockets.

mod streamer;

use self::streamer::serve;
use crate::support::{RawClient, pattern, send_until_refused, wait_until};
use millpond_http::{LimitValues, Limits};
use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

fn chunks(body: &[u8], size: usize, trailer: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in body.chunks(size) {
        write!(bytes, "{:x}\r\n", part.len()).unwrap();
        bytes.extend(part);
        bytes.extend(b"\r\n");
    }
    write!(bytes, "0\r\n{trailer}\r\n").unwrap();
    bytes
}

/// Goal: an upload arrives whole and in order, with its length or in chunks, cut anywhere, its
/// trailer behind it; the connection goes on with the next request.
#[test]
fn uploads_arrive_in_parts() {
    let (server, _) = serve(Limits::default());
    let mut client = server.connect();
    for size in [1, 5000, 200_000] {
        let body = pattern(0, size);
        let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        client.send([head.as_bytes(), &body].concat());
        let response = client.response();
        assert_eq!(
            (response.status, response.text()),
            (201, format!("{size} true none"))
        );
        let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\n{CHUNKED}\r\n");
        let bytes = [head.as_bytes(), &chunks(&body, 777, "X-Sum: 9\r\n")].concat();
        for piece in bytes.chunks(bytes.len() / 7 + 1) {
            client.send(piece);
        }
        assert_eq!(client.response().text(), format!("{size} true 9"));
    }
    let small = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    let small = [small.as_bytes(), &pattern(0, 2)].concat();
    let after = b"GET /upload HTTP/1.1\r\nHost: a\r\n\r\n";
    let whole = b"PUT /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    client.send([&small[..], &small, after, whole, &small].concat());
    for expected in [
        "2 true none",
        "2 true none",
        "0 true none",
        "3",
        "2 true none",
    ] {
        assert_eq!(client.response().text(), expected, "pipelined");
    }
}

/// Goal: every cut of a chunked upload gives the same response.
#[test]
fn an_upload_cut_at_every_byte_is_the_same() {
    let (server, _) = serve(Limits::default());
    let head = format!("POST /upload HTTP/1.1\r\nHost: a\r\n{CHUNKED}\r\n");
    let bytes = [
        head.as_bytes(),
        &chunks(&pattern(0, 20), 6, "X-Sum: ab\r\n"),
    ]
    .concat();
    let mut client = server.connect();
    for cut in 1..bytes.len() {
        client.send(&bytes[..cut]);
        std::thread::yield_now();
        client.send(&bytes[cut..]);
        assert_eq!(client.response().text(), "20 true ab", "cut at {cut}");
    }
}

/// Goal: a download is whole and in order, with its length or in chunks with a trailer; HEAD has
/// the same head and no body; an HTTP/1.0 client gets no chunks but the end of the connection.
#[test]
fn downloads_are_made_as_they_leave() {
    let (server, abandoned) = serve(Limits::default());
    let mut client = server.connect();
    for length in [0, 1, 40_000, 3_000_000] {
        let response = client.ask(format!(
            "GET /download?{length} HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        assert_eq!(
            response.header("content-length"),
            Some(&*length.to_string())
        );
        assert!(response.body == pattern(0, length), "{length}");
        let response = client.ask(format!("GET /chunks?{length} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let trailer = format!("X-Total: {length}\n").into_bytes();
        assert!(
            response.body == [pattern(0, length), trailer].concat(),
            "{length}"
        );
    }
    for (path, field) in [
        ("/download", "content-length"),
        ("/chunks", "transfer-encoding"),
    ] {
        client.send(format!("HEAD {path}?9 HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.response_to_head().header(field).is_some(), "{path}");
    }
    let unneeded = "two HEADs and an empty body need no part";
    assert_eq!(abandoned.load(Ordering::Relaxed), 3, "{unneeded}");
    assert_eq!(
        client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status,
        403,
        "it goes on"
    );

    let mut old = server.connect();
    old.send("GET /chunks?100000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let all = old.rest();
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    assert!(
        !head.contains("chunked") && head.contains("Connection: close"),
        "{head}"
    );
    assert!(all[end..] == pattern(0, 100_000));
}

/// Goal: both directions at once, more than any buffer holds, by a client that reads and writes.
#[test]
fn an_echo_flows_both_ways() {
    let (server, _) = serve(Limits::default());
    let mut client = server.connect();
    let mut writer = client.stream.try_clone().unwrap();
    let size = 8 << 20;
    let sending = std::thread::spawn(move || {
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        writer.write_all(head.as_bytes()).unwrap();
        for start in (0..size as u64).step_by(1 << 16) {
            writer.write_all(&pattern(start, 1 << 16)).unwrap();
        }
    });
    let response = client.response();
    sending.join().unwrap();
    assert!(response.body == pattern(0, size));
    assert_eq!(
        client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status,
        403,
        "it goes on"
    );
}

/// Goal: while the body is not read the kernel stops its client, and the server's memory for it is bounded; when it is
/// read, all of it arrives.
#[test]
fn a_client_is_stopped_while_nobody_reads() {
    let (server, _) = serve(Limits::default());
    let mut client = server.connect();
    let size: usize = 64 << 20;
    client.send(format!(
        "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"
    ));
    let mut other = server.connect();
    let body = pattern(0, size);
    let sent = send_until_refused(&mut client.stream, &body);
    assert!(sent < size, "all was taken although nobody reads");
    let text = other.ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").text();
    let live = "millpond_pool_live_bytes{shard=\"0\",pool=\"shard_blocks\"";
    let line = text.lines().find(|line| line.starts_with(live)).unwrap();
    let kept_bytes: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    // The bytes in the driver's buffers when the service asked for a pause, and no more: on a busy machine all eight of
    // a ring are full by then.
    assert!(kept_bytes <= (512 + 128) << 10, "{line}");
    assert_eq!(
        other.ask("GET /release HTTP/1.1\r\nHost: a\r\n\r\n").status,
        200
    );
    client.send(&body[sent..]);
    assert_eq!(client.response().text(), format!("{size} true none"));
}

/// Goal: 100 Continue comes when the service reads and not before, and not at all when the response is there; then the
/// connection closes, because it is unknown whether the body comes.
#[test]
fn continue_waits_for_a_reader() {
    let (server, _) = serve(Limits::default());
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut client = server.connect();
    assert_eq!(client.ask(head("/upload")).status, 100);
    client.send(pattern(0, 3));
    assert_eq!(client.response().text(), "3 true none");

    let mut refused = server.connect();
    let response = refused.ask(head("/no"));
    assert_eq!(
        (response.status, response.header("connection")),
        (403, Some("close"))
    );
    refused.expect_end();

    let mut held = server.connect();
    held.send(head("/held"));
    let mut other = server.connect();
    // Both are on one shard: the response to the later request shows that the first was seen.
    assert_eq!(other.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status, 403);
    held.stream.set_nonblocking(true).unwrap();
    let peeked = held.stream.peek(&mut [0]);
    assert_eq!(
        peeked.unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "nobody reads yet"
    );
    held.stream.set_nonblocking(false).unwrap();
    other.ask("GET /release HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(held.response().status, 100);
    held.send(pattern(0, 3));
    assert_eq!(held.response().text(), "3 true none");
}

/// Goal: behind a response that has begun there is no 100. A client that still sends the body keeps its connection; if
/// no byte of the body came and the service did not read, the connection closes, since the next bytes could be the body
/// or a request.
#[test]
fn an_answer_that_has_begun_takes_the_place_of_100() {
    let (server, _) = serve(Limits::default());
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut echoed = server.connect();
    echoed.send(head("/echo"));
    let mut begun = Vec::new();
    while !begun.ends_with(b"\r\n\r\n") {
        begun.extend(echoed.take(1));
    }
    assert!(begun.starts_with(b"HTTP/1.1 200 OK\r\n"));
    echoed.send(b"abc");
    assert_eq!(echoed.take(13), b"3\r\nabc\r\n0\r\n\r\n");
    let no = "GET /no HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(echoed.ask(no).status, 403);

    let mut early = server.connect();
    let response = early.ask(head("/early"));
    assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
    early.expect_end();
}

/// Goal: a short unread body is skipped and the connection goes on; a long one ends it, announced if the length is
/// known, and without destroying the response.
#[test]
fn an_unread_body_is_skipped_or_ends_the_connection() {
    let (server, _) = serve(Limits::default());
    let mut client = server.connect();
    let no = "GET /no HTTP/1.1\r\nHost: a\r\n\r\n";
    let body = pattern(0, 60_000);
    let head = "POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
    client.send([head.as_bytes(), &body, no.as_bytes()].concat());
    let response = client.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (403, None)
    );
    assert_eq!(client.response().status, 403, "the request behind it");
    let head = format!("POST /no HTTP/1.1\r\nHost: a\r\n{CHUNKED}\r\n");
    client.send([head.as_bytes(), &chunks(&body, 1000, ""), no.as_bytes()].concat());
    assert_eq!(
        (client.response().status, client.response().status),
        (403, 403)
    );

    client.send("POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.send(pattern(0, 1_000_000));
    let response = client.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (403, Some("close"))
    );
    client.expect_end();

    let mut client = server.connect();
    client.send(head);
    client.send(chunks(&pattern(0, 1_000_000), 1000, ""));
    assert_eq!(client.response().status, 403);
    client.expect_end();
}

/// Goal: a chunk that is announced and written in parts is one chunk on the wire, of no other length than announced,
/// and the next part is a chunk of its own.
#[test]
fn a_chunk_may_be_written_in_parts() {
    let (server, _) = serve(Limits::default());
    let mut client = server.connect();
    client.send("GET /chunk-in-parts HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let text = String::from_utf8(client.rest()).unwrap();
    let body = "\r\n\r\nc\r\n0123456789ab\r\n5\r\nwhole\r\n0\r\n\r\n";
    assert!(text.ends_with(body), "{text}");
}

/// Goal: a body that breaks off, or breaks the grammar, never looks complete; the service is notified of a client that
/// is gone.
#[test]
fn what_breaks_off_is_seen_on_both_sides() {
    let (server, abandoned) = serve(Limits::default());
    let mut client = server.connect();
    client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = String::from_utf8(client.rest()).unwrap();
    assert!(
        text.contains("Content-Length: 100") && text.ends_with("\r\n\r\n0123456789"),
        "{text}"
    );
    let mut client = server.connect();
    assert_eq!(
        client.ask("GET /long HTTP/1.1\r\nHost: a\r\n\r\n").body,
        b"0123"
    );
    let forgotten = client.ask("GET /forget HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        (forgotten.status, forgotten.header("connection")),
        (503, Some("close"))
    );

    let mut client = server.connect();
    client.send(format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\n{CHUNKED}\r\n1\r\na\r\nz\r\n"
    ));
    assert_eq!(client.response().status, 400);
    client.expect_end();
    wait_until("a refused body", || abandoned.load(Ordering::Relaxed) == 1);

    let mut client = server.connect();
    client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\n{CHUNKED}\r\n1\r\na\r\nz\r\n"
    ));
    let text = String::from_utf8(client.rest()).unwrap();
    assert!(
        text.ends_with("1\r\na\r\n"),
        "no last chunk behind a broken body: {text}"
    );

    let mut gone = server.connect();
    gone.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    drop(gone);
    let gone = server.connect();
    gone.stream
        .try_clone()
        .unwrap()
        .write_all(b"GET /download?99999999 HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    drop(gone);
    wait_until("clients that are gone", || {
        abandoned.load(Ordering::Relaxed) == 4
    });
}

/// Goal: a body that comes too slowly is refused in parts too, but not while the service itself
/// does not read.
#[test]
fn only_a_reader_makes_a_client_slow() {
    let limits = LimitValues {
        body_grace_ns: 100_000_000,
        body_rate_bytes_per_s_min: 1_000_000,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let (server, abandoned) = serve(limits);
    let post = |client: &mut RawClient, path: &str| {
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
        ));
    };
    let mut held = server.connect();
    post(&mut held, "/held");
    let mut slow = server.connect();
    post(&mut slow, "/upload");
    assert_eq!(slow.response().status, 408);
    slow.expect_end();
    wait_until("the slow one", || abandoned.load(Ordering::Relaxed) == 1);
    // Held for longer than that, and none the worse.
    held.send(pattern(0, 9));
    server
        .connect()
        .ask("GET /release HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(held.response().text(), "9 true none");
}

/// Goal: a stop lets what flows in parts finish.
#[test]
fn a_graceful_stop_waits_for_parts() {
    let (mut server, _) = serve(Limits::default());
    let mut client = server.connect();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n");
    client.send(pattern(0, 3));
    let mut scraper = server.connect();
    wait_until("the upload", || {
        let scraped = scraper.ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let live = "live_objects{shard=\"0\",pool=\"http_streams\"";
        let text = scraped.text();
        let mut lines = text.lines();
        lines.any(|line| line.contains(live) && line.ends_with(" 1"))
    });
    server.begin_stop();
    scraper.expect_end();
    client.send(pattern(3, 3));
    assert_eq!(client.response().text(), "6 true none");
    client.expect_end();
}

/// Goal: methods without a body in the response are distinguished by the server alone.
#[test]
fn head_of_an_upload_is_answered_without_a_body() {
    let (server, _) = serve(Limits::default());
    let mut client = server.connect();
    client.send("HEAD /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    client.send(pattern(0, 3));
    assert_eq!(client.response_to_head().status, 201);
    assert_eq!(
        client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status,
        403
    );
}
