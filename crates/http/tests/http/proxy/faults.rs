//! Peers that stall or close at every stage of an exchange, as upstream and as client: the other side gets the best
//! possible report, nothing is kept, and no half-used connection is used again.

use super::secure::{self, Stream};
use super::{RawPeer, RawUpstream, proxy, proxy_between};
use crate::support::{PATIENCE, RawClient, TestServer, wait_until};
use millpond_http::proxy::{ProxyConfig, ProxyControl};
use millpond_http::{LimitValues, Limits};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where TLS is spoken.
#[derive(Clone, Copy, Debug)]
struct Tls {
    client: bool,
    upstream: bool,
}

type Client = RawClient<Box<dyn Stream>>;

fn connect(server: &TestServer, tls: Tls) -> Client {
    RawClient::over(secure::connect(server.address, tls.client))
}

fn start_upstream(
    tls: Tls,
    serve: impl Fn(&mut RawPeer, usize) + Send + Sync + 'static,
) -> RawUpstream {
    match tls.upstream {
        true => RawUpstream::start_tls(serve),
        false => RawUpstream::start(serve),
    }
}

fn start_proxy(
    tls: Tls,
    upstream: &RawUpstream,
    limits: Limits,
    change: impl FnOnce(&mut ProxyConfig),
) -> (TestServer, Arc<ProxyControl>) {
    let upstreams = [upstream.address];
    proxy_between(&upstreams, limits, tls.client, tls.upstream, change)
}

const SIZES: [usize; 3] = [0, 1024, 128 * 1024];
/// Time limit for a peer that stalls. One that does not has [`PATIENCE`], however slow the machine is.
const HURRY_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    ReceiveHead,
    ReceiveBody,
    SendHead,
    SendBody,
}

const STAGES: [Stage; 4] = [
    Stage::ReceiveHead,
    Stage::ReceiveBody,
    Stage::SendHead,
    Stage::SendBody,
];

/// One combination, as its path shows it to the upstream.
#[derive(Clone, Copy, Debug)]
struct Fault {
    stage: Stage,
    stalls: bool,
    body_bytes: usize,
    is_chunked: bool,
}

fn faults() -> Vec<Fault> {
    let mut faults = Vec::new();
    for stage in STAGES {
        for stalls in [false, true] {
            for body_bytes in SIZES {
                for is_chunked in [false, true] {
                    faults.push(Fault {
                        stage,
                        stalls,
                        body_bytes,
                        is_chunked,
                    });
                }
            }
        }
    }
    faults
}

fn framed(body_bytes: usize, is_chunked: bool) -> String {
    let body = "z".repeat(body_bytes);
    match (is_chunked, body_bytes) {
        (false, _) => format!("Content-Length: {body_bytes}\r\n\r\n{body}"),
        (true, 0) => "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        (true, _) => {
            format!("Transfer-Encoding: chunked\r\n\r\n{body_bytes:x}\r\n{body}\r\n0\r\n\r\n")
        }
    }
}

/// Little time for clients that stall at this stage only: no other client in these tests is in that stage.
fn hurried_limits(stage: Stage) -> Limits {
    let mut limits = LimitValues {
        head_timeout_ns: PATIENCE.as_nanos() as u64,
        body_grace_ns: PATIENCE.as_nanos() as u64,
        write_stall_ns: PATIENCE.as_nanos() as u64,
        ..LimitValues::default()
    };
    match stage {
        Stage::SendHead => limits.head_timeout_ns = HURRY_NS,
        Stage::SendBody => {
            // Where there is no body, it is the head that lacks its last byte.
            limits.head_timeout_ns = HURRY_NS;
            limits.body_grace_ns = HURRY_NS;
            limits.body_rate_bytes_per_s_min = 1 << 30;
        }
        Stage::ReceiveHead | Stage::ReceiveBody => {
            limits.write_stall_ns = HURRY_NS;
            limits.write_rate_bytes_per_s_min = 1 << 30;
        }
    }
    limits.checked().unwrap()
}

/// Does what `fault` says with one connection; one that stalls does so until it is released, and returns
/// when the proxy has closed it.
fn misbehave(peer: &mut RawPeer, fault: Fault, is_released: &AtomicBool) {
    if fault.stage != Stage::ReceiveHead {
        let Some(head) = peer.head() else {
            return;
        };
        if fault.stage != Stage::ReceiveBody && peer.body(&head).is_none() {
            return;
        }
    }
    match fault.stage {
        Stage::ReceiveHead | Stage::ReceiveBody => {}
        Stage::SendHead => peer.send("HTTP/1.1 200 OK\r\nContent-Le"),
        Stage::SendBody if fault.is_chunked => {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal");
        }
        Stage::SendBody => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhal"),
    }
    while fault.stalls && !is_released.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(2));
    }
    if fault.stalls {
        let rest = peer.rest();
        let is_expected = matches!(fault.stage, Stage::ReceiveHead | Stage::ReceiveBody);
        assert!(
            is_expected || rest.is_empty(),
            "nothing more comes over a connection that failed"
        );
    }
}

/// One try and no ejection, and little time for what this fault makes stall.
fn hurried(config: &mut ProxyConfig, fault: Option<Fault>) {
    let timeouts = &mut config.timeouts;
    for timeout_ns in [
        &mut timeouts.first_byte_ns,
        &mut timeouts.between_bytes_ns,
        &mut timeouts.write_ns,
        &mut timeouts.connection_ns,
    ] {
        *timeout_ns = PATIENCE.as_nanos() as u64;
    }
    if let Some(fault) = fault.filter(|fault| fault.stalls) {
        match fault.stage {
            Stage::ReceiveHead | Stage::ReceiveBody => {
                timeouts.write_ns = HURRY_NS;
                timeouts.first_byte_ns = HURRY_NS;
            }
            Stage::SendHead => timeouts.first_byte_ns = HURRY_NS,
            Stage::SendBody => timeouts.between_bytes_ns = HURRY_NS,
        }
    }
    config.tries_max = 1;
    config.ejection.failures_max = 0;
}

/// The expected response for the client of a failed upstream.
fn check_told(client: &mut Client, fault: Fault) {
    if fault.stage == Stage::SendBody {
        let text = String::from_utf8(cut_rest(client)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{fault:?}: {text}");
        assert!(
            text.contains("hal") && !text.ends_with("0\r\n\r\n"),
            "{fault:?}: {text}"
        );
        return;
    }
    let answer = client.response();
    let expected = if fault.stalls { 504 } else { 502 };
    assert_eq!(answer.status, expected, "{fault:?}: {}", answer.text());
    let said = answer.header("proxy-status").unwrap_or_default();
    let errors: &[&str] = match fault.stalls {
        true => &["http_response_timeout", "connection_write_timeout"],
        false if fault.stage == Stage::SendHead => &["http_response_incomplete"],
        false => &["connection_terminated"],
    };
    let is_named = errors.iter().any(|error| said.contains(error));
    let is_blamed = said.ends_with("fault=upstream");
    assert!(is_named && is_blamed, "{fault:?}: {said}");
}

fn upstreams_fail(tls: Tls) {
    for fault in faults() {
        let is_released = Arc::<AtomicBool>::default();
        let for_upstream = Arc::clone(&is_released);
        let upstream = start_upstream(tls, move |peer, index| {
            if index == 0 {
                return misbehave(peer, fault, &for_upstream);
            }
            while let Some(head) = peer.head() {
                peer.body(&head);
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
            }
        });
        let mut patience = None;
        let (server, control) = start_proxy(tls, &upstream, Limits::default(), |config| {
            hurried(config, None);
            patience = Some(config.clone());
            hurried(config, Some(fault));
        });
        let mut client = connect(&server, tls);
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{}",
            framed(fault.body_bytes, fault.is_chunked)
        );
        // An early response may end the connection before all of the body is sent.
        let _ = client.stream.write_all(request.as_bytes());
        check_told(&mut client, fault);
        control.replace(patience.unwrap()).unwrap();
        let next = connect(&server, tls).ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(
            (next.status, next.text()),
            (200, "fine".to_owned()),
            "{fault:?}"
        );
        drop(client);
        is_released.store(true, Ordering::SeqCst);
        expect_nothing_left(&server, &upstream);
        drop((server, control));
        upstream.wait_until_all_ended();
    }
}

/// Goal: whatever an upstream does wrong, at any stage, the client gets the right status and the side at fault (or,
/// after a head, a cut), the next request succeeds over another connection, the one that failed is closed, and nothing
/// of the exchange is kept.
#[test]
fn upstreams_that_fail_are_told_apart() {
    upstreams_fail(Tls {
        client: false,
        upstream: false,
    });
}

/// Goal: the same with TLS towards the upstream.
#[test]
fn upstreams_that_fail_behind_tls_are_told_apart() {
    upstreams_fail(Tls {
        client: false,
        upstream: true,
    });
}

/// Goal: the same with TLS towards the client.
#[test]
fn clients_behind_tls_are_told_of_upstreams_that_fail() {
    upstreams_fail(Tls {
        client: true,
        upstream: false,
    });
}

/// Goal: the same with TLS on both sides.
#[test]
fn failing_upstreams_are_told_apart_between_tls() {
    upstreams_fail(Tls {
        client: true,
        upstream: true,
    });
}

/// Goal: an upstream that closes in its handshake is distinguished from one that stalls in it.
#[test]
fn handshakes_that_fail_are_told_apart() {
    let tls = Tls {
        client: false,
        upstream: true,
    };
    for (stalls, status, error) in [
        (
            false,
            502,
            "tls_protocol_error; details=\"the upstream closed the connection in the TLS handshake\"",
        ),
        (
            true,
            504,
            "connection_timeout; details=\"the upstream did not accept a connection in time\"",
        ),
    ] {
        // In plaintext below, so that no handshake goes on.
        let upstream = RawUpstream::start(move |peer, _| {
            if stalls {
                peer.rest();
            }
        });
        let (server, _control) = start_proxy(tls, &upstream, Limits::default(), |config| {
            hurried(config, None);
            if stalls {
                config.timeouts.connection_ns = HURRY_NS;
            }
        });
        let answer = connect(&server, tls).ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let said = answer.header("proxy-status").unwrap_or_default();
        let expected = format!("millpond; error={error}; fault=upstream");
        assert_eq!((answer.status, said), (status, &*expected));
        expect_nothing_left(&server, &upstream);
        drop(server);
        upstream.wait_until_all_ended();
    }
}

/// Goal: with its only connection taken by a request, and no request allowed to wait, the next request gets the proxy's
/// limit as the cause, and a Retry-After; the first one still gets its response.
#[test]
fn a_full_upstream_is_the_proxys_limit() {
    let tls = Tls {
        client: false,
        upstream: false,
    };
    let is_released = Arc::<AtomicBool>::default();
    let for_upstream = Arc::clone(&is_released);
    let upstream = start_upstream(tls, move |peer, _| {
        while peer.head().is_some() {
            while !for_upstream.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(2));
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
        }
    });
    let (server, _control) = start_proxy(tls, &upstream, Limits::default(), |config| {
        config.tries_max = 1;
        config.connections_max = 1;
        config.pending_max = 0;
    });
    let mut first = connect(&server, tls);
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("one connection", || {
        upstream.connections.load(Ordering::SeqCst) == 1
    });
    let answer = connect(&server, tls).ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let said = answer.header("proxy-status").unwrap_or_default();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(
        said.contains("error=connection_limit_reached; ") && said.ends_with("; fault=proxy"),
        "{said}"
    );
    assert!(answer.header("retry-after").is_some());
    is_released.store(true, Ordering::SeqCst);
    assert_eq!(first.response().text(), "fine");
    expect_nothing_left(&server, &upstream);
}

/// The number of a line that begins so.
fn value_of(metrics: &str, name: &str) -> u64 {
    let found = metrics.lines().find(|line| line.starts_with(name));
    let line = found.unwrap_or_else(|| panic!("no {name}\n{metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Requests that the proxy has under way, as it says itself.
fn outstanding(upstream: &RawUpstream) -> String {
    format!(
        "millpond_upstream_outstanding{{upstream=\"{}\"}}",
        upstream.address
    )
}

/// Pools whose objects are requests under way.
const POOLS: [&str; 3] = ["proxy_requests", "http_exchanges", "io_pool_waiters"];

/// Waits until no pool has an object of a request, and no request is under way.
fn expect_nothing_left(server: &TestServer, upstream: &RawUpstream) {
    wait_until("counted", || {
        let metrics = server.metrics_text();
        let live = |pool: &&str| {
            let name = format!("millpond_pool_live_objects{{shard=\"0\",pool=\"{pool}\"");
            value_of(&metrics, &name)
        };
        let kept: u64 = POOLS.iter().map(live).sum();
        kept + value_of(&metrics, &outstanding(upstream)) == 0
    });
}

/// All bytes before the end, whatever the end is.
fn cut_rest(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = client.stream.read_to_end(&mut bytes);
    bytes
}

fn serve_well(peer: &mut RawPeer) {
    while let Some(head) = peer.head() {
        if peer.body(&head).is_none() {
            return;
        }
        let body = match head.starts_with("GET /short") {
            true => "fine".to_owned(),
            false => "y".repeat(4 << 20),
        };
        let length = body.len();
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    }
}

fn clients_fail(tls: Tls) {
    for stage in STAGES {
        clients_fail_at(tls, stage);
    }
}

fn clients_fail_at(tls: Tls, stage: Stage) {
    let upstream = start_upstream(tls, |peer, _| serve_well(peer));
    let (server, _control) = start_proxy(tls, &upstream, hurried_limits(stage), |_| {});
    for fault in faults().into_iter().filter(|fault| fault.stage == stage) {
        let mut client = connect(&server, tls);
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{}",
            framed(fault.body_bytes, fault.is_chunked)
        );
        let head_bytes = request.find("\r\n\r\n").unwrap();
        let sent_bytes = match fault.stage {
            Stage::SendHead => head_bytes / 2,
            Stage::SendBody => (head_bytes + 4 + fault.body_bytes / 2).min(request.len() - 1),
            Stage::ReceiveHead | Stage::ReceiveBody => request.len(),
        };
        client.send(&request[..sent_bytes]);
        if fault.stage == Stage::ReceiveBody {
            let mut some = [0; 1000];
            client.stream.read_exact(&mut some).unwrap();
        }
        if fault.stalls && matches!(fault.stage, Stage::SendHead | Stage::SendBody) {
            let text = String::from_utf8(cut_rest(&mut client)).unwrap();
            assert!(text.starts_with("HTTP/1.1 408 "), "{fault:?}: {text}");
        } else if fault.stalls {
            // It reads nothing until the proxy has given it up.
            expect_nothing_left(&server, &upstream);
        }
        drop(client);
        let next = connect(&server, tls).ask("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(
            (next.status, next.text()),
            (200, "fine".to_owned()),
            "{fault:?}"
        );
        expect_nothing_left(&server, &upstream);
    }
    drop(server);
    upstream.wait_until_all_ended();
}

/// Goal: whatever a client does wrong, at any stage, its upstream's connection is closed or goes back
/// clean, others are served, and nothing of the exchange is kept.
#[test]
fn clients_that_fail_leave_nothing_behind() {
    clients_fail(Tls {
        client: false,
        upstream: false,
    });
}

/// Goal: the same with TLS towards the client.
#[test]
fn clients_that_fail_behind_tls_leave_nothing_behind() {
    clients_fail(Tls {
        client: true,
        upstream: false,
    });
}

/// Goal: the same with TLS towards the upstream.
#[test]
fn upstreams_behind_tls_do_not_notice_clients_that_fail() {
    clients_fail(Tls {
        client: false,
        upstream: true,
    });
}

/// Goal: the same with TLS on both sides.
#[test]
fn failing_clients_leave_nothing_behind_between_tls() {
    clients_fail(Tls {
        client: true,
        upstream: true,
    });
}

/// An upstream that ends kept connections cost a 502 in 15 of 40 requests: retries on the next kept connection,
/// paid from the budget.
///
/// Goal: a request that meets a connection that has ended is asked again over a new one, without the budget.
#[test]
fn kept_connections_that_have_ended_cost_nothing() {
    let upstream = RawUpstream::start(|peer, _| {
        if peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        // The next request is read, and the connection ends without a response.
        let _ = peer.head();
    });
    let (server, _control) = proxy(&[upstream.address], Limits::default(), |config| {
        config.retry_percent = 0;
        config.ejection.failures_max = 1;
    });
    let mut client = server.connect();
    for number in 0..40 {
        let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
    }
}

/// Goal: a write with a precondition whose connection ended after it was sent is not sent again: the second try would
/// get 412 though the first was done. The client gets 502, and decides itself.
#[test]
fn a_conditional_write_is_not_repeated() {
    for (field, expected) in [("If-Match: \"1\"", 502), ("X-Match: \"1\"", 412)] {
        let writes = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let seen = writes.clone();
        let upstream = RawUpstream::start(move |peer, _| {
            while let Some(head) = peer.head() {
                if head.starts_with("GET ") {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                } else if seen.fetch_add(1, Ordering::SeqCst) == 0 {
                    return;
                } else {
                    peer.send("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
                }
            }
        });
        let (server, _control) = proxy(&[upstream.address], Limits::default(), |_| {});
        let mut client = server.connect();
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
        let put = format!("PUT / HTTP/1.1\r\nHost: a\r\n{field}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.ask(put).status, expected);
        let count = writes.load(Ordering::SeqCst);
        assert_eq!(count, if expected == 502 { 1 } else { 2 });
    }
}
