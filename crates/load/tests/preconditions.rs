//! The needs of a run before it begins: all of its connections, open.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{Connecting, LoadConfig, Observer, Stop, run_observed};
use millpond_measure::record::LoadStatus;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::MS;

/// Listens with room for one connection that is not accepted yet: the kernel drops what else comes.
fn narrow_listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Responds to every request on the connection and counts it.
fn answer_all(mut stream: TcpStream, answered: &AtomicUsize) {
    let mut request = [0; 4_096];
    while stream.read(&mut request).is_ok_and(|count| count > 0) {
        answered.fetch_add(1, Ordering::SeqCst);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Opening(Mutex<Vec<Connecting>>);

impl Observer for Opening {
    fn connecting(&self, now: &Connecting) {
        self.0.lock().unwrap().push(*now);
    }
}

/// A server accepts two connections and no more until requests come: eight were asked for. It began with those
/// that were there after two seconds and called it OK, and the others came up in the window.
///
/// Goal: the wait is shown, the verdict is INVALID with both numbers, each missing connection is one failure, and
/// none comes up later, however ready the server is by then.
#[test]
fn missing_connections_make_a_run_invalid() {
    let (listener, address) = narrow_listener();
    let ports: Arc<Mutex<BTreeSet<u16>>> = Arc::default();
    let answered = Arc::new(AtomicUsize::new(0));
    let (seen, count) = (Arc::clone(&ports), Arc::clone(&answered));
    std::thread::spawn(move || {
        for (place, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            seen.lock()
                .unwrap()
                .insert(stream.peer_addr().unwrap().port());
            let count_here = Arc::clone(&count);
            std::thread::spawn(move || answer_all(stream, &count_here));
            while place == 1 && count.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // From here on it accepts at once.
        }
    });
    let opening = Opening::default();
    let config = LoadConfig {
        threads: 2,
        connections: 8,
        connect_within_ns: 600 * MS,
        stop: Stop::after_ns(1_500 * MS),
        ..support::get(address)
    };
    let record = run_observed(&config, &opening, &AtomicBool::new(false)).unwrap();
    let open = record.connections_open.unwrap();
    assert_eq!(open.due_at_start, 8);
    // The second is dropped where the first was not accepted yet, and comes again too late.
    assert!((1..8).contains(&open.at_start), "{open:?}");
    assert_eq!(open.at_end, open.at_start);
    assert_eq!(record.errors.connect, 8 - open.at_start);
    assert_eq!(record.errors.total(), record.errors.connect);
    assert!(ports.lock().unwrap().len() as u64 <= open.at_start);
    assert_eq!(record.opening.count(), open.at_start);
    assert_eq!(record.verdict.status, LoadStatus::Invalid);
    let reasons = record.verdict.reasons.join("; ");
    let sentence = format!("only {} of 8 connections were open", open.at_start);
    assert!(reasons.contains(&sentence), "{reasons}");
    let news = opening.0.lock().unwrap().clone();
    assert!(!news.is_empty());
    assert!(
        news.iter().all(|now| now.asked == 8 && now.open < 8),
        "{news:?}"
    );
}

/// Goal: connections that come up late are waited for, and then the run is as good as any.
#[test]
fn late_connections_are_waited_for() {
    let (listener, address) = narrow_listener();
    let answered = Arc::new(AtomicUsize::new(0));
    let opening = Opening::default();
    let config = LoadConfig {
        connections: 4,
        stop: Stop::after_requests(400),
        ..support::get(address)
    };
    let record = std::thread::scope(|scope| {
        scope.spawn(|| {
            support::eventually("the wait", || !opening.0.lock().unwrap().is_empty());
            for stream in listener.incoming().take(4) {
                let (stream, answered) = (stream.unwrap(), Arc::clone(&answered));
                std::thread::spawn(move || answer_all(stream, &answered));
            }
        });
        run_observed(&config, &opening, &AtomicBool::new(false)).unwrap()
    });
    let open = record.connections_open.unwrap();
    assert_eq!((open.at_start, open.at_end), (4, 4));
    assert_eq!((record.requests, record.errors.total()), (400, 0));
    let reasons = record.verdict.reasons.join("; ");
    assert!(!reasons.contains("connections"), "{reasons}");
}
