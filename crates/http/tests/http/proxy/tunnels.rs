//! Connections that another protocol has taken over: the end of each direction, and silence.

use super::proxy;
use crate::support::{PATIENCE, RawClient, TestServer, wait_until};
use millpond_http::Limits;
use millpond_http::proxy::{ProxyConfig, ProxyControl};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const ASKED: &str = "GET /t HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n";
const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n";

/// More than all buffers in between hold.
const LONG_BYTES: usize = 24 << 20;

/// An upstream that changes the protocol of one connection and then does `act` with it.
fn upstream<T: Send + 'static>(
    act: impl FnOnce(&mut TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        stream.write_all(SWITCHED).unwrap();
        act(&mut stream)
    });
    (address, thread)
}

/// A proxy to this address, and a client whose connection has changed its protocol.
fn tunnel(
    address: SocketAddr,
    change: impl FnOnce(&mut ProxyConfig),
) -> (TestServer, Arc<ProxyControl>, RawClient) {
    let (server, control) = proxy(&[address], Limits::default(), |config| {
        config.upgrades = "raw".parse().unwrap();
        change(config);
    });
    let mut client = server.connect();
    client.send(ASKED);
    assert_eq!(client.response().status, 101);
    (server, control, client)
}

fn all_of(stream: &mut impl Read) -> usize {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == b'z'));
    got.len()
}

/// A FIN of either side cut the other one's direction. Goal: what the client sends, however late the
/// upstream reads it, arrives with its end, and then the upstream's response does.
#[test]
fn an_upstream_answers_after_the_clients_fin() {
    let (address, thread) = upstream(|stream| {
        std::thread::sleep(Duration::from_millis(50));
        let count = all_of(stream);
        stream.write_all(&vec![b'z'; LONG_BYTES]).unwrap();
        count
    });
    let (server, _control, mut client) = tunnel(address, |_| {});
    client.send(vec![b'z'; LONG_BYTES]);
    client.finish();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.rest().len(), LONG_BYTES);
    assert_eq!(thread.join().unwrap(), LONG_BYTES);
    drop(client);
    wait_until("nothing is left", || outstanding(&server) == 0);
}

/// Goal: the same the other way.
#[test]
fn a_client_answers_after_the_upstreams_fin() {
    let (address, thread) = upstream(|stream| {
        stream.write_all(&vec![b'z'; LONG_BYTES]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        all_of(stream)
    });
    let (server, _control, mut client) = tunnel(address, |_| {});
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.rest().len(), LONG_BYTES);
    client.send(vec![b'z'; LONG_BYTES]);
    client.finish();
    assert_eq!(thread.join().unwrap(), LONG_BYTES);
    wait_until("nothing is left", || outstanding(&server) == 0);
}

/// Goal: both at once, without a byte, is an end as well.
#[test]
fn a_tunnel_ends_when_both_sides_have_finished() {
    let (address, thread) = upstream(|stream| {
        stream.shutdown(Shutdown::Write).unwrap();
        all_of(stream)
    });
    let (server, _control, mut client) = tunnel(address, |_| {});
    client.finish();
    assert!(client.rest().is_empty());
    assert_eq!(thread.join().unwrap(), 0);
    wait_until("nothing is left", || outstanding(&server) == 0);
}

/// Goal: a reset of either side ends the other.
#[test]
fn a_reset_ends_the_tunnel() {
    let (address, thread) = upstream(|stream| stream.read_to_end(&mut Vec::new()).is_ok());
    let (server, _control, client) = tunnel(address, |_| {});
    let at_once = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&client.stream, at_once).unwrap();
    drop(client);
    thread.join().unwrap();
    wait_until("nothing is left", || outstanding(&server) == 0);
}

/// Goal: a tunnel through which nothing goes is closed after its time, on both sides, also one that is half closed;
/// each byte either way puts it off; it is counted, and no side is at fault.
#[test]
fn a_silent_tunnel_is_closed() {
    for is_half_closed in [false, true] {
        let (address, thread) = upstream(move |stream| {
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(100));
                stream.write_all(b"z").unwrap();
            }
            if is_half_closed {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            all_of(stream)
        });
        let (server, _control, mut client) = tunnel(address, |config| {
            config.timeouts.tunnel_idle_ns = 2_000_000_000;
            config.ejection.failures_max = 1;
        });
        assert_eq!(client.rest(), b"zzzzz");
        assert_eq!(thread.join().unwrap(), 0);
        let metrics = server.metrics_text();
        for (name, count) in [
            ("millpond_upstream_tunnels_total", 1),
            ("millpond_upstream_tunnel_idle_timeouts_total", 1),
            ("millpond_upstream_failures_total", 0),
            ("millpond_upstream_ejections_total", 0),
        ] {
            assert_eq!(sum(&metrics, name), count, "{name}");
        }
    }
}

fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

fn outstanding(server: &TestServer) -> u64 {
    sum(&server.metrics_text(), "millpond_upstream_outstanding")
}

/// An upstream with this response to each request.
fn answering(answer: String) -> super::RawUpstream {
    super::RawUpstream::start(move |peer, _| {
        if let Some(head) = peer.head() {
            assert!(!head.contains("h2c"), "{head}");
            peer.send(&answer);
            peer.rest();
        }
    })
}

/// An upstream could make a client's connection speak any protocol, h2c among them, with which requests pass by
/// all that the proxy checks.
///
/// Goal: only 101 for the one protocol of the request changes the connection; any other is 502 with the cause, and its
/// connection is closed; a protocol that is not allowed is not requested.
#[test]
fn only_the_protocol_that_was_asked_for_takes_over() {
    let agreed = ["Upgrade: websocket\r\n", "Upgrade: WebSocket \r\n"];
    let others = [
        "",
        "Upgrade:\r\n",
        "Upgrade: h2c\r\n",
        "Upgrade: websocket, h2c\r\n",
        "Upgrade: websocket\r\nUpgrade: websocket\r\n",
    ];
    let offers = [
        ("websocket", true),
        ("h2c, WebSocket", true),
        ("h2c", false),
        ("", false),
    ];
    for (offered, is_asked) in offers {
        for told in agreed.iter().chain(&others) {
            let upstream = answering(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{told}\r\n"
            ));
            let (server, _control) = proxy(&[upstream.address], Limits::default(), |config| {
                config.upgrades = "other,websocket".parse().unwrap();
                config.ejection.failures_max = 0;
            });
            let mut client = server.connect();
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {offered}\r\n\r\n"
            ));
            let answer = client.response_to_head();
            let expected = match is_asked && agreed.contains(told) {
                true => (101, None),
                false => (502, Some(true)),
            };
            let said = answer.header("proxy-status");
            let is_named = said.map(|said| said.contains("error=http_upgrade_failed; "));
            let found = (answer.status, is_named);
            assert_eq!(found, expected, "{offered:?} {told:?}");
            drop(client);
            wait_until("nothing is left", || outstanding(&server) == 0);
            upstream.wait_until_all_ended();
        }
    }
}
