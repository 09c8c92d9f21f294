//! Every text about a run says the same: counts over times are rates, whatever ended the run and however slow the
//! responses were.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{LoadConfig, LoadRecord, Mode, Stop, WarmUp};
use millpond_measure::record::RateWindowEnd;
use millpond_measure::report::{ab, csv, wrk};
use std::time::{Duration, Instant};
use support::{MS, Reply, TestServer, check_identities, run};

fn number_behind(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no number behind {name:?}: {text}"))
}

fn ab_text(record: &LoadRecord) -> String {
    let times = ab::Times {
        connect: &record.connect,
        processing: &record.service,
        waiting: &record.waiting,
        total: &record.total,
    };
    ab::text(&record.to_report(), &times, ab::Style::default())
}

fn is_near(one: f64, two: f64) -> bool {
    (one - two).abs() <= 0.01 + one.abs().max(two.abs()) * 0.002
}

/// The relations between the texts of one run, whatever happened.
fn check_texts(record: &LoadRecord, connections: usize) {
    check_identities(record);
    let report = record.to_report();
    let window = report.rate_window.unwrap();
    let seconds = window.duration_ns as f64 / 1e9;
    let all = (window.answers + window.wrong_answers) as f64;
    assert!(is_near(report.all_answers_per_s.unwrap() * seconds, all));
    assert!(is_near(
        report.requests_per_s * seconds,
        window.answers as f64
    ));

    let rates = record.thread_rates.sample_summary();
    let text = wrk::results(&report, &record.all_response(), &rates, true);
    assert!(is_near(
        number_behind(&text, "Requests/sec:"),
        all / seconds
    ));
    let line = text
        .lines()
        .find(|line| line.contains(" requests in "))
        .unwrap();
    let counted: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    let answered = (record.requests + record.errors.status + record.errors.validation) as f64;
    match window.end {
        RateWindowEnd::Time | RateWindowEnd::LastAnswer => assert!(is_near(counted, all)),
        _ => assert!(is_near(counted, answered)),
    }

    let table = csv::text(&report);
    let (names, values) = table.trim_end().split_once('\n').unwrap();
    let value = |name: &str| -> f64 {
        let place = names.split(',').position(|one| one == name).unwrap();
        values.split(',').nth(place).unwrap().parse().unwrap()
    };
    assert!(is_near(value("requests_per_s"), report.requests_per_s));
    assert!(is_near(value("all_answers_per_s"), all / seconds));
    assert!(is_near(value("requests"), record.requests as f64));

    // ab's is of all requests until the last response.
    let text = ab_text(record);
    let (complete, taken_s) = (
        number_behind(&text, "Complete requests:"),
        number_behind(&text, "Time taken for tests:"),
    );
    assert!(is_near(complete, answered));
    assert!((number_behind(&text, "Requests per second:") * taken_s / complete - 1.0).abs() < 0.01);
    assert!(
        number_behind(&text, "Total transferred:") >= number_behind(&text, "HTML transferred:")
    );
    // So many connections cannot get more responses than each of them alone.
    let mean_ms = taken_s * 1e3 * connections as f64 / complete;
    let fastest_ms = record.service.min() as f64 / 1e6;
    assert!(
        mean_ms >= fastest_ms * 0.99,
        "{mean_ms} {fastest_ms}: {text}"
    );
}

/// `--print ab` said 100/s and 500 ms where no request took under 600 ms.
///
/// Goal: with responses that take longer than half of the window, by time, by count, with warm-up and at a rate, with
/// wrong responses among them, no text counts responses of the drain in the time of the window.
#[test]
fn texts_agree_with_slow_answers() {
    let server = TestServer::start(|seen| {
        let wait = Duration::from_millis(120);
        match seen.number % 5 {
            0 => Reply::status(503, b"no").after(wait),
            _ => Reply::ok(b"fine").after(wait),
        }
    });
    let base = LoadConfig {
        connections: 8,
        stop: Stop::after_ns(200 * MS),
        ..support::get(server.address)
    };
    let warm_up = WarmUp::Lasting {
        duration_ns: 60 * MS,
    };
    let rate = Mode::ConstantRate { per_s: 40.0 };
    for config in [
        base.clone(),
        LoadConfig {
            stop: Stop::after_requests(20),
            ..base.clone()
        },
        LoadConfig {
            warm_up,
            ..base.clone()
        },
        LoadConfig {
            mode: rate.clone(),
            ..base.clone()
        },
        LoadConfig {
            mode: rate,
            stop: Stop::after_requests(12),
            ..base
        },
    ] {
        let record = run(&config);
        assert!(record.requests > 0);
        check_texts(&record, config.connections);
    }
}

/// `-R 0.1 -d 3s` printed 531 requests a second and ended at once; `-R 2 -d 3s` 2.40.
///
/// Goal: a run at a rate lasts as long as requested, and its rate is the responses over that time.
#[test]
fn a_run_at_a_low_rate_lasts_as_long_as_asked() {
    let server = TestServer::start(|_| Reply::ok(b"fine"));
    for (per_s, requests) in [(0.5, 1), (5.0, 3)] {
        let begun = Instant::now();
        let record = run(&LoadConfig {
            threads: 2,
            connections: 3,
            mode: Mode::ConstantRate { per_s },
            stop: Stop::after_ns(600 * MS),
            ..support::get(server.address)
        });
        assert!(begun.elapsed() >= Duration::from_millis(600));
        assert_eq!((record.requests, record.duration_ns), (requests, 600 * MS));
        let window = record.rate_window;
        assert_eq!(
            (window.duration_ns, window.end),
            (600 * MS, RateWindowEnd::Time)
        );
        assert!(is_near(record.requests_per_s, requests as f64 / 0.6));
        check_texts(&record, 3);
    }
}
