//! A client that waits for each answer and reads it whole. Nothing of ours: see `hostile`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far beyond any answer, so that a hang ends as a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// One answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A connection with what came and was not read.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Self, String> {
        let opened = TcpStream::connect(address).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        let stream = opened.map_err(|error| format!("connecting: {error}"))?;
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream
            .write_all(bytes)
            .map_err(|error| format!("sending: {error}"))
    }

    pub(super) fn ask(&mut self, request: &str) -> Result<Answer, String> {
        self.send(request.as_bytes())?;
        self.answer(request.starts_with("HEAD "))
    }

    /// The next answer; interim ones too.
    pub(super) fn answer(&mut self, is_head: bool) -> Result<Answer, String> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.receive()?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end);
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("no response: {head:?}"))?;
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if is_head || status < 200 || matches!(status, 204 | 304) {
            return Ok(answer);
        }
        let length = answer.field("content-length").map(str::parse::<usize>);
        let Some(Ok(length)) = length else {
            return Err(format!("an answer without a length: {}", answer.head));
        };
        while self.unread.len() < length {
            self.receive()?;
        }
        answer.body = self.unread.drain(..length).collect();
        Ok(answer)
    }

    fn receive(&mut self) -> Result<(), String> {
        match self.receive_some()? {
            0 => Err("closed in the middle of an answer".to_owned()),
            _ => Ok(()),
        }
    }

    /// Takes what is there; 0 at the end.
    pub(super) fn receive_some(&mut self) -> Result<usize, String> {
        let mut part = [0; 64 * 1024];
        let count = self
            .stream
            .read(&mut part)
            .map_err(|error| format!("receiving: {error}"))?;
        self.unread.extend_from_slice(&part[..count]);
        Ok(count)
    }

    /// Reads until the server closes.
    pub(super) fn expect_end(mut self) -> Result<(), String> {
        while self.receive_some()? > 0 {}
        Ok(())
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
