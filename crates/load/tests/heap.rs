//! Goal: a request costs the generator no heap call: a run of many requests makes as many calls as
//! a run of few. The server of this test allocates nothing per request either, so the calls of the
//! whole process can be counted.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
#![allow(unsafe_code)]

use millpond_http::Method;
use millpond_io::{Address, DriverChoice};
use millpond_load::{
    Checksum, CookiePlan, KeyDistribution, KeySpace, LoadConfig, Mode, RequestBody, RequestClass,
    RequestMix, Stop, Target, Validation, Workload,
};
use millpond_mempool::PoolMode;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct CountingAllocator;

static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The thread that starts the runs watches over them: it reads /proc/stat four times a second,
    /// whatever the requests do.
    static IS_WATCHING: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    let is_counted = IS_WATCHING
        .try_with(|watching| !watching.get())
        .unwrap_or(true);
    CALLS.fetch_add(u64::from(is_counted), Ordering::Relaxed);
}

// SAFETY: all work is the system allocator's; counting is one atomic addition, and reading a cell that
// needs neither memory nor a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size_bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(start, layout, size_bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sends `answer` for every `request_bytes` received, from buffers on its threads' stacks.
fn start_server(request_bytes: impl Fn(SocketAddr) -> usize, answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let request_bytes = request_bytes(address);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                let mut received = 0;
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    received += count;
                    while received >= request_bytes {
                        received -= request_bytes;
                        if stream.write_all(answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

fn heap_calls_of(config: &LoadConfig, requests: u64) -> u64 {
    let config = LoadConfig {
        stop: Stop::after_requests(requests),
        ..config.clone()
    };
    let before = CALLS.load(Ordering::Relaxed);
    let record = millpond_load::run(&config, &|_| {}, &AtomicBool::new(false)).unwrap();
    let calls = CALLS.load(Ordering::Relaxed) - before;
    assert_eq!(
        (record.requests, record.errors.total()),
        (requests, 0),
        "{:?}",
        record.errors
    );
    calls
}

fn check(what: &str, config: &LoadConfig) {
    // The first run warms the process up: thread-local storage, lazily made tables.
    heap_calls_of(config, 500);
    let few = heap_calls_of(config, 500);
    let many = heap_calls_of(config, 10_500);
    // The seconds of a slow run cost the threads some calls each.
    assert!(
        many < few + 500,
        "{what}: {few} calls for 500 requests, {many} for 10,500"
    );
}

fn config(address: SocketAddr, path: &str, workload: Workload) -> LoadConfig {
    let host = address.to_string();
    let target = Target {
        addresses: [Address::Inet(address)].into(),
        host,
        path: path.into(),
    };
    let mut config = LoadConfig::new(target, workload);
    config.driver = std::env::var("MILLPOND_TEST_DRIVER")
        .map_or(DriverChoice::Auto, |text| text.parse().unwrap());
    config.connections = 4;
    config.timeout_ns = 30_000_000_000;
    config
}

/// Every kind of placeholder, in two classes of equally long requests.
fn check_templates() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    std::fs::write(&file, "one\ntwo\nsix\n").unwrap();
    let target = format!(
        "/{{key}}/{{rand:100:999}}/{{file:{}}}?end={{scan_end:9}}",
        file.display()
    );
    // The response of this check's server.
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let class = |name: &str, checksum| RequestClass {
        validation: Validation {
            length: Some(5),
            checksum: Some(checksum),
            ..RequestClass::get("", "").validation
        },
        method: Method::Post,
        fields: vec![("X-Id".into(), "{uuid}".into())],
        body: RequestBody::Template(b"{\"a\":{rand:10:99}}".to_vec()),
        ..RequestClass::get(name, &target)
    };
    let mix = RequestMix {
        keys: Some(KeySpace {
            distribution: KeyDistribution::Zipfian { exponent: 0.99 },
            ..KeySpace::uniform(1_000)
        }),
        ..RequestMix::of(vec![
            class("one", Checksum::Crc32(0x3610_a686)),
            class("other", Checksum::sha256(hello).unwrap()),
        ])
    };
    let address = start_server(
        |address| {
            let line = "POST /k000000000/123/one?end=k000000000 HTTP/1.1";
            let id = "X-Id: 00000000-0000-4000-8000-000000000000";
            let head = format!("{line}\r\nHost: {address}\r\n{id}\r\nContent-Length: 8\r\n\r\n");
            head.len() + 8
        },
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    );
    let templates = config(address, "/", Workload::Mix(mix));
    check("templates", &templates);
}

/// Bodies in chunks, both ways.
fn check_chunks() {
    let chunked = Workload::StaticChunked {
        method: Method::Post,
        fields: vec![],
        body: vec![b'*'; 100],
        chunk_bytes: 64,
    };
    let address = start_server(
        |address| {
            let head = format!("POST / HTTP/1.1\r\nHost: {address}\r\n");
            let chunks = "40\r\n\r\n24\r\n\r\n0\r\n\r\n".len() + 100;
            head.len() + "Transfer-Encoding: chunked\r\n\r\n".len() + chunks
        },
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    let mut chunks = config(address, "/", chunked);
    chunks.validation.length = Some(5);
    check("chunks", &chunks);
}

#[test]
fn requests_cost_no_heap_calls() {
    IS_WATCHING.set(true);
    let get = Workload::Static {
        method: Method::Get,
        fields: vec![],
        body: vec![],
    };
    let address = start_server(
        |address| format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").len(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    );
    let mut closed = config(address, "/", get);
    check("closed loop", &closed);
    closed.pipeline = 16;
    check("pipelined", &closed);
    let mut open = LoadConfig {
        pipeline: 1,
        ..closed
    };
    open.mode = Mode::ConstantRate { per_s: 20_000.0 };
    check("constant rate", &open);

    let address = start_server(
        |address| format!("GET / HTTP/1.1\r\nHost: {address}\r\nCookie: a=b\r\n\r\n").len(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    );
    let given = vec![("a".to_owned(), "b".to_owned())];
    let users = LoadConfig {
        target: config(address, "/", open.workload.clone()).target,
        mode: Mode::ClosedLoop,
        cookies: Some(CookiePlan { given }),
        ..open
    };
    check("cookies", &users);

    let address = start_server(
        |address| {
            let line = "PUT /v0/entity?id=k000000000 HTTP/1.1";
            format!("{line}\r\nHost: {address}\r\nContent-Length: 1024\r\n\r\n").len() + 1_024
        },
        b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
    );
    let put = Workload::EntityPut {
        keys: 10_500,
        value_bytes: 1_024,
        seed: 1,
    };
    let mut puts = config(address, "/v0/entity", put);
    puts.validation = Validation::for_workload(&puts.workload);
    check("entity puts", &puts);
    check_templates();
    check_chunks();

    // The count is one that can fail: without pools each request costs a pair of calls.
    puts.pool_mode = PoolMode::Off;
    assert!(heap_calls_of(&puts, 3_000) > heap_calls_of(&puts, 500) + 4_000);
}
