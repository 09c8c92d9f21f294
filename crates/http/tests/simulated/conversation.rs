//! Bytes of one client on its connection, and the expected responses: drawn from a seed.

use crate::service::answer_to;
use fastrand::Rng;

/// The expected response to a request.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) status: u16,
    /// `None`: any, as for `/metrics`.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) is_head: bool,
    /// The service may respond before the request is complete.
    pub(crate) may_start_early: bool,
    /// The connection ends behind this response.
    pub(crate) closes: bool,
}

/// Bytes to send once enough was heard.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    /// Final responses that come first.
    pub(crate) after_answers: usize,
    /// `100 Continue`s that come first.
    pub(crate) after_continues: usize,
}

/// All a client says, in order, and the responses in theirs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) parts: Vec<Part>,
    pub(crate) expected: Vec<Expected>,
    /// Where requests end, in bytes from the start: a request cut elsewhere gets no response.
    pub(crate) request_ends: Vec<usize>,
    pub(crate) continues: usize,
}

/// How much a client asks for at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Depth {
    /// The next request waits for the response to the last one.
    One,
    /// Everything at once.
    All,
}

impl Conversation {
    /// Up to `count_max` requests; the last one may be malformed or declare itself the last.
    pub(crate) fn drawn(rng: &mut Rng, depth: Depth, count_max: usize) -> Self {
        let mut conversation = Self::default();
        let count = rng.usize(1..=count_max);
        for index in 0..count {
            let is_last = index + 1 == count;
            match rng.u8(0..8) {
                0 if is_last => conversation.malformed(rng, depth),
                1 if is_last => conversation.final_request(rng, depth),
                2 if depth == Depth::One => conversation.request_with_continue(rng),
                3 => conversation.chunked_request(rng, depth),
                _ => conversation.plain_request(rng, depth),
            }
        }
        conversation
    }

    /// Bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// Whether the server closes the connection by itself in the end.
    pub(crate) fn ends_by_server(&self) -> bool {
        self.expected.last().is_some_and(|expected| expected.closes)
    }

    /// Requests that are complete in the first `len` bytes.
    pub(crate) fn complete_in(&self, len: usize) -> usize {
        self.request_ends.iter().filter(|&&end| end <= len).count()
    }

    fn push(&mut self, depth: Depth, bytes: Vec<u8>, expected: Expected) {
        let after_answers = match depth {
            Depth::One => self.expected.len(),
            Depth::All => 0,
        };
        self.parts.push(Part {
            bytes,
            after_answers,
            after_continues: self.continues,
        });
        self.request_ends.push(self.len());
        self.expected.push(expected);
    }

    fn plain_request(&mut self, rng: &mut Rng, depth: Depth) {
        let target = target(rng);
        let (method, body) = match rng.u8(0..4) {
            0 => ("HEAD", Vec::new()),
            1 => ("POST", body(rng)),
            _ => ("GET", Vec::new()),
        };
        let mut bytes = head(rng, method, &target);
        if method == "POST" {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&body);
        self.push(depth, bytes, expected(method, &target, &body));
    }

    fn chunked_request(&mut self, rng: &mut Rng, depth: Depth) {
        let (target, body) = (target(rng), body(rng));
        let mut bytes = head(rng, "PUT", &target);
        bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(1 + rng.usize(0..rest.len()));
            let extension = ["", ";a", ";a=b", ";a=\"b c\""][rng.usize(0..4)];
            bytes.extend(format!("{:x}{extension}\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
            rest = after;
        }
        bytes.extend(["0\r\n\r\n", "0\r\nX-Sum: 1\r\n\r\n"][rng.usize(0..2)].bytes());
        self.push(depth, bytes, expected("PUT", &target, &body));
    }

    /// The body waits for a sign of the server.
    fn request_with_continue(&mut self, rng: &mut Rng) {
        // Where the response begins before the body, it is itself the sign to go on.
        let target = Some(target(rng)).filter(|target| !target.starts_with("/echo/"));
        let (target, mut body) = (target.unwrap_or_else(|| "/in/0".to_owned()), body(rng));
        body.push(b'.');
        let mut bytes = head(rng, "PUT", &target);
        let length = body.len();
        bytes.extend(format!("Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n").bytes());
        self.parts.push(Part {
            bytes,
            after_answers: self.expected.len(),
            after_continues: self.continues,
        });
        self.continues += 1;
        self.push(Depth::One, body.clone(), expected("PUT", &target, &body));
    }

    /// One after which the connection ends, because the client or the service demands it.
    fn final_request(&mut self, rng: &mut Rng, depth: Depth) {
        let (target, fields) = match rng.u8(0..4) {
            0 => ("/last", "Host: a\r\n"),
            1 => ("/forgotten", "Host: a\r\n"),
            2 => ("/late/x", "Host: a\r\nConnection: close\r\n"),
            _ => ("/large/5000", "Host: a\r\nConnection: close\r\n"),
        };
        let bytes = format!("GET {target} HTTP/1.1\r\n{fields}\r\n").into_bytes();
        let mut expected = expected("GET", target, b"");
        expected.closes = true;
        if target == "/forgotten" {
            (expected.status, expected.body) = (503, None);
        }
        self.push(depth, bytes, expected);
    }

    /// One that is refused, with what a client may have sent behind it already.
    fn malformed(&mut self, rng: &mut Rng, depth: Depth) {
        let (status, bytes) = [
            (400, "GET / HTTP/1.1\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
            (400, "G\tT / HTTP/1.1\r\nHost: a\r\n\r\n"),
            (505, "GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
            (
                400,
                "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            ),
            (
                413,
                "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
            ),
        ][rng.usize(0..6)];
        let mut bytes = bytes.as_bytes().to_vec();
        let expected = Expected {
            status,
            body: None,
            is_head: false,
            may_start_early: false,
            closes: true,
        };
        if rng.bool() {
            // It is not read, and it must not destroy the response.
            bytes.extend(std::iter::repeat_n(b'x', rng.usize(0..5_000)));
        }
        self.push(depth, bytes, expected);
    }
}

/// A path with a predictable response.
fn target(rng: &mut Rng) -> String {
    let len = [1, 100, 3_000, 15_000][rng.usize(0..4)];
    let number = rng.u16(..);
    match rng.u8(0..18) {
        0 => format!("/large/{len}"),
        1 | 2 => format!("/late/{number}"),
        3 => "/metrics".to_owned(),
        4 => format!("/out/{len}"),
        5 => format!("/chunks/{len}"),
        6 => format!("/in/{number}"),
        7 => format!("/held/{number}"),
        8 => format!("/echo/{number}"),
        9 => format!("/early/{number}"),
        _ => format!("/{number}?q={len}"),
    }
}

fn body(rng: &mut Rng) -> Vec<u8> {
    let len = [0, 1, 20, 300, 6_000][rng.usize(0..5)];
    (0..len).map(|_| rng.u8(..)).collect()
}

/// A request's head up to where fields about the body may follow.
fn head(rng: &mut Rng, method: &str, target: &str) -> Vec<u8> {
    let filler = "f".repeat(rng.usize(0..40));
    let empty_line = if rng.u8(0..10) == 0 { "\r\n" } else { "" };
    let head =
        format!("{empty_line}{method} {target} HTTP/1.1\r\nHost: a.example\r\nX-F: {filler}\r\n");
    head.into_bytes()
}

fn expected(method: &str, target: &str, body: &[u8]) -> Expected {
    let is_metrics = target == "/metrics" && matches!(method, "GET" | "HEAD");
    Expected {
        status: 200,
        body: (!is_metrics).then(|| answer_to(method, target, body)),
        is_head: method == "HEAD",
        may_start_early: target.starts_with("/early/") || target.starts_with("/echo/"),
        closes: false,
    }
}
