//! Peers that stall or close at every stage of an exchange, as upstream and as client: the other side
//! is told what can be told, nothing is kept, and no half-used connection is used again.

use super::{RawPeer, RawUpstream, proxy};
use crate::support::{RawClient, TestServer};
use millpond_http::Limits;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SIZES: [usize; 3] = [0, 1024, 128 * 1024];
const TENTH_NS: u64 = 100_000_000;

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

/// One combination, as its path tells the upstream.
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

fn limits() -> Limits {
    Limits {
        head_timeout_ns: TENTH_NS,
        body_grace_ns: TENTH_NS,
        body_rate_bytes_per_s_min: 1 << 30,
        write_stall_ns: 5 * TENTH_NS,
        write_rate_bytes_per_s_min: 1 << 30,
        ..Limits::default()
    }
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

/// Goal: whatever an upstream does wrong, at any stage, the client gets the right status (or, behind a
/// head, a cut), the next request succeeds over another connection, and the one that failed is closed.
#[test]
fn upstreams_that_fail_are_told_apart() {
    for fault in faults() {
        let is_released = Arc::<AtomicBool>::default();
        let for_upstream = Arc::clone(&is_released);
        let upstream = RawUpstream::start(move |peer, index| {
            if index == 0 {
                return misbehave(peer, fault, &for_upstream);
            }
            while let Some(head) = peer.head() {
                peer.body(&head);
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
            }
        });
        let (server, _control) = proxy(&[upstream.address], limits(), |config| {
            config.tries_max = 1;
            config.ejection.failures_max = 0;
            config.timeouts.first_byte_ns = TENTH_NS;
            config.timeouts.between_bytes_ns = TENTH_NS;
            config.timeouts.write_ns = TENTH_NS;
        });
        let mut client = server.connect();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{}",
            framed(fault.body_bytes, fault.is_chunked)
        );
        // An early answer may end the connection before all of the body is sent.
        let _ = std::io::Write::write_all(&mut client.stream, request.as_bytes());
        if fault.stage == Stage::SendBody {
            let text = String::from_utf8(cut_rest(&mut client)).unwrap();
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{fault:?}: {text}");
            assert!(
                text.contains("hal") && !text.ends_with("0\r\n\r\n"),
                "{fault:?}: {text}"
            );
        } else {
            let answer = client.response();
            let expected = if fault.stalls { 504 } else { 502 };
            assert_eq!(answer.status, expected, "{fault:?}: {}", answer.text());
            assert!(answer.header("proxy-status").is_some(), "{fault:?}");
        }
        let next = server.connect().ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(
            (next.status, next.text()),
            (200, "fine".to_owned()),
            "{fault:?}"
        );
        drop(client);
        is_released.store(true, Ordering::SeqCst);
        drop(server);
        upstream.wait_until_all_ended();
    }
}

/// Requests that the proxy has under way, as it says itself.
fn outstanding(server: &TestServer, upstream: SocketAddr) -> u64 {
    let question = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let metrics = server.connect().ask(question).text();
    let line = format!("millpond_upstream_outstanding{{upstream=\"{upstream}\"}} ");
    let found = metrics.lines().find_map(|found| found.strip_prefix(&line));
    found.unwrap().parse().unwrap()
}

/// All that comes before the end, however that looks.
fn cut_rest(client: &mut RawClient) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = client.stream.read_to_end(&mut bytes);
    bytes
}

/// Goal: whatever a client does wrong, at any stage, its upstream's connection is closed or goes back
/// clean, and others are served.
#[test]
fn clients_that_fail_leave_nothing_behind() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            if peer.body(&head).is_none() {
                return;
            }
            let body = "y".repeat(4 << 20);
            let body = if head.starts_with("GET /short") {
                "fine"
            } else {
                &body
            };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    });
    let (server, _control) = proxy(&[upstream.address], limits(), |_| {});
    for fault in faults() {
        let mut client = server.connect();
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
        if fault.stalls {
            match fault.stage {
                Stage::SendHead | Stage::SendBody => {
                    let text = String::from_utf8(cut_rest(&mut client)).unwrap();
                    assert!(text.starts_with("HTTP/1.1 408 "), "{fault:?}: {text}");
                }
                // It reads nothing until the proxy has given it up.
                Stage::ReceiveHead | Stage::ReceiveBody => {
                    while outstanding(&server, upstream.address) > 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            }
        }
        drop(client);
        let next = server
            .connect()
            .ask("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(
            (next.status, next.text()),
            (200, "fine".to_owned()),
            "{fault:?}"
        );
    }
    drop(server);
    upstream.wait_until_all_ended();
}
