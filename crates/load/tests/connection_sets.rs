//! Runs over several sets of connections: nothing is lost, sent twice or counted as an error between them.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{
    ConnectionPlan, Ended, LoadConfig, LoadError, Mode, Observer, Reconnect, Second, Stop, Workload,
};
use millpond_measure::record::RateWindowEnd;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};
use support::{MS, Reply, TestServer, check_identities, get, run, try_run};

fn reconnecting(server: &TestServer, every: Reconnect, requests: u64) -> LoadConfig {
    LoadConfig {
        stop: Stop::after_requests(requests),
        plan: ConnectionPlan {
            reconnect: Some(every),
            ..ConnectionPlan::default()
        },
        ..get(server.address)
    }
}

/// Goal: however often all connections are replaced, exactly N requests leave, none fails, and each set has all its
/// connections.
#[test]
fn reconnecting_keeps_the_number_of_requests() {
    for (threads, connections, pipeline, every, requests) in [
        (1, 1, 1, 1, 5),
        (1, 1, 1, 40, 100),
        (2, 5, 1, 40, 203),
        (2, 3, 4, 64, 128),
        (2, 4, 1, 500, 90),
    ] {
        let server = TestServer::start(|_| Reply::ok(b"fine"));
        let record = run(&LoadConfig {
            threads,
            connections,
            pipeline,
            ..reconnecting(&server, Reconnect::EveryRequests(every), requests)
        });
        check_identities(&record);
        assert_eq!((record.requests, record.errors.total()), (requests, 0));
        assert_eq!((record.sent, server.requests()), (requests, requests));
        let sets = record.connection_sets.clone().unwrap();
        assert_eq!(sets.opened, requests.div_ceil(every));
        assert_eq!(server.connections(), sets.opened as usize * connections);
        let open = record.connections_open.unwrap();
        assert_eq!(
            (open.due_at_start, open.at_start),
            (connections as u64, connections as u64)
        );
        assert_eq!(
            (record.connections, record.ended),
            (connections, Ended::Complete)
        );
        // Whatever the times: of a set at most the other places are without a response when its window ends.
        let places = (connections * pipeline) as u64;
        if every >= 10 + places && every >= 2 * places {
            assert_eq!(sets.sets.len() as u64, requests / every);
            assert!(sets.sets.iter().all(|set| set.requests == every));
        }
    }
}

/// Goal: the same when time replaces them.
#[test]
fn reconnecting_by_time_keeps_the_number_too() {
    let server = TestServer::start(|_| Reply::ok(b"fine").after(Duration::from_millis(1)));
    let record = run(&LoadConfig {
        connections: 2,
        ..reconnecting(&server, Reconnect::EveryNs(30 * MS), 150)
    });
    check_identities(&record);
    assert_eq!((record.requests, record.errors.total()), (150, 0));
    assert_eq!(server.requests(), 150);
    let opened = record.connection_sets.unwrap().opened;
    assert!(opened > 1);
    assert_eq!(server.connections() as u64, 2 * opened);
}

/// Goal: numbers of requests continue after a reconnect, so each key is written once, in a schedule as well.
#[test]
fn requests_go_on_where_they_were() {
    for mode in [Mode::ClosedLoop, Mode::ConstantRate { per_s: 2_000.0 }] {
        let server = TestServer::start(|_| Reply::status(201, b""));
        let is_open_loop = mode != Mode::ClosedLoop;
        let record = run(&LoadConfig {
            connections: 3,
            mode,
            workload: Workload::EntityPut {
                keys: 100,
                value_bytes: 10,
                seed: 1,
            },
            ..reconnecting(&server, Reconnect::EveryRequests(30), 100)
        });
        assert_eq!((record.requests, record.errors.total()), (100, 0));
        assert_eq!(record.offered, is_open_loop.then_some(100));
        let seen = server.seen();
        let keys: BTreeSet<&str> = seen.iter().map(support::Seen::target).collect();
        assert_eq!((seen.len(), keys.len()), (100, 100));
    }
}

/// Counts its calls.
#[derive(Default)]
struct Told {
    started: RefCell<u64>,
    seconds: RefCell<Vec<(u64, u64)>>,
}

impl Observer for Told {
    fn started(&self, _at: SystemTime) {
        *self.started.borrow_mut() += 1;
    }

    fn second(&self, second: &Second<'_>) {
        let figures = second.figures;
        self.seconds
            .borrow_mut()
            .push((figures.second, figures.start_ns));
    }
}

/// Goal: repetitions are the same run again on fresh connections, and the observer sees one run.
#[test]
fn repetitions_are_added_up() {
    let server = TestServer::start(|_| Reply::ok(b"fine"));
    let config = LoadConfig {
        connections: 2,
        stop: Stop::after_requests(50),
        repeats: 3,
        ..get(server.address)
    };
    let told = Told::default();
    let record = millpond_load::run_observed(&config, &told, &AtomicBool::new(false)).unwrap();
    check_identities(&record);
    assert_eq!((record.requests, server.requests()), (150, 150));
    assert_eq!(
        (server.connections(), record.connection_use.connections),
        (6, 6)
    );
    let sets = record.connection_sets.unwrap();
    assert_eq!((sets.opened, sets.sets.len()), (3, 3));
    assert!(sets.sets.iter().map(|set| set.repetition).eq(0..3));
    assert!(
        record.verdict.notes[0].contains("of 3 sets"),
        "{:?}",
        record.verdict
    );
    assert_eq!(record.rate_window.end, RateWindowEnd::NoRequestLeft);
    assert_eq!(*told.started.borrow(), 1);
    let seconds = told.seconds.borrow();
    assert!(
        seconds
            .iter()
            .map(|&(number, _)| number)
            .eq(0..seconds.len() as u64)
    );
    assert!(seconds.is_sorted_by_key(|&(_, start_ns)| start_ns));
}

/// Goal: a target that stops between two sets ends the run with the measurements until then.
#[test]
fn a_target_that_goes_leaves_what_was_measured() {
    let server = TestServer::start(|_| Reply::ok(b"fine"));
    let first_set = LoadConfig {
        connections: 2,
        ..reconnecting(&server, Reconnect::EveryRequests(40), 80)
    };
    struct Killer<'a>(&'a TestServer);
    impl Observer for Killer<'_> {
        fn window_ended(&self) {
            self.0.die();
        }
    }
    let killer = Killer(&server);
    let record = millpond_load::run_observed(&first_set, &killer, &AtomicBool::new(false)).unwrap();
    assert_eq!((record.requests, record.ended), (40, Ended::TargetGone));
    assert_eq!(record.connection_sets.unwrap().opened, 1);
}

/// Goal: an invalid setting is refused under its name before anything is opened.
#[test]
fn wrong_settings_are_named() {
    let server = TestServer::start(|_| Reply::ok(b"fine"));
    let reconnect = |every| reconnecting(&server, every, 100);
    for (config, setting) in [
        (reconnect(Reconnect::EveryNs(0)), "reconnect-every"),
        (reconnect(Reconnect::EveryRequests(0)), "reconnect-every"),
        (
            LoadConfig {
                connections: 5,
                ..reconnect(Reconnect::EveryRequests(4))
            },
            "reconnect-every",
        ),
        (
            LoadConfig {
                repeats: 0,
                ..get(server.address)
            },
            "repeat",
        ),
    ] {
        match try_run(&config) {
            Err(LoadError::Setting { name, .. }) => assert_eq!(name, setting),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(server.connections(), 0);
}
