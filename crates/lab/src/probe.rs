//! One question to a server: does it answer HTTP at this address and path?
//!
//! On the path: `subject` asks it until a starting target serves; `run` asks before a start whether
//! somebody else already sits on the address. Absent on purpose: keep-alive, and the correctness of
//! answers; the load generator checks every one it gets.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bound on each step of one attempt. A server that needs longer for one answer is not ready.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// What is read of an answer whose head is wanted.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// More than any server's metrics; a bound on what a broken one may send.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// Why an attempt was not a good answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotReady {
    /// Nobody there, no answer, or a server error: it may still be starting.
    #[error("{0}")]
    NotYet(String),
    /// Something listens and talks, or hangs up, but not in HTTP. Waiting seldom helps.
    #[error("it accepts connections but does not answer in HTTP: {0}")]
    NotHttp(String),
}

/// What to ask, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Probe {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The `Host` to send.
    pub host: String,
    /// Path and query.
    pub path: String,
}

/// By what two copies of a server are known to answer alike. Lengths and dates may differ.
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
        write!(f, "http://{}{}", self.address, self.path)
    }
}

impl Probe {
    /// True if something accepts connections there, whatever it is.
    #[must_use]
    pub fn address_taken(&self) -> bool {
        TcpStream::connect_timeout(&self.address, STEP_TIMEOUT).is_ok()
    }

    /// The status and the kind of content of one answer.
    ///
    /// # Errors
    /// If none comes in time, or it is not HTTP.
    pub fn answer(&self) -> io::Result<Answer> {
        let mut head = Vec::new();
        self.request()?
            .take(HEAD_BYTES_MAX)
            .read_to_end(&mut head)
            .or_else(|error| (!head.is_empty()).then_some(0).ok_or(error))?;
        Answer::read(&head).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// One GET. `Ok` for any HTTP answer below status 500; otherwise what came instead.
    pub fn ask(&self) -> Result<(), NotReady> {
        let stream = self
            .request()
            .map_err(|error| NotReady::NotYet(error.to_string()))?;
        let line = match status_line(stream) {
            Ok(line) => line,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let seconds = STEP_TIMEOUT.as_secs();
                return Err(NotReady::NotYet(format!("no answer within {seconds} s")));
            }
            // Some servers of other protocols hang up on a word they do not know.
            Err(error) => return Err(NotReady::NotHttp(error.to_string())),
        };
        match status_of(&line) {
            Some(status) if status < 500 => Ok(()),
            Some(status) => Err(NotReady::NotYet(format!("status {status}"))),
            None => Err(NotReady::NotHttp(format!("\"{}\"", line.escape_ascii()))),
        }
    }

    /// The text after the head of one answer, up to `BODY_BYTES_MAX`.
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

    /// A connection on which the question has been sent.
    fn request(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, STEP_TIMEOUT)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        stream.set_write_timeout(Some(STEP_TIMEOUT))?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.path, self.host
        );
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}

/// The first line of an answer, empty if the connection ends before one.
fn status_line(mut stream: TcpStream) -> io::Result<Vec<u8>> {
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
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn answer_once(answer: &'static [u8]) -> Probe {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0_u8; 512];
            let n = stream.read(&mut request).unwrap();
            assert!(request[..n].starts_with(b"GET /status?x=1 HTTP/1.1\r\nHost: h\r\n"));
            stream.write_all(answer).unwrap();
        });
        Probe {
            address,
            host: "h".to_owned(),
            path: "/status?x=1".to_owned(),
        }
    }

    /// Goal: ready means an HTTP answer; errors of the server, other protocols and silence do not.
    #[test]
    fn answers_are_told_apart() {
        assert_eq!(answer_once(b"HTTP/1.1 200 OK\r\n\r\n").ask(), Ok(()));
        assert_eq!(answer_once(b"HTTP/1.0 404 Not Found\r\n\r\n").ask(), Ok(()));
        assert_eq!(
            answer_once(b"HTTP/1.1 503 x\r\n\r\n").ask(),
            Err(NotReady::NotYet("status 503".to_owned()))
        );
        let redis = answer_once(b"-ERR wrong number\r\n").ask().unwrap_err();
        assert_eq!(redis, NotReady::NotHttp("\"-ERR wrong number\"".to_owned()));
        assert!(matches!(answer_once(b"").ask(), Err(NotReady::NotHttp(_))));
    }

    /// Goal: answers are alike by status and type, whatever else they say; what is no head is none.
    #[test]
    fn answers_are_read() {
        let ok = b"HTTP/1.1 200 OK\r\ncontent-TYPE: text/html\r\nDate: x\r\n\r\nbody";
        let answer = answer_once(ok).answer().unwrap();
        assert_eq!(answer.to_string(), "status 200, text/html");
        assert_eq!(
            Answer::read(b"HTTP/1.1 204 x\r\n\r\n").unwrap().to_string(),
            "status 204"
        );
        for broken in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"+PONG\r\n\r\n"] {
            assert_eq!(Answer::read(broken), None);
        }
    }

    /// Goal: an address is free again once nobody listens.
    #[test]
    fn taken_address_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let probe = Probe {
            address,
            host: "h".to_owned(),
            path: "/".to_owned(),
        };
        assert!(probe.address_taken());
        drop(listener);
        assert!(!probe.address_taken());
        assert!(probe.ask().is_err());
    }
}
