//! Copies of requests for mirrors: their content, which requests have one, and that a mirror never affects clients.

use super::{RawPeer, RawUpstream, proxy, proxy_with, refusing, upstream};
use crate::support::{TestServer, config, pool_mode, wait_until};
use millpond_http::proxy::{
    HostPolicy, MIRROR_IN_FLIGHT_MAX, MirrorConfig, MirrorMethods, MirrorShare, ProxyConfig,
    UpgradeProtocols,
};
use millpond_http::{Limits, ServeConfig};
use millpond_io::Address;
use millpond_io::connection_pool::Endpoint;
use std::sync::{Arc, Mutex};

fn mirror(address: impl Into<Address>, percent: f64) -> MirrorConfig {
    let address = address.into();
    MirrorConfig {
        name: address.to_string(),
        place: Endpoint::Addresses(vec![address]),
        host: "mirror".to_owned(),
        tls: None,
        share: MirrorShare::of_percent(percent).unwrap(),
    }
}

/// Without chunk framing: bytes after the last one are kept.
fn unchunked(head: &str, body: &[u8]) -> Vec<u8> {
    if !head.contains("Transfer-Encoding: chunked\r\n") {
        return body.to_vec();
    }
    let (mut rest, mut whole) = (body, Vec::new());
    loop {
        let line_end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = std::str::from_utf8(&rest[..line_end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[line_end + 2..];
        if size == 0 {
            whole.extend_from_slice(rest);
            return whole;
        }
        whole.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Keeps its requests, and responds with the length of the body.
fn recording() -> (RawUpstream, Requests) {
    let requests = Requests::default();
    let kept = Arc::clone(&requests);
    let upstream = RawUpstream::start(move |peer, _| {
        while let Some(head) = peer.head() {
            let body = match head.contains("Transfer-Encoding: chunked\r\n") {
                true => chunked_body(peer),
                false => peer.body(&head).unwrap(),
            };
            let body = unchunked(&head, &body);
            let text = body.len().to_string();
            kept.lock().unwrap().push((head.clone(), body));
            let shown = if head.starts_with("HEAD ") { "" } else { &text };
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{shown}",
                text.len()
            ));
        }
    });
    (upstream, requests)
}

/// All of a body in chunks, with trailers behind it or without.
fn chunked_body(peer: &mut RawPeer) -> Vec<u8> {
    let mut whole = String::new();
    while !(whole.ends_with("\r\n\r\n") && (whole.contains("\r\n0\r\n") || whole == "0\r\n\r\n")) {
        whole.push_str(&peer.head().unwrap());
    }
    whole.into_bytes()
}

fn chunked(body: &str, trailers: &str) -> String {
    format!(
        "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n{trailers}\r\n",
        body.len()
    )
}

fn metric(server: &TestServer, name: &str) -> u64 {
    let text = server.metrics_text();
    let found = text
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']));
    let counts = found.map(|rest| rest.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    counts.sum()
}

fn labelled(server: &TestServer, name: &str, label: &str) -> u64 {
    let text = server.metrics_text();
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(name) && line.contains(label));
    let line = line.unwrap_or_else(|| panic!("{name} {label}\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Goal: head and body of a copy are, byte for byte, those that the upstream got, of every method and
/// framing; other are only the boundaries of chunks, and Host where that is the server's own name.
#[test]
fn a_mirror_gets_what_the_upstream_gets() {
    let (original, asked) = recording();
    let (copy, copied) = recording();
    for host in [HostPolicy::Keep, HostPolicy::Upstream] {
        let (server, _) = proxy(&[original.address], Limits::default(), |config| {
            config.mirrors = vec![mirror(copy.address, 100.0)];
            config.mirroring.methods = MirrorMethods::All;
            config.host = host;
        });
        let mut client = server.connect();
        let long = "y".repeat(30_000);
        let requests = [
            "GET /a%20b?c=d HTTP/1.1\r\nHost: site\r\nX-Mine: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n".to_owned(),
            "HEAD /a HTTP/1.1\r\nHost: site\r\n\r\n".to_owned(),
            "OPTIONS * HTTP/1.1\r\nHost: site\r\n\r\n".to_owned(),
            "GET http://other/x HTTP/1.1\r\nHost: site\r\n\r\n".to_owned(),
            "BREW / HTTP/1.1\r\nHost: site\r\nContent-Length: 4\r\n\r\nbody".to_owned(),
            "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n".to_owned(),
            format!("PUT / HTTP/1.1\r\nHost: site\r\nContent-Length: 30000\r\n\r\n{long}"),
            format!("PUT / HTTP/1.1\r\nHost: site\r\n{}", chunked(&long, "")),
            format!("PUT / HTTP/1.1\r\nHost: site\r\nTrailer: X-T\r\n{}", chunked("abc", "X-T: 1\r\nCookie: 2\r\n")),
            "PUT / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        ];
        let requests_before = copied.lock().unwrap().len();
        for request in &requests {
            client.send(request);
            let answer = client.try_response(request.starts_with("HEAD")).unwrap();
            assert_eq!(answer.status, 200, "{request}: {}", answer.text());
        }
        let is_copied = |count: u64| metric(&server, "millpond_mirror_requests_total") == count;
        assert!(
            is_copied(requests.len() as u64),
            "{}",
            server.metrics_text()
        );
        wait_until("copies", || {
            copied.lock().unwrap().len() == requests_before + requests.len()
        });
        let own_name = match host {
            HostPolicy::Keep => "none",
            HostPolicy::Upstream => "Host: upstream\r\n",
        };
        // Connections of their own may bring copies in another order.
        let sorted = |requests: &Requests| {
            let mut sorted = requests.lock().unwrap()[requests_before..].to_vec();
            sorted.sort();
            sorted
        };
        let expected = asked.lock().unwrap().len();
        assert_eq!(expected, copied.lock().unwrap().len());
        let mut expected = sorted(&asked);
        for (head, _) in &mut expected {
            *head = head.replace(own_name, "Host: mirror\r\n");
        }
        expected.sort();
        assert_eq!(sorted(&copied), expected);
        wait_until("answers", || {
            labelled(&server, "millpond_mirror_responses_total", "2xx") == requests.len() as u64
        });
        wait_until("an end", || {
            metric(&server, "millpond_mirror_in_flight") == 0
        });
    }
}

/// Goal: of a thousand requests one in twenty is copied, always the twentieth; two mirrors of the same
/// share get the same ones.
#[test]
fn the_sample_is_even() {
    let (original, _) = recording();
    let ((first, by_first), (second, by_second)) = (recording(), recording());
    let (server, _) = proxy(&[original.address], Limits::default(), |config| {
        config.mirrors = vec![mirror(first.address, 5.0), mirror(second.address, 5.0)];
    });
    let mut client = server.connect();
    for index in 1..=1000 {
        let answer = client.ask(format!("GET /{index} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, 200);
    }
    let expected: Vec<usize> = (20..=1000).step_by(20).collect();
    for requests in [by_first, by_second] {
        wait_until("copies", || {
            requests.lock().unwrap().len() == expected.len()
        });
        let mut got: Vec<usize> = requests
            .lock()
            .unwrap()
            .iter()
            .map(|(head, _)| head[5..].split(' ').next().unwrap().parse().unwrap())
            .collect();
        got.sort_unstable();
        assert_eq!(got, expected);
    }
}

/// Goal: a request that is never copied, or too long, or not complete, is counted by its reason, and the upstream still
/// gets it.
#[test]
fn what_is_not_copied_is_counted() {
    let (original, _) = recording();
    let (copy, copied) = recording();
    let (server, _) = proxy(&[original.address], Limits::default(), |config| {
        config.mirrors = vec![mirror(copy.address, 100.0)];
        config.mirroring.body_bytes_max = 20_000;
        config.upgrades = UpgradeProtocols::websocket();
    });
    let long = "y".repeat(20_001);
    for (request, name, label) in [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx".to_owned(),
            "excluded",
            "method",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"
                .to_owned(),
            "excluded",
            "expect",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                .to_owned(),
            "excluded",
            "upgrade",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 20001\r\n\r\n{long}"),
            "dropped",
            "body_too_long",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}", chunked(&long, "")),
            "dropped",
            "body_too_long",
        ),
    ] {
        let metric = format!("millpond_mirror_{name}_total");
        let label = format!("reason=\"{label}\"");
        let before = labelled(&server, &metric, &label);
        let mut client = server.connect();
        client.send(&request);
        let mut answer = client.response();
        if answer.status == 100 {
            answer = client.response();
        }
        assert_eq!(answer.status, 200, "{request}");
        wait_until("a count", || {
            labelled(&server, &metric, &label) == before + 1
        });
    }
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\nhalf");
    let unfinished = "reason=\"body_unfinished\"";
    wait_until("a try", || {
        metric(&server, "millpond_upstream_outstanding") == 1
    });
    drop(client);
    wait_until("a count", || {
        labelled(&server, "millpond_mirror_dropped_total", unfinished) == 1
    });
    assert_eq!(copied.lock().unwrap().len(), 0);
    assert_eq!(metric(&server, "millpond_mirror_requests_total"), 0);
}

const ROUNDS: usize = 150;

/// All bytes clients get.
fn answers(server: &TestServer) -> Vec<(u16, Vec<u8>)> {
    let mut client = server.connect();
    let body = "z".repeat(9_000);
    let mut answers = Vec::new();
    for index in 0..ROUNDS {
        let answer = match index % 3 {
            0 => client.ask(format!(
                "GET /{index} HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{body}"
            )),
            _ => client.ask(format!("GET /{index} HTTP/1.1\r\nHost: a\r\n\r\n")),
        };
        answers.push((answer.status, answer.body));
    }
    answers
}

/// Sends a gigabyte, or as much of it as is taken.
fn flood(peer: &mut RawPeer) {
    let part = vec![b'x'; 1 << 20];
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
    for _ in 0..1024 {
        peer.send(&part);
    }
}

/// One that does `serve` with each connection, and a word for it.
fn misbehaving(serve: fn(&mut RawPeer)) -> Address {
    RawUpstream::start(move |peer, _| serve(peer))
        .address
        .into()
}

fn with_mirror(original: &RawUpstream, address: Address) -> TestServer {
    let mut proxied = ProxyConfig::new(vec![upstream(original.address)]);
    proxied.mirrors = vec![mirror(address, 100.0)];
    let serve = ServeConfig {
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..config(Limits::default(), pool_mode())
    };
    proxy_with(proxied, serve).0
}

/// Goal: with a mirror that refuses, closes, resets, says nothing, reads nothing, sends nonsense or does
/// not stop, clients get what they get without one, and each request of the sample is counted once.
#[test]
fn clients_see_nothing_of_a_bad_mirror() {
    let (original, _) = recording();
    let (alone, _) = proxy(&[original.address], Limits::default(), |_| {});
    let expected = answers(&alone);
    assert!(expected.iter().all(|(status, _)| *status == 200));
    let home = tempfile::tempdir().unwrap();
    let mirrors: [(&str, Address); 7] = [
        ("refuses", refusing(&home)),
        ("closes", misbehaving(|_| {})),
        (
            "closes behind a request",
            misbehaving(|peer| drop(peer.head())),
        ),
        ("says nothing", misbehaving(|peer| drop(peer.rest()))),
        (
            "sends nonsense",
            misbehaving(|peer| {
                peer.head();
                peer.send("nonsense\r\n\r\n");
            }),
        ),
        (
            "stops in its response",
            misbehaving(|peer| {
                peer.head();
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
                peer.rest();
            }),
        ),
        (
            "does not stop",
            misbehaving(|peer| {
                peer.head();
                flood(peer);
            }),
        ),
    ];
    for (what, address) in mirrors {
        let server = with_mirror(&original, address);
        assert!(answers(&server) == expected, "{what}");
        let sampled = metric(&server, "millpond_mirror_requests_total")
            + metric(&server, "millpond_mirror_dropped_total");
        assert_eq!(sampled, ROUNDS as u64, "{what}");
        let text = server.metrics_text();
        let of_upstream = text
            .lines()
            .filter(|line| line.starts_with("millpond_upstream_failures_total"));
        assert!(
            of_upstream.clone().count() > 0 && of_upstream.clone().all(|line| line.ends_with(" 0")),
            "{what}: {text}"
        );
        if what == "says nothing" {
            let in_flight = metric(&server, "millpond_mirror_in_flight");
            assert_eq!(in_flight, MIRROR_IN_FLIGHT_MAX as u64);
            let dropped = labelled(&server, "millpond_mirror_dropped_total", "in_flight");
            assert_eq!(dropped, (ROUNDS - MIRROR_IN_FLIGHT_MAX) as u64);
        }
        if what == "does not stop" {
            wait_until("a cut", || {
                metric(&server, "millpond_mirror_responses_too_long_total") > 0
            });
        }
    }
}

/// Goal: a mirror that says nothing is left when its time is over, which is counted as a failure, and the
/// next requests are copied again.
#[test]
fn a_silent_mirror_has_its_own_time() {
    let (original, _) = recording();
    let silent = RawUpstream::start(|peer, _| drop(peer.rest()));
    let (server, _) = proxy(&[original.address], Limits::default(), |config| {
        config.mirrors = vec![mirror(silent.address, 100.0)];
        config.mirroring.timeout_ns = 50_000_000;
    });
    let mut client = server.connect();
    for round in 1..=2 {
        let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, 200);
        wait_until("an end", || {
            metric(&server, "millpond_mirror_failures_total") == round
        });
        assert_eq!(metric(&server, "millpond_mirror_in_flight"), 0);
    }
    let errors = labelled(
        &server,
        "millpond_mirror_errors_total",
        "cause=\"answer_timeout\"",
    );
    assert_eq!(errors, 2);
    silent.wait_until_all_ended();
}

/// Goal: a mirror that refuses is not asked for each request of the sample, but left alone for a while.
#[test]
fn a_failing_mirror_has_pauses() {
    let (original, _) = recording();
    let home = tempfile::tempdir().unwrap();
    let server = with_mirror(&original, refusing(&home));
    let mut client = server.connect();
    let dropped = "millpond_mirror_dropped_total";
    let mut asked = 0;
    wait_until("a pause", || {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
        asked += 1;
        labelled(&server, dropped, "reason=\"paused\"") > 0
    });
    let failed = metric(&server, "millpond_mirror_failures_total");
    let paused = labelled(&server, dropped, "reason=\"paused\"");
    assert!(
        failed >= 5 && failed + paused == asked,
        "{failed} {paused} {asked}"
    );
}

/// Goal: a mirror that a new configuration leaves out gets nothing more, one that stays keeps its counts, and copies
/// under way, sent or not, have no other effect.
#[test]
fn mirrors_change_with_the_configuration() {
    let (original, _) = recording();
    let silent = RawUpstream::start(|peer, _| drop(peer.rest()));
    let (copy, copied) = recording();
    let with = |mirrors: Vec<MirrorConfig>| {
        let mut config = ProxyConfig::new(vec![upstream(original.address)]);
        config.mirrors = mirrors;
        config
    };
    let both = vec![mirror(silent.address, 100.0), mirror(copy.address, 100.0)];
    let (server, control) = proxy(&[original.address], Limits::default(), |config| {
        config.mirrors.clone_from(&both);
    });
    let mut client = server.connect();
    assert_eq!(client.ask("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
    wait_until("copies", || copied.lock().unwrap().len() == 1);
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nhalf");
    wait_until("a try", || {
        metric(&server, "millpond_upstream_outstanding") == 1
    });
    control
        .replace(with(vec![mirror(copy.address, 100.0)]))
        .unwrap();
    wait_until("the new configuration", || {
        labelled(&server, "millpond_mirror_dropped_total", "body_unfinished") == 1
    });
    client.send("z".repeat(9_000 - 4));
    assert_eq!(client.response().status, 200);
    assert_eq!(client.ask("GET /3 HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
    wait_until("copies", || copied.lock().unwrap().len() == 2);
    control.replace(with(Vec::new())).unwrap();
    wait_until("the end of the mirror", || {
        let answer = client.ask("GET /4 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.status, 200);
        let before = copied.lock().unwrap().len();
        assert_eq!(client.ask("GET /5 HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
        std::thread::sleep(std::time::Duration::from_millis(5));
        copied.lock().unwrap().len() == before
    });
    drop(server.stop());
    silent.wait_until_all_ended();
}
