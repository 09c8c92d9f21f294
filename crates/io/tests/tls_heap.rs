//! Heap memory of rustls: per request on an established connection, and per connection.
//!
//! Our own part takes nothing, as everywhere; the library allocates for each record it opens or
//! seals. The figures are written down here so that a version which needs more is noticed.
//! `cargo test -p millpond-io --test tls_heap -- --nocapture` prints them.
#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; this one only counts"
)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod tls_support;

use millpond_io::driver::epoll::EpollDriver;
use millpond_io::tls::Tls;
use millpond_io::{Driver, Event, ListenOptions, Listener, ShardPools};
use millpond_mempool::{Buffer, PoolMode};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tls_support::{Authority, client};

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(calls: u64, bytes: i64) {
    if IS_COUNTED.get() {
        CALLS.set(CALLS.get() + calls);
        LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
    }
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns what
// that returns, so the trait's contract is kept by it. Counting touches no heap memory: the cells
// are const-initialised and have no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises about `block`, `layout` and `size` are passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promise that `block` came from here, thus from `System`, is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n";
const RESPONSE: [u8; 130] = [b'x'; 130];

struct Server {
    driver: Tls<EpollDriver>,
    pools: ShardPools,
    address: SocketAddr,
}

impl Server {
    fn new(authority: &Authority) -> Self {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&loopback, ListenOptions::default()).unwrap();
        let millpond_io::Address::Inet(address) = *listener.local_address() else {
            unreachable!()
        };
        let inner = EpollDriver::new(PoolMode::On).unwrap();
        let mut driver = Tls::new(inner, &authority.server, PoolMode::On);
        driver.listen(listener).unwrap();
        Self {
            driver,
            pools: ShardPools::new(PoolMode::On),
            address,
        }
    }

    /// Responds to each message; the only part that is counted.
    fn tick(&mut self) {
        let deadline_ns = millpond_io::monotonic_ns() + 1_000_000;
        IS_COUNTED.set(true);
        let answer = |driver: &mut Tls<EpollDriver>, pools: &mut ShardPools, event: Event<'_>| {
            if let Event::Received { socket, .. } = event {
                let mut data = Buffer::new();
                data.extend_from_slice(&pools.blocks, &RESPONSE).unwrap();
                let _ = driver.send(socket, data);
            }
        };
        let outcome = self.driver.tick(Some(deadline_ns), &mut self.pools, answer);
        IS_COUNTED.set(false);
        outcome.unwrap();
    }

    /// A message there and a response back.
    fn exchange(&mut self, (stream, tls): &mut (TcpStream, ClientConnection)) {
        tls.writer().write_all(REQUEST).unwrap();
        let mut heard = 0;
        while heard < RESPONSE.len() {
            while tls.wants_write() {
                tls.write_tls(stream).unwrap();
            }
            self.tick();
            match tls.read_tls(stream) {
                Ok(count) => assert!(count > 0),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            tls.process_new_packets().unwrap();
            let mut room = [0; 256];
            match tls.reader().read(&mut room) {
                Ok(count) => heard += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    fn connect(&self, config: &Arc<ClientConfig>) -> (TcpStream, ClientConnection) {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        (stream, client(config))
    }
}

fn figures_of(version: &'static SupportedProtocolVersion) -> (u64, i64) {
    const CONNECTIONS: i64 = 50;
    const REQUESTS: u64 = 200;
    let authority = Authority::new();
    let mut config = authority.client_config(&[version]);
    config.resumption = rustls::client::Resumption::disabled();
    let config = Arc::new(config);
    let mut server = Server::new(&authority);
    // The first makes what all share.
    let mut first = server.connect(&config);
    for _ in 0..20 {
        server.exchange(&mut first);
    }
    let before = LIVE_BYTES.get();
    let mut kept = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = server.connect(&config);
        server.exchange(&mut connection);
        kept.push(connection);
    }
    let bytes_per_connection = (LIVE_BYTES.get() - before) / CONNECTIONS;
    let before = CALLS.get();
    for _ in 0..REQUESTS {
        server.exchange(&mut first);
    }
    let mut session_bytes = 0;
    server.driver.visit_pool_stats(&mut |stats| {
        if stats.name == "tls_sessions" {
            session_bytes = stats.live_bytes / stats.live_objects;
        }
    });
    println!("{session_bytes} B of pool per session");
    assert!(session_bytes <= SESSION_BYTES_MAX);
    let calls = CALLS.get() - before;
    assert_eq!(calls % REQUESTS, 0, "the same for each request: {calls}");
    (calls / REQUESTS, bytes_per_connection)
}

/// Goal: calls per request and bytes per connection are known, and do not grow unseen.
#[test]
fn what_rustls_allocates_is_known() {
    for (name, version) in [("1.2", &TLS12), ("1.3", &TLS13)] {
        let (calls, bytes) = figures_of(version);
        println!("TLS {name}: {calls} heap calls per request, {bytes} B of heap per connection");
        assert!(calls <= CALLS_MAX, "TLS {name}: {calls}");
        assert!(bytes <= BYTES_MAX, "TLS {name}: {bytes}");
    }
}

/// A record opened and one sealed: rustls moves each through memory of its own.
const CALLS_MAX: u64 = 2;

/// Keys, transcripts and state machines; the session itself lies in a pool.
const BYTES_MAX: i64 = 2_560;

/// Memory of a session in the pool: rustls' connection, and ours around it.
const SESSION_BYTES_MAX: u64 = 1_536;
