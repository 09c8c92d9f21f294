//! One connection to an entity server, one request after another: for exports and imports, which wait for each answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use millpond_http::{
    BodyDecoder, HeadFields, LimitValues, Limits, Method, Parsed, ResponseHead, parse_response_head,
};

use millpond_io::tls::{BlockingTls, TlsClient};

use crate::flags::url::Url;

/// A server that is silent for so long does not answer any more.
const SILENCE_MAX: Duration = Duration::from_secs(120);

const READ_BYTES: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ClientFailure {
    /// The connection; another one may do.
    Connection(String),
    /// What came is no answer that is understood.
    Answer(String),
    /// Whoever took the body did not want it.
    Sink(String),
}

impl ClientFailure {
    pub(super) fn into_sentence(self) -> String {
        match self {
            Self::Connection(sentence) | Self::Answer(sentence) | Self::Sink(sentence) => sentence,
        }
    }
}

fn broken(error: &dyn std::fmt::Display) -> ClientFailure {
    ClientFailure::Connection(format!("the connection broke: {error}"))
}

/// A server, and what it takes to be let in.
#[derive(Clone, Copy)]
pub(super) struct Server<'a> {
    pub(super) url: &'a Url,
    /// For https.
    pub(super) tls: Option<&'a TlsClient>,
    /// The field of that name.
    pub(super) authorization: Option<&'a str>,
}

/// A socket, in clear text or not.
enum Stream {
    Clear(TcpStream),
    Tls(Box<BlockingTls>),
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Takes a piece of a body, and the status of its answer.
pub(super) type Sink<'a> = dyn FnMut(u16, &[u8]) -> Result<(), String> + 'a;

/// The head of an answer whose body was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) has_retry_after: bool,
}

/// A connection, made when it is needed.
pub(super) struct Connection<'a> {
    server: Server<'a>,
    limits: Limits,
    stream: Option<Stream>,
    received: Vec<u8>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(server: Server<'a>) -> Result<Self, String> {
        let limits = LimitValues {
            body_bytes_max: u64::MAX,
            ..LimitValues::default()
        };
        Ok(Self {
            server,
            limits: limits.checked().map_err(|error| error.to_string())?,
            stream: None,
            received: Vec::new(),
        })
    }

    /// Sends a request and hands over the body of its answer, piece by piece, with the status.
    pub(super) fn ask(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &[u8])],
        body: Option<&[u8]>,
        take: &mut Sink<'_>,
    ) -> Result<Answer, ClientFailure> {
        let answered = self.try_ask(method, path, fields, body, take);
        if answered.is_err() {
            self.stream = None;
        }
        answered
    }

    fn try_ask(
        &mut self,
        method: Method,
        path: &str,
        fields: &[(&str, &[u8])],
        body: Option<&[u8]>,
        take: &mut Sink<'_>,
    ) -> Result<Answer, ClientFailure> {
        let head = self.head(method, path, fields, body);
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        // A server that refuses a body may close before it has all of it; its answer says why.
        let sent = stream
            .write_all(&head)
            .and_then(|()| stream.write_all(body.unwrap_or_default()))
            .and_then(|()| stream.flush());
        let answered = self.receive(&mut stream, method, take);
        let (answer, keeps) = match (answered, sent) {
            (Ok(answered), _) => answered,
            (Err(_), Err(error)) => return Err(broken(&error)),
            (Err(failure), Ok(())) => return Err(failure),
        };
        if keeps {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    fn connect(&mut self) -> Result<Stream, ClientFailure> {
        self.received.clear();
        let authority = &self.server.url.authority;
        let connect = || -> io::Result<TcpStream> {
            let stream = TcpStream::connect(authority)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SILENCE_MAX))?;
            stream.set_write_timeout(Some(SILENCE_MAX))?;
            Ok(stream)
        };
        let failed = |error: io::Error| {
            ClientFailure::Connection(format!("{authority} cannot be connected to: {error}"))
        };
        let stream = connect().map_err(failed)?;
        let Some(tls) = self.server.tls else {
            return Ok(Stream::Clear(stream));
        };
        match tls.over(stream) {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            // Another connection would end the same way.
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(ClientFailure::Answer(
                format!("no TLS with {authority}: {error}; --ca FILE has the authority to trust"),
            )),
            Err(error) => Err(failed(error)),
        }
    }

    fn head(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &[u8])],
        body: Option<&[u8]>,
    ) -> Vec<u8> {
        let prefix = self.server.url.path.trim_end_matches('/');
        let mut head = format!(
            "{} {prefix}{path} HTTP/1.1\r\nHost: {}\r\n",
            method.as_str(),
            self.server.url.host_field
        )
        .into_bytes();
        let own = self.server.authorization.map(str::as_bytes);
        let authorization = own.map(|value| ("Authorization", value));
        for (name, value) in fields.iter().copied().chain(authorization) {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        if let Some(body) = body {
            head.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// The answer, and whether the connection goes on.
    fn receive(
        &mut self,
        stream: &mut Stream,
        method: Method,
        take: &mut Sink<'_>,
    ) -> Result<(Answer, bool), ClientFailure> {
        let (head, has_retry_after) = self.receive_head(stream)?;
        let status = head.status.code();
        let answer = Answer {
            status,
            has_retry_after,
        };
        let decoder = BodyDecoder::new(head.framing(method), &self.limits);
        // One of no bytes is complete before anything of it comes.
        let mut decoder = decoder.filter(|decoder| decoder.remaining_bytes() != Some(0));
        while let Some(decoding) = &mut decoder {
            if self.received.is_empty() && read_more(stream, &mut self.received)? == 0 {
                match decoding.ends_with_close() {
                    true => break,
                    false => return Err(broken(&"it ended within an answer")),
                }
            }
            let step = decoding.decode(&self.received);
            let step = step.map_err(|error| ClientFailure::Answer(error.to_string()))?;
            take(status, step.data).map_err(ClientFailure::Sink)?;
            let (consumed_bytes, is_complete) = (step.consumed_bytes, step.is_complete);
            self.received.drain(..consumed_bytes);
            if is_complete {
                decoder = None;
            }
        }
        Ok((answer, head.keep_alive(method)))
    }

    fn receive_head(&mut self, stream: &mut Stream) -> Result<(ResponseHead, bool), ClientFailure> {
        let mut fields = HeadFields::new();
        loop {
            let parsed = parse_response_head(&self.received, &self.limits, &mut fields);
            match parsed.map_err(|error| ClientFailure::Answer(error.to_string()))? {
                Parsed::Complete(head) => {
                    let named = fields.value_of(&self.received, b"Retry-After");
                    let has_retry_after = named.is_some();
                    self.received.drain(..head.head_bytes);
                    // What is said before the answer is none.
                    if head.status.code() < 200 {
                        continue;
                    }
                    return Ok((head, has_retry_after));
                }
                Parsed::Partial => {
                    if read_more(stream, &mut self.received)? == 0 {
                        return Err(broken(&"it ended before an answer"));
                    }
                }
            }
        }
    }
}

fn read_more(stream: &mut Stream, received: &mut Vec<u8>) -> Result<usize, ClientFailure> {
    let before = received.len();
    received.resize(before + READ_BYTES, 0);
    let read = stream.read(&mut received[before..]);
    received.truncate(before + *read.as_ref().unwrap_or(&0));
    read.map_err(|error| broken(&error))
}
