//! Shared by the socket tests: a server in this process, a raw client, and a separate, simple response parser.

#![allow(dead_code, reason = "each test file uses its own part")]
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond_entity::store::rocksdb::RocksDbStore;
use millpond_entity::{EntityConfig, Store, open, serve_with};
use millpond_http::{LimitValues, Limits, Running, ServeConfig, ServeReport};
use millpond_io::Address;
use millpond_mempool::{BlockPool, Buffer};

pub(crate) mod disk;
pub(crate) mod process;
#[cfg(feature = "distributed")]
pub(crate) mod cluster;

/// Ends a test that hangs; nothing is judged by it. A machine under load stood still for 53 seconds, with all that ran on
/// it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A client of these tests may stand still for as long as the machine lets it: none is late.
pub(crate) fn patient_limits() -> Limits {
    let long_ns = u64::try_from(LONG.as_nanos()).unwrap();
    LimitValues {
        head_timeout_ns: long_ns,
        idle_timeout_ns: long_ns,
        body_grace_ns: long_ns,
        contended_grace_ns: long_ns,
        write_stall_ns: long_ns,
        ..LimitValues::default()
    }
    .checked()
    .unwrap()
}

/// Waits for what another thread or process will do.
#[track_caller]
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A server on a free port of the loopback, stopped when dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<ServeReport>>,
}

impl TestServer {
    /// Starts it; `adjust` may change the two configurations.
    pub(crate) fn start<S: Store>(
        store: &Arc<S>,
        adjust: impl FnOnce(&mut EntityConfig, &mut ServeConfig),
    ) -> Self {
        let store = Arc::clone(store);
        Self::launch(adjust, move |config, http, control| {
            serve_with(&store, config, http, control).unwrap()
        })
    }

    /// Starts what `serve` serves, on a thread of its own.
    pub(crate) fn launch(
        adjust: impl FnOnce(&mut EntityConfig, &mut ServeConfig),
        serve: impl FnOnce(&EntityConfig, &ServeConfig, &mut dyn FnMut(&Running)) -> ServeReport
        + Send
        + 'static,
    ) -> Self {
        let mut config = EntityConfig::new(Path::new("unused").to_owned());
        let mut http = ServeConfig::new("entity", "127.0.0.1:0".parse().unwrap());
        http.limits = patient_limits();
        adjust(&mut config, &mut http);
        let (address_sender, address) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut control = |running: &Running| {
                address_sender
                    .send(socket_address(running.local_address()))
                    .unwrap();
                // An error means that the test is over too.
                let _ = stopped.recv();
            };
            serve(&config, &http, &mut control)
        });
        let address = address.recv().expect("the server starts");
        Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Stops it gracefully.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops it gracefully and waits for its end.
    pub(crate) fn stop(mut self) -> ServeReport {
        self.begin_stop();
        self.thread
            .take()
            .unwrap()
            .join()
            .expect("the server ends without a panic")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.expect("the server ends without a panic");
            }
        }
    }
}

pub(crate) fn socket_address(address: &Address) -> SocketAddr {
    match address {
        Address::Inet(address) => *address,
        Address::Unix(_) => panic!("tests listen on the loopback"),
    }
}

/// One response, complete.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }
}

/// A blocking client over one connection that keeps what it read too much.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).unwrap();
        // A server that never responds must fail the test, not hang it.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Whether nothing has come so far.
    pub(crate) fn has_nothing(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends one request and waits for its response.
    pub(crate) fn request(&mut self, method: &str, target: &str, body: &[u8]) -> Reply {
        self.send(&request(method, target, body)).unwrap();
        self.read_reply(method == "HEAD")
            .unwrap()
            .expect("a response, not the end")
    }

    /// The same, and again for as long as writes are stopped: an engine with small memtables does so where
    /// other programs have the CPUs and merging falls behind.
    pub(crate) fn write(&mut self, method: &str, id: &[u8], value: &[u8]) -> Reply {
        let mut reply = None;
        wait_until(|| {
            let found = self.request(method, &target(id), value);
            let is_stopped = found.status == 503 && found.field("Retry-After").is_some();
            reply = Some(found);
            !is_stopped
        });
        reply.unwrap()
    }

    pub(crate) fn put(&mut self, id: &[u8], value: &[u8]) -> u16 {
        self.request("PUT", &target(id), value).status
    }

    pub(crate) fn get(&mut self, id: &[u8]) -> Reply {
        self.request("GET", &target(id), b"")
    }

    pub(crate) fn delete(&mut self, id: &[u8]) -> u16 {
        self.request("DELETE", &target(id), b"").status
    }

    /// The value of a metric's first sample whose line starts with `start`.
    pub(crate) fn metric(&mut self, start: &str) -> u64 {
        let reply = self.request("GET", "/metrics", b"");
        assert_eq!(reply.status, 200);
        let text = String::from_utf8(reply.body).unwrap();
        let line = text.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no {start} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Of all shards.
    pub(crate) fn metric_sum(&mut self, start: &str) -> u64 {
        let text = String::from_utf8(self.request("GET", "/metrics", b"").body).unwrap();
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// The next response; `None` at a clean end between two.
    pub(crate) fn read_reply(&mut self, is_head: bool) -> std::io::Result<Option<Reply>> {
        let head_len = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
            if self.receive()? == 0 {
                return if self.received.is_empty() {
                    Ok(None)
                } else {
                    Err(cut())
                };
            }
        };
        let head = String::from_utf8(self.received[..head_len].to_vec()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        assert!(status_line.starts_with("HTTP/1.1 "), "{status_line}");
        let status: u16 = status_line[9..12].parse().unwrap();
        let fields: Vec<_> = lines
            .map(|line| line.split_once(": ").expect(line))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut reply = Reply {
            status,
            fields,
            body: Vec::new(),
        };
        let length = reply
            .field("Content-Length")
            .map_or(0, |text| text.parse().unwrap());
        let end = head_len + if is_head { 0 } else { length };
        while self.received.len() < end {
            if self.receive()? == 0 {
                return Err(cut());
            }
        }
        reply.body = self.received[head_len..end].to_vec();
        self.received.drain(..end);
        Ok(Some(reply))
    }

    /// The chunks of the response whose head was just read.
    pub(crate) fn read_chunks(&mut self) -> std::io::Result<Vec<Vec<u8>>> {
        let mut chunks = Vec::new();
        loop {
            let line_len = loop {
                if let Some(len) = find(&self.received, b"\r\n") {
                    break len;
                }
                if self.receive()? == 0 {
                    return Err(cut());
                }
            };
            let digits = std::str::from_utf8(&self.received[..line_len]).unwrap();
            let chunk_len = usize::from_str_radix(digits, 16).unwrap();
            let (start, end) = (line_len + 2, line_len + 2 + chunk_len);
            while self.received.len() < end + 2 {
                if self.receive()? == 0 {
                    return Err(cut());
                }
            }
            assert_eq!(self.received[end..end + 2], *b"\r\n");
            let chunk = self.received[start..end].to_vec();
            self.received.drain(..end + 2);
            if chunk.is_empty() {
                return Ok(chunks);
            }
            chunks.push(chunk);
        }
    }

    fn receive(&mut self) -> std::io::Result<usize> {
        let mut bytes = [0; 64 * 1024];
        let count = self.stream.read(&mut bytes)?;
        self.received.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

fn cut() -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::UnexpectedEof,
        "the connection ended inside a response",
    )
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// A request as bytes; a body is announced for PUT even when it is empty.
pub(crate) fn request(method: &str, target: &str, body: &[u8]) -> Vec<u8> {
    request_with(method, target, "", body)
}

/// The same with more fields, each with its line end.
pub(crate) fn request_with(method: &str, target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}");
    let mut bytes = head.into_bytes();
    if method == "PUT" || !body.is_empty() {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// The target of an id, escaping all but letters and digits.
pub(crate) fn target(id: &[u8]) -> String {
    let mut target = "/v0/entity?id=".to_owned();
    for &byte in id {
        if byte.is_ascii_alphanumeric() {
            target.push(char::from(byte));
        } else {
            target.push_str(&format!("%{byte:02X}"));
        }
    }
    target
}

/// An empty data directory, which goes with the first of the two, and its store.
pub(crate) fn rocksdb() -> (tempfile::TempDir, Arc<RocksDbStore>) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&EntityConfig::new(directory.path().join("data"))).unwrap();
    (directory, Arc::new(store))
}

/// A buffer of these bytes.
pub(crate) fn buffer(blocks: &BlockPool, bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::with_capacity(blocks, bytes.len()).unwrap();
    buffer.append_within_capacity(bytes);
    buffer
}
