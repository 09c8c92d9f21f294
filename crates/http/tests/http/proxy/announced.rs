//! The PROXY protocol over real sockets: told by others, and told to others.

use super::others::OtherServer;
use super::{RawUpstream, proxy_with, secure, upstream};
use crate::access_log::{logging, objects};
use crate::support::{RawClient, TestServer, config, pool_mode};
use millpond_http::proxy::ProxyConfig;
use millpond_http::{AccessLogFormat, AccessLogTarget, Limits, Plaintext, ServeConfig};
use std::os::unix::net::UnixStream;

/// A client that only a head can tell of.
const FROM: &str = "192.0.2.7";
const HEAD: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn awaiting(limits: Limits) -> ServeConfig {
    ServeConfig {
        proxy_protocol: true,
        ..config(limits, pool_mode())
    }
}

/// Whose connections a log is about.
fn peers(log: &[u8]) -> Vec<String> {
    let objects = objects(log);
    let peers = objects.iter().map(|entry| entry["peer"].as_str().unwrap());
    peers.map(str::to_owned).collect()
}

/// Goal: what haproxy tells, in both versions and with extensions, is what the log says; and haproxy
/// takes the head that it is told by.
#[test]
fn haproxy_tells_who_the_client_is() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access.log");
    let target = AccessLogTarget::File(path.clone());
    let serve = ServeConfig {
        proxy_protocol: true,
        ..logging(Limits::default(), target, AccessLogFormat::Json)
    };
    let server = TestServer::start(serve, |_| Plaintext);
    let balancer = OtherServer::haproxy(server.address);
    for name in ["v1", "v2", "extended"] {
        for head in [HEAD, "PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n"] {
            let stream = UnixStream::connect(balancer.socket(name)).unwrap();
            let mut client = RawClient::over(stream);
            client.send(format!("{head}{ASK}"));
            assert_eq!(client.response().status, 200, "{name}");
            client.send(LAST);
            assert!(client.rest().starts_with(b"HTTP/1.1 200"), "{name}");
        }
    }
    server.stop();
    let log = std::fs::read(path).unwrap();
    let six = "2001:db8::7";
    assert_eq!(peers(&log), [FROM, FROM, six, six].repeat(3));
}

/// Goal: the address told counts for the cap of each address, not the balancer's; who sends no head
/// hears nothing, and /metrics says why.
#[test]
fn caps_go_by_what_is_told() {
    let limits = Limits {
        connections_per_address_max: 1,
        ..Limits::default()
    };
    let server = TestServer::start(awaiting(limits), |_| Plaintext);
    let mut first = server.connect();
    assert_eq!(first.ask(format!("{HEAD}{ASK}")).status, 200);
    let mut second = server.connect();
    assert_eq!(second.ask(HEAD).status, 503, "the same client again");
    second.expect_end();
    let mut other = server.connect();
    let told = HEAD.replace("192.0.2.7", "192.0.2.8");
    assert_eq!(other.ask(format!("{told}{ASK}")).status, 200);
    let mut headless = server.connect();
    headless.send(ASK);
    headless.expect_reset_or_end();
    let metrics = other.ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").text();
    for line in [
        "millpond_proxy_protocol_heads_total{shard=\"0\",version=\"1\"} 3",
        "millpond_proxy_protocol_refused_total{shard=\"0\",reason=\"missing\"} 1",
        "millpond_proxy_protocol_awaited{shard=\"0\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("millpond_tls_"), "nobody speaks TLS");
}

/// Goal: a head comes before TLS, and what it told is what upstreams are told.
#[test]
fn a_head_comes_before_tls_and_is_passed_on() {
    let seen = RawUpstream::start(|peer, _| {
        while let Some(head) = peer.head() {
            let length = head.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}"
            ));
        }
    });
    let mut proxied = ProxyConfig::new(vec![upstream(seen.address)]);
    proxied.retry_percent = 0;
    let serve = ServeConfig {
        tls: Some(secure::for_clients()),
        ..awaiting(Limits::default())
    };
    let (server, _control) = proxy_with(proxied, serve);
    let mut client = RawClient::over(secure::connect_behind(server.address, HEAD.as_bytes()));
    let told = client.ask(ASK).text();
    for field in [
        "X-Forwarded-For: 192.0.2.7\r\n",
        "Forwarded: for=192.0.2.7;",
    ] {
        assert!(told.contains(field), "{told}");
    }
}
