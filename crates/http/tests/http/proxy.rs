//! The proxy over real sockets, between raw clients and upstreams that we did not write, or that do what
//! no good one does.

mod faults;
mod passing;
mod smuggling;

use crate::support::{PATIENCE, TestServer, config, pool_mode};
use millpond_http::proxy::{Proxy, ProxyConfig, ProxyControl, UpstreamConfig};
use millpond_http::{Limits, ServeConfig};
use millpond_io::connection_pool::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) fn upstream(address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig {
        name: address.to_string(),
        place: Place::Addresses(vec![address.into()]),
        host: "upstream".to_owned(),
        weight: 1,
        tls: None,
    }
}

/// A proxy to these, in a test server.
pub(super) fn proxy(
    upstreams: &[SocketAddr],
    limits: Limits,
    change: impl FnOnce(&mut ProxyConfig),
) -> (TestServer, Arc<ProxyControl>) {
    let mut proxied = ProxyConfig::new(upstreams.iter().copied().map(upstream).collect());
    change(&mut proxied);
    let control = ProxyControl::new(proxied, false, None).unwrap();
    let serve: ServeConfig = config(limits, pool_mode());
    let for_shards = Arc::clone(&control);
    let make = move |start| Proxy::new(&for_shards, &start, limits);
    (TestServer::start(serve, make), control)
}

/// Python's server, until dropped.
pub(super) struct PythonUpstream {
    child: Child,
    pub(super) address: SocketAddr,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl PythonUpstream {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("seen.json");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/upstream.py");
        let mut child = Command::new("python3")
            .arg(script)
            .arg(&log)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is there (scripts/setup test installs it)");
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        Self {
            child,
            address: ([127, 0, 0, 1], port).into(),
            log,
            _directory: directory,
        }
    }

    /// Every complete request that it has seen.
    pub(super) fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for PythonUpstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
                std::thread::spawn(move || {
                    let mut peer = RawPeer {
                        stream: Some(stream),
                        received: Vec::new(),
                    };
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
    stream: Option<TcpStream>,
    received: Vec<u8>,
}

impl RawPeer {
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 65536];
        let stream = self.stream.as_mut().unwrap();
        match stream.read(&mut chunk) {
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
        // The proxy may have closed: what it did is seen elsewhere.
        let _ = self.stream.as_mut().unwrap().write_all(bytes.as_ref());
    }

    /// Until the proxy closes; what came until then.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.received)
    }
}
