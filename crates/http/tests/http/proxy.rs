//! The proxy over real sockets, between raw clients and upstreams that we did not write, or that do what
//! no good one does.

mod announced;
mod causes;
mod meanings;
mod same;
mod mirrors;
mod others;
mod secure;
mod faults;
mod gone;
mod loops;
mod passing;
mod retries;
mod smuggling;
mod answers;
mod websocket;
mod logging;
mod trailers;
mod tunnels;

use crate::support::{PATIENCE, TestServer, config, pool_mode};
use millpond_http::proxy::{Proxy, ProxyConfig, ProxyControl, UpstreamConfig};
use millpond_http::{Limits, ServeConfig};
use millpond_io::Address;
use millpond_io::connection_pool::Endpoint;
use secure::Stream;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) fn upstream(address: impl Into<Address>) -> UpstreamConfig {
    let address = address.into();
    UpstreamConfig {
        name: address.to_string(),
        place: Endpoint::Addresses(vec![address]),
        host: "upstream".to_owned(),
        weight: 1,
        tls: None,
        proxy_protocol: None,
    }
}

/// A proxy to these, in a test server.
pub(super) fn proxy(
    upstreams: &[impl Into<Address> + Clone],
    limits: Limits,
    change: impl FnOnce(&mut ProxyConfig),
) -> (TestServer, Arc<ProxyControl>) {
    proxy_between(upstreams, limits, false, false, change)
}

/// The same, with TLS on either side, or on both.
pub(super) fn proxy_between(
    upstreams: &[impl Into<Address> + Clone],
    limits: Limits,
    has_tls_clients: bool,
    has_tls_upstreams: bool,
    change: impl FnOnce(&mut ProxyConfig),
) -> (TestServer, Arc<ProxyControl>) {
    let mut proxied = ProxyConfig::new(upstreams.iter().cloned().map(upstream).collect());
    for upstream in &mut proxied.upstreams {
        upstream.tls = has_tls_upstreams.then(secure::for_upstreams);
    }
    change(&mut proxied);
    let serve = ServeConfig {
        tls: has_tls_clients.then(secure::for_clients),
        speaks_tls_to_others: has_tls_upstreams,
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..config(limits, pool_mode())
    };
    proxy_with(proxied, serve)
}

/// The same of configurations that are whole.
pub(super) fn proxy_with(
    proxied: ProxyConfig,
    serve: ServeConfig,
) -> (TestServer, Arc<ProxyControl>) {
    let control = ProxyControl::new(proxied, serve.tls.is_some(), None).unwrap();
    let limits = serve.limits;
    let serve = ServeConfig {
        status_pages: control.status_pages(),
        ..serve
    };
    let for_shards = Arc::clone(&control);
    let make = move |start| Proxy::new(&for_shards, &start, limits);
    (TestServer::start(serve, make), control)
}

/// An address that refuses: its socket is closed, and no other process can listen there.
pub(super) fn refusing(directory: &tempfile::TempDir) -> Address {
    let path = directory.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    Address::Unix(path)
}

/// An upstream whose every connection is one call of a function, on a thread of its own.
pub(super) struct RawUpstream {
    pub(super) address: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
    /// Connections whose function has returned.
    pub(super) ended: Arc<AtomicUsize>,
}

impl RawUpstream {
    pub(super) fn start(serve: impl Fn(&mut RawPeer, usize) + Send + Sync + 'static) -> Self {
        Self::start_with(|stream| Box::new(stream), serve)
    }

    /// The same behind TLS.
    pub(super) fn start_tls(serve: impl Fn(&mut RawPeer, usize) + Send + Sync + 'static) -> Self {
        Self::start_with(secure::accept, serve)
    }

    pub(super) fn start_with(
        wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + Sync + 'static,
        serve: impl Fn(&mut RawPeer, usize) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (count, count_ended, serve) = (connections.clone(), ended.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let index = count.fetch_add(1, Ordering::SeqCst);
                let (serve, ended) = (Arc::clone(&serve), count_ended.clone());
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let stream = wrap(stream);
                std::thread::spawn(move || {
                    let mut peer = RawPeer {
                        stream,
                        received: Vec::new(),
                    };
                    // A handshake, of those that have one: later bytes belong to requests.
                    let _ = peer.stream.flush();
                    serve(&mut peer, index);
                    drop(peer);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            connections,
            ended,
        }
    }

    /// Waits until every connection's function has returned, which those do that wait for the proxy's
    /// end of the connection.
    pub(super) fn wait_until_all_ended(&self) {
        let started = std::time::Instant::now();
        while self.ended.load(Ordering::SeqCst) < self.connections.load(Ordering::SeqCst) {
            assert!(started.elapsed() < PATIENCE, "the proxy keeps a connection");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// One connection of a raw upstream.
pub(super) struct RawPeer {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl RawPeer {
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                true
            }
        }
    }

    /// The next request's head; `None` at the end of the connection.
    pub(super) fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.received.split_off(end + 4);
                let head = std::mem::replace(&mut self.received, rest);
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// The body that belongs to the head, chunks as they are.
    pub(super) fn body(&mut self, head: &str) -> Option<Vec<u8>> {
        let lower = head.to_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let is_chunked = lower.contains("transfer-encoding: chunked");
        let is_whole = |bytes: &[u8]| match length {
            Some(length) => bytes.len() >= length.parse().unwrap(),
            None => !is_chunked || bytes.ends_with(b"0\r\n\r\n"),
        };
        while !is_whole(&self.received) {
            if !self.fill() {
                return None;
            }
        }
        Some(std::mem::take(&mut self.received))
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The proxy may have closed: its behavior is checked elsewhere.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Until the proxy closes; returns the bytes received until then.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.received)
    }
}
