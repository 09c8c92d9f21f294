//! A warm-up that ends by itself, as the seconds and the record show it.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{LoadConfig, LoadRecord, Mode, Observer, Second, Stop, WarmUp, run_observed};
use millpond_measure::record::{LoadSecond, LoadStatus, RunPart};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{MS, Reply, TestServer, check_identities, get};

const SLICE_NS: u64 = 250 * MS;

#[derive(Default)]
struct Keeper(Mutex<Vec<LoadSecond>>);

impl Observer for Keeper {
    fn second(&self, second: &Second<'_>) {
        self.0.lock().unwrap().push(second.figures.clone());
    }
}

fn run(config: &LoadConfig) -> (LoadRecord, Vec<LoadSecond>) {
    let keeper = Keeper::default();
    let record = run_observed(config, &keeper, &AtomicBool::new(false)).unwrap();
    check_identities(&record);
    let shown = keeper.0.into_inner().unwrap();
    assert_eq!(shown, record.seconds);
    (record, shown)
}

/// The conditions for every warm-up that ends by itself, wherever it ended: its seconds lie in it, are at most seconds,
/// and are not counted.
fn check(record: &LoadRecord, seconds: &[LoadSecond], server: &TestServer) {
    let warm_up = record.warm_up.unwrap();
    let (before, window): (Vec<&LoadSecond>, Vec<&LoadSecond>) =
        seconds.iter().partition(|one| one.part == RunPart::WarmUp);
    assert!(seconds.is_sorted_by_key(|one| one.start_ns), "{seconds:?}");
    // One in which the machine let no thread of the generator run is not shown.
    let length_ns: u64 = before.iter().map(|one| one.duration_ns).sum();
    assert!(length_ns <= warm_up.duration_ns, "{seconds:?}");
    assert!(warm_up.duration_ns.is_multiple_of(SLICE_NS), "{warm_up:?}");
    assert!(before.iter().all(|one| one.duration_ns <= 1_000 * MS));
    let ends = before.iter().map(|one| one.start_ns + one.duration_ns);
    assert!(ends.max().is_none_or(|last| last <= warm_up.duration_ns));
    assert!(window[0].start_ns >= warm_up.duration_ns);
    let answers = |seconds: &[&LoadSecond]| seconds.iter().map(|one| one.requests).sum::<u64>();
    assert_eq!(answers(&window), record.requests);
    assert!(answers(&before) + record.requests <= server.requests());
    let decided = warm_up.until_steady.unwrap();
    assert!(answers(&before) > 0 || !decided.became_steady);
    let is_blamed = record
        .verdict
        .reasons
        .iter()
        .any(|one| one.contains("not steady"));
    assert_eq!(is_blamed, !decided.became_steady, "{:?}", record.verdict);
    assert_eq!(record.to_report().warm_up, Some(warm_up));
}

/// Goal: in a closed loop the window begins where the warm-up ended, and its requests are exactly
/// those asked for.
#[test]
fn a_closed_loop_warms_up() {
    let server = TestServer::start(|_| Reply::ok(b"x").after(Duration::from_millis(2)));
    let mut config = get(server.address);
    config.connections = 2;
    config.threads = 2;
    config.stop = Stop::after_requests(200);
    let limit_ns = 8_000 * MS;
    config.warm_up = WarmUp::UntilSteady { limit_ns };
    let (record, seconds) = run(&config);
    check(&record, &seconds, &server);
    assert_eq!((record.requests, record.errors.total()), (200, 0));
    let warm_up = record.warm_up.unwrap();
    assert!(warm_up.duration_ns >= 4_000 * MS, "{warm_up:?}");
}

/// Goal: in an open loop the grid of the window begins at its start, whole.
#[test]
fn an_open_loop_warms_up() {
    let server = TestServer::start(|_| Reply::ok(b"x"));
    let mut config = get(server.address);
    config.mode = Mode::ConstantRate { per_s: 100.0 };
    config.stop = Stop::after_ns(500 * MS);
    config.warm_up = WarmUp::UntilSteady {
        limit_ns: 6_000 * MS,
    };
    let (record, seconds) = run(&config);
    check(&record, &seconds, &server);
    assert_eq!((record.offered, record.sent), (Some(50), 50));
}

/// Goal: where too few samples come, the limit ends it, and the verdict says so. An arrival that a
/// thread had taken for the time after the limit is not lost and not sent twice.
#[test]
fn the_limit_makes_a_run_suspect() {
    let server = TestServer::start(|_| Reply::ok(b"x"));
    let mut config = get(server.address);
    config.mode = Mode::ConstantRate { per_s: 2.0 };
    config.stop = Stop::after_requests(2);
    config.warm_up = WarmUp::UntilSteady { limit_ns: 700 * MS };
    let (record, seconds) = run(&config);
    check(&record, &seconds, &server);
    let warm_up = record.warm_up.unwrap();
    // At the earliest the end of the slice that the limit lies in.
    assert!(warm_up.duration_ns >= 750 * MS, "{warm_up:?}");
    assert_eq!(warm_up.until_steady.unwrap().transient_ns, None);
    assert!(record.verdict.status >= LoadStatus::Suspect);
    assert_eq!((record.sent, record.requests), (2, 2));
}
