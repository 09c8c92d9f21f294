//! Servers that misbehave in one way each: every failure has its kind, and the first of each is shown.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{LoadConfig, LoadRecord, Stop};
use millpond_measure::record::LoadFailureKind as Kind;
use millpond_measure::report::wrk;
use support::{MS, Reply, TestServer, check_identities, run};

/// A server's answer, what kind of failure it is, and a part of the example's sentence.
type Case = (&'static str, Vec<u8>, Kind, &'static str);

fn cases() -> Vec<Case> {
    let ok = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes();
    let fields = |count: usize| {
        let fields: String = (0..count).map(|one| format!("X-{one}: y\r\n")).collect();
        ok(&format!("{fields}Content-Length: 0\r\n\r\n"))
    };
    let long = format!("X: {}\r\nContent-Length: 0\r\n\r\n", "y".repeat(100_000));
    vec![
        (
            "a body that is cut",
            ok("Content-Length: 9\r\n\r\nabc"),
            Kind::Read,
            "missing",
        ),
        (
            "a chunk that is cut",
            ok("Transfer-Encoding: chunked\r\n\r\n9\r\nabc"),
            Kind::Read,
            "missing",
        ),
        (
            "a close without an answer",
            Vec::new(),
            Kind::Read,
            "missing",
        ),
        (
            "a head that is cut",
            ok("Content-Le"),
            Kind::Read,
            "missing",
        ),
        (
            "two lengths",
            ok("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            Kind::Framing,
            "Content-Length",
        ),
        (
            "a bare line feed",
            b"HTTP/1.1 200 OK\nA: b\n\n".to_vec(),
            Kind::Framing,
            "head",
        ),
        (
            "a folded field",
            ok("A: b\r\n c\r\nContent-Length: 0\r\n\r\n"),
            Kind::Framing,
            "head",
        ),
        (
            "a chunk size that is none",
            ok("Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            Kind::Framing,
            "chunk",
        ),
        (
            "another protocol",
            b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
            Kind::Framing,
            "head",
        ),
        (
            "too many fields",
            fields(300),
            Kind::Limit,
            "more than 300 fields",
        ),
        (
            "too long a head",
            ok(&long),
            Kind::Limit,
            "head over 65535 bytes",
        ),
        (
            "a wrong path",
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
            Kind::Status,
            "status",
        ),
    ]
}

fn run_against(bytes: Vec<u8>) -> LoadRecord {
    let server = TestServer::start(move |_| Reply::raw(bytes.clone()).then_close());
    let record = run(&LoadConfig {
        stop: Stop::after_requests(3),
        ..support::get(server.address)
    });
    check_identities(&record);
    record
}

/// Fourteen different causes were all `read 12`.
///
/// Goal: each cause has its kind, whose counts add up to the failures, and its first example with a time, a sentence
/// and what arrived; the text shows it.
#[test]
fn every_failure_has_its_kind_and_an_example() {
    for (name, bytes, kind, part) in cases() {
        let sent = bytes.clone();
        let record = run_against(bytes);
        assert_eq!(record.requests, 0, "{name}");
        let counts = record.failures.iter().map(|one| one.count);
        assert_eq!(
            counts.sum::<u64>(),
            record.errors.total(),
            "{name}: {:?}",
            record.failures
        );
        let found = record.failures.iter().find(|one| one.kind == kind);
        let found = found.unwrap_or_else(|| panic!("{name}: {:?}", record.failures));
        let first = found.first.as_ref().unwrap();
        assert!(first.what.contains(part), "{name}: {first:?}");
        assert!(first.bytes.len() <= 4 * 64, "{name}: {first:?}");
        if matches!(kind, Kind::Framing | Kind::Status) {
            let begins = sent[..7].escape_ascii().to_string();
            assert!(first.bytes.starts_with(&begins), "{name}: {first:?}");
        }
        let why = record.why_none_is_right().unwrap();
        let cause = match kind {
            // A request may meet the end of the connection that the answer before it closed.
            Kind::Status => "answers have status 404: the target has no such path",
            _ => part,
        };
        assert!(why.contains(cause), "{name}: {why}");
        assert!(record.verdict.reasons.join("; ").contains(&why), "{name}");
        let report = record.to_report();
        assert_eq!(report.failures, record.failures);
        let text = wrk::clocks(&report).replace("\n      ", " ");
        for part in [kind.label(), "Failures:", "the first after"] {
            assert!(text.contains(part), "{name}, {part}: {text}");
        }
    }
}

/// Heads over 16 KiB and with 100 fields failed, which browsers take.
///
/// Goal: heads up to the limits are right, whole and in pieces, one byte and one field more is not, and the limit can
/// be set.
#[test]
fn long_heads_are_taken_up_to_the_limit() {
    let begin = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n";
    let long = |bytes: usize| {
        let padding = bytes - begin.len() - "X: \r\n\r\n".len();
        format!("{begin}X: {}\r\n\r\nok", "y".repeat(padding)).into_bytes()
    };
    let fields = |count: usize| {
        let fields: String = (1..count).map(|one| format!("X-{one}: y\r\n")).collect();
        format!("{begin}{fields}\r\nok").into_bytes()
    };
    for (bytes, limit_bytes, is_right) in [
        (long(65_535), 65_535, true),
        (long(65_536), 65_535, false),
        (long(1_000), 1_000, true),
        (long(1_001), 1_000, false),
        (fields(300), 65_535, true),
        (fields(301), 65_535, false),
    ] {
        let length = bytes.len();
        let server = TestServer::start(move |_| Reply::raw(bytes.clone()));
        let record = run(&LoadConfig {
            response_head_bytes_max: limit_bytes,
            stop: Stop::after_requests(5),
            ..support::get(server.address)
        });
        check_identities(&record);
        let right = if is_right { 5 } else { 0 };
        assert_eq!(record.requests, right, "{length}: {:?}", record.failures);
        if !is_right {
            assert_eq!(record.failures[0].kind, Kind::Limit, "{length}");
        }
    }
    for wrong in [0, 65_536] {
        let config = LoadConfig {
            response_head_bytes_max: wrong,
            ..support::get(([127, 0, 0, 1], 1).into())
        };
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("1..=65535"), "{error}");
    }
}

/// Goal: statuses stand in the text, and a timeout has an example too.
#[test]
fn statuses_and_timeouts_are_shown() {
    let server = TestServer::start(|seen| match seen.number {
        0 => Reply::status(503, b"no"),
        5 => Reply::silence(),
        _ => Reply::ok(b"fine"),
    });
    let record = run(&LoadConfig {
        timeout_ns: 300 * MS,
        stop: Stop::after_requests(10),
        ..support::get(server.address)
    });
    assert_eq!((record.errors.status, record.errors.timeout), (1, 1));
    let text = wrk::clocks(&record.to_report());
    assert!(text.contains("  Statuses: 200: 8, 503: 1\n"), "{text}");
    let timeout = record.failures.iter().find(|one| one.kind == Kind::Timeout);
    let first = timeout.unwrap().first.as_ref().unwrap();
    assert_eq!(first.what, "no answer within 300 ms");
    assert!(first.at_ns >= 300 * MS && first.bytes.is_empty());
}
