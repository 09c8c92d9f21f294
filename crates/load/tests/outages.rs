//! A target that stops and returns, in a run that continues.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{Ended, LoadConfig, LoadRecord, Mode, Stop};
use millpond_measure::record::LoadStatus;
use millpond_measure::report::wrk;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use support::{MS, Reply, TestServer, check_identities, eventually, run};

/// How long the target is stopped at least.
const AWAY: Duration = Duration::from_millis(300);

fn listen_again(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    // Connections of before may hold the port for a moment.
    eventually("the port is free again", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.unwrap()
}

/// A run whose target stops after `before` requests and comes back; ended by its duration.
fn run_through_a_restart(change: impl FnOnce(&mut LoadConfig)) -> LoadRecord {
    let first = TestServer::start(|_| Reply::ok(b"x"));
    let address = first.address;
    let mut config = LoadConfig {
        keeps_going: true,
        connections: 4,
        stop: Stop::after_ns(3_000 * MS),
        ..support::get(address)
    };
    change(&mut config);
    let record = std::thread::scope(|scope| {
        let restart = scope.spawn(|| {
            first.wait_for_requests(100);
            first.die();
            drop(first);
            std::thread::sleep(AWAY);
            let second = TestServer::start_on(listen_again(address), |_| Reply::ok(b"x"));
            second.wait_for_requests(100);
            second
        });
        let record = run(&config);
        drop(restart.join().unwrap());
        record
    });
    check_identities(&record);
    assert_eq!(record.ended, Ended::Complete);
    record
}

/// A restart of the target ended the run.
///
/// Goal: it is an outage with start, length and count, in record and text; what was under way when it began has
/// failed, attempts to connect have not, and afterwards all connections stand again.
#[test]
fn a_restart_is_an_outage() {
    let record = run_through_a_restart(|_| {});
    let [outage] = record.outages[..] else {
        panic!("{:?}", record.outages);
    };
    assert!(outage.is_over && outage.attempts > 0, "{outage:?}");
    assert!(outage.duration_ns >= AWAY.as_nanos() as u64, "{outage:?}");
    assert!(
        outage.start_ns + outage.duration_ns <= record.duration_ns,
        "{outage:?}"
    );
    // In a closed loop each connection has one request under way, or has none for a moment.
    assert!(outage.failed <= 4, "{outage:?}");
    // A server that ends may still take connections that it never serves.
    let failed = record.errors.total() - record.errors.connect;
    assert!(
        (outage.failed..=outage.failed + 8).contains(&failed),
        "{:?}",
        record.failures
    );
    assert!(
        record.errors.connect <= 8 && outage.attempts > record.errors.connect,
        "{outage:?}"
    );
    assert!(record.requests >= 200);
    let open = record.connections_open.unwrap();
    assert_eq!((open.at_start, open.at_end), (4, 4));
    let report = record.to_report();
    assert_eq!(report.outages, record.outages);
    let text = wrk::clocks(&report).replace("\n    ", " ");
    for part in [
        "  Outage: after ",
        "attempts to connect",
        "the target was away 1 times",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Goal: at a rate, what was due in the outage and found no connection in time has failed, and is counted with it; what
/// was in time gets a response, and its response time includes the wait.
#[test]
fn requests_due_in_an_outage_wait_or_fail() {
    let patient = run_through_a_restart(|config| config.mode = Mode::ConstantRate { per_s: 400.0 });
    let offered = patient.offered.unwrap();
    let failed = |record: &LoadRecord| record.errors.total() - record.errors.connect;
    assert_eq!(patient.requests + failed(&patient), offered);
    let waited_ns = patient.response.max();
    assert!(waited_ns >= AWAY.as_nanos() as u64 / 2, "{waited_ns}");

    let strict = run_through_a_restart(|config| {
        config.mode = Mode::ConstantRate { per_s: 400.0 };
        config.timeout_ns = 100 * MS;
    });
    let [outage] = strict.outages[..] else {
        // A busy machine may let other requests time out, and none of these checks hang on how many.
        panic!("{:?}", strict.outages);
    };
    assert!(outage.failed >= 40, "{outage:?}");
    assert!(strict.errors.timeout >= 40, "{:?}", strict.errors);
    assert_eq!(strict.requests + failed(&strict), strict.offered.unwrap());
    assert!(
        strict.response.max() <= 300 * MS,
        "{}",
        strict.response.max()
    );
    assert_ne!(strict.verdict.status, LoadStatus::Ok);
}

/// Goal: a target that does not come back is an outage to the end, with all that never left; without a duration there
/// would be none.
#[test]
fn an_outage_may_last_to_the_end() {
    let server = TestServer::start(|_| Reply::ok(b"x"));
    let config = LoadConfig {
        keeps_going: true,
        mode: Mode::ConstantRate { per_s: 200.0 },
        timeout_ns: 200 * MS,
        stop: Stop::after_ns(1_500 * MS),
        ..support::get(server.address)
    };
    let record = std::thread::scope(|scope| {
        scope.spawn(|| {
            server.wait_for_requests(50);
            server.die();
        });
        run(&config)
    });
    let [outage] = record.outages[..] else {
        panic!("{:?}", record.outages);
    };
    assert!(!outage.is_over && outage.failed > 0, "{outage:?}");
    let failed = record.errors.total() - record.errors.connect;
    assert_eq!(record.requests + failed, 300);
    let refused = LoadConfig {
        stop: Stop::after_requests(5),
        ..config
    };
    let error = refused.check().unwrap_err().to_string();
    assert!(error.contains("keep-going: give a duration"), "{error}");
}

/// Goal: a server that closes each connection after its response has no outages.
#[test]
fn closing_servers_have_none() {
    let server = TestServer::start(|_| {
        Reply::raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec())
            .then_close()
    });
    let record = run(&LoadConfig {
        keeps_going: true,
        stop: Stop::after_ns(300 * MS),
        ..support::get(server.address)
    });
    assert!(record.outages.is_empty(), "{:?}", record.outages);
}
