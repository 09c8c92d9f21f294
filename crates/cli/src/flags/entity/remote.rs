//! Exports from and imports into a server that runs, through its API.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_entity::export::Exported;
use millpond_entity::import::{ImportError, Imported, LineReader};
use millpond_entity::ndjson::parse::{ParsedEntity, ParsedLine};
use millpond_entity::record::now_ms;
use millpond_http::{
    BodyDecoder, HeadFields, LimitValues, Limits, Method, Parsed, ResponseHead, parse_response_head,
};
use millpond_io::tls::{BlockingTls, TlsClient};

use crate::flags::url::Url;
use crate::output;

/// Entities of one response: a server that stops meanwhile waits for no more.
const PIECE_ENTITIES: u32 = 1000;

/// Connections of an import: what comes on several shares the server's syncs.
const CONNECTIONS: usize = 8;

/// Entities that wait for a connection.
const QUEUED_MAX: usize = 4;

/// A server that is full responds 503 with Retry-After, and is asked again so often.
const TRIES_MAX: u32 = 60;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An export that is cut goes on behind its last entity, unless it was cut so often in a row before the next one.
const CUTS_MAX: u32 = 5;

/// Of a response that is no success: a sentence.
const SENTENCE_BYTES_MAX: usize = 500;

/// Writes all entities of a server, and a last line.
pub(super) fn export(server: Server<'_>, out: &mut dyn Write) -> Result<Exported, String> {
    let mut connection = Connection::new(server)?;
    let mut pieces = Pieces {
        out,
        line: Vec::new(),
        done: Exported::default(),
        last_id: Vec::new(),
        next: None,
        is_end: false,
    };
    let mut cuts = Cuts::default();
    let mut first = "start=%00".to_owned();
    loop {
        let path = format!("/v0/entities?{first}&limit={PIECE_ENTITIES}");
        let mut sentence = Vec::new();
        let answered = connection.ask(
            Method::Get,
            &path,
            &[("Accept", b"application/x-ndjson")],
            None,
            &mut |status, data| match status {
                200 => pieces.take(data),
                _ => {
                    keep(&mut sentence, data);
                    Ok(())
                }
            },
        );
        let entities = pieces.done.entities;
        let answer = match answered {
            Ok(answer) => answer,
            Err(failure) => {
                cuts.wait_after(failure, entities)?;
                first = pieces.behind_last()?;
                continue;
            }
        };
        if answer.status == 503 && answer.has_retry_after {
            let refusal = ClientFailure::Connection(refused(answer.status, &sentence));
            cuts.wait_after(refusal, entities)?;
            continue;
        }
        if answer.status != 200 {
            return Err(refused(answer.status, &sentence));
        }
        match pieces.next.take() {
            _ if pieces.is_end => return Ok(pieces.done),
            Some(next) => first = format!("after={}", percent_encoded(&next)),
            None => {
                return Err(format!(
                    "the server's response has no last line behind {entities} entities: it sends no ranges as lines"
                ));
            }
        }
    }
}

/// How often in a row an export was cut, and behind how many entities.
#[derive(Default)]
struct Cuts {
    count: u32,
    entities: u64,
}

impl Cuts {
    /// Waits before the next try, if there is to be one.
    fn wait_after(&mut self, failure: ClientFailure, entities: u64) -> Result<(), String> {
        if entities > self.entities {
            *self = Self { count: 0, entities };
        }
        self.count += 1;
        let passes = matches!(failure, ClientFailure::Connection(_));
        let sentence = failure.into_sentence();
        // A server that was never there is more likely misspelled.
        if !passes || entities == 0 && self.count > 1 || self.count > CUTS_MAX {
            return Err(format!(
                "the export was cut behind {entities} entities: {sentence}"
            ));
        }
        output::warn(format_args!(
            "the export was cut behind {entities} entities, and goes on there: {sentence}"
        ));
        thread::sleep(RETRY_AFTER);
        Ok(())
    }
}

/// The lines of responses, of which only entities and the last end are written.
struct Pieces<'a> {
    out: &'a mut dyn Write,
    line: Vec<u8>,
    done: Exported,
    /// Of the last entity that was written: the beginning of its line, with its id.
    last_id: Vec<u8>,
    next: Option<Vec<u8>>,
    is_end: bool,
}

impl Pieces<'_> {
    /// Where to go on after a cut. What came of the next line is forgotten.
    fn behind_last(&mut self) -> Result<String, String> {
        self.line.clear();
        self.next = None;
        if self.last_id.is_empty() {
            return Ok("start=%00".to_owned());
        }
        let id = id_of(&self.last_id)?;
        Ok(format!("after={}", percent_encoded(&id)))
    }

    fn take(&mut self, mut data: &[u8]) -> Result<(), String> {
        while let Some(end) = data.iter().position(|&byte| byte == b'\n') {
            self.line.extend_from_slice(&data[..=end]);
            data = &data[end + 1..];
            self.whole_line()?;
            self.line.clear();
        }
        self.line.extend_from_slice(data);
        Ok(())
    }

    fn whole_line(&mut self) -> Result<(), String> {
        let is_entity = self.line.starts_with(b"{\"id");
        if is_entity {
            self.done.entities += 1;
            self.done.bytes += self.line.len() as u64;
            self.last_id.clear();
            self.last_id.extend_from_slice(head_of_id(&self.line));
        } else {
            let last: serde_json::Value =
                serde_json::from_slice(&self.line).map_err(|error| error.to_string())?;
            if let Some(next) = last["next"].as_str() {
                self.next = Some(next.as_bytes().to_vec());
            } else if let Some(coded) = last["next_base64"].as_str() {
                let next = STANDARD.decode(coded).map_err(|error| error.to_string())?;
                self.next = Some(next);
            } else {
                self.is_end = last["end"] == true;
            }
        }
        match is_entity || self.is_end {
            true => self
                .out
                .write_all(&self.line)
                .map_err(|error| format!("the export cannot be written: {error}")),
            false => Ok(()),
        }
    }
}

/// The beginning of an entity's line, up to the end of its id.
fn head_of_id(line: &[u8]) -> &[u8] {
    let mut quotes = 0;
    let mut is_escaped = false;
    let end = line.iter().position(|&byte| {
        quotes += u8::from(byte == b'"' && !is_escaped);
        is_escaped = byte == b'\\' && !is_escaped;
        quotes == 4
    });
    end.map_or(line, |end| &line[..=end])
}

/// The id in such a beginning.
fn id_of(head: &[u8]) -> Result<Vec<u8>, String> {
    let whole = [head, b"}"].concat();
    let read: serde_json::Value =
        serde_json::from_slice(&whole).map_err(|error| error.to_string())?;
    match (read["id"].as_str(), read["id_base64"].as_str()) {
        (Some(id), _) => Ok(id.as_bytes().to_vec()),
        (None, Some(coded)) => STANDARD.decode(coded).map_err(|error| error.to_string()),
        (None, None) => Err("the server's response has a line without an id".to_owned()),
    }
}

fn keep(sentence: &mut Vec<u8>, data: &[u8]) {
    let room = SENTENCE_BYTES_MAX - sentence.len();
    sentence.extend_from_slice(&data[..data.len().min(room)]);
}

fn refused(status: u16, sentence: &[u8]) -> String {
    let text = String::from_utf8_lossy(sentence);
    let hint = match status {
        401 => " (--token-file)",
        _ => "",
    };
    format!("the server answered {status}: {}{hint}", text.trim())
}

fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for &byte in bytes {
        match byte.is_ascii_alphanumeric() {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// An entity and the number of its line.
type Numbered = (u64, ParsedEntity);

/// What the connections share.
#[derive(Default)]
struct Shared {
    imported: AtomicU64,
    has_failed: AtomicBool,
    /// The failure of the lowest line.
    failure: Mutex<Option<(u64, String)>>,
}

impl Shared {
    fn fail(&self, line: u64, sentence: String) {
        self.has_failed.store(true, Ordering::Relaxed);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|(lowest, _)| line < *lowest) {
            *failure = Some((line, sentence));
        }
    }

    fn imported(&self) -> u64 {
        self.imported.load(Ordering::Relaxed)
    }
}

/// Puts all entities of `input`, each under a new version.
pub(super) fn import(server: Server<'_>, input: &mut dyn BufRead) -> Result<Imported, String> {
    let shared = Shared::default();
    let read = thread::scope(|scope| {
        let senders: Vec<SyncSender<Numbered>> = (0..CONNECTIONS)
            .map(|_| {
                let (sender, receiver) = sync_channel(QUEUED_MAX);
                let shared = &shared;
                scope.spawn(move || put_all(server, &receiver, shared));
                sender
            })
            .collect();
        deal_out(input, &senders, &shared)
    });
    let imported = shared.imported();
    let failure = shared.failure.into_inner();
    if let Some((line, sentence)) = failure.unwrap_or_else(PoisonError::into_inner) {
        return Err(format!(
            "line {line} is not imported, {imported} other entities are: {sentence}"
        ));
    }
    let (mut done, last_line) = read.map_err(|error| match error {
        ImportError::Line { line, cause, .. } => ImportError::Line {
            line,
            imported,
            cause,
        }
        .to_string(),
        other => other.to_string(),
    })?;
    done.entities = imported;
    match last_line {
        None => Ok(done),
        Some(line) => Err(ImportError::Cut { line, imported }.to_string()),
    }
}

/// Gives each entity to a connection, those of one id to the same. With the number of the last line where that says no
/// end.
fn deal_out(
    input: &mut dyn BufRead,
    senders: &[SyncSender<Numbered>],
    shared: &Shared,
) -> Result<(Imported, Option<u64>), ImportError> {
    let mut done = Imported::default();
    let mut has_end = false;
    let mut lines = LineReader::new(input);
    while !shared.has_failed.load(Ordering::Relaxed) {
        match lines.next(0)? {
            None => break,
            Some(ParsedLine::Next) => has_end = false,
            Some(ParsedLine::End { skipped }) => {
                has_end = true;
                done.skipped += skipped;
            }
            Some(ParsedLine::Entity(entity)) => {
                has_end = false;
                if entity.expires_ms != 0 && entity.expires_ms <= now_ms() {
                    done.ended += 1;
                    continue;
                }
                let sum = entity.id.iter().fold(0_usize, |sum, &byte| {
                    sum.wrapping_mul(31).wrapping_add(usize::from(byte))
                });
                // One that has failed takes no more lines, and the loop ends.
                let _ = senders[sum % senders.len()].send((lines.number, entity));
            }
        }
    }
    Ok((done, (!has_end).then_some(lines.number)))
}

fn put_all(server: Server<'_>, receiver: &Receiver<Numbered>, shared: &Shared) {
    let mut connection = match Connection::new(server) {
        Ok(connection) => connection,
        Err(sentence) => return shared.fail(0, sentence),
    };
    while let Ok((line, entity)) = receiver.recv() {
        match put(&mut connection, &entity) {
            Ok(()) => {
                shared.imported.fetch_add(1, Ordering::Relaxed);
            }
            Err(sentence) => return shared.fail(line, sentence),
        }
    }
}

/// Puts one; the same twice is the same as once.
fn put(connection: &mut Connection<'_>, entity: &ParsedEntity) -> Result<(), String> {
    let mut path = format!("/v0/entity?id={}", percent_encoded(&entity.id));
    if entity.expires_ms != 0 {
        // Whole seconds, and not sooner than it would end.
        path += &format!("&expires={}", entity.expires_ms.div_ceil(1000));
    }
    let mut fields: Vec<(&str, &[u8])> = Vec::new();
    if !entity.content_type.is_empty() {
        fields.push(("Content-Type", &entity.content_type));
    }
    if !entity.content_encoding.is_empty() {
        fields.push(("Content-Encoding", &entity.content_encoding));
    }
    let mut has_reconnected = false;
    for _ in 0..TRIES_MAX {
        let mut sentence = Vec::new();
        let answered = connection.ask(
            Method::Put,
            &path,
            &fields,
            Some(&entity.value),
            &mut |_, data| {
                keep(&mut sentence, data);
                Ok(())
            },
        );
        match answered {
            Ok(answer) if answer.status == 201 => return Ok(()),
            Ok(answer) if answer.status == 503 && answer.has_retry_after => {
                thread::sleep(RETRY_AFTER);
            }
            Ok(answer) => return Err(refused(answer.status, &sentence)),
            // The server closes connections that have been idle.
            Err(ClientFailure::Connection(_)) if !has_reconnected => has_reconnected = true,
            Err(failure) => return Err(failure.into_sentence()),
        }
    }
    Err(format!(
        "the server is full of work: it answered 503 {TRIES_MAX} times"
    ))
}

// One connection to an entity server, one request after another: for exports and imports, which wait for each response.

/// A server that is silent for so long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(120);

const READ_BYTES: usize = 64 << 10;

/// Why there is no response.
#[derive(Debug)]
pub(super) enum ClientFailure {
    /// The connection; another one may do.
    Connection(String),
    /// What came is no response that is understood.
    Answer(String),
    /// The consumer of the body refused it.
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

/// A socket, in plaintext or not.
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

/// Takes a piece of a body, and the status of its response.
pub(super) type Sink<'a> = dyn FnMut(u16, &[u8]) -> Result<(), String> + 'a;

/// The head of a response whose body was read.
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

    /// Sends a request and hands over the body of its response, piece by piece, with the status.
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
        // A server that refuses a body may close before it has all of it; its response says why.
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

    /// The response, and whether the connection goes on.
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
                    false => return Err(broken(&"it ended within a response")),
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
                    // Output before the response is none.
                    if head.status.code() < 200 {
                        continue;
                    }
                    return Ok((head, has_retry_after));
                }
                Parsed::Partial => {
                    if read_more(stream, &mut self.received)? == 0 {
                        return Err(broken(&"it ended before a response"));
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
