//! Memory of a server after its clients have gone.

use crate::support::{PATIENCE, RawClient, TestServer, config};
use millpond_http::{LimitValues, Plaintext};
use millpond_mempool::PoolMode;
use std::time::{Duration, Instant};

/// The test and the server share one process and its limit of descriptors, often 1024.
const CONNECTIONS: usize = 300;
/// Every pool that connections fill.
const POOLS: [&str; 4] = [
    "http_connections",
    "io_sockets",
    "shard_blocks",
    "shard_io_buffers",
];

/// A pool's row of the table that SIGUSR1 prints, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Row {
    live: u64,
    cached: u64,
    waste: u64,
    reserved: u64,
}

fn rows(server: &TestServer) -> [Row; 4] {
    let table = server.running.accounting_table();
    POOLS.map(|pool| {
        let line = table.lines().find(|line| line.contains(pool));
        let line = line.unwrap_or_else(|| panic!("no {pool} in\n{table}"));
        let words: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        let [_shard, _objects, live, cached, waste, reserved, ..] = words[..] else {
            panic!("{line}");
        };
        Row {
            live,
            cached,
            waste,
            reserved,
        }
    })
}

/// Sends most of a head and waits for nothing: the server keeps it.
fn begin_request(client: &mut RawClient) {
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}",
        "x".repeat(3000)
    ));
}

/// Asks until there is a response.
fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no response");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Goal: memory that connections took stays while they are open, and leaves once they are closed,
/// beat by beat, down to the pools' tables, without a request that would push it.
#[test]
fn memory_leaves_after_the_clients() {
    // Most of a head is kept for as long as it takes to send all of them.
    let limits = LimitValues {
        head_timeout_ns: 2 * PATIENCE.as_nanos() as u64,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::start(config(limits, PoolMode::On), |_| Plaintext);
    let mut clients: Vec<RawClient> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(begin_request);
    for client in &mut clients {
        client.send("\r\n\r\n");
        assert_eq!(client.response().status, 200);
        begin_request(client);
    }
    // A scrape copies the figures at once; the server may not have seen all bytes by then.
    let mut scraper = server.connect();
    let full = wait(|| {
        let scraped = scraper.ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(scraped.status, 200);
        let full = rows(&server);
        (full[2].live >= (CONNECTIONS * 3000) as u64).then_some(full)
    });
    assert!(full[0].live > 0 && full[0].reserved >= 65536, "{full:?}");
    drop(scraper);
    drop(clients);
    let mut last = wait(|| Some(rows(&server)).filter(|rows| rows[0].live == 0));
    wait(|| {
        let now = rows(&server);
        for (before, after) in last.iter().zip(&now) {
            assert!(
                after.reserved <= before.reserved,
                "{before:?} then {after:?}"
            );
            assert_eq!(after.reserved, after.live + after.cached + after.waste);
        }
        last = now;
        now.iter()
            .all(|row| row.reserved == row.waste)
            .then_some(())
    });
    // Tables: some bytes for each chunk there has been.
    assert!(last.iter().all(|row| row.reserved < 8192), "{last:?}");
    // And it goes on serving.
    let answer = server.connect().ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 200);
}
