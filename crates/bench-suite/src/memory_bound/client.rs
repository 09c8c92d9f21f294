//! One connection to the entity server: requests written and responses read piece by piece, so that what
//! is measured is the server's memory and not ours.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(120);

const PIECE_BYTES: usize = 64 << 10;

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    /// `None`: in chunks.
    pub(super) length_bytes: Option<u64>,
    /// The connection ends behind it.
    pub(super) closes: bool,
}

pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

fn failed(error: &std::io::Error) -> String {
    format!("the connection failed: {error}")
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(|error| failed(&error))?;
        stream
            .set_write_timeout(Some(PATIENCE))
            .map_err(|error| failed(&error))?;
        Ok(Self {
            stream: BufReader::with_capacity(PIECE_BYTES, stream),
        })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream
            .get_mut()
            .write_all(bytes)
            .map_err(|error| failed(&error))
    }

    /// Puts a value of that number. A server without room for it responds early and closes: that response counts.
    pub(super) fn put(&mut self, id: &str, number: u64, len: u64) -> Result<Head, String> {
        let head =
            format!("PUT /v0/entity?id={id} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n");
        self.send(head.as_bytes())?;
        let piece: Vec<u8> = number.to_be_bytes().repeat(PIECE_BYTES / 8);
        let mut left = len;
        while left > 0 {
            let now = left.min(PIECE_BYTES as u64);
            if self.send(&piece[..now as usize]).is_err() {
                break;
            }
            left -= now;
        }
        let head = self.head()?;
        self.skip(head.length_bytes.unwrap_or(0))?;
        Ok(head)
    }

    /// Gets a value; an error if it is not one value from its first byte to its last.
    pub(super) fn get(&mut self, id: &str) -> Result<Head, String> {
        let head = format!("GET /v0/entity?id={id} HTTP/1.1\r\nHost: x\r\n\r\n");
        self.send(head.as_bytes())?;
        let head = self.head()?;
        let length_bytes = head.length_bytes.unwrap_or(0);
        if head.status != 200 {
            self.skip(length_bytes)?;
            return Ok(head);
        }
        let mut stamp = [0; 8];
        self.stream
            .read_exact(&mut stamp)
            .map_err(|error| failed(&error))?;
        let piece: Vec<u8> = stamp.repeat(PIECE_BYTES / 8);
        let mut left = length_bytes.saturating_sub(8);
        let mut bytes = vec![0; PIECE_BYTES];
        while left > 0 {
            let now = left.min(PIECE_BYTES as u64) as usize;
            self.stream
                .read_exact(&mut bytes[..now])
                .map_err(|error| failed(&error))?;
            if bytes[..now] != piece[..now] {
                return Err(format!("{id} holds a mixture of values"));
            }
            left -= now as u64;
        }
        Ok(head)
    }

    pub(super) fn head(&mut self) -> Result<Head, String> {
        let mut head = Head {
            status: self
                .line()?
                .get(9..12)
                .map_or(0, |code| code.parse().unwrap_or(0)),
            length_bytes: Some(0),
            closes: false,
        };
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok(head);
            }
            match line.split_once(": ") {
                Some(("content-length", length)) => head.length_bytes = length.parse().ok(),
                Some(("transfer-encoding", _)) => head.length_bytes = None,
                Some(("connection", "close")) => head.closes = true,
                _ => {}
            }
        }
    }

    /// One chunk; an empty one is the last.
    pub(super) fn chunk(&mut self, chunk: &mut Vec<u8>) -> Result<(), String> {
        let digits = self.line()?;
        let len = usize::from_str_radix(&digits, 16)
            .map_err(|_| format!("{digits:?} is no length of a chunk"))?;
        chunk.resize(len, 0);
        self.stream
            .read_exact(chunk)
            .map_err(|error| failed(&error))?;
        self.line().map(drop)
    }

    pub(super) fn skip(&mut self, len: u64) -> Result<(), String> {
        let mut body = (&mut self.stream).take(len);
        std::io::copy(&mut body, &mut std::io::sink()).map_err(|error| failed(&error))?;
        Ok(())
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        self.stream
            .read_until(b'\n', &mut line)
            .map_err(|error| failed(&error))?;
        if line.pop() != Some(b'\n') {
            return Err("the connection ended inside a response".to_owned());
        }
        line.pop();
        String::from_utf8(line).map_err(|_| "a response is no text".to_owned())
    }
}
