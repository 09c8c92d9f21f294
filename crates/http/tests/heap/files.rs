//! The same for files: a small one out of the cache, a large one out of the kernel's memory.

use crate::support::{PATIENCE, RawClient, TestServer, config};
use crate::{IS_COUNTED, ROUNDS_OFF, heap_calls, steady_heap_calls};
use millpond_http::{Files, FilesConfig, Limits, Site};
use millpond_mempool::PoolMode;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn server(directory: &std::path::Path, mode: PoolMode) -> TestServer {
    let site = Arc::new(Site::open(&FilesConfig::new(directory.to_owned()), 1).unwrap());
    TestServer::start(config(Limits::default(), mode), move |start| {
        // Called on the shard's thread.
        IS_COUNTED.set(true);
        Files::new(&site, &start).unwrap()
    })
}

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

/// A file is cached once it has been left alone for a moment.
fn wait_until_cached(client: &mut RawClient) {
    let begin = Instant::now();
    loop {
        client.ask(get("/small.html", ""));
        let metrics = client.ask(get("/metrics", "")).text();
        if metrics.contains("\nmillpond_files_cache_entries 1\n") {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "never cached");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No heap call for a file in steady state with pools on, at least one with pools off.
pub(crate) fn files_make_no_heap_call(rounds: usize) {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("small.html"), [b'x'; 5000]).unwrap();
    std::fs::write(home.path().join("large"), vec![b'x'; 200_000]).unwrap();
    for (name, request) in [
        ("a cached file", get("/small.html", "")),
        ("a cached file, escaped", get("/%73mall.html", "")),
        ("a large file", get("/large", "")),
    ] {
        let exchange = (name, vec![request], 1);
        let on = server(home.path(), PoolMode::On);
        let mut client = on.connect();
        wait_until_cached(&mut client);
        assert_eq!(
            steady_heap_calls(&mut client, &exchange, rounds),
            0,
            "{name}"
        );
        let off = server(home.path(), PoolMode::Off);
        let calls = heap_calls(&mut off.connect(), &exchange, ROUNDS_OFF);
        assert!(calls >= ROUNDS_OFF as u64, "{name}: {calls}");
    }
}
