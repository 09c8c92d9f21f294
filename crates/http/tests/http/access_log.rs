//! The access log of a real server: its contents, its protection against peers, and its behavior when its lines are not
//! read.

mod hostile;
mod obstacles;

use crate::support::{PATIENCE, RawClient, TestServer, config, pass_body, pool_mode, wait_until};
use millpond_http::{
    AccessLogConfig, AccessLogFormat, AccessLogTarget, BodyLength, Flow, Interest, LimitValues,
    Limits, Request, Response, ServeConfig, Service, ServiceContext, StatusCode, StreamEvent,
};
use serde_json::Value;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Responds in every way there is, as the path says.
pub(super) struct Ways;

const DOWNLOAD_BYTES: u64 = 100_000;

impl Service for Ways {
    fn takes_body_in_parts(&mut self, request: &Request<'_>) -> bool {
        request.path() == b"/upload"
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        match request.path() {
            b"/never" => return Flow::Pending,
            b"/nothing" => return Flow::Done,
            b"/upload" => return Flow::Stream(Interest::BODY),
            b"/download" => {
                let length = BodyLength::Known(DOWNLOAD_BYTES);
                response.start(StatusCode::OK, &[], length).unwrap();
                return Flow::Stream(Interest::ROOM);
            }
            b"/short" => {
                let length = BodyLength::Known(100);
                response.start(StatusCode::OK, &[], length).unwrap();
                response.write(b"seven b").unwrap();
            }
            b"/half" => {
                let length = BodyLength::Known(100);
                response.start(StatusCode::OK, &[], length).unwrap();
                response.write(b"seven b").unwrap();
                return Flow::Pending;
            }
            b"/body" => {
                let body = request.take_body(&context.pools.blocks).unwrap();
                response.send(StatusCode::CREATED, None, &body).unwrap();
            }
            _ => response.send(StatusCode::OK, None, b"hello").unwrap(),
        }
        Flow::Done
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        pass_body(&event, response, context, DOWNLOAD_BYTES)
    }
}

/// A server with a log in a directory of its own.
pub(super) struct Logged {
    server: Option<TestServer>,
    home: tempfile::TempDir,
}

impl Logged {
    pub(super) fn start(format: AccessLogFormat, limits: Limits) -> Self {
        let home = tempfile::tempdir().unwrap();
        let target = AccessLogTarget::File(home.path().join("access.log"));
        let server = TestServer::start(logging(limits, target, format), |_| Ways);
        Self {
            server: Some(server),
            home,
        }
    }

    pub(super) fn server(&self) -> &TestServer {
        self.server.as_ref().unwrap()
    }

    pub(super) fn connect(&self) -> RawClient {
        self.server().connect()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.home.path().join("access.log")
    }

    /// Stops the server; returns the log.
    pub(super) fn stop(mut self) -> Vec<u8> {
        self.server.take().unwrap().stop();
        std::fs::read(self.path()).unwrap()
    }
}

pub(super) fn logging(
    limits: Limits,
    target: AccessLogTarget,
    format: AccessLogFormat,
) -> ServeConfig {
    let access_log = AccessLogConfig {
        format,
        // More than any test says: nothing is dropped where the writer gets no processor.
        queue_bytes: 8 << 20,
        ..AccessLogConfig::new(target)
    };
    ServeConfig {
        access_log: Some(access_log),
        ..config(limits, pool_mode())
    }
}

/// Each line as JSON, which it must be.
pub(super) fn objects(log: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(log).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

pub(super) fn lines(path: &Path) -> usize {
    std::fs::read(path).unwrap().split(|&b| b == b'\n').count() - 1
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Content of one entry: request, status, bytes of body, whether it is complete.
fn summary(entry: &Value) -> (&str, u64, u64, bool) {
    (
        entry["request"].as_str().unwrap(),
        entry["status"].as_u64().unwrap(),
        entry["body_bytes"].as_u64().unwrap(),
        entry["complete"].as_bool().unwrap(),
    )
}

/// Goal: each kind of response leaves one line, with the request and what was sent, in the order of the responses;
/// requests of a connection are numbered.
#[test]
fn each_answer_is_one_line() {
    let logged = Logged::start(AccessLogFormat::Json, Limits::default());
    let mut client = logged.connect();
    let port = client.stream.local_addr().unwrap().port();
    client.ask(
        "GET /a?b=c HTTP/1.1\r\nHost: a\r\nREFERER: http://x/\r\nuser-agent: some \"one\"\r\n\r\n",
    );
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response_to_head();
    client.send("PUT /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12");
    client.send("345");
    client.response();
    let chunks = "2\r\nab\r\n0\r\n\r\n";
    client.ask(format!(
        "PUT /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    ));
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n");
    client.send(vec![b'x'; 70_000]);
    client.response();
    client.ask("GET /download HTTP/1.1\r\nHost: a\r\n\r\n");
    client.ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(GET.repeat(3));
    (0..3).for_each(|_| assert_eq!(client.response().status, 200));
    client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client.ask("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect_end();
    let mut cut = logged.connect();
    cut.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(cut.rest().ends_with(b"\r\n\r\nseven b"));

    let log = logged.stop();
    let entries = objects(&log);
    let metrics_bytes = entries[6]["body_bytes"].as_u64().unwrap();
    assert!(metrics_bytes > 1000);
    let expected = [
        ("GET /a?b=c HTTP/1.1", 200, 5, true),
        ("HEAD / HTTP/1.1", 200, 0, true),
        ("PUT /body HTTP/1.1", 201, 5, true),
        ("PUT /body HTTP/1.1", 201, 2, true),
        ("POST /upload HTTP/1.1", 200, 5, true),
        ("GET /download HTTP/1.1", 200, DOWNLOAD_BYTES, true),
        ("GET /metrics HTTP/1.1", 200, metrics_bytes, true),
        ("GET / HTTP/1.1", 200, 5, true),
        ("GET / HTTP/1.1", 200, 5, true),
        ("GET / HTTP/1.1", 200, 5, true),
        ("GET / HTTP/1.0", 200, 5, true),
        ("GET /nothing HTTP/1.1", 503, 45, true),
        ("GET /short HTTP/1.1", 200, 7, false),
    ];
    assert_eq!(entries.iter().map(summary).collect::<Vec<_>>(), expected);
    for (index, entry) in entries.iter().enumerate() {
        let (connection, request) = if index == 12 { (2, 1) } else { (1, index + 1) };
        assert_eq!(entry["connection"], connection, "{entry}");
        assert_eq!(entry["request_number"], request, "{entry}");
        assert_eq!(
            (&entry["peer"], &entry["shard"]),
            (&"127.0.0.1".into(), &0.into())
        );
    }
    assert_eq!(entries[0]["port"], port);
    assert_eq!(entries[0]["referer"], "http://x/");
    assert_eq!(entries[0]["user_agent"], "some \\x22one\\x22");
    assert_eq!(entries[1]["referer"], Value::Null);
}

/// Goal: a request whose connection closes before its response is 499, one whose response had begun
/// keeps its status and is marked; a head that never came is no request.
#[test]
fn closed_connections_are_499() {
    let logged = Logged::start(AccessLogFormat::Json, Limits::default());
    for bytes in [
        "GET /never HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\n\r\n",
        "PUT /body HTTP/1.1\r\nHost: a\r\nUser-Agent: y\r\nContent-Length: 5\r\n\r\n12",
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12",
        "GET /half HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /unfinished HTTP/1.1\r\nHo",
    ] {
        let mut client = logged.connect();
        client.ask(GET);
        send_and_see_read(&logged, &mut client, bytes);
        if bytes.starts_with("GET /half") {
            // The response has begun once this is here.
            client.take(1);
        }
        // A reset, which is noticed even by a server that does not read until it has responded.
        let at_once = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&client.stream, at_once).unwrap();
        drop(client);
    }
    wait_for_connections_to_end(&logged);
    let log = logged.stop();
    let entries = objects(&log);
    let ends: Vec<_> = entries.iter().map(summary).filter(|e| !e.3).collect();
    let mut expected = vec![
        ("GET /never HTTP/1.1", 499, 0, false),
        ("PUT /body HTTP/1.1", 499, 0, false),
        ("POST /upload HTTP/1.1", 499, 0, false),
        ("GET /half HTTP/1.1", 200, 7, false),
    ];
    expected.sort_unstable();
    let mut sorted = ends.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    for (request, agent) in [("GET /never", "x"), ("PUT /body", "y")] {
        let entry = entries
            .iter()
            .find(|entry| summary(entry).0.starts_with(request));
        assert_eq!(entry.unwrap()["user_agent"], agent);
    }
}

fn metric(server: &TestServer, start: &str) -> u64 {
    let text = server.connect().ask(SCRAPE);
    let text = text.text();
    let line = text.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no {start} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Sends bytes and waits until the server has read them, which its count of bytes says.
fn send_and_see_read(logged: &Logged, client: &mut RawClient, bytes: &str) {
    let received = || metric(logged.server(), "millpond_driver_received_bytes_total");
    let expected = Cell::new(received() + bytes.len() as u64);
    client.send(bytes);
    wait_until("read", || {
        // Each look is received as well.
        expected.set(expected.get() + SCRAPE.len() as u64);
        received() == expected.get()
    });
}

fn wait_for_connections_to_end(logged: &Logged) {
    wait_until("closed", || {
        metric(logged.server(), "millpond_http_connections{") == 1
    });
}

/// Goal: refused requests are logged as far as they are known, whatever the reason.
#[test]
fn refusals_are_logged() {
    let limits = LimitValues {
        head_timeout_ns: 200_000_000,
        connections_max: 3,
        // No connection is idle for so long, so none makes room.
        idle_timeout_min_ns: 2 * PATIENCE.as_nanos() as u64,
        idle_timeout_ns: 2 * PATIENCE.as_nanos() as u64,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let logged = Logged::start(AccessLogFormat::Json, limits);
    let refuse = |bytes: &[u8]| {
        let mut client = logged.connect();
        client.send(bytes);
        let status = client.response().status;
        client.rest();
        status
    };
    assert_eq!(refuse(b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(refuse(b"\x16\x03\x01\x02\"\\\x1b[0m\n\n"), 400);
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(9000));
    assert_eq!(refuse(long.as_bytes()), 414);
    assert_eq!(refuse(b"GET /slow HTTP/1.1\r\nHo"), 408);
    let bad_chunk = b"PUT /body HTTP/1.1\r\nHost: a\r\nUser-Agent: z\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n";
    assert_eq!(refuse(bad_chunk), 400);
    let bad_part =
        b"PUT /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n";
    assert_eq!(refuse(bad_part), 400);
    let mut full: Vec<_> = (0..3).map(|_| logged.connect()).collect();
    full.iter_mut().for_each(|client| {
        client.ask(GET);
    });
    let mut crowded = logged.connect();
    assert_eq!(crowded.response().status, 503);
    drop((full, crowded));

    let log = logged.stop();
    let entries = objects(&log);
    let found: Vec<_> = entries
        .iter()
        .map(|e| (summary(e).0.to_owned(), summary(e).1))
        .filter(|(_, status)| *status != 200)
        .collect();
    let long = format!("GET /{}\\...", "y".repeat(2048 - 5));
    let expected = [
        ("GET  / HTTP/1.1", 400),
        ("\\x16\\x03\\x01\\x02\\x22\\x5C\\x1B[0m", 400),
        (&long, 414),
        ("GET /slow HTTP/1.1", 408),
        ("PUT /body HTTP/1.1", 400),
        ("PUT /upload HTTP/1.1", 400),
        ("-", 503),
    ];
    assert_eq!(
        found,
        expected.map(|(request, status)| (request.to_owned(), status))
    );
    for entry in entries.iter().filter(|entry| entry["status"] != 200) {
        let duration_us = entry["duration_us"].as_u64().unwrap();
        assert!(duration_us < 60_000_000, "{entry}");
        assert!(entry["status"] != 408 || duration_us >= 200_000, "{entry}");
        assert!(entry["body_bytes"].as_u64().unwrap() > 10, "{entry}");
    }
    assert_eq!(entries[4]["user_agent"], "z");
    assert_eq!(entries.last().unwrap()["connection"], 0);
}

/// Goal: a line shows which host and trace a request belonged to and how long it took, and no peer's bytes can pass for
/// another field of it.
#[test]
fn host_trace_and_duration() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let long = "x".repeat(300);
    let ask = |log: &Logged| {
        let mut client = log.connect();
        client.ask(format!(
            "GET /a HTTP/1.1\r\nHost: shop.example:81\r\nTraceParent: {trace}\r\n\r\n"
        ));
        client.ask("GET /b HTTP/1.0\r\n\r\n");
        let mut client = log.connect();
        client.ask(format!(
            "GET /c HTTP/1.1\r\nHost: a\r\ntraceparent: \" 1 \"{long}\r\ntraceparent: second\r\n\r\n"
        ));
    };
    let log = Logged::start(AccessLogFormat::CombinedExtended, Limits::default());
    ask(&log);
    let text = String::from_utf8(log.stop()).unwrap();
    let mut fields = text.lines().map(|line| {
        let (rest, duration_us) = line.rsplit_once(' ').unwrap();
        duration_us.parse::<u64>().unwrap();
        rest.split_once(" \"-\" \"-\" ").unwrap().1
    });
    assert_eq!(
        fields.next(),
        Some(&*format!("\"shop.example:81\" \"{trace}\""))
    );
    assert_eq!(fields.next(), Some("\"-\" \"-\""));
    let cut = "x".repeat(128 - 5);
    assert_eq!(
        fields.next(),
        Some(&*format!("\"a\" \"\\x22 1 \\x22{cut}\\...\""))
    );
    let log = Logged::start(AccessLogFormat::Json, Limits::default());
    ask(&log);
    let text = String::from_utf8(log.stop()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["host"], "shop.example:81");
    assert_eq!(lines[0]["traceparent"], trace);
    assert_eq!(lines[1]["host"], Value::Null);
    assert_eq!(lines[1]["traceparent"], Value::Null);
}
