//! How connections come and go, as a server sees them.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{ConnectionPlan, LoadConfig, Stop};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex};
use support::{MS, Reply, TestServer, check_identities, run};

/// Goal: each connection asks exactly as often as it may, whatever the pipelining, and a connection
/// that ends so is no error.
#[test]
fn connections_end_after_their_requests() {
    for (connections, pipeline, requests_max) in [(1, 1, 1), (4, 1, 3), (2, 4, 6), (1, 8, 3)] {
        let server = TestServer::start(|_| Reply::ok(b"fine"));
        let record = run(&LoadConfig {
            connections,
            pipeline,
            stop: Stop::after_requests(120),
            plan: ConnectionPlan {
                requests_max: Some(requests_max),
                ..ConnectionPlan::default()
            },
            ..support::get(server.address)
        });
        check_identities(&record);
        assert_eq!(
            (record.requests, record.errors.total(), record.resent),
            (120, 0, 0)
        );
        let mut asked: BTreeMap<usize, u64> = BTreeMap::new();
        for seen in server.seen() {
            *asked.entry(seen.connection).or_default() += 1;
        }
        assert!(
            asked.values().all(|&count| count <= requests_max),
            "{asked:?}"
        );
        // All but the last of each connection are used to the end.
        let full = asked
            .values()
            .filter(|&&count| count == requests_max)
            .count() as u64;
        assert!(full >= 120 / requests_max - connections as u64, "{asked:?}");
        assert!(record.opening.count() >= asked.len() as u64);
        let used = record.connection_use;
        assert_eq!((used.requests, used.requests_max), (120, requests_max));
        assert!(used.connections >= asked.len() as u64, "{used:?}");
    }
}

/// Goal: connections join one after the other while others send already, and all of them come.
#[test]
fn a_ramp_adds_connections_while_sending() {
    let server =
        TestServer::start(|_| Reply::ok(b"fine").after(std::time::Duration::from_millis(1)));
    let record = run(&LoadConfig {
        threads: 2,
        connections: 8,
        stop: Stop::after_ns(1_000 * MS),
        plan: ConnectionPlan {
            ramp_ns: 400 * MS,
            ..ConnectionPlan::default()
        },
        ..support::get(server.address)
    });
    check_identities(&record);
    assert_eq!(record.errors.total(), 0);
    let seen = server.seen();
    let first_of = |connection: usize| {
        seen.iter()
            .find(|seen| seen.connection == connection)
            .unwrap()
            .at
    };
    assert_eq!(server.connections(), 8);
    // The last one is due 350 ms after the first: never earlier, however busy the machine is.
    let apart = first_of(7).duration_since(first_of(0));
    assert!(apart.as_millis() >= 300, "{apart:?}");
    let before = seen.iter().filter(|seen| seen.at < first_of(7)).count();
    assert!(before > 8, "others send meanwhile: {before}");
}

/// Goal: connections come from the addresses of a range in turn, so that there are ports enough.
#[test]
fn connections_come_from_their_sources() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peers: Arc<Mutex<BTreeSet<IpAddr>>> = Arc::default();
    let seen = Arc::clone(&peers);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            seen.lock()
                .unwrap()
                .insert(stream.peer_addr().unwrap().ip());
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                        .unwrap();
                }
            });
        }
    });
    let record = run(&LoadConfig {
        threads: 2,
        connections: 6,
        stop: Stop::after_requests(600),
        plan: ConnectionPlan {
            sources: Some("127.0.7.1..127.0.7.3".parse().unwrap()),
            ..ConnectionPlan::default()
        },
        ..support::get(address)
    });
    assert_eq!((record.requests, record.errors.total()), (600, 0));
    let expected = [1, 2, 3].map(|last| IpAddr::from([127, 0, 7, last]));
    assert_eq!(*peers.lock().unwrap(), BTreeSet::from(expected));
    // An address of another machine is one clear error.
    let error = support::try_run(&LoadConfig {
        plan: ConnectionPlan {
            sources: Some("192.0.2.1".parse().unwrap()),
            ..ConnectionPlan::default()
        },
        ..support::get(address)
    });
    assert!(error.unwrap_err().to_string().contains("192.0.2.1"));
}
