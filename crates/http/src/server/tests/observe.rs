use super::*;
use crate::server::test_server::{CHUNK_BYTES, TestServer};
use millpond_io::{Event, SocketId};

const CONNECTIONS: u64 = 1000;

/// Block with half a head of each connection.
const POOLS: [&str; 3] = ["http_connections", "shard_blocks", "http_inputs"];

/// Goal: the memory of a thousand connections is kept while they are open and for one beat more; then half of it leaves
/// with each beat, in every pool, until all is gone and the beats end.
#[test]
fn beats_give_back_what_closed_connections_took() {
    let mut bench = TestServer::new();
    let socket = |slot: u64| SocketId::from_bits(slot | 1 << 32);
    // Half a head each, which the connections keep.
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(900));
    for slot in 0..CONNECTIONS {
        let socket = socket(slot);
        bench.event(Event::Accepted { socket });
        let bytes = head.as_bytes();
        bench.event(Event::Received { socket, bytes });
    }
    assert!(bench.beat());
    let full = POOLS.map(|name| bench.chunk_count(name));
    assert!(full[0] >= 3 && full[1] > 10 && full[2] > 0, "{full:?}");
    assert_eq!(bench.pool("http_connections").live_objects, CONNECTIONS);
    for slot in 0..CONNECTIONS {
        let (socket, error) = (socket(slot), millpond_io::Errno::CONNRESET);
        bench.event(Event::Failed { socket, error });
    }
    assert!(bench.beat());
    let mut expected = full;
    assert_eq!(
        POOLS.map(|name| bench.chunk_count(name)),
        full,
        "used until now"
    );
    while bench.beat() {
        expected = expected.map(|count| count / 2);
        for (name, count) in POOLS.into_iter().zip(expected) {
            let stats = bench.pool(name);
            assert_eq!(stats.reserved_bytes / CHUNK_BYTES, count, "{stats:?}");
            assert!(stats.identity_holds() && stats.live_objects == 0);
        }
    }
    assert_eq!(expected, [0; POOLS.len()]);
    let given_back = bench.server.snapshots.lock(0).bytes_given_back;
    assert_eq!(given_back, full.iter().sum::<u64>() * CHUNK_BYTES);
    assert_eq!(bench.pool("shard_blocks").cached_bytes, 0);
}
/// 3,000 clients sent most of a large head and no more. Their deadline freed 50 MB, and no beat followed
/// until the next request: beats came after events alone.
///
/// Goal: memory freed by a deadline is given back with no traffic, and then no timer is left.
#[test]
fn beats_give_back_what_a_deadline_frees() {
    let mut bench = TestServer::new();
    let socket = |slot: u64| SocketId::from_bits(slot | 1 << 32);
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(8000));
    for slot in 0..CONNECTIONS {
        let socket = socket(slot);
        bench.event(Event::Accepted { socket });
        let bytes = head.as_bytes();
        bench.event(Event::Received { socket, bytes });
    }
    let full = |bench: &mut TestServer| {
        bench.act(Server::publish);
        bench.chunk_count("shard_blocks")
    };
    assert!(full(&mut bench) > 100);
    let mut timers_run = 0;
    while bench.expire() {
        timers_run += 1;
        assert!(timers_run < 100 * CONNECTIONS, "the timers never end");
    }
    assert_eq!(bench.pool("http_connections").live_objects, 0);
    assert_eq!(POOLS.map(|name| bench.chunk_count(name)), [0; POOLS.len()]);
}

/// 500 clients that read no responses had the server hold 65 MiB for them, in blocks of malloc's,
/// and it never came back. Goal: one call for each fall that lasts, none for what comes and goes
/// or is small.
#[test]
fn malloc_is_asked_once_after_a_fall_that_lasts() {
    const MIB: u64 = 1 << 20;
    let mut blocks = LargeBlocks::default();
    let fell: Vec<bool> = [1, 60, 0, 60, 0, 0, 0, 3, 0, 0, 40, 20, 18, 19]
        .map(|live_mib| blocks.fell(live_mib * MIB))
        .into();
    let expected = [5, 12].map(|beat| beat as usize);
    let asked: Vec<usize> = (0..fell.len()).filter(|&beat| fell[beat]).collect();
    assert_eq!(asked, expected);
}
