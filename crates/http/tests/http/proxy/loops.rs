//! Proxies that are their own upstream, or that of each other.

use super::{proxy, upstream};
use crate::support::TestServer;
use millpond_http::Limits;
use millpond_http::proxy::{ProxyConfig, ProxyControl};
use std::net::SocketAddr;
use std::sync::Arc;

/// A proxy whose upstream is named later.
fn unled() -> (TestServer, Arc<ProxyControl>) {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    proxy(&[nowhere], Limits::default(), |_| {})
}

fn lead(control: &ProxyControl, to: &TestServer) {
    let mut config = ProxyConfig::new(vec![upstream(to.address)]);
    config.upgrades = "websocket".parse().unwrap();
    control.replace(config).unwrap();
}

/// How often requests were sent on to this proxy.
fn tries_to(server: &TestServer, to: &TestServer) -> String {
    let text = server.metrics_text();
    let name = format!(
        "millpond_upstream_tries_total{{upstream=\"{}\"}} ",
        to.address
    );
    let found = text.lines().find_map(|line| line.strip_prefix(&name));
    found.unwrap().to_owned()
}

/// Text that must not hide a loop: Via as others write it, or malformed; and kinds of requests.
const REQUESTS: [&str; 8] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 millpond, HTTP/1.1 nginx (x, y)\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 b\r\nVIA: 1.1 (((\r\nvia: \"\\\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 b\r\nConnection: Via, close\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
];

/// One GET to a proxy that was its own upstream took 2,000 descriptors. Goal: it gets 508 after one round, whatever Via
/// contains before, and so is the same request again.
#[test]
fn a_proxy_that_is_its_own_upstream_answers_508() {
    let (server, control) = unled();
    lead(&control, &server);
    let mut count = 0;
    for request in REQUESTS {
        for _ in 0..2 {
            let answer = server.connect().ask(request);
            assert_eq!(answer.status, 508, "{request}: {}", answer.text());
            assert!(answer.text().contains("came back to this proxy"));
            count += 1;
            assert_eq!(tries_to(&server, &server), count.to_string(), "{request}");
        }
    }
}

/// Goal: the same of two proxies that are each other's upstreams, after one round as well.
#[test]
fn a_ring_of_two_proxies_answers_508() {
    let (first, first_control) = unled();
    let (second, second_control) = unled();
    lead(&first_control, &second);
    lead(&second_control, &first);
    for (index, request) in REQUESTS.iter().enumerate() {
        let answer = first.connect().ask(request);
        assert_eq!(answer.status, 508, "{request}: {}", answer.text());
        let count = (index + 1).to_string();
        assert_eq!(tries_to(&first, &second), count, "{request}");
        assert_eq!(tries_to(&second, &first), count, "{request}");
    }
}
