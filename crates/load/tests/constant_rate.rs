//! The open loop: a schedule that no response can move.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_load::{Arrivals, Ended, Mode, Profile, Rate, Spacing, Stop, WarmUp};
use millpond_measure::record::{LoadStatus, RateWindowEnd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{MS, Reply, TestServer, check_identities, eventually, get, run};

/// Goal: a stall of 200 ms of one moment is seen by every request that was due in it, though only
/// those in flight were served slowly. (A closed loop would see it once per connection.)
#[test]
fn a_stall_is_not_omitted() {
    let server = TestServer::start(|seen| {
        let stall = if seen.number == 200 { 200 } else { 0 };
        Reply::ok(b"hello").after(Duration::from_millis(stall))
    });
    let mut config = get(server.address);
    config.mode = Mode::ConstantRate { per_s: 500.0 };
    config.stop = Stop::after_ns(1_000 * MS);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.requests, record.offered),
        (500, Some(500)),
        "{:?}",
        record.errors
    );
    assert_eq!(server.requests(), 500);
    // 100 requests were due during the stall and waited 200, 198, ... 2 ms: a fifth of the run.
    assert!(record.response.percentile(99.0) >= 150 * MS);
    assert!(record.response.percentile(90.0) >= 80 * MS);
    assert!(record.service.max() >= 199 * MS);
    // Only one of them was served slowly: the server responded to the others as soon as it got them.
    let slow = |histogram: &millpond_measure::histogram::LatencyHistogram, limit_ns: u64| {
        histogram
            .bins()
            .filter(|&(ns, _)| ns >= limit_ns)
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    let (slow_service, slow_response) = (
        slow(&record.service, 150 * MS),
        slow(&record.response, 150 * MS),
    );
    assert!(
        slow_service < slow_response,
        "{slow_service} {slow_response}"
    );
    assert!(slow(&record.slip, 150 * MS) >= 20);
}

/// Goal: N requests at a rate are as long as N/R for the rate, whenever the last response comes.
#[test]
fn the_rate_of_a_count_is_of_its_arrivals() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.mode = Mode::ConstantRate { per_s: 1_000.0 };
    config.stop = Stop::after_requests(200);
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, record.offered), (200, Some(200)));
    let window = record.rate_window;
    match window.end {
        RateWindowEnd::LastArrival => assert_eq!(window.duration_ns, 200 * MS),
        // A machine without a moment for it.
        end => assert_eq!((end, window.answers), (RateWindowEnd::LastAnswer, 200)),
    }
}

/// Goal: a stalled connection keeps no arrival that another connection could take.
#[test]
fn free_connections_take_over_from_a_stalled_one() {
    let arrived = Arc::new(AtomicU64::new(0));
    let server = TestServer::start(move |seen| {
        arrived.fetch_add(1, Ordering::SeqCst);
        if seen.number == 50 {
            // It stalls until all the others have come, which only other connections can bring.
            eventually("the others", || arrived.load(Ordering::SeqCst) == 200);
        }
        Reply::ok(b"hello")
    });
    let mut config = get(server.address);
    config.connections = 4;
    config.mode = Mode::ConstantRate { per_s: 400.0 };
    config.stop = Stop::after_ns(500 * MS);
    config.timeout_ns = 300_000 * MS;
    let record = run(&config);
    check_identities(&record);
    assert_eq!(record.requests, 200, "{:?}", record.errors);
    let seen = server.seen();
    let stalled = seen.iter().find(|seen| seen.number == 50).unwrap();
    let later = seen.iter().filter(|other| other.number > 50);
    assert_eq!(
        later
            .filter(|other| other.connection == stalled.connection)
            .count(),
        0
    );
}

/// Goal: the server sees the whole schedule: the count to the last request and the mean rate.
#[test]
fn the_server_sees_the_schedule() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.threads = 2;
    config.connections = 8;
    config.mode = Mode::ConstantRate { per_s: 1_000.0 };
    config.stop = Stop {
        duration_ns: Some(60_000 * MS),
        requests: Some(700),
    };
    let begun = Instant::now();
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.requests, server.requests()),
        (700, 700),
        "{:?}",
        record.errors
    );
    assert_eq!(record.rate_per_s, Some(1_000.0));
    none_came_before_it_was_due(&server, begun, Duration::from_millis(1));
    assert!(record.duration_ns >= 699 * MS);
}

/// The schedule began after `begun`, and its arrivals are so far apart: late they may be, early not.
fn none_came_before_it_was_due(server: &TestServer, begun: Instant, apart: Duration) {
    let mut arrivals: Vec<Instant> = server.seen().iter().map(|seen| seen.at).collect();
    arrivals.sort();
    for (number, at) in (0..).zip(arrivals) {
        let since = at - begun;
        assert!(
            since >= apart * number,
            "arrival {number} came at {since:?}"
        );
    }
}

/// Goal: an offered load beyond capacity is neither dropped silently nor reported as healthy.
#[test]
fn overload_is_told_with_every_request_accounted_for() {
    let server = TestServer::start(|_| Reply::ok(b"hello").after(Duration::from_millis(20)));
    let mut config = get(server.address);
    config.mode = Mode::ConstantRate { per_s: 500.0 };
    config.stop = Stop::after_ns(500 * MS);
    config.timeout_ns = 300 * MS;
    let record = run(&config);
    check_identities(&record);
    let accounted = record.requests + record.errors.total();
    assert_eq!(
        (accounted, record.offered),
        (250, Some(250)),
        "{:?}",
        record.errors
    );
    assert!(
        record.unsent > 150,
        "one connection at 20 ms serves at most 40 of 250"
    );
    assert_eq!(record.unanswered.count(), record.errors.timeout);
    assert!(
        record.unanswered.max() >= 700 * MS,
        "the first unsent one waited longest"
    );
    assert_eq!(record.verdict.status, LoadStatus::Invalid);
    assert!(
        record
            .verdict
            .reasons
            .iter()
            .any(|reason| reason.contains("rate was missed"))
    );
    // The rate is of the window, without the responses of the drain.
    assert!(record.requests_per_s <= 52.0, "{}", record.requests_per_s);
}

/// Goal: a request without a response at the end of the drain is a timeout of at least its age, not
/// a success and not lost.
#[test]
fn requests_open_at_the_end_are_timeouts_with_their_age() {
    let server = TestServer::start(|seen| {
        if seen.number >= 10 {
            Reply::silence()
        } else {
            Reply::ok(b"")
        }
    });
    let mut config = get(server.address);
    config.connections = 50;
    config.mode = Mode::ConstantRate { per_s: 100.0 };
    config.stop = Stop::after_ns(300 * MS);
    config.timeout_ns = 500 * MS;
    let record = run(&config);
    check_identities(&record);
    // A server that stalls may leave some of the first ten without a response too, and respond to none of the others.
    let (answered, timeouts) = (record.requests, record.errors.timeout);
    assert!(answered <= 10, "{record:?}");
    assert_eq!(answered + timeouts, 30, "{:?}", record.errors);
    assert_eq!(record.ended, Ended::Complete);
    assert!(
        record.unanswered.min() >= 490 * MS,
        "{}",
        record.unanswered.min()
    );
}

/// Goal: warm-up at a constant rate is sent and not counted.
#[test]
fn warm_up_is_sent_and_not_counted() {
    let server = TestServer::start(|_| Reply::ok(b""));
    let mut config = get(server.address);
    config.connections = 2;
    config.mode = Mode::ConstantRate { per_s: 200.0 };
    config.warm_up = WarmUp::Lasting {
        duration_ns: 250 * MS,
    };
    config.stop = Stop::after_requests(40);
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, server.requests()), (40, 90));
}

/// Goal: when a target dies, each arrival that was due until then is accounted for.
#[test]
fn a_dying_target_leaves_no_arrival_unaccounted() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.threads = 2;
    config.connections = 4;
    config.mode = Mode::ConstantRate { per_s: 400.0 };
    config.stop = Stop::after_ns(60_000 * MS);
    let record = std::thread::scope(|scope| {
        scope.spawn(|| {
            server.wait_for_requests(20);
            server.die();
        });
        run(&config)
    });
    check_identities(&record);
    assert_eq!(record.ended, Ended::TargetGone);
    assert!(
        record.requests > 0 && record.unsent > 0,
        "{:?}",
        record.errors
    );
    let accounted = record.requests + record.errors.total() - record.errors.connect;
    assert_eq!(Some(accounted + record.abandoned), record.offered);
}

/// Goal: with a deadline an overloaded run sends what is fresh, and every arrival is in exactly one
/// count: successful, failed, dropped late, or under way at the end.
#[test]
fn a_deadline_sheds_what_is_late_and_counts_it_apart() {
    let server = TestServer::start(|_| Reply::ok(b"hello").after(Duration::from_millis(20)));
    let mut config = get(server.address);
    config.mode = Mode::ConstantRate { per_s: 500.0 };
    config.deadline_ns = Some(50 * MS);
    config.stop = Stop::after_ns(500 * MS);
    let record = run(&config);
    check_identities(&record);
    assert!(record.shed > 150, "one connection serves at most 30 of 250");
    let accounted = record.requests + record.errors.total() + record.shed + record.abandoned;
    assert_eq!((accounted, record.offered), (250, Some(250)));
    assert_eq!(server.requests(), record.requests);
    let reasons = record.verdict.reasons.join("; ");
    assert!(reasons.contains("later than the deadline"), "{reasons}");
}

/// Goal: a random process is sent whole, by several threads, and said in the record.
#[test]
fn a_poisson_process_reaches_the_server_whole() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.threads = 2;
    config.connections = 8;
    let arrivals = Arrivals {
        spacing: Spacing::Poisson,
        seed: 3,
        ..Arrivals::constant(Rate::from_per_s(500.0).unwrap())
    };
    config.mode = Mode::Open(arrivals);
    config.stop = Stop::after_ns(1_000 * MS);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(Some(record.requests), record.offered, "{:?}", record.errors);
    assert_eq!(server.requests(), record.requests);
    // Six standard deviations around the mean.
    assert!((370..630).contains(&record.requests), "{}", record.requests);
    assert_eq!(record.arrivals.as_deref(), Some("500/s, Poisson, seed 3"));
    assert!(
        record
            .rate_per_s
            .is_some_and(|per_s| (370.0..630.0).contains(&per_s))
    );
}

/// Goal: a trace needs no other end, and ends the run at its own end.
#[test]
fn a_trace_ends_the_run() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    let moments: Vec<u64> = (0..50).map(|number| number * 4 * MS).collect();
    config.mode = Mode::Open(Arrivals {
        profile: Profile::Trace(moments.into()),
        spacing: Spacing::Even,
        seed: 0,
    });
    config.stop = Stop {
        duration_ns: None,
        requests: None,
    };
    let begun = Instant::now();
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, record.offered), (50, Some(50)));
    assert_eq!(record.ended, Ended::Complete);
    none_came_before_it_was_due(&server, begun, Duration::from_millis(4));
}
