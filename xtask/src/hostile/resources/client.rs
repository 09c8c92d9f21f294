//! One connection of a well-behaved client: a request, its whole answer, the next request.
//!
//! No parser of ours: a server that framed its answers wrongly would agree with itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a byte: a hang ends as a failure.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A whole answer.
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

/// Goal: both framings are read to their end, and an answer that is cut is an error.
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
