//! Heap calls per request, counted in front of the system allocator on the shard's own thread.
//!
//! The claim under test: with pools on, a server in steady state calls malloc for no request of any
//! kind; with pools off, the traffic of a server without pools appears. A comparison of pools on
//! and off compares two different things only if both halves hold.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; this one only counts"
)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "the other test program uses the rest")]
#[path = "http/support.rs"]
mod support;
#[path = "relay/mod.rs"]
mod relay;
#[path = "heap/files.rs"]
mod files;
#[path = "heap/json.rs"]
mod json;
#[path = "heap/logged.rs"]
mod logged;
#[path = "heap/relayed.rs"]
mod relayed;

use millpond_http::asynchronous::UpstreamId;
use millpond_http::{
    AsyncRequest, AsyncService, AsyncShard, Authority, BodyLength, Field, FieldName, FieldValue,
    Flow, Interest, Limits, Method, Plaintext, Reply, Request, RequestTarget, Response, Service,
    ServiceContext, ShardStart, StatusCode, StreamEvent,
};
use millpond_mempool::PoolMode;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{RawClient, TestServer, config};

/// Calls on counted threads of any kind but free: each is one malloc, calloc or realloc.
static HEAP_CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count() {
    if IS_COUNTED.get() {
        HEAP_CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns what
// that returns, so the trait's contract is kept by it. Counting touches no heap memory: the flag
// is const-initialised and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises about `block`, `layout` and `size` are passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise that `block` came from here, thus from `System`, is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const X_SUM: Field<'_> = (
    FieldName::from_static("X-Sum"),
    FieldValue::from_static("7"),
);
const X_A: Field<'_> = (FieldName::from_static("X-A"), FieldValue::from_static("b"));
const UPSTREAM: Authority<'_> = Authority::from_static("upstream");

/// Responds with the body, using what a service uses: arena, pooled body, fields.
struct Store;

impl Service for Store {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let body = request.take_body(&context.pools.blocks).unwrap();
        // Larger arena objects go to malloc by design.
        let tag = context
            .pools
            .arena
            .copy_in(&body[..body.len().min(500)])
            .unwrap();
        // Checked at run time, both, which takes no memory either.
        let name = FieldName::new("X-Start").unwrap();
        let value = FieldValue::new(tag).unwrap();
        response
            .send_with(StatusCode::OK, &[(name, value)], &body)
            .unwrap();
        Flow::Done
    }
}

/// Takes bodies in parts: counts them, or writes them back; responds to GET in parts.
#[derive(Default)]
struct InParts;

/// Body length of a download in parts.
const DOWNLOAD_BYTES: u64 = 300_000;

/// Body length beyond what the kernel buffers for a client that does not read.
const LONG_BYTES: u64 = 12 << 20;

impl Service for InParts {
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        // Bytes left to be written, or bytes read.
        let (length, left_bytes) = match request.path() {
            b"/upload" => return Flow::Stream(Interest::BODY),
            b"/echo" => (BodyLength::Unknown, u64::MAX),
            b"/chunks" => (BodyLength::Unknown, DOWNLOAD_BYTES),
            b"/long" => (BodyLength::Known(LONG_BYTES), LONG_BYTES),
            b"/long-chunks" => (BodyLength::Unknown, LONG_BYTES),
            _ => (BodyLength::Known(DOWNLOAD_BYTES), DOWNLOAD_BYTES),
        };
        response.start(StatusCode::OK, &[], length).unwrap();
        context.state = left_bytes;
        match left_bytes {
            u64::MAX => Flow::Stream(Interest::BODY),
            _ => Flow::Stream(Interest::ROOM),
        }
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        match event {
            StreamEvent::Body(bytes) if context.state == u64::MAX => response.write(bytes).unwrap(),
            StreamEvent::BodyEnd { .. } if context.state == u64::MAX => {
                response.finish_with(&[X_SUM]).unwrap();
                return Flow::Done;
            }
            StreamEvent::Body(bytes) => context.state += bytes.len() as u64,
            StreamEvent::BodyEnd { .. } => {
                response.send(StatusCode::OK, None, b"thanks").unwrap();
                return Flow::Done;
            }
            StreamEvent::Room | StreamEvent::Resumed => {
                let part = context.pools.arena.alloc_slice(512).unwrap();
                let mut left = context.state;
                while left > 0 && response.room_bytes() >= part.len() {
                    let part = &part[..part.len().min(left as usize)];
                    response.write(part).unwrap();
                    left -= part.len() as u64;
                }
                context.state = left;
                if left == 0 {
                    response.finish().unwrap();
                    return Flow::Done;
                }
                return Flow::Stream(Interest::ROOM);
            }
        }
        Flow::Stream(Interest::BODY)
    }
}

fn exchanges_in_parts() -> Vec<Exchange> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let post = |path: &str, size: usize| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; size]].concat()
    };
    let chunked = |path: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [&b"2000\r\n"[..], &[b'x'; 0x2000], b"\r\n"].concat();
        [head.as_bytes(), &chunk.repeat(10), b"0\r\nA: b\r\n\r\n"].concat()
    };
    vec![
        ("a download", vec![get("/download")], 1),
        ("a download in chunks", vec![get("/chunks")], 1),
        ("two downloads", vec![get("/chunks").repeat(2)], 2),
        ("a short upload", vec![post("/upload", 100)], 1),
        ("an upload", vec![post("/upload", 500_000)], 1),
        ("an upload in chunks", vec![chunked("/upload")], 1),
        ("an echo", vec![post("/echo", 100_000)], 1),
        ("an echo of chunks", vec![chunked("/echo")], 1),
    ]
}

/// One exchange: the bytes to send, in parts, and how many responses to read.
type Exchange = (&'static str, Vec<Vec<u8>>, usize);

fn exchanges() -> Vec<Exchange> {
    let get = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n".to_vec();
    let put = |size: usize| {
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; size]].concat()
    };
    let chunked = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n"
        .to_vec();
    let cut = |bytes: &[u8], at: usize| vec![bytes[..at].to_vec(), bytes[at..].to_vec()];
    vec![
        ("one request", vec![get.clone()], 1),
        ("a pipeline of 16", vec![get.repeat(16)], 16),
        ("a pipeline of 200", vec![get.repeat(200)], 200),
        ("a cut head", cut(&get, 20), 1),
        ("a body of 1 KiB", vec![put(1024)], 1),
        ("a cut body", cut(&put(1024), 500), 1),
        ("a body of 20 KiB", cut(&put(20_000), 10_000), 1),
        ("chunks", vec![chunked.clone()], 1),
        ("cut chunks", cut(&chunked, 70), 1),
    ]
}

fn run(client: &mut RawClient, parts: &[Vec<u8>], responses: usize) {
    for part in parts {
        client.send(part);
    }
    for _ in 0..responses {
        assert_eq!(client.response().status, 200);
    }
}

/// Without pools each request calls, so a few show as much as many.
const ROUNDS_OFF: usize = 10;

/// Heap calls of the shard during `rounds` repetitions, after as many to warm up.
fn heap_calls(client: &mut RawClient, exchange: &Exchange, rounds: usize) -> u64 {
    let (_, parts, responses) = exchange;
    (0..rounds).for_each(|_| run(client, parts, *responses));
    // The shard may still be busy after its last send of the warm-up: freeing, setting timers. It
    // handles the next exchange only after that.
    run(client, parts, *responses);
    let before = HEAP_CALLS.load(Ordering::Relaxed);
    (0..rounds).for_each(|_| run(client, parts, *responses));
    HEAP_CALLS.load(Ordering::Relaxed) - before
}

/// Only a call that belongs to the request is in so many.
const WINDOWS_MAX: usize = 20;

/// The least of several windows: how bytes are cut depends on timing, so a size class may be used
/// for the first time late; a call that belongs to the request recurs in every window.
fn steady_heap_calls(client: &mut RawClient, exchange: &Exchange, rounds: usize) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..WINDOWS_MAX {
        least = least.min(heap_calls(client, exchange, rounds));
        if least == 0 {
            break;
        }
    }
    least
}

fn server<S: Service + 'static>(mode: PoolMode, make: fn() -> S) -> TestServer {
    server_with(mode, move |_| make())
}

fn server_with<S: Service>(
    mode: PoolMode,
    make: impl Fn(&ShardStart) -> S + Send + Sync + 'static,
) -> TestServer {
    TestServer::start(config(Limits::default(), mode), move |start| {
        // Called on the shard's thread.
        IS_COUNTED.set(true);
        make(&start)
    })
}

/// Reads the body, waits, calls another server, responds.
async fn go_round(mut request: AsyncRequest, upstream: UpstreamId) -> Reply {
    while request.next_part().await.is_some() {}
    match request.path() {
        b"/sleep" => request.sleep(1).await,
        b"/call" => {
            let root = RequestTarget::new("/").unwrap();
            let call = request.call(upstream, Method::GET, root, &[X_A], b"");
            let reply = call.await.unwrap();
            return Reply::bytes(reply.status, FieldValue::TEXT_PLAIN, reply.body);
        }
        _ => {}
    }
    Reply::text(StatusCode::OK, "done")
}

fn go_round_service(start: &ShardStart, upstream: SocketAddr) -> impl Service + use<> {
    let shard = AsyncShard::new(start.pool_mode);
    let upstream = shard.add_upstream(upstream.into(), UPSTREAM);
    AsyncService::new(start, shard, move |request| go_round(request, upstream))
}

/// Futures in a slab: none of them, nor what they wait for, is malloc's.
fn assert_no_heap_calls_of_futures(rounds: usize) {
    let upstream = TestServer::with_limits(Limits::default(), |_| Plaintext);
    let address = upstream.address;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    for exchange in [
        ("a future", vec![get("/")], 1),
        ("futures in a pipeline", vec![get("/").repeat(16)], 16),
        ("a future that reads", vec![post], 1),
        ("a future that sleeps", vec![get("/sleep")], 1),
        ("a future that calls", vec![get("/call")], 1),
    ] {
        let on = server_with(PoolMode::On, move |start| go_round_service(start, address));
        let calls = steady_heap_calls(&mut on.connect(), &exchange, rounds);
        assert_eq!(calls, 0, "{}", exchange.0);
        let off = server_with(PoolMode::Off, move |start| go_round_service(start, address));
        let calls = heap_calls(&mut off.connect(), &exchange, ROUNDS_OFF);
        assert!(calls >= ROUNDS_OFF as u64, "{}: {calls}", exchange.0);
    }
}

/// Goal: no heap call per request with pools on, at least one with pools off, for plaintext alone
/// and pipelined, and for every other kind of exchange. One test, since there is one counter.
#[test]
fn pools_take_every_heap_call_off_the_request_path() {
    const ROUNDS: usize = 300;
    let allowed = [exchanges()[0].clone(), exchanges()[1].clone()];
    for exchange in &allowed {
        let on = server(PoolMode::On, || Plaintext);
        assert_eq!(
            steady_heap_calls(&mut on.connect(), exchange, ROUNDS),
            0,
            "plaintext {}",
            exchange.0
        );
    }
    for exchange in &exchanges() {
        let on = server(PoolMode::On, || Store);
        assert_eq!(
            steady_heap_calls(&mut on.connect(), exchange, ROUNDS),
            0,
            "{}",
            exchange.0
        );
        let off = server(PoolMode::Off, || Store);
        let calls = heap_calls(&mut off.connect(), exchange, ROUNDS_OFF);
        println!(
            "pools off, {}: {:.2} heap calls",
            exchange.0,
            calls as f64 / ROUNDS_OFF as f64
        );
        assert!(
            calls >= ROUNDS_OFF as u64,
            "{}: {calls} calls are no pool-less server's",
            exchange.0
        );
    }
    for exchange in &exchanges_in_parts() {
        let on = server(PoolMode::On, InParts::default);
        let calls = steady_heap_calls(&mut on.connect(), exchange, ROUNDS / 10);
        assert_eq!(calls, 0, "{}", exchange.0);
        let off = server(PoolMode::Off, InParts::default);
        let calls = heap_calls(&mut off.connect(), exchange, ROUNDS_OFF);
        assert!(calls >= ROUNDS_OFF as u64, "{}: {calls}", exchange.0);
    }
    files::files_make_no_heap_call(ROUNDS);
    json::json_makes_no_heap_call(ROUNDS / 3);
    logged::log_makes_no_heap_call(ROUNDS);
    assert_no_heap_calls_of_futures(ROUNDS / 10);
    relayed::relaying_makes_no_heap_call(ROUNDS / 10);
}
