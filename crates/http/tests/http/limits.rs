//! Limits with small values, over real sockets: the effect of each, and its count in `/metrics`.

use crate::support::{Echo, RawClient, TestServer};
use millpond_http::{
    Flow, LimitValues, Plaintext, Request, Response, Service, ServiceContext, StatusCode,
};
use std::io::{ErrorKind, Read};

const MILLISECOND_NS: u64 = 1_000_000;
const HOUR_NS: u64 = 3600 * 1000 * MILLISECOND_NS;
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

/// The value behind `start` in `/metrics`, asked for over a connection of its own.
fn metric(client: &mut RawClient, start: &str) -> u64 {
    let text = client.ask(SCRAPE).text();
    let line = text.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no {start} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn limit_hits(client: &mut RawClient, limit: &str) -> u64 {
    let start = format!("millpond_http_limit_exceeded_total{{shard=\"0\",limit=\"{limit}\"}}");
    metric(client, &start)
}

/// Sends requests until the limit was hit; a test that waits here for ever has failed.
fn wait_for_limit_hit(client: &mut RawClient, limit: &str) {
    while limit_hits(client, limit) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Goal: each limit on size is counted once when it is exceeded once, and shows its value.
#[test]
fn size_limits_count_their_limit_hits() {
    let limits = LimitValues {
        request_line_bytes_max: 100,
        head_bytes_max: 200,
        fields_max: 3,
        body_bytes_max: 10,
        chunk_extension_bytes_max: 4,
        trailer_bytes_max: 20,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let mut scraper = server.connect();
    let chunked = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (limit, value, status, request) in [
        (
            "request_line_bytes_max",
            100,
            414,
            format!("GET /{} HTTP/1.1\r\n", "x".repeat(100)),
        ),
        (
            "head_bytes_max",
            200,
            431,
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(200)),
        ),
        (
            "fields_max",
            3,
            431,
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nA: b\r\nA: b\r\n\r\n".to_owned(),
        ),
        (
            "body_bytes_max",
            10,
            413,
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n".to_owned(),
        ),
        (
            "chunk_extension_bytes_max",
            4,
            400,
            format!("{chunked}1;abcdefgh\r\n"),
        ),
        (
            "trailer_bytes_max",
            20,
            431,
            format!("{chunked}0\r\nX: {}\r\n", "x".repeat(30)),
        ),
    ] {
        assert_eq!(limit_hits(&mut scraper, limit), 0, "{limit}");
        let start = format!("millpond_http_limit{{limit=\"{limit}\"}}");
        assert_eq!(metric(&mut scraper, &start), value);
        assert_eq!(server.connect().ask(request).status, status, "{limit}");
        assert_eq!(limit_hits(&mut scraper, limit), 1, "{limit}");
    }
}

/// Goal: a deep pipeline and a large output each wait for the next tick, are counted, and every request gets its
/// response in the end.
#[test]
fn a_share_of_a_tick_is_counted_and_loses_nothing() {
    for (limits, limit) in [
        (
            LimitValues {
                pipelined_per_tick_max: 4,
                ..LimitValues::default()
            }
            .checked()
            .unwrap(),
            "pipelined_per_tick_max",
        ),
        (
            LimitValues {
                output_bytes_max: 500,
                ..LimitValues::default()
            }
            .checked()
            .unwrap(),
            "output_bytes_max",
        ),
    ] {
        let server = TestServer::with_limits(limits, |_| Plaintext);
        let mut client = server.connect();
        client.send(GET.repeat(50));
        for _ in 0..50 {
            assert_eq!(client.response().status, 200);
        }
        assert!(limit_hits(&mut client, limit) >= 5, "{limit}");
    }
}

/// Goal: as the connections fill, the one idle for longest has to go long before its time, and
/// only as many as it takes.
#[test]
fn the_idle_timeout_shrinks_as_connections_fill() {
    let limits = LimitValues {
        connections_max: 10,
        idle_timeout_ns: HOUR_NS,
        idle_timeout_min_ns: 50 * MILLISECOND_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Plaintext);
    let mut clients: Vec<RawClient> = Vec::new();
    for _ in 0..8 {
        let mut client = server.connect();
        assert_eq!(client.ask(GET).status, 200);
        clients.push(client);
    }
    // Eight leave six minutes; the ninth is at nine tenths.
    let mut ninth = server.connect();
    assert_eq!(ninth.ask(GET).status, 200);
    clients.remove(0).expect_end();
    for client in clients.iter_mut().chain([&mut ninth]) {
        assert_eq!(client.ask(GET).status, 200);
    }
    assert_eq!(limit_hits(&mut ninth, "idle_timeout_ns"), 1);
}

/// Goal: with all connections taken a newcomer gets the place of the one idle for longest, as soon
/// as that one has been idle for the least time.
#[test]
fn the_oldest_idle_connection_makes_room() {
    let limits = LimitValues {
        connections_max: 2,
        idle_timeout_min_ns: 20 * MILLISECOND_NS,
        head_timeout_ns: HOUR_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Plaintext);
    let mut first = server.connect();
    assert_eq!(first.ask(GET).status, 200);
    let mut busy = server.connect();
    assert_eq!(busy.ask(GET).status, 200);
    // Half a request: not idle, however long it takes.
    busy.send("GET / HTTP/1.1\r\n");
    let third = loop {
        let mut third = server.connect();
        third.send(GET);
        match third.response().status {
            200 => break third,
            status => assert_eq!(status, 503),
        }
    };
    first.expect_end();
    assert_eq!(busy.ask("Host: a\r\n\r\n").status, 200, "it was spared");
    drop(third);
}

/// Goal: one address gets its share and no more; when one of its connections leaves, the next is
/// served.
#[test]
fn an_address_has_a_cap() {
    let limits = LimitValues {
        connections_per_address_max: 2,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Plaintext);
    let mut first = server.connect();
    let mut second = server.connect();
    assert_eq!((first.ask(GET).status, second.ask(GET).status), (200, 200));
    let mut third = server.connect();
    let refusal = third.response();
    assert_eq!(refusal.status, 503);
    assert!(refusal.text().contains("your address"), "{refusal:?}");
    assert_eq!(refusal.header("retry-after"), Some("1"));
    third.expect_end();
    assert_eq!(limit_hits(&mut first, "connections_per_address_max"), 1);
    second.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(second.response().status, 200);
    second.expect_end();
    assert_eq!(server.connect().ask(GET).status, 200);
}

/// Goal: the deadlines on heads, bodies and idleness are counted when they expire.
#[test]
fn deadlines_count_their_limit_hits() {
    let limits = LimitValues {
        head_timeout_ns: 20 * MILLISECOND_NS,
        body_grace_ns: 20 * MILLISECOND_NS,
        body_rate_bytes_per_s_min: 1_000_000,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let mut slow = server.connect();
    assert_eq!(slow.ask("GET / HT").status, 408);
    slow.expect_end();
    let mut slow = server.connect();
    let response = slow.ask("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx");
    assert_eq!(response.status, 408);
    slow.expect_end();
    let mut scraper = server.connect();
    assert_eq!(limit_hits(&mut scraper, "head_timeout_ns"), 1);
    assert_eq!(limit_hits(&mut scraper, "body_rate_bytes_per_s_min"), 1);
}

/// Responds with more than a socket's buffers hold.
struct Large(Vec<u8>);

impl Service for Large {
    fn call(
        &mut self,
        _request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        response.send(StatusCode::OK, None, &self.0).unwrap();
        Flow::Done
    }
}

/// Goal: a peer that asks and does not read is cut, and counted.
#[test]
fn a_peer_that_does_not_read_is_cut() {
    let limits = LimitValues {
        write_stall_ns: 50 * MILLISECOND_NS,
        write_rate_bytes_per_s_min: u64::MAX,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Large(vec![b'x'; 16 << 20]));
    let mut deaf = server.connect();
    deaf.send(GET);
    let mut scraper = server.connect();
    wait_for_limit_hit(&mut scraper, "write_stall_ns");
    assert_eq!(limit_hits(&mut scraper, "write_stall_ns"), 1);
    // By a reset: the kernel keeps nothing to offer the client again.
    let end = deaf.stream.read_to_end(&mut Vec::new());
    assert_eq!(
        end.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
}

/// Promises and never responds.
struct Never;

impl Service for Never {
    fn call(
        &mut self,
        _request: &mut Request<'_>,
        _response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        Flow::Pending
    }
}

/// Goal: a graceful stop waits for requests under way, but not longer than it may.
#[test]
fn a_drain_ends_at_its_deadline() {
    let limits = LimitValues {
        drain_timeout_ns: 50 * MILLISECOND_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Never);
    let mut client = server.connect();
    client.send(GET);
    let mut scraper = server.connect();
    // One more than the checks.
    let mut looks = 1;
    while metric(&mut scraper, "millpond_http_requests_total") == looks {
        looks += 1;
    }
    assert!(server.stop().is_aborted);
    client.expect_end();
}
