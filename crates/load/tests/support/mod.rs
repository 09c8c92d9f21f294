//! A server of threads and blocking sockets with the responses that a test defines; it keeps what
//! it received. It shares no code with the generator, so neither can hide the other's mistakes.
#![allow(dead_code, reason = "each test file uses its part")]

use millpond_http::Method;
use millpond_io::{Address, DriverChoice};
use millpond_load::{LoadConfig, LoadError, LoadRecord, Target, Workload};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A request as received by the server.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Counts all requests of the server, from 0.
    pub(crate) number: u64,
    /// Counts the connections, from 0.
    pub(crate) connection: usize,
    /// Counts the requests of this connection, from 0.
    pub(crate) in_connection: usize,
    /// Whole requests that arrived behind this one in the same read.
    pub(crate) behind: usize,
    pub(crate) at: Instant,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }
}

/// The server's handling of a request.
pub(crate) struct Reply {
    pub(crate) wait: Duration,
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Then {
    KeepOpen,
    Close,
}

impl Reply {
    pub(crate) fn ok(body: &[u8]) -> Self {
        Self::status(200, body)
    }

    pub(crate) fn status(status: u16, body: &[u8]) -> Self {
        let head = format!(
            "HTTP/1.1 {status} Word\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Self::raw([head.as_bytes(), body].concat())
    }

    pub(crate) fn raw(bytes: Vec<u8>) -> Self {
        Self {
            wait: Duration::ZERO,
            bytes,
            then: Then::KeepOpen,
        }
    }

    pub(crate) fn silence() -> Self {
        Self::raw(Vec::new())
    }

    pub(crate) fn after(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    pub(crate) fn then_close(self) -> Self {
        Self {
            then: Then::Close,
            ..self
        }
    }
}

#[derive(Default)]
struct State {
    requests: AtomicU64,
    connections: AtomicUsize,
    stopped: AtomicBool,
    seen: Mutex<Vec<Seen>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// A running server; stops when dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl TestServer {
    pub(crate) fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn start_on(
        listener: TcpListener,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let answer = Arc::new(answer);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                // Under the lock that `die` takes: no connection is accepted behind its back.
                let mut streams = shared.streams.lock().unwrap();
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                streams.push(stream.try_clone().unwrap());
                drop(streams);
                let (state, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                let connection = state.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(stream, connection, &state, &*answer));
            }
        });
        Self { address, state }
    }

    /// Requests that arrived, counted by the server itself.
    pub(crate) fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Until so many have arrived.
    pub(crate) fn wait_for_requests(&self, count: u64) {
        eventually("the requests", || self.requests() >= count);
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Stops listening and resets every connection: a crash for the client.
    pub(crate) fn die(&self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then drops the listener.
        let _ = TcpStream::connect(self.address);
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.die();
    }
}

fn serve(mut stream: TcpStream, connection: usize, state: &State, answer: &dyn Fn(&Seen) -> Reply) {
    let _ = stream.set_nodelay(true);
    let (mut pending, mut chunk) = (Vec::new(), [0; 65_536]);
    let mut in_connection = 0;
    loop {
        let Ok(count) = stream.read(&mut chunk) else {
            return;
        };
        if count == 0 {
            return;
        }
        let at = Instant::now();
        pending.extend_from_slice(&chunk[..count]);
        let mut requests = Vec::new();
        while let Some((head, body)) = split_request(&mut pending) {
            requests.push((head, body));
        }
        let total = requests.len();
        for (place, (head, body)) in requests.into_iter().enumerate() {
            let number = state.requests.fetch_add(1, Ordering::SeqCst);
            let behind = total - place - 1;
            let seen = Seen {
                number,
                connection,
                in_connection,
                behind,
                at,
                head,
                body,
            };
            in_connection += 1;
            let reply = answer(&seen);
            state.seen.lock().unwrap().push(seen);
            std::thread::sleep(reply.wait);
            if stream.write_all(&reply.bytes).is_err() {
                return;
            }
            if reply.then == Then::Close {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Waits for what must happen; only a hang reaches the bound.
pub(crate) fn eventually(what: &str, mut has_happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !has_happened() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const PATIENCE: Duration = Duration::from_secs(100);

/// An address that refuses connections, as long as what comes with it is kept: the near end of a
/// connection, whose port no other program can listen on.
pub(crate) fn refusing_address() -> (SocketAddr, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (stream.local_addr().unwrap(), (listener, stream))
}

/// Takes one whole request off the front.
fn split_request(pending: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_len = pending
        .windows(4)
        .position(|window| window == b"\r\n\r\n")?
        + 4;
    let head = String::from_utf8(pending[..head_len].to_vec()).unwrap();
    let body_len = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |length| length.parse().unwrap());
    if pending.len() < head_len + body_len {
        return None;
    }
    let body = pending[head_len..][..body_len].to_vec();
    pending.drain(..head_len + body_len);
    Some((head, body))
}

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn target(address: SocketAddr, path: &str) -> Target {
    Target {
        addresses: [Address::Inet(address)].into(),
        host: address.to_string(),
        path: path.into(),
    }
}

/// The generator's driver in all tests: `auto`, or that of the environment variable
/// `MILLPOND_TEST_DRIVER`.
pub(crate) fn driver() -> DriverChoice {
    std::env::var("MILLPOND_TEST_DRIVER").map_or(DriverChoice::Auto, |text| text.parse().unwrap())
}

/// GET / at the server; change what differs.
pub(crate) fn get(address: SocketAddr) -> LoadConfig {
    let workload = Workload::Static {
        method: Method::Get,
        fields: vec![],
        body: vec![],
    };
    let mut config = LoadConfig::new(target(address, "/"), workload);
    config.driver = driver();
    // No test fails because a busy machine stalled.
    config.timeout_ns = 100_000 * MS;
    config
}

pub(crate) fn run(config: &LoadConfig) -> LoadRecord {
    try_run(config).unwrap()
}

pub(crate) fn try_run(config: &LoadConfig) -> Result<LoadRecord, LoadError> {
    millpond_load::run(config, &|_| {}, &AtomicBool::new(false))
}

/// The conditions for every record, whatever happened.
pub(crate) fn check_identities(record: &LoadRecord) {
    assert_eq!(record.response.count(), record.requests);
    assert_eq!(record.service.count(), record.requests);
    assert_eq!(record.slip.count(), record.requests);
    let errors = record.errors;
    let failed = errors.total() - errors.connect - record.unsent;
    assert_eq!(
        record.sent,
        record.requests + failed + record.abandoned,
        "{record:?}"
    );
    let answers: u64 = record.statuses.values().sum();
    assert_eq!(answers, record.requests + errors.status + errors.validation);
    let (response, sum) = (
        record.response.mean(),
        record.service.mean() + record.slip.mean(),
    );
    assert!(
        (response - sum).abs() <= response * 0.003 + 3.0,
        "{response} {sum}"
    );
}
