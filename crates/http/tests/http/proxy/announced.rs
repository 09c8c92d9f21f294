//! The PROXY protocol over real sockets, received and sent.

use super::others::OtherServer;
use super::secure::Stream;
use super::{RawUpstream, proxy_with, secure, upstream};
use crate::access_log::{logging, objects};
use crate::support::{RawClient, TestServer, config, pool_mode};
use millpond_http::proxy::{ProbePolicy, ProxyConfig};
use millpond_http::{
    AccessLogFormat, AccessLogTarget, LimitValues, Limits, Plaintext, ServeConfig,
};
use millpond_io::proxy_protocol::{Ends, ProxyHead, ProxyProtocol, parse_proxy_head};
use millpond_io::{Address, Peer};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

/// A client address that only a header can give.
const FROM: &str = "192.0.2.7";
const HEAD: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn awaiting(limits: Limits) -> ServeConfig {
    ServeConfig {
        proxy_protocol: true,
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..config(limits, pool_mode())
    }
}

/// The clients of a log's connections.
fn peers(log: &[u8]) -> Vec<String> {
    let objects = objects(log);
    let peers = objects.iter().map(|entry| entry["peer"].as_str().unwrap());
    peers.map(str::to_owned).collect()
}

/// Goal: the addresses haproxy sends, in both versions and with extensions, are in the log; and haproxy accepts our
/// header.
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

/// Goal: the address in the header counts for the cap of each address, not the balancer's; a client without a header
/// gets nothing, and /metrics has the reason.
#[test]
fn caps_go_by_what_is_told() {
    let limits = LimitValues {
        connections_per_address_max: 1,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
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
    let metrics = server.metrics_text();
    for line in [
        "millpond_proxy_protocol_headers_total{shard=\"0\",version=\"1\"} 3",
        "millpond_proxy_protocol_refused_total{shard=\"0\",reason=\"missing\"} 1",
        "millpond_proxy_protocol_pending{shard=\"0\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("millpond_tls_"), "nobody speaks TLS");
}

/// Goal: a header comes before TLS, and its address is passed to upstreams.
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

/// A head in front of what an upstream is sent.
fn take_head(stream: &mut TcpStream) -> ProxyHead {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
        if let Some(head) = parse_proxy_head(&bytes).unwrap() {
            assert_eq!(head.head_bytes, bytes.len());
            return head;
        }
    }
}

/// An upstream that receives headers, with TLS after them or not; the addresses it got.
fn told_upstream(is_tls: bool) -> (RawUpstream, Arc<Mutex<Vec<ProxyHead>>>) {
    let told = Arc::<Mutex<Vec<ProxyHead>>>::default();
    let heard = Arc::clone(&told);
    let behind_head = move |mut stream: TcpStream| -> Box<dyn Stream> {
        heard.lock().unwrap().push(take_head(&mut stream));
        match is_tls {
            true => secure::accept(stream),
            false => Box::new(stream),
        }
    };
    let upstream = RawUpstream::start_with(behind_head, |peer, _| {
        while let Some(head) = peer.head() {
            let length = head.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}"
            ));
        }
    });
    (upstream, told)
}

/// Goal: each request goes over a connection of its own that begins with its client's address, in either version, with
/// TLS behind it or not; none is used again for any request.
#[test]
fn each_connection_tells_its_client() {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        for is_tls in [false, true] {
            let (upstream, told) = told_upstream(is_tls);
            let (server, _control) = super::proxy_between(
                &[upstream.address],
                Limits::default(),
                false,
                is_tls,
                |config| config.upstreams[0].proxy_protocol = Some(version),
            );
            let mut clients = [server.connect(), server.connect()];
            let mut expected = Vec::new();
            for index in [0, 1, 0, 0, 1] {
                let client = &mut clients[index];
                let answer = client.ask(ASK);
                assert_eq!(answer.status, 200, "{answer:?}");
                let seen = answer.text().to_lowercase();
                assert!(seen.contains("connection: close\r\n"), "{seen}");
                expected.push(ProxyHead {
                    version,
                    ends: Some(Ends {
                        source: Peer::Inet(client.stream.local_addr().unwrap()),
                        destination: Peer::Inet(server.address),
                    }),
                    head_bytes: told.lock().unwrap()[0].head_bytes,
                });
            }
            let mut told = told.lock().unwrap().clone();
            for head in told.iter_mut().chain(&mut expected) {
                // Of a line it depends on how long the port is.
                head.head_bytes = 0;
            }
            assert_eq!(told, expected, "{version}, tls: {is_tls}");
        }
    }
}

/// Goal: the address from a header is passed on, and a health check is never sent as a client's.
#[test]
fn what_is_told_is_told_on() {
    let (upstream, told) = told_upstream(false);
    let mut proxied = ProxyConfig::new(vec![super::upstream(upstream.address)]);
    proxied.upstreams[0].proxy_protocol = Some(ProxyProtocol::V2);
    let (server, control) = proxy_with(proxied.clone(), awaiting(Limits::default()));
    let mut client = server.connect();
    assert_eq!(client.ask(format!("{HEAD}{ASK}")).status, 200);
    let inet = |text: &str| Peer::Inet(text.parse().unwrap());
    let expected = Some(Ends {
        source: inet("192.0.2.7:4711"),
        destination: inet("198.51.100.1:443"),
    });
    assert_eq!(told.lock().unwrap()[0].ends, expected);
    proxied.probe = Some(ProbePolicy::new("/health"));
    control.replace(proxied).unwrap();
    while told.lock().unwrap().len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let probe = told.lock().unwrap()[1];
    assert_eq!((probe.ends, probe.head_bytes), (None, 16), "LOCAL");
}

/// Goal: nginx and haproxy take our heads, and see the client behind them.
#[test]
fn others_see_who_the_client_is() {
    for other in [OtherServer::nginx_told(), OtherServer::haproxy_told()] {
        for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
            let mut proxied = ProxyConfig::new(vec![super::upstream(other.address.clone())]);
            proxied.upstreams[0].proxy_protocol = Some(version);
            let (server, _control) = proxy_with(proxied, awaiting(Limits::default()));
            let mut client = server.connect();
            let answer = client.ask(format!("{HEAD}{ASK}"));
            assert_eq!((answer.status, &*answer.text()), (200, "192.0.2.7 4711"));
            let six = "PROXY TCP6 2001:db8::7 2001:db8::1 4712 443\r\n";
            let mut client = server.connect();
            let answer = client.ask(format!("{six}{ASK}"));
            assert_eq!((answer.status, &*answer.text()), (200, "2001:db8::7 4712"));
        }
    }
}
