//! The load of a long run: each scenario is one visit, and knows the expected responses.

use super::{Answer, Connection};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A visitor: its dice, and the responses it read to their end.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) address: SocketAddr,
    state: u64,
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Connections it does not use any more and has not closed.
    forgotten: Vec<Connection>,
}

/// One visit.
pub(super) type Scenario = (&'static str, fn(&mut Visitor) -> Result<(), String>);

pub(super) const PLAINTEXT: &[Scenario] = &[
    ("keep-alive", keep_alive),
    ("pipelined", pipelined),
    ("errors", errors),
    ("aborted", aborted),
    ("idle", idle),
];

pub(super) const FILES: &[Scenario] = &[
    ("small files", small_files),
    ("ranges", ranges),
    ("a large file", large_file),
    ("an aborted download", aborted_download),
    ("errors", errors),
];

pub(super) const ENTITY: &[Scenario] = &[
    ("values", values),
    ("values in chunks", values_in_chunks),
    ("aborted values", aborted_values),
];

/// Keys of the store: few, so that it stops growing.
const KEYS: u64 = 500;
/// Longest value.
const VALUE_BYTES_MAX: u64 = 40_000;
/// Of the file in `LARGE`.
pub(super) const LARGE_BYTES: u64 = 8 << 20;
/// Connections that one visitor forgets; the server closes them by and by.
const FORGOTTEN_MAX: usize = 60;

/// Byte `at` of the large file.
pub(super) fn pattern(at: u64) -> u8 {
    (at % 251) as u8
}

impl Visitor {
    pub(super) fn new(address: SocketAddr, seed: u64) -> Self {
        Self {
            address,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            statuses: BTreeMap::new(),
            forgotten: Vec::new(),
        }
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % limit
    }

    fn open(&self) -> Result<Connection, String> {
        Connection::open(self.address)
    }

    fn expect(&mut self, answer: Answer, status: u16) -> Result<Answer, String> {
        if answer.status != status {
            return Err(format!("{status} was to come: {answer:?}"));
        }
        *self.statuses.entry(status).or_default() += 1;
        Ok(answer)
    }

    fn ask(
        &mut self,
        connection: &mut Connection,
        request: &str,
        status: u16,
    ) -> Result<Answer, String> {
        let answer = connection.ask(request)?;
        self.expect(answer, status)
    }
}

fn request(method: &str, target: &str, fields: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: soak\r\n{fields}\r\n")
}

fn keep_alive(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    for _ in 0..50 {
        let answer = visitor.ask(&mut connection, &request("GET", "/plaintext", ""), 200)?;
        if answer.body != b"Hello, World!" {
            return Err(format!("another text: {answer:?}"));
        }
    }
    visitor.ask(&mut connection, &request("HEAD", "/", ""), 200)?;
    visitor.ask(
        &mut connection,
        &request("GET", "/", "Connection: close\r\n"),
        200,
    )?;
    connection.expect_end()
}

fn pipelined(visitor: &mut Visitor) -> Result<(), String> {
    let depth = 1 + visitor.below(300);
    let mut connection = visitor.open()?;
    let requests = request("GET", "/plaintext", "").repeat(depth as usize);
    connection.send(requests.as_bytes())?;
    for _ in 0..depth {
        let answer = connection.answer(false)?;
        visitor.expect(answer, 200)?;
    }
    Ok(())
}

fn errors(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    visitor.ask(&mut connection, &request("GET", "/no-such-path", ""), 404)?;
    let post = request("POST", "/", "Content-Length: 5\r\n") + "hello";
    visitor.ask(&mut connection, &post, 405)?;
    let chunked =
        request("POST", "/", "Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n";
    visitor.ask(&mut connection, &chunked, 405)?;
    for (status, bytes) in [
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, "\u{1}\u{2}\u{3} nonsense\r\n\r\n".to_owned()),
        (414, format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000))),
        (
            431,
            request("GET", "/", &format!("X: {}\r\n", "x".repeat(17_000))),
        ),
        (413, request("POST", "/", "Content-Length: 99999999999\r\n")),
    ] {
        let mut connection = visitor.open()?;
        visitor.ask(&mut connection, &bytes, status)?;
        connection.expect_end()?;
    }
    Ok(())
}

fn aborted(visitor: &mut Visitor) -> Result<(), String> {
    let whole = request("POST", "/", "Content-Length: 50\r\n") + "only the beginning of it";
    let cut = 1 + visitor.below(whole.len() as u64 - 1);
    let mut connection = visitor.open()?;
    // Dropped with a response unread, or with none: closed or reset.
    connection.send(&whole.as_bytes()[..cut as usize])
}

fn idle(visitor: &mut Visitor) -> Result<(), String> {
    let mut connections = Vec::new();
    for _ in 0..10 {
        connections.push(visitor.open()?);
    }
    for connection in connections.iter_mut().take(5) {
        visitor.ask(connection, &request("GET", "/", ""), 200)?;
    }
    visitor.forgotten.append(&mut connections);
    let spare = visitor.forgotten.len().saturating_sub(FORGOTTEN_MAX);
    visitor.forgotten.drain(..spare);
    Ok(())
}

fn small_files(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    for _ in 0..20 {
        let number = visitor.below(40);
        let target = format!("/small-{number}");
        let answer = visitor.ask(&mut connection, &request("GET", &target, ""), 200)?;
        let tag = answer
            .field("etag")
            .ok_or("a file without ETag")?
            .to_owned();
        if answer.body
            != format!("file {number}\n")
                .repeat(number as usize + 1)
                .as_bytes()
        {
            return Err(format!("{target} is another file: {answer:?}"));
        }
        let same = request("GET", &target, &format!("If-None-Match: {tag}\r\n"));
        visitor.ask(&mut connection, &same, 304)?;
    }
    Ok(())
}

fn ranges(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    for _ in 0..20 {
        let first = visitor.below(LARGE_BYTES);
        let last = (first + visitor.below(100_000)).min(LARGE_BYTES - 1);
        let field = format!("Range: bytes={first}-{last}\r\n");
        let answer = visitor.ask(&mut connection, &request("GET", "/large", &field), 206)?;
        check_pattern(&answer.body, first, last)?;
    }
    let behind = format!("Range: bytes={LARGE_BYTES}-\r\n");
    visitor.ask(&mut connection, &request("GET", "/large", &behind), 416)?;
    Ok(())
}

fn large_file(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    let answer = visitor.ask(&mut connection, &request("GET", "/large", ""), 200)?;
    check_pattern(&answer.body, 0, LARGE_BYTES - 1)
}

fn check_pattern(body: &[u8], first: u64, last: u64) -> Result<(), String> {
    let is_right = body.iter().copied().eq((first..=last).map(pattern));
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "bytes {first}-{last} are others: {} came",
            body.len()
        )),
    }
}

fn aborted_download(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    connection.send(request("GET", "/large", "").as_bytes())?;
    for _ in 0..visitor.below(20) {
        connection.receive_some()?;
    }
    Ok(())
}

/// The value that goes with a key, so that any visitor can check it.
fn value_of(key: u64) -> String {
    format!("{key:08}").repeat((key * 7919 % (VALUE_BYTES_MAX / 8)) as usize + 1)
}

fn entity(key: u64) -> String {
    format!("/v0/entity?id=key-{key}")
}

fn values(visitor: &mut Visitor) -> Result<(), String> {
    let mut connection = visitor.open()?;
    for _ in 0..10 {
        let key = visitor.below(KEYS);
        let value = value_of(key);
        let length = format!("Content-Length: {}\r\n", value.len());
        let put = request("PUT", &entity(key), &length) + &value;
        visitor.ask(&mut connection, &put, 201)?;
        let asked = visitor.below(KEYS);
        let answer = connection.ask(&request("GET", &entity(asked), ""))?;
        let is_there = answer.status == 200;
        if is_there && answer.body != value_of(asked).as_bytes() {
            return Err(format!(
                "the value of {asked} is another: {} bytes",
                answer.body.len()
            ));
        }
        visitor.expect(answer, if is_there { 200 } else { 404 })?;
    }
    let gone = visitor.below(KEYS);
    visitor.ask(&mut connection, &request("DELETE", &entity(gone), ""), 202)?;
    visitor.ask(&mut connection, &request("GET", "/v0/entity?id=", ""), 400)?;
    Ok(())
}

fn values_in_chunks(visitor: &mut Visitor) -> Result<(), String> {
    let key = visitor.below(KEYS);
    let value = value_of(key);
    let mut connection = visitor.open()?;
    let fields = "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n";
    visitor.ask(&mut connection, &request("PUT", &entity(key), fields), 100)?;
    let mut rest = value.as_bytes();
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.len().min(1 + visitor.below(9000) as usize));
        connection.send(format!("{:x}\r\n", part.len()).as_bytes())?;
        connection.send(part)?;
        connection.send(b"\r\n")?;
        rest = after;
    }
    connection.send(b"0\r\n\r\n")?;
    let answer = connection.answer(false)?;
    visitor.expect(answer, 201).map(|_| ())
}

fn aborted_values(visitor: &mut Visitor) -> Result<(), String> {
    let key = visitor.below(KEYS);
    let length = format!("Content-Length: {}\r\n", VALUE_BYTES_MAX + 1);
    let mut connection = visitor.open()?;
    let part = visitor.below(VALUE_BYTES_MAX) as usize;
    let begun = request("PUT", &entity(key), &length) + &"x".repeat(part);
    connection.send(begun.as_bytes())
}
