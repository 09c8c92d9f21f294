//! Passed on: heads, bodies of both framings, informational responses, retries, upgrades, reloads.

use super::others::OtherServer;
use super::{RawUpstream, proxy, refusing, upstream};
use crate::support::{TestServer, config, pool_mode, wait_until};
use millpond_http::proxy::{FieldChanges, Proxy, ProxyConfig, ProxyControl};
use millpond_http::{Limits, ServeConfig};
use millpond_io::Address;
use millpond_io::connection_pool::Endpoint;
use millpond_io::resolver::{Resolver, ResolverConfig};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const BODY_BYTES: usize = 200_000;

fn plain(upstreams: &[std::net::SocketAddr]) -> TestServer {
    proxy(upstreams, Limits::default(), |_| {}).0
}

/// Goal: method, target, end-to-end fields and bodies of every size and framing reach Python as they
/// are, and its responses come back; one connection to it serves one client's requests.
#[test]
fn requests_and_answers_pass() {
    let python = OtherServer::python();
    let server = plain(&[python.inet()]);
    let mut client = server.connect();
    let mut peers = Vec::new();
    for body_bytes in [0, 1, 1024, 8192, 8193, BODY_BYTES] {
        for is_chunked in [false, true] {
            let body = "x".repeat(body_bytes);
            let framed = match is_chunked {
                true if body.is_empty() => "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
                true => format!(
                    "Transfer-Encoding: chunked\r\n\r\n{body_bytes:x}\r\n{body}\r\n0\r\n\r\n"
                ),
                false => format!("Content-Length: {body_bytes}\r\n\r\n{body}"),
            };
            let request = format!(
                "PUT /a%20b?c=d HTTP/1.1\r\nHost: site\r\nX-Mine: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\n{framed}"
            );
            let answer = client.ask(&request);
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(
                answer.header("via").unwrap().contains("millpond"),
                "{}",
                answer.head
            );
            let seen: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(seen["line"], "PUT /a%20b?c=d HTTP/1.1");
            assert_eq!(seen["body"].as_str().unwrap().len(), body_bytes);
            let fields = seen["fields"].to_string();
            assert!(
                fields.contains("[\"X-Mine\",\"1\"]") && !fields.contains("X-Hop"),
                "{fields}"
            );
            assert!(
                fields.contains("[\"X-Forwarded-For\",\"127.0.0.1\"]"),
                "{fields}"
            );
            assert!(fields.contains("[\"Host\",\"site\"]"), "{fields}");
            peers.push(seen["peer"].clone());
        }
    }
    peers.dedup();
    assert_eq!(peers.len(), 1, "one connection was used again and again");
}

/// Goal: a connection to an upstream is closed once it has been kept for as long as it may, and used again
/// before.
#[test]
fn idle_connections_are_kept_for_their_time() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (idle_max_ns, connections) in [(20_000_000, 2), (3_600_000_000_000, 1)] {
        let upstream = RawUpstream::start(|peer, _| {
            while peer.head().is_some() {
                peer.send(ANSWER);
            }
        });
        let change = |config: &mut ProxyConfig| config.idle_max_ns = idle_max_ns;
        let (server, _) = proxy(&[upstream.address], Limits::default(), change);
        let mut client = server.connect();
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
        if connections == 2 {
            upstream.wait_until_all_ended();
        }
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
        assert_eq!(upstream.connections.load(Ordering::SeqCst), connections);
    }
}

/// Goal: HEAD, 204 and 304 have no body behind them, HTTP/1.0 clients get no chunks, and a long response
/// in chunks, or until the upstream closes, comes through whole.
#[test]
fn every_framing_of_answers_passes() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            let body = "y".repeat(BODY_BYTES);
            peer.send(match head.split(' ').nth(1).unwrap() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n".to_owned(),
                "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned(),
                "/chunked" => format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{BODY_BYTES:x};a=b\r\n{body}\r\n0\r\nX-T: 1\r\n\r\n"
                ),
                "/close" => format!("HTTP/1.0 200 OK\r\n\r\n{body}"),
                path => panic!("{path}"),
            });
            if head.contains("/close") {
                return;
            }
        }
    });
    let server = plain(&[upstream.address]);
    let mut client = server.connect();
    for path in ["/204", "/304", "/chunked", "/close", "/chunked"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let is_empty = path.starts_with("/2") || path.starts_with("/3");
        let answer = client.try_response(is_empty).unwrap();
        let expected = match path {
            _ if is_empty => 0,
            "/chunked" => BODY_BYTES + "X-T: 1\n".len(),
            _ => BODY_BYTES,
        };
        assert_eq!(answer.body.len(), expected, "{path}: {}", answer.head);
    }
    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        client.response_to_head().header("content-length"),
        Some("5")
    );
    let mut old = server.connect();
    old.send("GET /chunked HTTP/1.0\r\n\r\n");
    let whole = String::from_utf8(old.rest()).unwrap();
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert_eq!(body.len(), BODY_BYTES);
}

/// Goal: the client's `Expect: 100-continue` reaches the upstream, whose 100 lets the body come and whose refusal ends
/// the request without it; Early Hints come through.
#[test]
fn expectations_are_met_end_to_end() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            assert!(head.contains("Expect: 100-continue\r\n"), "{head}");
            if head.starts_with("PUT /no") {
                peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
                assert_eq!(peer.rest(), b"", "no byte of the body was sent");
                return;
            }
            peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            assert_eq!(peer.body(&head).unwrap(), b"hello");
            peer.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let server = plain(&[upstream.address]);
    let head = |path: &str| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
    };
    let mut client = server.connect();
    client.send(head("/yes"));
    let hints = client.response();
    assert_eq!((hints.status, hints.header("link")), (103, Some("</a>")));
    assert_eq!(client.response().status, 100);
    assert_eq!(client.ask("hello").status, 201);
    client.send(head("/no"));
    let refused = client.response();
    assert_eq!(
        (refused.status, refused.header("connection")),
        (413, Some("close"))
    );
    client.expect_end();
}

/// Goal: an upstream that is not there costs no request as long as another is, whatever the method; its failures eject
/// it, and with none left the client gets the cause.
#[test]
fn the_living_upstream_serves() {
    let python = OtherServer::python();
    let directory = tempfile::tempdir().unwrap();
    let (dead, alive) = (refusing(&directory), python.address.clone());
    let dead_and_alive = [dead.clone(), alive.clone()];
    let (server, control) = proxy(&dead_and_alive, Limits::default(), |config| {
        config.retry_percent = 100;
        config.ejection.failures_max = 3;
        config.ejection.base_ns = 60_000_000_000;
    });
    let mut client = server.connect();
    for _ in 0..20 {
        let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let metrics = server.metrics_text();
    let value = |name: &str, address: &Address, labels: &str| -> u64 {
        let line = format!("{name}{{upstream=\"{address}\"{labels}}} ");
        let found = metrics.lines().find_map(|found| found.strip_prefix(&line));
        found
            .unwrap_or_else(|| panic!("{line}\n{metrics}"))
            .parse()
            .unwrap()
    };
    let failures = "millpond_upstream_failures_total";
    assert_eq!(
        value(failures, &dead, ",cause=\"connect\""),
        3,
        "then it was ejected"
    );
    assert_eq!(value("millpond_upstream_ejections_total", &dead, ""), 1);
    assert_eq!(
        value(
            "millpond_upstream_responses_total",
            &alive,
            ",class=\"2xx\""
        ),
        20
    );
    assert_eq!(value("millpond_upstream_retries_total", &alive, ""), 3);
    control
        .replace(ProxyConfig::new(vec![upstream(dead)]))
        .unwrap();
    let answer = server.connect().ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 502, "{}", answer.text());
    let status = answer.header("proxy-status").unwrap();
    assert!(status.contains("connection_refused"), "{status}");
}

/// Goal: a change of upstreams loses no request, keeps what stays, and is done at once.
#[test]
fn upstreams_are_exchanged_under_way() {
    let (first, second) = (OtherServer::python(), OtherServer::python());
    let (server, control) = proxy(&[first.inet()], Limits::default(), |_| {});
    let mut client = server.connect();
    for round in 0..6 {
        let wanted = [&first, &second][round % 2];
        control
            .replace(ProxyConfig::new(vec![upstream(wanted.inet())]))
            .unwrap();
        for _ in 0..5 {
            let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    assert_eq!((first.seen().len(), second.seen().len()), (15, 15));
    assert!(control.replace(ProxyConfig::new(Vec::new())).is_err());
    assert_eq!(
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status,
        200,
        "refused as a whole"
    );
}

/// Goal: health checks and lookups of names begin with the proxy, and not with its first client.
#[test]
fn checks_wait_for_no_client() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let original = RawUpstream::start(move |peer, _| {
        while let Some(head) = peer.head() {
            assert!(head.starts_with("GET /health "), "{head}");
            count.fetch_add(1, Ordering::SeqCst);
            peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let (_server, _) = proxy(&[original.address], Limits::default(), |config| {
        config.probe = Some(millpond_http::proxy::ProbePolicy::new("/health"));
    });
    wait_until("a check", || asked.load(Ordering::SeqCst) > 0);
}

/// Goal: a name without an address is seen in the metrics before any request, and so is that it has one
/// again; requests then reach it.
#[test]
fn names_are_looked_up_again() {
    let original = RawUpstream::start(|peer, _| {
        while peer.head().is_some() {
            peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let is_known = Arc::new(AtomicBool::new(false));
    let (known, address) = (Arc::clone(&is_known), original.address);
    let lookup = move |_: &str, _| match known.load(Ordering::SeqCst) {
        true => Ok(vec![address]),
        false => Err(std::io::Error::other("no such name")),
    };
    let resolver = Resolver::with_lookup(ResolverConfig::default(), lookup).unwrap();
    let mut named = upstream(original.address);
    named.name = "app:80".to_owned();
    named.place = Endpoint::Name {
        host: "app".to_owned(),
        port: 80,
    };
    let control = ProxyControl::new(ProxyConfig::new(vec![named]), false, Some(resolver)).unwrap();
    let serve = ServeConfig {
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..config(Limits::default(), pool_mode())
    };
    let make = move |start| Proxy::new(&control, &start, Limits::default());
    let server = TestServer::start(serve, make);
    let unresolved = |count: u32| {
        let line = format!("millpond_upstream_unresolved_shards{{upstream=\"app:80\"}} {count}");
        server.metrics_text().lines().any(|found| found == line)
    };
    wait_until("no address", || unresolved(1));
    is_known.store(true, Ordering::SeqCst);
    wait_until("an address", || unresolved(0));
    let answer = server
        .connect()
        .ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status, 204);
}

/// Goal: an upstream whose health checks fail gets no requests, and gets them again when they succeed.
#[test]
fn probes_take_upstreams_out_and_bring_them_back() {
    let is_well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let asked = is_well.clone();
    let upstream = RawUpstream::start(move |peer, _| {
        while let Some(head) = peer.head() {
            let is_probe = head.starts_with("GET /health ");
            let status = match is_probe && !asked.load(Ordering::SeqCst) {
                true => "503 Unwell",
                false => "200 OK",
            };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let (server, _control) = proxy(&[upstream.address], Limits::default(), |config| {
        let mut probe = millpond_http::proxy::ProbePolicy::new("/health");
        probe.interval_ns = 5_000_000;
        config.probe = Some(probe);
    });
    let mut client = server.connect();
    for (well, expected) in [(true, 200), (false, 503), (true, 200)] {
        is_well.store(well, Ordering::SeqCst);
        let started = std::time::Instant::now();
        loop {
            let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            if answer.status == expected {
                assert_eq!(answer.header("retry-after").is_some(), expected == 503);
                break;
            }
            assert!(
                started.elapsed() < crate::support::PATIENCE,
                "{}",
                answer.status
            );
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// Health checks with a wrong path took all upstreams out. After a reload without the checks the proxy responded with
/// 503 until it was restarted: without probes no upstream was found up. Goal: results of probes end with the probes.
#[test]
fn what_probes_found_ends_with_them() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            let status = match head.starts_with("GET /wrong ") {
                true => "404 Not Found",
                false => "200 OK",
            };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let (server, control) = proxy(&[upstream.address], Limits::default(), |config| {
        let mut probe = millpond_http::proxy::ProbePolicy::new("/wrong");
        probe.interval_ns = 5_000_000;
        config.probe = Some(probe);
    });
    let mut client = server.connect();
    let mut status = || client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status;
    let started = std::time::Instant::now();
    while status() != 503 {
        assert!(started.elapsed() < crate::support::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let without_probes = ProxyConfig::new(vec![super::upstream(upstream.address)]);
    control.replace(without_probes).unwrap();
    assert_eq!(status(), 200);
}

/// A peer that was no longer trusted after a reload could still set clients' addresses, as long as it kept its
/// connection. Goal: a reload applies to the next request of every connected peer, both ways.
#[test]
fn a_reload_changes_whose_word_is_taken() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            let length = head.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}"
            ));
        }
    });
    let (server, control) = proxy(&[upstream.address], Limits::default(), |_| {});
    let mut client = server.connect();
    for network in ["192.0.2.0/24", "127.0.0.0/8", "192.0.2.0/24"] {
        let mut config = ProxyConfig::new(vec![super::upstream(upstream.address)]);
        config.trusted = vec![network.parse().unwrap()];
        control.replace(config).unwrap();
        let asked = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.5\r\n\r\n";
        let told = client.ask(asked).text();
        assert_eq!(
            told.contains("203.0.113.5"),
            network.starts_with("127."),
            "{told}"
        );
        assert!(told.contains("127.0.0.1\r\n"), "{told}");
    }
}

/// Goal: after 101 both sides' bytes pass as they are, until one of them closes; without leave the
/// upstream is not asked to change.
#[test]
fn another_protocol_takes_over_by_choice() {
    let upstream = RawUpstream::start(|peer, _| {
        let head = peer.head().unwrap();
        if !head.contains("Upgrade: echo\r\n") {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello ");
        while peer.fill() {
            let bytes = std::mem::take(&mut peer.received);
            peer.send(&bytes);
            if bytes.contains(&b'!') {
                return;
            }
        }
    });
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    assert_eq!(
        plain(&[upstream.address]).connect().ask(request).status,
        200
    );
    let (server, _control) = proxy(&[upstream.address], Limits::default(), |config| {
        config.upgrades = "echo".parse().unwrap();
    });
    let mut client = server.connect();
    client.send(request);
    let switched = client.response_to_head();
    assert_eq!(
        (switched.status, switched.header("upgrade")),
        (101, Some("echo"))
    );
    assert_eq!(client.take(6), b"hello ");
    for text in ["GET / HTTP/1.1\r\n", "\0\r\n", "0123456789"] {
        client.send(text);
        assert_eq!(client.take(text.len()), text.as_bytes());
    }
    client.send("end!");
    assert_eq!(client.rest(), b"end!");
}

/// Goal: fields are set, added and removed as the operator says, in both spellings and in both directions; heads
/// that come again are written in the same way, and a reload changes what is remembered.
#[test]
fn fields_are_changed_by_the_operator() {
    let upstream = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            let told: Vec<&str> = head.lines().filter(|line| line.starts_with("X")).collect();
            let body = told.join("|");
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nDate: x\r\nServer: s\r\nX-Old: 1\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    });
    let changes = |texts: &[&str]| {
        let changes: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        FieldChanges::new(&changes).unwrap()
    };
    let mut proxied = ProxyConfig::new(vec![super::upstream(upstream.address)]);
    proxied.forwarded = "none".parse().unwrap();
    let (server, control) = proxy(&[upstream.address], Limits::default(), |config| {
        *config = proxied.clone();
        config.request_changes = changes(&["X-Set: new", "-X-Gone", "+X-Add: 2"]);
        config.response_changes = changes(&["-Server", "X-Old: 2", "+X-Old: 3"]);
    });
    let mut client = server.connect();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX_Set: old\r\nX-SET: old\r\nX-Gone: 1\r\n\
                   X_Gone: 1\r\nX-Add: 1\r\n\r\n";
    for _ in 0..3 {
        let answer = client.ask(request);
        assert_eq!(answer.text(), "X-Add: 1|X-Set: new|X-Add: 2");
        assert_eq!(
            (answer.header("server"), answer.header("x-old")),
            (None, Some("2"))
        );
    }
    control.replace(proxied).unwrap();
    let answer = server.connect().ask(request);
    assert!(answer.text().contains("X-Gone: 1"), "{}", answer.text());
    assert_eq!(
        (answer.header("server"), answer.header("x-old")),
        (Some("s"), Some("1"))
    );
}

/// Goal: the listener of metrics has pages that say how each upstream is: up, ejected, and gone after a reload.
#[test]
fn pages_say_how_upstreams_are() {
    let directory = tempfile::tempdir().unwrap();
    let dead = refusing(&directory);
    let upstream = RawUpstream::start(|peer, _| {
        while peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let alive = Address::from(upstream.address);
    let (server, control) = proxy(
        &[alive.clone(), dead.clone()],
        Limits::default(),
        |config| {
            config.ejection.failures_max = 1;
            config.ejection.base_ns = 3_600_000_000_000;
            config.ejection.longest_ns = 3_600_000_000_000;
        },
    );
    let own = server.running.metrics_address().unwrap().inet().unwrap();
    let ask = |path: &str| {
        crate::support::RawClient::connect(own)
            .ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    };
    let states = || {
        let page = ask("/upstreams.json");
        assert_eq!(page.header("content-type"), Some("application/json"));
        let page: Value = serde_json::from_str(&page.text()).unwrap();
        let states = page["upstreams"].as_array().unwrap().iter();
        let state = |it: &Value| {
            (
                it["upstream"].as_str().unwrap().to_owned(),
                it["state"].clone(),
            )
        };
        states.map(state).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let answer = server.connect().ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, 200);
    }
    let expected = [
        (alive.to_string(), "up".into()),
        (dead.to_string(), "ejected".into()),
    ];
    wait_until("the states are shown", || states() == expected);
    let table = ask("/upstreams").text();
    assert!(
        table.lines().any(|line| line.contains(" ejected ")),
        "{table}"
    );
    control
        .replace(ProxyConfig::new(vec![super::upstream(alive)]))
        .unwrap();
    wait_until("one has left", || states() == expected[..1]);
}
