//! One connection of a well-behaved client: a request, its whole response, the next request.
//!
//! No parser of ours: a server that framed its responses wrongly would agree with itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt;
use serde_json::json;

use crate::hostile::subject::{PATIENCE, sum};

use super::scene::{Extra, GAP_MAX, Outcome, STOP_MAX, Scene, Stop, beside};
use super::writer::{Writer, Writing};

/// Longest wait for a byte: a hang ends as a failure.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) has_retry_after: bool,
    /// The connection ends behind it.
    closes: bool,
    pub(crate) body: Vec<u8>,
}

/// It connects when a request is made and no connection stands.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
    /// Longest wait for a byte.
    wait_max: Duration,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::with_wait(address, ANSWER_MAX)
    }

    pub(crate) fn with_wait(address: SocketAddr, wait_max: Duration) -> Self {
        Self {
            address,
            stream: None,
            wait_max,
        }
    }

    pub(crate) fn get(&mut self, target: &str) -> Result<Answer, String> {
        self.request("GET", target, &[])
    }

    /// Any failure ends the connection; the next request opens another.
    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        let done = self.exchange(method, target, body);
        if done.as_ref().map_or(true, |answer| answer.closes) {
            self.stream = None;
        }
        done.map_err(|error| format!("{method} {target}: {error}"))
    }

    pub(crate) fn close(&mut self) {
        self.stream = None;
    }

    fn exchange(&mut self, method: &str, target: &str, body: &[u8]) -> std::io::Result<Answer> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.wait_max))?;
                stream.set_write_timeout(Some(self.wait_max))?;
                self.stream
                    .insert(BufReader::with_capacity(64 << 10, stream))
            }
        };
        let length = match method {
            "GET" => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!("{method} {target} HTTP/1.1\r\nHost: good\r\n{length}\r\n");
        let sent = [head.as_bytes(), body].concat();
        // A refusal comes before all of a body was read; what it says counts, not that sending failed.
        let sent = stream.get_mut().write_all(&sent);
        let answer = read_answer(stream);
        match sent {
            Err(error) if answer.is_err() => Err(error),
            _ => answer,
        }
    }
}

fn invalid(what: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

fn read_line(stream: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

fn read_answer(stream: &mut impl BufRead) -> std::io::Result<Answer> {
    let line = read_line(stream)?;
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| invalid(format!("{line:?} is no status line")))?;
    let (mut length, mut has_retry_after, mut closes) = (Some(0), false, false);
    loop {
        let line = read_line(stream)?.to_ascii_lowercase();
        match line.split_once(": ") {
            Some(("content-length", value)) => {
                length = Some(
                    value
                        .parse()
                        .map_err(|_| invalid(format!("{line:?} is no length")))?,
                );
            }
            Some(("transfer-encoding", "chunked")) => length = None,
            Some(("retry-after", _)) => has_retry_after = true,
            Some(("connection", "close")) => closes = true,
            None if line.is_empty() => break,
            _ => {}
        }
    }
    let body = match length {
        Some(length) => read_exactly(stream, length)?,
        None => read_chunks(stream)?,
    };
    Ok(Answer {
        status,
        has_retry_after,
        closes,
        body,
    })
}

fn read_exactly(stream: &mut impl Read, length: u64) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    match stream.take(length).read_to_end(&mut body)? as u64 == length {
        true => Ok(body),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

fn read_chunks(stream: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream)?;
        let length = u64::from_str_radix(&line, 16)
            .map_err(|_| invalid(format!("{line:?} is no length of a chunk")))?;
        body.extend(read_exactly(stream, length)?);
        read_line(stream)?;
        if length == 0 {
            return Ok(body);
        }
    }
}

/// Goal: both framings are read to their end, and a response that is cut is an error.
#[test]
fn answers_are_whole_or_errors() {
    let plain =
        b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
    let answer = read_answer(&mut &plain[..]).unwrap();
    assert_eq!(
        (answer.status, answer.has_retry_after, answer.closes),
        (503, true, true)
    );
    assert_eq!(answer.body, b"abc");
    let chunks =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    assert_eq!(read_answer(&mut &chunks[..]).unwrap().body, b"abc");
    for whole in [&plain[..], &chunks[..]] {
        assert!(read_answer(&mut &whole[..whole.len() - 1]).is_err());
    }
}

// More idle connections than there are descriptors, beside writes of 100 KB that each take a new connection.
//
// With `ulimit -n 1024` the store could open no file any more, and writes were refused until a restart.

const IDLE: usize = 1500;
const VALUE_BYTES: usize = 100_000;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&[])?;
    let address = stage.address();
    // 16 MB, so that memtables are written to tables meanwhile.
    let writes = scene.count(30, 160);
    let writing = Writing {
        prefix: "beside",
        value_bytes: VALUE_BYTES,
        keys: writes as u64,
        reconnects: true,
    };
    let idle = open(address);
    let mut writer = Writer::new(address, writing);
    let write = |_: &_| (0..writes).try_for_each(|_| writer.write_through(PATIENCE, || false));
    let ((), written) = beside(Duration::ZERO, |_| (), write)?;
    written?;
    let has_room = stage.connections_max > IDLE as u64 + 1;
    // Where idle connections hold every place, a new one is refused until one of them may be closed.
    writer.check_statuses(if has_room { &[201] } else { &[201, 503] })?;
    let held = idle.len();
    drop(idle);
    writer.disconnect();
    stage.wait_until("idle connections close", |metrics| {
        sum(metrics, "millpond_http_connections") <= 1.0
    })?;
    let mut later = Writer::new(
        address,
        Writing {
            prefix: "later",
            ..writing
        },
    );
    for _ in 0..20 {
        later.write();
    }
    later.check_statuses(&[201])?;
    writer.check_stored(address)?;
    later.check_stored(address)?;
    let seen = json!({ "idle": held, "writer": writer.summary(), "later": later.summary() });
    drop((writer, later));
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// Those that the server's queue of new connections takes; it refuses some of them.
fn open(address: SocketAddr) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok();
    (0..IDLE).filter_map(connect).collect()
}

// Connections that are opened and reset at once, in a loop, beside writes.
//
// Accepting and closing took place in queues without a bound: 20,000 descriptors within seconds, and then no more
// writes.

pub(super) fn connection_resets_run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&["--max-connections", "1000", "--sync", "off"])?;
    let address = stage.address();
    let mut writer = Writer::new(
        address,
        Writing {
            prefix: "beside",
            value_bytes: 200,
            keys: 100,
            reconnects: false,
        },
    );
    let write = |stop: &Stop| {
        while !stop.is_over() {
            writer.write_or_pause();
        }
    };
    let (opened, ()) = beside(scene.time(), |stop| open_and_reset(address, stop), write)?;
    if opened < 100 {
        return Err(format!(
            "the attack opened {opened} connections: it was none"
        ));
    }
    writer.check_statuses(&[201])?;
    writer.check_progress(GAP_MAX)?;
    writer.check_stored(address)?;
    let seen = json!({ "connections": opened, "writer": writer.summary() });
    drop(writer);
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// How many were opened.
fn open_and_reset(address: SocketAddr, stop: &Stop) -> u64 {
    let mut opened = 0;
    while !stop.is_over() {
        if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            // Without lingering, closing sends RST.
            let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            opened += 1;
        }
    }
    opened
}
