//! Right responses and all responses: two populations, both shown, and objectives that failing does not keep.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{LoadConfig, Stop, facts_of};
use millpond_measure::report::wrk;
use millpond_measure::slo::{Slo, SloPopulation};
use std::time::Duration;
use support::{MS, Reply, TestServer, check_identities, run};

/// `--slo 'p99<5ms'` was met while 4 % of the responses were 503s after 20 ms: they left the latencies.
///
/// Goal: the slow failures are in the latencies of all responses and not in those of the right ones, and an objective is
/// about all unless asked otherwise.
#[test]
fn failing_slowly_keeps_no_objective() {
    let server = TestServer::start(|seen| match seen.number % 25 {
        0 => Reply::status(503, b"no").after(Duration::from_millis(20)),
        _ => Reply::ok(b"fine"),
    });
    let record = run(&LoadConfig {
        stop: Stop::after_requests(500),
        ..support::get(server.address)
    });
    check_identities(&record);
    assert_eq!((record.requests, record.errors.status), (480, 20));
    assert_eq!(record.wrong_response.count(), 20);
    assert!(record.wrong_response.min() >= 20 * MS);
    let all = record.all_response();
    assert_eq!(all.count(), 500);
    assert!(all.percentile(99.0) >= 20 * MS);
    let report = record.to_report();
    assert_eq!(report.all_response_ns.unwrap().count, 500);
    assert_eq!(report.response_ns.count, 480);
    // Whatever this machine's latencies are, 4 % of failures lie beyond the 96th percentile and not below.
    let met = |objective: &str, population| {
        let slo = objective.parse::<Slo>().unwrap().of(population);
        slo.judge(&facts_of(&record))[0].is_met
    };
    assert!(!met("p99<1h", SloPopulation::All));
    assert!(met("p95.9<1h", SloPopulation::All));
    assert!(met("p99<1h", SloPopulation::Successful));
}

/// A script's POST against a server that accepts GET alone: the text said `0 requests`.
///
/// Goal: wrk's lines count every response, with the wrong statuses beside them, and our own say which are right.
#[test]
fn wrong_answers_have_a_rate_in_wrks_lines() {
    let server =
        TestServer::start(|_| Reply::status(405, b"GET only").after(Duration::from_millis(2)));
    let record = run(&LoadConfig {
        connections: 2,
        stop: Stop::after_ns(400 * MS),
        ..support::get(server.address)
    });
    assert_eq!((record.requests, record.requests_per_s), (0, 0.0));
    let window = record.rate_window;
    assert!(window.wrong_answers > 0 && window.wrong_answers == window.wrong_statuses);
    let report = record.to_report();
    let rates = record.thread_rates.sample_summary();
    let text = wrk::results(&report, &record.all_response(), &rates, false) + &wrk::clocks(&report);
    for part in [
        format!("  {} requests in ", window.wrong_answers),
        format!("Non-2xx or 3xx responses: {}\n", window.wrong_answers),
        format!("Requests/sec: {:9.2}\n", record.all_answers_per_s()),
        "    All resp".to_owned(),
        "Responses: 0 right".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(record.all_answers_per_s() > 0.0);
}
