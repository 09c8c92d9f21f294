//! The closed loop against a server that counts for itself.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_http::Method;
use millpond_load::{
    BodyCheck, ConnectFailure, Ended, LoadConfig, LoadError, LoadRecord, Progress, Stop, WarmUp,
    Workload,
};
use millpond_measure::record::{LoadStatus, RateWindowEnd};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{
    MS, Reply, Seen, TestServer, check_identities, driver, get, refusing_address, run, target,
    try_run,
};

/// Goal: exactly N requests leave and exactly N responses are counted, over threads, connections and
/// pipelines that do not divide N.
#[test]
fn n_requests_are_exactly_n() {
    for (threads, connections, pipeline, requests) in [
        (1, 1, 1, 1),
        (1, 1, 1, 257),
        (2, 5, 1, 1_003),
        (2, 3, 7, 2_001),
        (8, 3, 2, 100),
    ] {
        let server = TestServer::start(|_| Reply::ok(b"hello"));
        let mut config = get(server.address);
        config.threads = threads;
        config.connections = connections;
        config.pipeline = pipeline;
        config.stop = Stop::after_requests(requests);
        config.validation.body = BodyCheck::Exact;
        let record = run(&config);
        check_identities(&record);
        assert_eq!((record.requests, record.errors.total()), (requests, 0));
        assert_eq!(server.requests(), requests);
        assert_eq!(server.connections(), connections);
        assert_eq!(record.threads, threads.min(connections));
        assert_eq!(record.ended, Ended::Complete);
        assert_eq!(record.statuses.get(&200), Some(&requests));
        assert!(record.requests_per_s > 0.0 && record.duration_ns > 0);
        // Due when written: a closed loop has no send delay.
        assert_eq!((record.slip.max(), record.offered), (0, None));
    }
}

/// Goal: the rate of a number of requests is of the responses before a connection finds none to send; where there are
/// none, of all of them.
#[test]
fn the_rate_is_of_the_time_with_requests_left() {
    let rate_window = |connections, requests| {
        let server = TestServer::start(|_| Reply::ok(b"hello"));
        let mut config = get(server.address);
        config.connections = connections;
        config.stop = Stop::after_requests(requests);
        let record = run(&config);
        assert_eq!(record.requests, requests);
        assert_eq!(record.answered_in_window, record.rate_window.answers);
        let per_s = record.rate_window.per_s();
        assert!((record.requests_per_s - per_s).abs() < 1e-6);
        (record.rate_window, record.duration_ns)
    };
    let (enough, duration_ns) = rate_window(4, 400);
    assert_eq!(enough.end, RateWindowEnd::NoRequestLeft);
    // At most those of the other connections are under way when it ends.
    assert!((397..=400).contains(&enough.answers), "{enough:?}");
    assert!(enough.bytes_received > 0 && duration_ns > 0);
    let (all, duration_ns) = rate_window(10, 5);
    assert_eq!((all.end, all.answers), (RateWindowEnd::LastAnswer, 5));
    assert_eq!(all.duration_ns, duration_ns);
    let (one, _) = rate_window(1, 7);
    assert_eq!((one.end, one.answers), (RateWindowEnd::NoRequestLeft, 7));
}

/// Goal: a pipelined batch leaves in one send, and each of its responses is timed by itself.
#[test]
fn pipelines_are_exactly_as_deep_as_asked() {
    let server = TestServer::start(|_| Reply::ok(b"x"));
    let mut config = get(server.address);
    config.pipeline = 16;
    config.stop = Stop::after_requests(160);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(record.requests, 160);
    let seen = server.seen();
    assert_eq!(seen[0].behind, 15, "the first batch arrives whole");
    assert!(seen.iter().all(|request| request.behind < 16));
}

/// Goal: a run by time counts only what began in the window, and warm-up is left out of the record
/// but not out of the server's own count.
#[test]
fn time_ends_the_window_and_warm_up_is_not_counted() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.connections = 2;
    config.warm_up = WarmUp::Lasting {
        duration_ns: 200 * MS,
    };
    config.stop = Stop::after_ns(300 * MS);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(record.duration_ns, 300 * MS);
    assert!(server.requests() >= record.requests);
    let rate = record.answered_in_window as f64 / 0.3;
    assert!((record.requests_per_s - rate).abs() < 1.0);
    // Only requests under way at the two edges distinguish the two counts.
    assert!(record.answered_in_window.abs_diff(record.requests) <= 4);
}

/// A key-value server in memory, shared with the test.
type Store = Arc<Mutex<HashMap<String, Vec<u8>>>>;

fn start_store() -> (TestServer, Store) {
    let store = Store::default();
    let shared = Arc::clone(&store);
    let server = TestServer::start(move |seen| {
        let mut store = shared.lock().unwrap();
        if seen.head.starts_with("PUT ") {
            store.insert(seen.target().to_owned(), seen.body.clone());
            return Reply::status(201, b"");
        }
        store
            .get(seen.target())
            .map_or(Reply::status(404, b""), |value| Reply::ok(value))
    });
    (server, store)
}

const KEYS: u64 = 500;
const VALUE_BYTES: usize = 700;

fn entity_target(key: u64) -> String {
    format!("/v0/entity?id=k{key:09}")
}

fn fill(server: &TestServer) -> LoadRecord {
    let workload = Workload::EntityPut {
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        seed: 11,
    };
    run(&entity_config(server, workload, KEYS))
}

fn read(server: &TestServer, requests: u64) -> LoadRecord {
    let workload = Workload::EntityGet {
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        seed: 11,
    };
    run(&entity_config(server, workload, requests))
}

fn entity_config(server: &TestServer, workload: Workload, requests: u64) -> LoadConfig {
    let mut config = LoadConfig::new(target(server.address, "/v0/entity"), workload);
    config.driver = driver();
    config.threads = 2;
    config.connections = 4;
    config.pipeline = 3;
    config.timeout_ns = 30_000 * MS;
    config.stop = Stop::after_requests(requests);
    config
}

/// Goal: a PUT run of K requests writes each of K keys once, and a GET run proves every value.
#[test]
fn entities_are_written_once_and_read_back_exactly() {
    let (server, _store) = start_store();
    let record = fill(&server);
    check_identities(&record);
    assert_eq!((record.requests, record.errors.total()), (KEYS, 0));
    let seen = server.seen();
    assert_eq!(seen.len() as u64, KEYS);
    let targets: HashSet<&str> = seen.iter().map(Seen::target).collect();
    assert!((0..KEYS).all(|key| targets.contains(&*entity_target(key))));
    let record = read(&server, 1_000);
    check_identities(&record);
    assert_eq!((record.requests, record.errors.total()), (1_000, 0));
}

/// Goal: one flipped bit, one value cut, one missing: each is an error of its kind, each time.
#[test]
fn damaged_entities_are_noticed_every_time() {
    let (server, store) = start_store();
    fill(&server);
    {
        let mut store = store.lock().unwrap();
        store.get_mut(&entity_target(1)).unwrap()[350] ^= 4;
        store
            .get_mut(&entity_target(2))
            .unwrap()
            .truncate(VALUE_BYTES - 1);
        store.remove(&entity_target(3)).unwrap();
    }
    let record = read(&server, 5_000);
    check_identities(&record);
    let seen = server.seen();
    let asked = |key: u64| {
        let wanted = entity_target(key);
        seen[KEYS as usize..]
            .iter()
            .filter(|seen| seen.target() == wanted)
            .count() as u64
    };
    assert_eq!(record.errors.validation, asked(1) + asked(2));
    assert_eq!(record.errors.status, asked(3));
    assert!(record.errors.validation > 0 && record.errors.status > 0);
    assert_eq!(record.requests + record.errors.total(), 5_000);
    assert_ne!(record.verdict.status, LoadStatus::Ok);
}

/// Goal: a server that closes after each response is followed with new connections; nothing is lost
/// and nothing counts as an error.
#[test]
fn announced_closes_are_no_errors() {
    let server = TestServer::start(|_| {
        Reply::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec())
            .then_close()
    });
    let mut config = get(server.address);
    config.connections = 2;
    config.stop = Stop::after_requests(50);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.requests, record.errors.total()),
        (50, 0),
        "{:?}",
        record.errors
    );
    assert_eq!(server.requests(), 50);
    assert!(server.connections() >= 50);
}

/// Goal: requests pipelined behind an announced close are written again, not counted as failed.
/// Three responses of each connection come in one write: were they written one by one, a slow client
/// would read the announcement before it had written anything behind it (so it was once, on a busy
/// machine).
#[test]
fn requests_behind_an_announced_close_are_repeated() {
    let server = TestServer::start(|seen| {
        if seen.in_connection < 2 {
            return Reply::silence();
        }
        let kept = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        Reply::raw([kept, kept, last].concat().into_bytes()).then_close()
    });
    let mut config = get(server.address);
    config.pipeline = 4;
    config.stop = Stop::after_requests(39);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.requests, record.errors.total()),
        (39, 0),
        "{:?}",
        record.errors
    );
    assert!(record.resent > 0);
    assert_eq!(record.sent, 39);
}

/// Goal: bodies without a length end with the connection and count as right.
#[test]
fn answers_that_end_with_the_connection_are_complete() {
    let server = TestServer::start(|_| {
        Reply::raw(b"HTTP/1.0 200 OK\r\n\r\nuntil the end".to_vec()).then_close()
    });
    let mut config = get(server.address);
    config.stop = Stop::after_requests(5);
    config.validation.body = BodyCheck::Exact;
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.requests, record.errors.total()),
        (5, 0),
        "{:?}",
        record.errors
    );
}

/// Goal: each way a response can be wrong has its own count, and none is a latency sample.
#[test]
fn wrong_answers_are_errors_of_their_kind() {
    let server = TestServer::start(|seen| match seen.number % 5 {
        1 => Reply::status(500, b"oops"),
        2 => Reply::ok(b"hellO"),
        3 => Reply::raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()),
        4 => Reply::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel".to_vec()).then_close(),
        _ => Reply::ok(b"hello"),
    });
    let mut config = get(server.address);
    config.stop = Stop::after_requests(50);
    config.validation.body = BodyCheck::Exact;
    let record = run(&config);
    check_identities(&record);
    let errors = record.errors;
    assert_eq!(
        (errors.status, errors.validation, errors.read),
        (10, 10, 20),
        "{errors:?}"
    );
    assert_eq!(
        (record.requests, errors.connect, errors.timeout),
        (10, 0, 0)
    );
    assert_eq!(server.requests(), 50);
    assert_eq!(record.verdict.status, LoadStatus::Invalid);
}

/// Goal: a server that closes silently fails the requests it left, and is not hammered.
#[test]
fn silent_closes_fail_their_requests_and_slow_the_reconnects() {
    let server = TestServer::start(|_| Reply::silence().then_close());
    let mut config = get(server.address);
    config.stop = Stop::after_requests(5);
    let begun = Instant::now();
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, record.errors.read), (0, 5));
    // The connection of the last one may be open again or not.
    assert_eq!(server.requests(), 5);
    assert!(server.connections() >= 5);
    // Waits of 10, 20, 40 and 80 ms, or longer on a busy machine: a spinning client has none.
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert!(
        record
            .verdict
            .reasons
            .iter()
            .any(|reason| reason.contains("no request"))
    );
}

/// Goal: a server that never responds yields timeouts with their ages, and the run ends.
#[test]
fn a_silent_server_yields_timeouts() {
    let server = TestServer::start(|_| Reply::silence());
    let mut config = get(server.address);
    config.connections = 3;
    config.timeout_ns = 200 * MS;
    config.stop = Stop::after_requests(6);
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, record.errors.timeout), (0, 6));
    assert_eq!(record.unanswered.count(), 6);
    assert!(record.unanswered.min() >= 199 * MS);
    // The server may read what it was sent after the client gave it up.
    server.wait_for_requests(6);
    assert_eq!(server.requests(), 6);
}

/// Runs with a timeout so short that a busy machine's connections may not come about in it, which says nothing of responses.
fn run_connected(config: &LoadConfig) -> LoadRecord {
    const TRIES_MAX: u32 = 50;
    for _ in 1..TRIES_MAX {
        match try_run(config) {
            Err(LoadError::Unreachable {
                cause: ConnectFailure::TimedOut { .. },
                ..
            }) => {}
            other => return other.unwrap(),
        }
    }
    run(config)
}

/// Goal: a response that comes after the timeout is a timeout and no sample, also when it comes before the sweep; with
/// a pipeline and without.
#[test]
fn an_answer_after_the_timeout_is_a_timeout() {
    for pipeline in [1, 4] {
        // Soon enough to be there before the next sweep, which is 20 ms away at most.
        let server = TestServer::start(|_| Reply::ok(b"late").after(Duration::from_millis(62)));
        let mut config = get(server.address);
        config.connections = 5;
        config.pipeline = pipeline;
        config.timeout_ns = 60 * MS;
        config.stop = Stop::after_requests(40);
        let record = run_connected(&config);
        check_identities(&record);
        assert_eq!(
            (record.requests, record.errors.timeout),
            (0, 40),
            "{pipeline}"
        );
        assert_eq!(record.unanswered.count(), 40);
        // The sweep that ends a pipeline ends what was asked behind its first late response with it,
        // however short a time ago: on a busy machine it found some.
        let oldest = match pipeline {
            1 => record.unanswered.min(),
            _ => record.unanswered.max(),
        };
        assert!(oldest >= 59 * MS, "{pipeline}: {oldest}");
        assert_eq!((record.response.count(), record.answered_in_window), (0, 0));
    }
}

/// Goal: nothing listens: one clear sentence, and no record that could be mistaken for a result.
#[test]
fn an_unreachable_target_is_one_clear_error() {
    let (address, _kept) = refusing_address();
    let mut config = get(address);
    config.connections = 4;
    let error = try_run(&config).unwrap_err();
    assert!(matches!(error, LoadError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("refused"),
        "{text}"
    );
}

/// Goal: a target that dies ends the run soon, with the measurements until then and the errors counted.
#[test]
fn a_target_that_dies_ends_the_run_soon() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.connections = 4;
    config.stop = Stop::after_ns(600_000 * MS);
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
        record.requests > 0 && record.errors.connect > 0,
        "{:?}",
        record.errors
    );
    // Backing off: four connections that double their waits from 10 ms on for as long as this took.
    let tries_max = 4 * (10 + record.duration_ns / (1_000 * MS) * 10);
    assert!(record.errors.connect < tries_max, "{:?}", record.errors);
    assert_eq!(record.verdict.status, LoadStatus::Invalid);
}

/// Goal: the stop flag ends the run with partial results; requests under way are not errors.
#[test]
fn the_stop_flag_gives_partial_results() {
    let server = TestServer::start(|_| Reply::ok(b"hello").after(Duration::from_millis(1)));
    let mut config = get(server.address);
    config.connections = 2;
    config.stop = Stop::after_ns(600_000 * MS);
    let stop = AtomicBool::new(false);
    let news = Mutex::new(Vec::<Progress>::new());
    let record = millpond_load::run(
        &config,
        &|progress| {
            let mut news = news.lock().unwrap();
            news.push(*progress);
            let is_known = progress.completed > 0 && progress.rate_per_s > 0.0;
            stop.fetch_or(news.len() >= 3 && is_known, Ordering::SeqCst);
        },
        &stop,
    )
    .unwrap();
    check_identities(&record);
    assert_eq!(
        (record.ended, record.errors.total()),
        (Ended::Interrupted, 0)
    );
    assert!(record.requests > 0 && record.requests_per_s > 0.0);
    assert!(record.to_report().interrupted);
    let news = news.into_inner().unwrap();
    assert!(
        news.windows(2)
            .all(|pair| pair[0].completed <= pair[1].completed)
    );
    let last = news.last().unwrap();
    let remaining_ns = last.remaining_ns.unwrap();
    assert!(
        remaining_ns.abs_diff(600_000 * MS - last.elapsed_ns) <= MS,
        "{last:?}"
    );
}

/// Goal: bodies larger than any socket buffer go out whole and come back compared.
#[test]
fn large_bodies_survive_both_ways() {
    let server = TestServer::start(|seen| Reply::ok(&seen.body));
    let mut config = get(server.address);
    config.connections = 2;
    let body: Vec<u8> = (0..5_000_000u32)
        .map(|index| (index * 7 / 3) as u8)
        .collect();
    config.workload = Workload::Static {
        method: Method::Post,
        fields: vec![],
        body,
    };
    config.validation.body = BodyCheck::Exact;
    config.timeout_ns = 60_000 * MS;
    config.stop = Stop::after_requests(6);
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.requests, record.errors.total()),
        (6, 0),
        "{:?}",
        record.errors
    );
    assert!(
        server
            .seen()
            .iter()
            .all(|seen| seen.body.len() == 5_000_000)
    );
}

/// Goal: settings that cannot be run are refused by name before anything is connected.
#[test]
fn wrong_settings_are_refused_by_name() {
    let server = TestServer::start(|_| Reply::ok(b""));
    let refused = |change: &dyn Fn(&mut LoadConfig)| {
        let mut config = get(server.address);
        change(&mut config);
        match try_run(&config).unwrap_err() {
            LoadError::Setting { name, .. } => name,
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(&|config| config.connections = 0), "connections");
    assert_eq!(refused(&|config| config.pipeline = 0), "pipeline");
    // Memory for so many would end the process, or the machine.
    assert_eq!(
        refused(&|config| config.connections = 1_000_000_000),
        "connections"
    );
    let threads = |config: &mut LoadConfig| (config.threads, config.connections) = (5_000, 5_000);
    assert_eq!(refused(&threads), "threads");
    assert_eq!(refused(&|config| config.stop.duration_ns = None), "stop");
    assert_eq!(refused(&|config| config.stop.requests = Some(0)), "stop");
    assert_eq!(refused(&|config| config.timeout_ns = 0), "timeout");
    assert_eq!(refused(&|config| config.cpus = Some(vec![])), "cpus");
    assert_eq!(refused(&|config| config.target.path = "x".into()), "path");
    assert_eq!(
        refused(&|config| config.target.path = "/a b".into()),
        "path"
    );
    assert_eq!(
        refused(&|config| config.target.host = "a\r\nb".into()),
        "host"
    );
    let rate = millpond_load::Mode::ConstantRate { per_s: 0.0 };
    assert_eq!(refused(&|config| config.mode = rate.clone()), "rate");
    assert_eq!(
        refused(&|config| {
            let fields = vec![("Content-Length".into(), "3".into())];
            config.workload = Workload::Static {
                method: Method::Get,
                fields,
                body: vec![],
            };
        }),
        "header"
    );
    let chunked = |field: &str, chunk_bytes| Workload::StaticChunked {
        method: Method::Post,
        fields: vec![(field.to_owned(), "1".to_owned())],
        body: b"body".to_vec(),
        chunk_bytes,
    };
    for (field, chunk_bytes, setting) in [("X", 0, "chunk"), ("transfer-encoding", 4, "header")] {
        let workload = chunked(field, chunk_bytes);
        assert_eq!(
            refused(&|config| config.workload = workload.clone()),
            setting
        );
    }
    assert_eq!(
        refused(&|config| {
            config.workload = Workload::EntityGet {
                keys: 0,
                value_bytes: 1,
                seed: 0,
            };
        }),
        "keys"
    );
    assert_eq!(server.requests(), 0);
}

/// Goal: single requests are kept with their parts, as many as there is room for; in a pipeline
/// without a script requests that left together are a batch. Without the options there is none of
/// either.
#[test]
fn single_requests_and_batches_are_kept_if_asked_for() {
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let mut config = get(server.address);
    config.stop = Stop::after_requests(40);
    let plain = run(&config);
    assert_eq!(
        (plain.samples.kept.len(), plain.batches.response.count()),
        (0, 0)
    );
    config.plan.requests_max = Some(8);
    config.pipeline = 4;
    config.samples_max = 30;
    config.batch_latency = true;
    let record = run(&config);
    check_identities(&record);
    assert_eq!(
        (record.samples.kept.len(), record.samples.dropped),
        (30, 10)
    );
    let connected = record
        .samples
        .kept
        .iter()
        .filter(|one| one.connect_ns > 0)
        .count();
    assert!((1..=5).contains(&connected), "{connected}");
    for sample in &record.samples.kept {
        assert!(sample.waiting_ns <= sample.service_ns, "{sample:?}");
        let since_start_ns = sample.written_ns.abs_diff(record.started_unix_ns);
        assert!(since_start_ns < 600_000 * MS, "{sample:?}");
    }
    let batches = record.batches.service.count();
    assert!((10..=40).contains(&batches), "{batches}");
}
