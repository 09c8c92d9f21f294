//! One request to a server: does it respond to HTTP at one of these addresses, at this path?
//!
//! `subject` asks it until a starting target serves. Over TLS it is the load generator that asks, as it will later. The
//! correctness of responses is not checked here; the load generator checks every one it gets.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_io::Address;
use millpond_io::tls::TlsClient;
use millpond_load::{ConnectFailure, LoadError, LoadRecord, RequestPlan, StatusSet, Stop};

use crate::endpoint::connects;

/// Bound on each step of one attempt. A server that needs longer for one response is not ready.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// How much of a response is read for its head.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// More than any server's metrics; a bound on what a broken one may send.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Why an attempt was not a good response.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotReady {
    /// No listener, no response, or a server error: it may still be starting.
    #[error("{0}")]
    NotYet(String),
    /// Something listens and talks, or hangs up, but not in HTTP. Waiting seldom helps.
    #[error("it accepts connections but does not answer in HTTP: {0}")]
    NotHttp(String),
    /// Something listens, and no TLS handshake with it succeeds. Waiting seldom helps.
    #[error("no TLS handshake with it succeeds: {0}")]
    Handshake(ConnectFailure),
}

/// The request, and its address.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Where the server may listen; they are tried in turn.
    pub addresses: Arc<[Address]>,
    /// The `Host` to send.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// TLS; `None`: plaintext.
    pub tls: Option<TlsClient>,
}

/// How two copies of a server are known to respond alike. Lengths and dates may differ.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    status: u16,
    content_type: String,
}

impl Answer {
    fn read(answer: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(answer);
        let (head, _) = text.split_once("\r\n\r\n")?;
        let mut lines = head.split("\r\n");
        let status = status_of(lines.next()?.as_bytes())?;
        let fields = lines.filter_map(|line| line.split_once(':'));
        let mut types = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let content_type = types.next().map(|(_, value)| value.trim().to_owned());
        Some(Self {
            status,
            content_type: content_type.unwrap_or_default(),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.status)?;
        match self.content_type.as_str() {
            "" => Ok(()),
            kind => write!(f, ", {kind}"),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        for (place, address) in self.addresses.iter().enumerate() {
            let comma = if place > 0 { " or " } else { "" };
            match address {
                Address::Inet(address) => write!(f, "{comma}{scheme}://{address}{}", self.path)?,
                Address::Unix(path) => write!(f, "{comma}{}, path {}", path.display(), self.path)?,
            }
        }
        Ok(())
    }
}

impl Probe {
    /// The status and the kind of content of one response.
    ///
    /// # Errors
    /// If none comes in time, or it is not HTTP.
    pub fn answer(&self) -> io::Result<Answer> {
        if let Some(tls) = &self.tls {
            let record = self.ask_over_tls(tls).map_err(io::Error::other)?;
            let status = record.statuses.keys().next().copied();
            return status
                .map(|status| Answer {
                    status,
                    content_type: String::new(),
                })
                .ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
        let mut head = Vec::new();
        self.request()?
            .take(HEAD_BYTES_MAX)
            .read_to_end(&mut head)
            .or_else(|error| (!head.is_empty()).then_some(0).ok_or(error))?;
        Answer::read(&head).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// One GET. `Ok` for any HTTP response below status 500; otherwise what came instead.
    pub fn ask(&self) -> Result<(), NotReady> {
        if let Some(tls) = &self.tls {
            let record = self.ask_over_tls(tls)?;
            return match record.statuses.keys().next() {
                Some(status) if *status < 500 => Ok(()),
                Some(status) => Err(NotReady::NotYet(format!("status {status}"))),
                None => Err(NotReady::NotHttp(
                    record.why_none_is_right().unwrap_or_default(),
                )),
            };
        }
        let stream = self
            .request()
            .map_err(|error| NotReady::NotYet(error.to_string()))?;
        let line = match status_line(stream) {
            Ok(line) => line,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let seconds = STEP_TIMEOUT.as_secs();
                return Err(NotReady::NotYet(format!("no response within {seconds} s")));
            }
            // Some servers of other protocols close after a word they do not know.
            Err(error) => return Err(NotReady::NotHttp(error.to_string())),
        };
        match status_of(&line) {
            Some(status) if status < 500 => Ok(()),
            Some(status) => Err(NotReady::NotYet(format!("status {status}"))),
            None => Err(NotReady::NotHttp(format!("\"{}\"", line.escape_ascii()))),
        }
    }

    /// The text after the head of one response, up to `BODY_BYTES_MAX`.
    pub fn body(&self) -> io::Result<String> {
        let mut answer = Vec::new();
        self.request()?
            .take(BODY_BYTES_MAX)
            .read_to_end(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        Ok(text
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
            .unwrap_or_default())
    }

    /// One request of the load generator's, at an address that accepts connections.
    fn ask_over_tls(&self, tls: &TlsClient) -> Result<LoadRecord, NotReady> {
        let mut refused = String::new();
        let address = self.addresses.iter().find(|address| {
            let connected = connects(address);
            refused = connected
                .as_ref()
                .err()
                .map_or_else(String::new, ToString::to_string);
            connected.is_ok()
        });
        let Some(address) = address else {
            return Err(NotReady::NotYet(refused));
        };
        let mut plan = RequestPlan::get(millpond_load::Target {
            addresses: [address.clone()].into(),
            host: self.host.clone(),
            path: self.path.clone(),
        });
        plan.tls = Some(tls.clone());
        plan.validation.statuses = StatusSet::range(200, 599);
        plan.requests_per_connection = Some(1);
        let mut config = plan.config();
        config.stop = Stop::after_requests(1);
        let step_ns = u64::try_from(STEP_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        (config.timeout_ns, config.connect_within_ns) = (step_ns, step_ns);
        let record = millpond_load::run(&config, &|_| (), &AtomicBool::new(false));
        record.map_err(|error| match error {
            LoadError::Unreachable {
                cause: cause @ ConnectFailure::Handshake(_),
                ..
            } => NotReady::Handshake(cause),
            error => NotReady::NotYet(error.to_string()),
        })
    }

    /// The version of TLS that one handshake comes to.
    pub(crate) fn tls_version(&self) -> Option<&'static str> {
        let record = self.ask_over_tls(self.tls.as_ref()?).ok()?;
        record.tls?.version()
    }

    /// A connection on which the question has been sent.
    fn request(&self) -> io::Result<Box<dyn ReadAndWrite>> {
        let mut refused = io::ErrorKind::AddrNotAvailable.into();
        for address in &*self.addresses {
            match connect(address) {
                Ok(stream) => return self.request_on(stream),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn request_on(&self, mut stream: Box<dyn ReadAndWrite>) -> io::Result<Box<dyn ReadAndWrite>> {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.path, self.host
        );
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}

/// A connection of either kind.
trait ReadAndWrite: Read + Write {}

impl<T: Read + Write> ReadAndWrite for T {}

/// A connection whose reads and writes have a bound.
fn connect(address: &Address) -> io::Result<Box<dyn ReadAndWrite>> {
    match address {
        Address::Inet(address) => {
            let stream = TcpStream::connect_timeout(address, STEP_TIMEOUT)?;
            stream.set_read_timeout(Some(STEP_TIMEOUT))?;
            stream.set_write_timeout(Some(STEP_TIMEOUT))?;
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(STEP_TIMEOUT))?;
            stream.set_write_timeout(Some(STEP_TIMEOUT))?;
            Ok(Box::new(stream))
        }
    }
}

/// The first line of a response, empty if the connection ends before one.
fn status_line(mut stream: Box<dyn ReadAndWrite>) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(64);
    let mut part = [0_u8; 64];
    while !line.contains(&b'\n') && line.len() < 256 {
        match stream.read(&mut part)? {
            0 => break,
            n => line.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
    }
    let end = line.iter().position(|&byte| byte == b'\r' || byte == b'\n');
    line.truncate(end.unwrap_or(line.len()));
    Ok(line)
}

/// The status of `HTTP/1.x SSS reason`.
fn status_of(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5)?;
    str::from_utf8(digits)
        .ok()?
        .parse()
        .ok()
        .filter(|status| (100..1000).contains(status))
}

#[cfg(test)]
#[path = "tests/probe.rs"]
mod tests;
