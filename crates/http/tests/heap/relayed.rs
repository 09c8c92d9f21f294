//! The same for what is passed on to another server: by the least service that can, and by the proxy.

use crate::exchanges_in_parts;
use crate::relay::Relay;
use crate::support::{PATIENCE, RawClient, TestServer, config};
use crate::{Exchange, HEAP_CALLS, IS_COUNTED, InParts, LONG_BYTES, WINDOWS_MAX};
use crate::{ROUNDS_OFF, heap_calls, steady_heap_calls};
use millpond_http::ServeConfig;
use millpond_http::proxy::{Proxy, ProxyConfig, ProxyControl, UpstreamConfig};
use millpond_http::{Client, ClientConfig, Limits, Plaintext, Service, ShardStart};
use millpond_io::Address;
use millpond_io::connection_pool::{Endpoint, Target};
use millpond_mempool::PoolMode;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So much does the kernel keep for a client that does not read, at most: it makes the room for
/// receiving as large as it is used otherwise, and what is sent waits in some MiB more.
const WINDOW_BYTES: usize = 256 * 1024;

/// Long enough for the shard to fill what the kernel keeps; nothing fails if it was not.
const PAUSE: Duration = Duration::from_millis(30);

/// So long is a block waited for before the response is asked for once more.
const TRY: Duration = Duration::from_secs(1);

/// A server that counts, in front of another.
fn counted<S: Service>(
    mode: PoolMode,
    make: impl Fn(&ShardStart) -> S + Send + Sync + 'static,
) -> TestServer {
    let serve = ServeConfig {
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..config(Limits::default(), mode)
    };
    TestServer::start(serve, move |start| {
        // Called on the shard's thread.
        IS_COUNTED.set(true);
        make(&start)
    })
}

fn relay(mode: PoolMode, upstream: SocketAddr) -> TestServer {
    counted(mode, move |start| {
        let client = Client::new(start, ClientConfig::default());
        Relay::new(client, vec![Target::at(upstream.into())], start.pool_mode)
    })
}

fn proxy(mode: PoolMode, upstream: SocketAddr) -> TestServer {
    let config = ProxyConfig::new(vec![UpstreamConfig {
        name: upstream.to_string(),
        place: Endpoint::Addresses(vec![upstream.into()]),
        host: "upstream".to_owned(),
        weight: 1,
        tls: None,
        proxy_protocol: None,
    }]);
    let control: Arc<ProxyControl> = ProxyControl::new(config, false, None).unwrap();
    counted(mode, move |start| {
        Proxy::new(&control, start, Limits::default())
    })
}

type Start = fn(PoolMode, SocketAddr) -> TestServer;

fn assert_none(start: Start, upstream: SocketAddr, exchange: &Exchange, rounds: usize) {
    let on = start(PoolMode::On, upstream);
    let calls = steady_heap_calls(&mut on.connect(), exchange, rounds);
    assert_eq!(calls, 0, "{}, passed on", exchange.0);
    let off = start(PoolMode::Off, upstream);
    let calls = heap_calls(&mut off.connect(), exchange, ROUNDS_OFF);
    assert!(calls >= ROUNDS_OFF as u64, "{}: {calls}", exchange.0);
}

/// How many blocks of responses had to wait so far.
fn responses_kept(server: &TestServer) -> u64 {
    let metrics = server.metrics_text();
    let of_kept = |line: &&str| line.contains("http_responses_kept");
    let lines = metrics.lines().filter(of_kept);
    let calls = lines.filter(|line| {
        let name = line.split('{').next().unwrap_or_default();
        name.ends_with("_hits_total") || name.ends_with("_misses_total")
    });
    calls
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// A client that read nothing of a long response until blocks of it had to wait. If the bytes filled the output exactly
/// before the upstream was paused, no block has to wait, however long the test waits: then it sends another request.
fn client_that_read_late(server: &TestServer, request: &str) -> RawClient {
    let begin = Instant::now();
    loop {
        let mut client = server.connect();
        sockopt::set_socket_recv_buffer_size(&client.stream, WINDOW_BYTES).unwrap();
        client.send(request);
        let asked = Instant::now();
        while responses_kept(server) == 0 && asked.elapsed() < TRY {
            std::thread::sleep(PAUSE);
        }
        assert_eq!(client.response().body.len() as u64, LONG_BYTES, "{request}");
        if responses_kept(server) > 0 {
            return client;
        }
        assert!(begin.elapsed() < PATIENCE, "{request}: nothing had to wait");
    }
}

/// No heap call for a client that reads a long response when the upstream had to be paused.
fn assert_none_for_who_reads_late(start: Start, upstream: SocketAddr) {
    for path in ["/long", "/long-chunks"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let on = start(PoolMode::On, upstream);
        let mut client = client_that_read_late(&on, &request);
        let mut calls = Vec::new();
        while !calls.contains(&0) && calls.len() < WINDOWS_MAX {
            let before = HEAP_CALLS.load(Ordering::Relaxed);
            client.send(&request);
            std::thread::sleep(PAUSE);
            assert_eq!(client.response().body.len() as u64, LONG_BYTES, "{path}");
            calls.push(HEAP_CALLS.load(Ordering::Relaxed) - before);
        }
        assert!(calls.contains(&0), "{path} for who reads late: {calls:?}");
    }
}

/// Requests that are passed on: none of them, nor of what passes, is malloc's, whatever one receive
/// brings and however slowly it is read.
pub(crate) fn relaying_makes_no_heap_call(rounds: usize) {
    let upstream = TestServer::with_limits(Limits::default(), |_| InParts);
    let plain = TestServer::with_limits(Limits::default(), |_| Plaintext);
    let get = b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n".to_vec();
    let short = [
        ("a short response", vec![get.clone()], 1),
        ("two of them", vec![get.repeat(2)], 2),
    ];
    for (start, is_proxy) in [(relay as Start, false), (proxy as Start, true)] {
        for exchange in &short {
            assert_none(start, plain.address, exchange, rounds);
        }
        for exchange in &exchanges_in_parts() {
            // Its response comes long before its body ends: the proxy then closes the connection.
            if is_proxy && exchange.0 == "an echo" {
                continue;
            }
            assert_none(start, upstream.address, exchange, rounds);
        }
        assert_none_for_who_reads_late(start, upstream.address);
    }
}
