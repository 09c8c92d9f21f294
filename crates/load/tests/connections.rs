//! How connections open and close, as a server sees them.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{ConnectionPlan, LoadConfig, Observer, Stop, run_observed};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{MS, Reply, TestServer, check_identities, eventually, run};

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

/// Goal: all connections of a ramp are opened during the run, and none before it is due. (That others send meanwhile is
/// shown in simulated time, beside `worker`.)
#[test]
fn every_connection_of_a_ramp_comes() {
    let server = TestServer::start(|_| Reply::ok(b"fine").after(Duration::from_millis(1)));
    let config = LoadConfig {
        threads: 2,
        connections: 8,
        stop: Stop::after_ns(600_000 * MS),
        plan: ConnectionPlan {
            ramp_ns: 400 * MS,
            ..ConnectionPlan::default()
        },
        ..support::get(server.address)
    };
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    let record = std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("all eight ask", || asking(&server) == 8);
            stop.store(true, Ordering::SeqCst);
        });
        millpond_load::run(&config, &|_| {}, &stop).unwrap()
    });
    check_identities(&record);
    assert_eq!(record.errors.total(), 0);
    assert_eq!(server.connections(), 8);
    let seen = server.seen();
    let last = seen.iter().find(|seen| seen.connection == 7).unwrap();
    assert!(last.at - begun >= Duration::from_millis(350));
}

/// Connections that have asked something.
fn asking(server: &TestServer) -> usize {
    let seen = server.seen();
    let connections: BTreeSet<usize> = seen.iter().map(|seen| seen.connection).collect();
    connections.len()
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

/// A server that counts its open connections.
fn counting_server() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&open);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, open) = (stream.unwrap(), Arc::clone(&shared));
            open.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut request = [0; 4_096];
                while stream.read(&mut request).is_ok_and(|count| count > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    stream.write_all(answer).unwrap();
                }
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (address, open)
}

/// What the server has open when the observer is called after all responses.
struct HeldConnections<'a> {
    open: &'a AtomicUsize,
    seen: Mutex<Vec<usize>>,
}

impl Observer for HeldConnections<'_> {
    fn connections_held(&self) {
        let open = self.open.load(Ordering::SeqCst);
        self.seen.lock().unwrap().push(open);
    }
}

/// Goal: an observer of a server after the last response finds all connections open, over several threads and sets of
/// connections; memory was once read when a server with a thread for each connection had ended them. A run that is cut
/// short still ends.
#[test]
fn connections_stay_open_for_the_observer() {
    let (address, open) = counting_server();
    let observer = HeldConnections {
        open: &open,
        seen: Mutex::default(),
    };
    let mut config = LoadConfig {
        connections: 5,
        threads: 2,
        holds_connections: true,
        stop: Stop::after_requests(200),
        repeats: 2,
        ..support::get(address)
    };
    let record = run_observed(&config, &observer, &AtomicBool::new(false)).unwrap();
    assert_eq!(record.requests, 400);
    // Those of the first set may not have ended for the server when the second is held.
    let seen = observer.seen.lock().unwrap().clone();
    assert!(
        seen.len() == 2 && seen.iter().all(|&open| open >= 5),
        "{seen:?}"
    );
    eventually("the end of all", || open.load(Ordering::SeqCst) == 0);
    config.repeats = 1;
    config.stop = Stop::after_ns(100_000 * MS);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run_observed(&config, &observer, &stop).unwrap());
        eventually("the connections", || open.load(Ordering::SeqCst) == 5);
        stop.store(true, Ordering::SeqCst);
        assert!(run.join().unwrap().errors.total() == 0);
    });
    assert_eq!(observer.seen.lock().unwrap().len(), 2);
}
