//! Clients that go, or close their sending side, before the response to their request.

use super::{RawUpstream, proxy, proxy_with, upstream};
use crate::access_log::{logging, objects};
use crate::support::{PATIENCE, RawClient, TestServer, wait_until};
use millpond_http::proxy::{HALF_CLOSED_MAX, HalfClose, ProxyConfig, ProxyControl};
use millpond_http::{AccessLogFormat, AccessLogTarget, LimitValues, Limits, ServeConfig};
use millpond_io::Address;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REQUEST: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends no response, and reads until the proxy closes; with the part of a response before that if there is one.
fn silent(part: &'static str) -> RawUpstream {
    RawUpstream::start(move |peer, _| {
        if peer.head().is_some() {
            peer.send(part);
            peer.rest();
        }
    })
}

fn front(
    upstream: &RawUpstream,
    change: impl FnOnce(&mut ProxyConfig),
) -> (TestServer, Arc<ProxyControl>) {
    let limits = LimitValues {
        body_bytes_max: 1 << 30,
        ..LimitValues::default()
    };
    proxy(&[upstream.address], limits.checked().unwrap(), |config| {
        config.tries_max = 1;
        // Nothing but the client's end ends a request.
        config.timeouts.first_byte_ns = 10 * PATIENCE.as_nanos() as u64;
        config.timeouts.total_ns = 10 * PATIENCE.as_nanos() as u64;
        change(config);
    })
}

fn metric(server: &TestServer, name: &str) -> u64 {
    let text = server.metrics_text();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

fn wait_for_connections(upstream: &RawUpstream, count: usize) {
    wait_until("the upstream is asked", || {
        upstream.connections.load(Ordering::SeqCst) >= count
    });
}

/// 1,200 requests whose clients closed at once held their upstream for a minute, and all others got 503; three delayed
/// a stop by 30 s. Goal: a FIN cancels the request at the upstream, the log has 499, and a stop waits for nothing.
#[test]
fn a_fin_cancels_the_request_at_the_upstream() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access.log");
    let upstream_server = silent("");
    let mut proxied = ProxyConfig::new(vec![upstream(upstream_server.address)]);
    proxied.timeouts.first_byte_ns = 10 * PATIENCE.as_nanos() as u64;
    let serve = ServeConfig {
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..logging(
            Limits::default(),
            AccessLogTarget::File(path.clone()),
            AccessLogFormat::Json,
        )
    };
    let (server, _control) = proxy_with(proxied, serve);
    let mut clients: Vec<RawClient> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(REQUEST);
    }
    wait_for_connections(&upstream_server, 20);
    for client in &mut clients {
        client.finish();
    }
    for client in &mut clients {
        assert!(client.rest().is_empty(), "there is no response");
    }
    upstream_server.wait_until_all_ended();
    let gone = "millpond_upstream_failures_total{upstream=";
    wait_until("all are counted", || {
        metric(&server, "millpond_http_requests_cancelled_total") == 20
    });
    assert_eq!(metric(&server, gone), 20);
    server.stop();
    let log = objects(&std::fs::read(path).unwrap());
    let is_cancelled = |entry: &&serde_json::Value| entry["status"] == 499;
    assert_eq!(log.iter().filter(is_cancelled).count(), 20);
}

/// Goal: a request that waits for a connection leaves the queue, and is never sent.
#[test]
fn a_request_that_waits_for_a_connection_is_cancelled() {
    let is_released = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&is_released);
    let upstream = RawUpstream::start(move |peer, _| {
        while let Some(head) = peer.head() {
            assert!(head.starts_with("GET /a ") || head.starts_with("GET /last "));
            while !released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (server, _control) = front(&upstream, |config| config.connections_max = 1);
    let mut first = server.connect();
    first.send(REQUEST);
    wait_for_connections(&upstream, 1);
    let mut gone = server.connect();
    gone.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    gone.finish();
    assert!(gone.rest().is_empty());
    is_released.store(true, Ordering::SeqCst);
    assert_eq!(first.response().status, 200);
    let last = first.ask("GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(last.status, 200);
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1);
}

/// Goal: bytes of a next request, which wait unread for the response to the first, hide no FIN.
#[test]
fn a_fin_behind_unread_bytes_is_seen() {
    let upstream = silent("");
    let (server, _control) = front(&upstream, |_| {});
    let mut client = server.connect();
    client.send(REQUEST);
    wait_for_connections(&upstream, 1);
    for _ in 0..3 {
        client.send(REQUEST.repeat(1_000));
        std::thread::sleep(Duration::from_millis(5));
    }
    client.finish();
    upstream.wait_until_all_ended();
    client.expect_reset_or_end();
}

/// Goal: a body that is cut by the client's FIN ends the exchange.
#[test]
fn a_fin_within_a_body_cancels_the_request() {
    for half_close in [
        HalfClose::Cancel,
        HalfClose::Allow {
            timeout_ns: u64::MAX,
        },
    ] {
        let upstream = silent("");
        let (server, _control) = front(&upstream, |config| config.half_close = half_close);
        let mut client = server.connect();
        client.send("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nz");
        wait_for_connections(&upstream, 1);
        client.finish();
        wait_until("the request is cancelled", || {
            metric(&server, "millpond_upstream_outstanding") == 0
        });
        upstream.wait_until_all_ended();
    }
}

/// Goal: a response that has begun is cut so that no client takes what came for all of it, whatever
/// framing it has.
#[test]
fn an_answer_that_has_begun_is_cut() {
    let upstream = silent("HTTP/1.1 200 OK\r\n\r\nhalf of it");
    let (server, _control) = front(&upstream, |_| {});
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.response_to_head().status, 200);
    assert_eq!(client.take("half of it".len()), b"half of it");
    client.finish();
    upstream.wait_until_all_ended();
    let error = client.stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Goal: where it is allowed, a half-closed client gets its response.
#[test]
fn a_half_closed_client_is_answered_where_that_is_allowed() {
    let upstream = RawUpstream::start(|peer, _| {
        while peer.head().is_some() {
            std::thread::sleep(Duration::from_millis(20));
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
        }
    });
    let (server, _control) = front(&upstream, |config| {
        let timeout_ns = PATIENCE.as_nanos() as u64;
        config.half_close = HalfClose::Allow { timeout_ns };
    });
    let mut client = server.connect();
    client.send(REQUEST.repeat(3));
    client.finish();
    for _ in 0..3 {
        assert_eq!(client.response().text(), "fine");
    }
    client.expect_end();
}

/// Goal: half-closed requests have a limit in time and in number; beyond either the request is cancelled.
#[test]
fn half_closed_clients_are_bounded() {
    let upstream = silent("");
    let (server, control) = front(&upstream, |config| {
        let timeout_ns = PATIENCE.as_nanos() as u64;
        config.half_close = HalfClose::Allow { timeout_ns };
        config.connections_max = 2 * HALF_CLOSED_MAX;
        config.pending_max = 2 * HALF_CLOSED_MAX;
    });
    let mut clients: Vec<RawClient> = (0..HALF_CLOSED_MAX + 3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(REQUEST);
        client.finish();
    }
    wait_until("those beyond the bound are cancelled", || {
        metric(&server, "millpond_http_requests_cancelled_total") >= 3
    });
    let cancelled = metric(&server, "millpond_http_requests_cancelled_total");
    assert_eq!(cancelled, 3);
    drop(clients);
    drop(server);
    drop(control);
    let (server, _control) = front(&upstream, |config| {
        let timeout_ns = 20_000_000;
        config.half_close = HalfClose::Allow { timeout_ns };
    });
    let mut client = server.connect();
    client.send(REQUEST);
    client.finish();
    assert!(client.rest().is_empty());
    upstream.wait_until_all_ended();
}

/// Goal: a stop is not held up by requests whose clients have gone.
#[test]
fn a_stop_does_not_wait_for_clients_that_have_gone() {
    let upstream = silent("");
    let (server, _control) = front(&upstream, |_| {});
    for _ in 0..3 {
        let mut client = server.connect();
        client.send(REQUEST);
        client.finish();
    }
    wait_until("they have come", || {
        metric(&server, "millpond_http_requests_cancelled_total") == 3
    });
    let limit = Duration::from_nanos(Limits::default().drain_timeout_ns);
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < limit, "the deadline of the stop ended it");
}
