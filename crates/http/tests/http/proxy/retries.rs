//! Which requests are sent again: every kind of request against every way in which a try fails.

use super::{RawPeer, RawUpstream, upstream};
use crate::access_log::{logging, objects};
use crate::support::{TestServer, wait_until};
use millpond_http::proxy::{Proxy, ProxyConfig, ProxyControl};
use millpond_http::{AccessLogFormat, AccessLogTarget, Limits};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The upstream's fault in the first try of each request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    /// It reads the request and closes.
    Closes,
    /// It sends a part of a head and closes.
    ClosesInHead,
    /// It sends a head and a part of the body, and closes.
    ClosesInBody,
    /// It says nothing for longer than it may.
    IsSilent,
}

/// One kind of request, and whether it may be sent again once it may have arrived.
struct Kind {
    method: &'static str,
    fields: &'static str,
    may_repeat: bool,
}

const fn kind(method: &'static str, fields: &'static str, may_repeat: bool) -> Kind {
    Kind {
        method,
        fields,
        may_repeat,
    }
}

const KINDS: [Kind; 15] = [
    kind("GET", "", true),
    kind("GET", "If-None-Match: \"a\"\r\n", true),
    kind("OPTIONS", "", true),
    kind("PUT", "", true),
    kind("PUT", "Idempotency-Key: \"k\"\r\n", true),
    kind("PUT", "If-Match: \"a\"\r\n", false),
    kind("PUT", "if-none-match: *\r\n", false),
    kind("PUT", "If-Unmodified-Since: x\r\n", false),
    kind("DELETE", "", true),
    kind("DELETE", "If-Match: \"a\"\r\n", false),
    kind("POST", "", false),
    kind("POST", "Idempotency-Key: \"k\"\r\n", true),
    kind("POST", "Idempotency-Key: k\r\nIf-Match: \"a\"\r\n", false),
    kind("PATCH", "", false),
    kind("BREW", "", false),
];

/// None; one that is kept for another try; one that is passed on as it comes.
const BODIES: [Option<usize>; 3] = [None, Some(100), Some(20_000)];

/// Responds to `/warm`, does `fault` with the first try of any other request, and responds to the second.
fn serve(peer: &mut RawPeer, fault: Fault, tries: &AtomicUsize) {
    while let Some(head) = peer.head() {
        if peer.body(&head).is_none() {
            return;
        }
        let is_warming = head.starts_with("GET /warm ");
        if !is_warming && tries.fetch_add(1, Ordering::SeqCst) == 0 {
            match fault {
                Fault::Closes => {}
                Fault::ClosesInHead => peer.send("HTTP/1.1 200 OK\r\nConte"),
                Fault::ClosesInBody => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"),
                Fault::IsSilent => drop(peer.rest()),
            }
            return;
        }
        // The next request begins with a new connection, unless it was warmed.
        let end = if is_warming {
            ""
        } else {
            "Connection: close\r\n"
        };
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n{end}\r\nfine"
        ));
    }
}

/// A proxy, its upstream, and the tries that this has seen.
struct Stage {
    server: TestServer,
    log: PathBuf,
    tries: Arc<AtomicUsize>,
    _home: tempfile::TempDir,
    _upstream: RawUpstream,
}

impl Stage {
    fn new(fault: Fault, change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let tries = Arc::<AtomicUsize>::default();
        let seen = Arc::clone(&tries);
        let raw = RawUpstream::start(move |peer, _| serve(peer, fault, &seen));
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("access.log");
        let mut proxied = ProxyConfig::new(vec![upstream(raw.address)]);
        proxied.retry_percent = 100;
        proxied.ejection.failures_max = 0;
        if fault == Fault::IsSilent {
            proxied.timeouts.first_byte_ns = 50_000_000;
        }
        change(&mut proxied);
        let control = ProxyControl::new(proxied, false, None).unwrap();
        let limits = Limits::default();
        let serve = logging(
            limits,
            AccessLogTarget::File(log.clone()),
            AccessLogFormat::Json,
        );
        let server = TestServer::start(serve, move |start| Proxy::new(&control, &start, limits));
        Self {
            server,
            log,
            tries,
            _home: home,
            _upstream: raw,
        }
    }

    /// The result for the client of one request, and how often the upstream saw the request.
    fn ask(&self, kind: &Kind, body_bytes: Option<usize>, is_kept: bool) -> (String, usize) {
        if is_kept {
            let warm = "GET /warm HTTP/1.1\r\nHost: a\r\n\r\n";
            assert_eq!(self.server.connect().ask(warm).status, 200);
        }
        self.tries.store(0, Ordering::SeqCst);
        let length = body_bytes.map(|bytes| format!("Content-Length: {bytes}\r\n"));
        let request = format!(
            "{} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}{}\r\n{}",
            kind.method,
            kind.fields,
            length.unwrap_or_default(),
            "x".repeat(body_bytes.unwrap_or(0)),
        );
        let mut client = self.server.connect();
        client.send(request);
        let text = String::from_utf8(client.rest()).unwrap();
        // With a short timeout it may read the request only after the client has its response.
        wait_until("the first try", || self.tries.load(Ordering::SeqCst) > 0);
        (text, self.tries.load(Ordering::SeqCst))
    }

    fn log(self) -> Vec<Value> {
        self.server.stop();
        let mut log = objects(&std::fs::read(self.log).unwrap());
        log.retain(|entry| entry["request"] != "GET /warm HTTP/1.1");
        log
    }
}

/// Status, tries, whether the response is whole.
fn expected(fault: Fault, may_repeat: bool) -> (u64, usize, bool) {
    match (fault, may_repeat) {
        (Fault::Closes, true) => (200, 2, true),
        (Fault::Closes | Fault::ClosesInHead, _) => (502, 1, true),
        (Fault::ClosesInBody, _) => (200, 1, false),
        (Fault::IsSilent, _) => (504, 1, true),
    }
}

fn play(fault: Fault) {
    for is_kept in [false, true] {
        let stage = Stage::new(fault, |_| {});
        let mut all = Vec::new();
        for kind in &KINDS {
            for body_bytes in BODIES {
                let case = format!(
                    "{fault:?} {} {:?} {body_bytes:?} {is_kept}",
                    kind.method, kind.fields
                );
                let may_repeat = kind.may_repeat && body_bytes != Some(20_000);
                let expected = expected(fault, may_repeat);
                let (text, tries) = stage.ask(kind, body_bytes, is_kept);
                let status = text.split(' ').nth(1).map(|status| status.parse().unwrap());
                let is_whole = !text.ends_with("hal");
                assert_eq!(
                    (status, tries, is_whole),
                    (Some(expected.0), expected.1, expected.2),
                    "{case}"
                );
                all.push((case, expected));
            }
        }
        let log = stage.log();
        assert_eq!(log.len(), all.len());
        for (entry, (case, (status, tries, is_whole))) in log.iter().zip(all) {
            let found = (&entry["status"], &entry["tries"], &entry["complete"]);
            assert_eq!(
                found,
                (&status.into(), &tries.into(), &is_whole.into()),
                "{case}"
            );
            let fault = match (status, is_whole) {
                (200, true) => Value::Null,
                _ => "upstream".into(),
            };
            assert_eq!(entry["fault"], fault, "{case}");
        }
    }
}

/// Goal: a request that got no byte of a response is sent again if its repetition changes nothing and its body is still
/// there, whether the connection was new or kept; the client and the log show the outcome.
#[test]
fn a_try_without_a_byte_is_repeated_by_meaning() {
    play(Fault::Closes);
}

/// Goal: with a part of a head nothing is sent again.
#[test]
fn an_answer_that_ends_in_its_head_is_no_retry() {
    play(Fault::ClosesInHead);
}

/// Goal: a request is not sent again after the client has got a part of the response; it is cut.
#[test]
fn an_answer_that_ends_in_its_body_is_cut() {
    play(Fault::ClosesInBody);
}

/// Goal: a request that timed out is not sent again.
#[test]
fn silence_is_no_retry() {
    play(Fault::IsSilent);
}

/// Goal: without a budget only the failure of a kept connection is repeated; and that costs none of the tries.
#[test]
fn a_kept_connection_is_outside_of_budget_and_tries() {
    let get = &KINDS[0];
    let stage = Stage::new(Fault::Closes, |config| config.retry_percent = 0);
    for (is_kept, expected) in [(false, ("502", 1)), (true, ("200", 2)), (false, ("502", 1))] {
        let (text, tries) = stage.ask(get, None, is_kept);
        assert_eq!(
            (text.split(' ').nth(1).unwrap(), tries),
            expected,
            "{is_kept}"
        );
    }
    // The connection that replaces the kept one fails as well: one of two tries is left.
    let count = Arc::<AtomicUsize>::default();
    let seen = Arc::clone(&count);
    let raw = RawUpstream::start(move |peer, _| {
        while let Some(head) = peer.head() {
            if head.starts_with("GET / ") && seen.fetch_add(1, Ordering::SeqCst) < 2 {
                return;
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
        }
    });
    let (server, _control) = super::proxy(&[raw.address], Limits::default(), |config| {
        config.ejection.failures_max = 0;
    });
    let mut client = server.connect();
    for path in ["/warm", "/"] {
        let answer = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, 200, "{path}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
}
