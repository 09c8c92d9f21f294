//! Servers that misbehave in one way each: every failure has its kind, and the first of each is shown.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{LoadConfig, LoadRecord, Stop};
use millpond_measure::record::LoadFailureKind as Kind;
use millpond_measure::report::wrk;
use support::{MS, Reply, TestServer, check_identities, run};

/// What a server sends before it closes, and the expected report: the kind of failure, a part of the example's
/// sentence, the mode's name, and the bytes. `{ok}` is the beginning of a right response, `{x:N}` so many letters x,
/// `{fields:N}` so many fields; escapes are those of Rust.
const ANSWERS: &str = r"
read | missing | a close without a response |
read | missing | a status line that is cut | HTTP/1.1 2
read | missing | a head that is cut in a name | {ok}Content-Le
read | missing | a head that is cut in a value | {ok}Content-Length: 1
read | missing | a head without its empty line | {ok}Content-Length: 0\r\n
read | missing | a head that ends in half a line end | {ok}Content-Length: 0\r\n\r
read | missing | a body that is cut | {ok}Content-Length: 9\r\n\r\nabc
read | missing | a body that does not come | {ok}Content-Length: 9\r\n\r\n
read | missing | a chunk size that does not come | {ok}Transfer-Encoding: chunked\r\n\r\n
read | missing | a chunk that is cut | {ok}Transfer-Encoding: chunked\r\n\r\n9\r\nabc
read | missing | a chunk without its line end | {ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc
read | missing | chunks without a last one | {ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n
read | missing | a last chunk without its empty line | {ok}Transfer-Encoding: chunked\r\n\r\n0\r\n
read | missing | a trailer that is cut | {ok}Transfer-Encoding: chunked\r\n\r\n0\r\nA: b
read | missing | a provisional response and no other | HTTP/1.1 100 Continue\r\n\r\n
read | missing | early hints and no response | HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n
framing | Content-Length | two lengths | {ok}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab
framing | Content-Length | the same length twice | {ok}Content-Length: 1\r\nContent-Length: 1\r\n\r\na
framing | Content-Length | a list of lengths | {ok}Content-Length: 1, 1\r\n\r\na
framing | Content-Length | a negative length | {ok}Content-Length: -1\r\n\r\na
framing | Content-Length | a length with a sign | {ok}Content-Length: +1\r\n\r\na
framing | Content-Length | a length in hexadecimal | {ok}Content-Length: 0x1\r\n\r\na
framing | Content-Length | a length that is a word | {ok}Content-Length: one\r\n\r\na
framing | Content-Length | an empty length | {ok}Content-Length:\r\n\r\na
framing | Content-Length | a length over 64 bits | {ok}Content-Length: 99999999999999999999\r\n\r\na
framing | Content-Length and Transfer-Encoding | length and chunks | {ok}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n
framing | coding | a transfer coding nobody asked for | {ok}Transfer-Encoding: gzip\r\n\r\nabc
framing | Transfer-Encoding | a list of codings | {ok}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n
framing | Transfer-Encoding | chunked twice | {ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n
framing | Transfer-Encoding | chunks in HTTP/1.0 | HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n
framing | chunk | a chunk size that is none | {ok}Transfer-Encoding: chunked\r\n\r\nxyz\r\n
framing | chunk | a chunk size with a sign | {ok}Transfer-Encoding: chunked\r\n\r\n-1\r\n
framing | chunk | an empty chunk size | {ok}Transfer-Encoding: chunked\r\n\r\n\r\n
framing | chunk | a chunk size over 64 bits | {ok}Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n
framing | chunk | a chunk longer than its size | {ok}Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n
framing | head | a bare line feed | HTTP/1.1 200 OK\nA: b\n\n
framing | head | a bare carriage return | {ok}A: b\rC: d\r\n\r\n
framing | head | a folded field | {ok}A: b\r\n c\r\nContent-Length: 0\r\n\r\n
framing | head | white space before the first field | {ok} A: b\r\n\r\n
framing | head | white space before a colon | {ok}A : b\r\nContent-Length: 0\r\n\r\n
framing | head | a field without a name | {ok}: b\r\n\r\n
framing | head | a field without a colon | {ok}nonsense\r\n\r\n
framing | head | a name with a blank in it | {ok}A B: c\r\n\r\n
framing | head | a control character in a value | {ok}A: \x01\r\n\r\n
framing | head | a zero byte in a value | {ok}A: b\x00c\r\n\r\n
framing | head | another protocol | SSH-2.0-OpenSSH_9.6\r\n
framing | head | TLS where none was asked for | \x15\x03\x03\x00\x02\x02\x46
framing | head | a page without a head | <html>it works</html>\r\n\r\n
framing | head | HTTP/2 | HTTP/2 200\r\n\r\n
framing | head | a version that is none | HTTP/x.y 200 OK\r\n\r\n
framing | head | a status of two digits | HTTP/1.1 20 OK\r\n\r\n
framing | head | a status of four digits | HTTP/1.1 2000 OK\r\n\r\n
framing | head | a status that is a word | HTTP/1.1 abc OK\r\n\r\n
framing | head | a status below 100 | HTTP/1.1 099 OK\r\n\r\n
framing | switched protocols | an upgrade nobody asked for | HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n
limit | more than 300 fields | too many fields | {ok}{fields:300}Content-Length: 0\r\n\r\n
limit | head over 65535 bytes | too long a head | {ok}X: {y:100000}\r\nContent-Length: 0\r\n\r\n
limit | head over 65535 bytes | too long a status line | HTTP/1.1 200 {y:100000}\r\n\r\n
limit | extension | too long an extension of a chunk | {ok}Transfer-Encoding: chunked\r\n\r\n1;{y:10000}\r\na\r\n0\r\n\r\n
limit | trailer | too long a trailer | {ok}Transfer-Encoding: chunked\r\n\r\n0\r\nA: {y:100000}\r\n\r\n
status | status | a wrong path | HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n
status | status | a bad gateway | HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad
status | status | a status without a name | HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n
";

/// A row of [`ANSWERS`].
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    kind: Kind,
    part: &'static str,
}

fn cases() -> Vec<Case> {
    let rows = ANSWERS.trim().lines();
    rows.map(|row| {
        let [kind, part, name, bytes] = row.splitn(4, '|').collect::<Vec<_>>()[..] else {
            panic!("four columns: {row}");
        };
        let kind = Kind::ALL.into_iter().find(|one| one.label() == kind.trim());
        Case {
            name: name.trim(),
            bytes: written_out(bytes.strip_prefix(' ').unwrap_or(bytes)),
            kind: kind.unwrap_or_else(|| panic!("no such kind: {row}")),
            part: part.trim(),
        }
    })
    .collect()
}

/// The bytes that a row stands for.
fn written_out(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if let Some((inside, behind)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        {
            bytes.extend(placeholder(inside));
            rest = behind;
        } else if let Some(escape) = rest.strip_prefix('\\') {
            let (byte, length) = match escape.as_bytes()[0] {
                b'r' => (b'\r', 1),
                b'n' => (b'\n', 1),
                b'x' => (u8::from_str_radix(&escape[1..3], 16).unwrap(), 3),
                other => panic!("no such escape: {}", other.escape_ascii()),
            };
            bytes.push(byte);
            rest = &escape[length..];
        } else {
            bytes.extend(letter.to_string().as_bytes());
            rest = &rest[letter.len_utf8()..];
        }
    }
    bytes
}

fn placeholder(inside: &str) -> Vec<u8> {
    match inside.split_once(':') {
        None => b"HTTP/1.1 200 OK\r\n".to_vec(),
        Some(("fields", count)) => {
            let count: usize = count.parse().unwrap();
            let fields = (0..count).map(|one| format!("X-{one}: y\r\n"));
            fields.collect::<String>().into_bytes()
        }
        Some((letter, count)) => letter.repeat(count.parse().unwrap()).into_bytes(),
    }
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
    for Case {
        name,
        bytes,
        kind,
        part,
    } in cases()
    {
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
            // A request may meet the end of the connection that the response before it closed.
            Kind::Status => "responses have status",
            _ => part,
        };
        assert!(why.contains(cause), "{name}: {why}");
        let reasons = record.verdict.reasons.join("; ");
        assert!(reasons.contains(&why), "{name}: {why}; {reasons}");
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
    assert_eq!(first.what, "no response within 300 ms");
    assert!(first.at_ns >= 300 * MS && first.bytes.is_empty());
}
