//! A log whose lines are not read, whose file is moved, or whose disk is full.

use super::{GET, Logged, Ways, lines, logging, metric, objects};
use crate::support::{TestServer, wait_until};
use millpond_http::{AccessLogConfig, AccessLogFormat, AccessLogTarget, Limits, ServeConfig};
use std::io::Read;
use std::process::Command;

const DROPPED: &str = "millpond_http_access_log_dropped_total{";
const QUEUED: &str = "millpond_http_access_log_entries_total{";

/// Goal: a log without a reader keeps no request waiting; every entry is queued or counted as dropped; and those that
/// were queued come whole once they are read.
#[test]
fn a_full_queue_drops_and_counts() {
    const COUNT: u64 = 5000;
    let home = tempfile::tempdir().unwrap();
    let pipe = home.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Without a reader it cannot be opened; this one does not read yet.
    let opening = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::File::open(pipe).unwrap())
    };
    let base = logging(
        Limits::default(),
        AccessLogTarget::File(pipe),
        AccessLogFormat::Json,
    );
    let access_log = base.access_log.clone().map(|log| AccessLogConfig {
        queue_bytes: 16 << 10,
        ..log
    });
    let server = TestServer::start(ServeConfig { access_log, ..base }, |_| Ways);
    let mut reader = opening.join().unwrap();
    let mut client = server.connect();
    for _ in 0..COUNT / 50 {
        client.send(GET.repeat(50));
        (0..50).for_each(|_| assert_eq!(client.response().status, 200));
    }
    let text = client
        .ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .text();
    let value = |start: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value(QUEUED) + value(DROPPED), COUNT);
    assert!(value(DROPPED) > 1000, "{}", value(DROPPED));
    let reading = std::thread::spawn(move || {
        let mut log = Vec::new();
        reader.read_to_end(&mut log).unwrap();
        log
    });
    server.stop();
    let entries = objects(&reading.join().unwrap());
    // The scrape itself has a line too, unless there was no room for it.
    let queued = value(QUEUED) as usize;
    assert!(
        (queued..=queued + 1).contains(&entries.len()),
        "{queued} {}",
        entries.len()
    );
}

/// Goal: a disk that is full costs entries, not responses, and is counted; the server ends as ever.
#[test]
fn a_full_disk_costs_no_answer() {
    let target = AccessLogTarget::File("/dev/full".into());
    let config = logging(Limits::default(), target, AccessLogFormat::Combined);
    let server = TestServer::start(config, |_| Ways);
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.ask(GET).status, 200);
    }
    wait_until("a failure is counted", || {
        metric(&server, "millpond_http_access_log_write_failures_total") > 0
    });
    assert_eq!(metric(&server, "millpond_http_access_log_lines_total"), 0);
    assert_eq!(client.ask(GET).status, 200);
    assert_eq!(server.stop().shards.len(), 1);
}

/// Goal: a log that cannot be opened is one sentence with its name, before anything is served.
#[test]
fn a_log_that_cannot_be_opened_is_named() {
    let target = AccessLogTarget::File("/absent/access.log".into());
    let config = logging(Limits::default(), target, AccessLogFormat::Combined);
    let make = |_| Ok::<_, std::convert::Infallible>(Ways);
    let error = millpond_http::serve_with(&config, make, |_| ()).unwrap_err();
    assert!(error.to_string().contains("/absent/access.log"), "{error}");
}

/// Goal: after a rename and a call to reread, lines go to a new file of the old name; none is lost,
/// doubled or cut, while requests go on.
#[test]
fn a_renamed_log_is_let_go_of() {
    const ROUNDS: u64 = 20;
    const PER_ROUND: usize = 100;
    let logged = Logged::start(AccessLogFormat::Json, Limits::default());
    let mut client = logged.connect();
    let path = logged.path();
    let mut found = Vec::new();
    for round in 0..ROUNDS {
        client.send(GET.repeat(PER_ROUND));
        let old = path.with_extension(format!("{round}"));
        std::fs::rename(&path, &old).unwrap();
        logged.server().running.reread();
        (0..PER_ROUND).for_each(|_| assert_eq!(client.response().status, 200));
        wait_until("a new file", || path.exists());
        found.extend(objects(&std::fs::read(old).unwrap()));
    }
    found.extend(objects(&logged.stop()));
    let numbers: Vec<_> = found
        .iter()
        .map(|entry| entry["request_number"].as_u64())
        .collect();
    let expected: Vec<_> = (1..=ROUNDS * PER_ROUND as u64).map(Some).collect();
    assert_eq!(numbers, expected);
}

/// Goal: a server that is stopped under load has logged every response that its clients got.
#[test]
fn a_graceful_stop_loses_no_entry() {
    const CLIENTS: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access.log");
    let target = AccessLogTarget::File(path.clone());
    let config = ServeConfig {
        shards: 2,
        ..logging(Limits::default(), target, AccessLogFormat::Combined)
    };
    let server = TestServer::start(config, |_| Ways);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connect();
            std::thread::spawn(move || {
                let mut count = 0;
                loop {
                    client.send(GET.repeat(4));
                    for _ in 0..4 {
                        match client.try_response(false) {
                            Some(response) => count += usize::from(response.status == 200),
                            None => return count,
                        }
                    }
                    if count > 4000 {
                        return count;
                    }
                }
            })
        })
        .collect();
    wait_until("some lines", || lines(&path) > 500);
    let report = server.stop();
    let answered: usize = clients
        .into_iter()
        .map(|client| client.join().unwrap_or(0))
        .sum();
    let logged = lines(&path);
    assert_eq!(logged as u64, report.requests);
    assert!(logged >= answered, "{logged} lines, {answered} responses");
}
