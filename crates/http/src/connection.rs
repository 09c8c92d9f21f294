//! One connection's reading side without I/O: bytes in, complete requests out.
//!
//! On the path: `server` hands over received bytes; `advance` takes requests off their front, one
//! call each. A request that is whole borrows everything from those bytes. A body that is not is
//! gathered in pooled memory, and its head with it, until it is.
//!
//! ```text
//!           head incomplete: bytes wait in `input`
//!          +-------+
//!          v       |            body incomplete: head in `head`, data in `body`
//! Head ----+-------+--> Ready <------------------- Body <--+
//!   |                                                |     |
//!   +------> Refused: answer, close                  +-----+
//! ```
//!
//! Absent on purpose: sockets, timers and services (`server`), and resuming inside a head: a cut
//! head is parsed again from its start, at most once per line end that arrives.

use crate::body::BodyDecoder;
use crate::error::{BodyError, ParseError};
use crate::head::{Framing, HeadFields, RequestHead};
use crate::kept_input::KeptInput;
use crate::limits::{Limit, Limits};
use crate::manner::Manner;
use crate::parse::{Parsed, RequestAttempt, parse_request_head, parse_whole_request_head};
use crate::request::RequestBody;
use crate::status::StatusCode;
use crate::streaming::{Outgoing, Streaming};
use millpond_io::{SocketId, TimerId};
use millpond_mempool::{BlockPool, Buffer, Pool, PoolError, Pooled};

/// First room for a body whose length only the peer knows; what it claims is not believed at once.
const BODY_FIRST_BYTES: usize = 4 * 1024;

/// What the bytes on hand give.
#[derive(Debug)]
pub(crate) enum Advance<'s> {
    /// Nothing more without further bytes.
    NeedMore,
    /// A complete request.
    Ready(Ready<'s>),
    /// The head is complete and the body is not, or comes in chunks: who wants it decides.
    Body(RequestHead),
    /// The connection must close after the answer to this.
    Refused(Refusal),
}

/// A complete request, before anyone looked at its meaning.
#[derive(Debug)]
pub(crate) struct Ready<'s> {
    pub(crate) head: RequestHead,
    pub(crate) head_bytes: HeadBytes<'s>,
    pub(crate) body: RequestBody<'s>,
}

/// A request that came in one piece, as nearly all do. It is parsed in place and not moved through
/// `Advance`, which costs as much as parsing a field.
///
/// Who pipelines mostly repeats himself. A head that is byte for byte the one before it means the same,
/// so the one that is parsed already serves again, as does the table of its fields. To be dropped after
/// a `read` that failed.
pub(crate) struct Whole<'s> {
    attempt: RequestAttempt,
    /// Empty, or the bytes that `attempt` and the fields were parsed from.
    pub(crate) head_bytes: &'s [u8],
}

impl<'s> Whole<'s> {
    /// A place for requests, none in it yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            attempt: RequestAttempt::new(),
            head_bytes: &[],
        }
    }

    /// The request's head. Nothing useful unless `read` said so.
    #[inline(always)]
    pub(crate) fn head(&self) -> &RequestHead {
        self.attempt.head()
    }

    /// Takes the request at the front of `bytes`; returns its body, or `None` for whatever
    /// `Connection::advance` must look at. `fields` must be those of the last call.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        bytes: &'s [u8],
        limits: &Limits,
        fields: &mut HeadFields,
    ) -> Option<&'s [u8]> {
        if self.head_bytes.is_empty() || !bytes.starts_with(self.head_bytes) {
            if !self.head_bytes.is_empty() {
                *self = Self::new();
            }
            if !parse_whole_request_head(bytes, limits, fields, &mut self.attempt) {
                return None;
            }
        }
        let (head_bytes, rest) = bytes.split_at_checked(self.head().head_bytes)?;
        self.head_bytes = head_bytes;
        match self.head().framing {
            Framing::None => Some(&[]),
            Framing::Length(length) if length <= rest.len() as u64 => {
                Some(&rest[..length as usize])
            }
            _ => None,
        }
    }
}

/// Where a request's head lies.
#[derive(Debug)]
pub(crate) enum HeadBytes<'s> {
    Borrowed(&'s [u8]),
    Pooled(Buffer),
}

impl HeadBytes<'_> {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Pooled(buffer) => buffer,
        }
    }
}

/// Why a request gets no service.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Head(#[from] ParseError),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the head took too long: send it at once")]
    HeadTimeout,
    #[error("the body arrives too slowly: send it faster")]
    BodyTimeout,
    #[error("the server is out of memory: try again later")]
    Memory(#[from] PoolError),
    #[error("the server has all the connections it may have: try again later")]
    Crowded,
    #[error("your address has all the connections it may have: close some, or reuse them")]
    CrowdedAddress,
}

impl Refusal {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Head(error) => error.status(),
            Self::Body(error) => error.status(),
            Self::HeadTimeout | Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Memory(_) | Self::Crowded | Self::CrowdedAddress => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Which of the server's limits it is about, if any.
    pub(crate) fn limit(self) -> Option<Limit> {
        match self {
            Self::Head(ParseError::RequestLineTooLong { .. }) => Some(Limit::RequestLine),
            Self::Head(ParseError::HeadTooLong { .. }) => Some(Limit::Head),
            Self::Head(ParseError::TooManyFields { .. })
            | Self::Body(BodyError::TooManyTrailers { .. }) => Some(Limit::Fields),
            Self::Head(ParseError::BodyTooLong { .. }) | Self::Body(BodyError::TooLong { .. }) => {
                Some(Limit::Body)
            }
            Self::Body(BodyError::ChunkExtensionTooLong { .. }) => Some(Limit::ChunkExtension),
            Self::Body(BodyError::TrailerTooLong { .. }) => Some(Limit::Trailer),
            Self::HeadTimeout => Some(Limit::HeadTime),
            Self::BodyTimeout => Some(Limit::BodyRate),
            Self::Crowded => Some(Limit::Connections),
            Self::CrowdedAddress => Some(Limit::AddressConnections),
            Self::Head(_) | Self::Body(_) | Self::Memory(_) => None,
        }
    }
}

/// A body being gathered.
#[derive(Debug)]
pub(crate) struct Gathering {
    decoder: BodyDecoder,
    /// The head, kept for the request that it will be.
    pub(crate) head: Buffer,
    body: Buffer,
    /// Input since the head, framing included, for the rate.
    pub(crate) received_bytes: u64,
    /// The client waits for 100 Continue before it sends any of the body.
    pub(crate) wants_continue: bool,
}

/// A request whose answer a service promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) sequence: u32,
    pub(crate) manner: Manner,
    /// The service knows of it: not one that the server answers itself.
    pub(crate) is_of_service: bool,
    /// The service's own word.
    pub(crate) state: u64,
}

/// All a server knows of one connection. An idle one owns no buffer and no timer, and what only some
/// have for a while lies in pools of its own: there may be ten thousand.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: SocketId,
    /// While something is half done that has a deadline; idle connections have none.
    pub(crate) timer: Option<TimerId>,
    /// When what it does now began: being idle, sending a head, sending a body.
    pub(crate) since_ns: u64,
    /// Received and not worked through; never empty.
    pub(crate) input: Option<Pooled<KeptInput>>,
    /// Responses of this tick.
    pub(crate) output: Buffer,
    pub(crate) gathering: Option<Pooled<Gathering>>,
    pub(crate) pending: Option<Pending>,
    /// What of the exchange at hand comes or goes in parts, or comes and is not wanted.
    pub(crate) stream: Option<Pooled<Streaming>>,
    /// Length of the last output, the best guess for the next one.
    pub(crate) output_bytes_last: u32,
    /// When it was last moved to the young end of `Connections`' order.
    pub(crate) age_epoch: u16,
    /// In the server's list of connections to flush.
    pub(crate) is_dirty: bool,
    /// In the server's list of connections with requests left for the next tick.
    pub(crate) is_backlogged: bool,
    /// The kernel did not take all output; nothing more is served until it has.
    pub(crate) is_blocked: bool,
    /// Receiving is switched off at the driver.
    pub(crate) is_paused: bool,
    /// No request is read any more; it closes once the output has left.
    pub(crate) is_closing: bool,
    /// The client said that the request at hand is its last.
    pub(crate) is_last_request: bool,
    /// The peer will send nothing more.
    pub(crate) is_peer_finished: bool,
    /// At least one byte of the request at hand has come.
    pub(crate) is_mid_request: bool,
    /// A service wants the next part of the body, although the request is pending.
    pub(crate) is_reading: bool,
    /// `is_plain` was found true, and nobody has had the connection since who could change that:
    /// `Connections` takes it back whenever it hands the connection out.
    pub(crate) is_known_plain: bool,
}

const _: () = assert!(
    size_of::<Connection>() <= 136,
    "an idle connection costs this much"
);

impl Connection {
    pub(crate) fn new(socket: SocketId, now_ns: u64) -> Self {
        Self {
            socket,
            timer: None,
            since_ns: now_ns,
            input: None,
            output: Buffer::new(),
            gathering: None,
            pending: None,
            stream: None,
            is_reading: false,
            is_known_plain: false,
            output_bytes_last: 0,
            age_epoch: 0,
            is_dirty: false,
            is_backlogged: false,
            is_blocked: false,
            is_paused: false,
            is_closing: false,
            is_last_request: false,
            is_peer_finished: false,
            is_mid_request: false,
        }
    }

    /// Bytes that come now must wait: an earlier request has to be answered or sent first.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.pending.is_some() && !self.is_reading
            || self.is_blocked
            || self.is_backlogged
            || self.is_closing
    }

    /// Nothing keeps it from the plain sequence of requests and answers. One condition for all that
    /// is rare, since every request asks.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let is_odd = self.is_blocked
            | self.is_backlogged
            | self.is_closing
            | self.is_paused
            | self.is_peer_finished
            | self.is_mid_request
            | self.is_reading;
        !is_odd
            && self.pending.is_none()
            && self.gathering.is_none()
            && self.stream.is_none()
            && self.input.is_none()
            && self.timer.is_none()
    }

    /// Nothing unread can be on its way, so a plain close cannot turn into a reset that destroys
    /// the answer before the peer has read it.
    pub(crate) fn closes_cleanly(&self) -> bool {
        (self.is_last_request || self.is_peer_finished) && self.input.is_none()
    }

    /// It carries another protocol, which may say nothing for as long as it likes.
    pub(crate) fn is_tunnel(&self) -> bool {
        let stream = self.stream.as_deref();
        stream.is_some_and(|stream| stream.outgoing == Outgoing::Tunnel)
    }

    /// Between requests, with nothing to send: closing it hurts nobody.
    pub(crate) fn is_idle(&self) -> bool {
        !self.must_wait()
            && self.gathering.is_none()
            && self.stream.is_none()
            && self.input.is_none()
            && self.output.is_empty()
    }

    /// Takes the next request off `source` from `*at` on, when it is not `Whole`.
    #[cold]
    pub(crate) fn advance<'s>(
        &mut self,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        fields: &mut HeadFields,
        blocks: &BlockPool,
    ) -> Advance<'s> {
        if self.gathering.is_some() {
            return self.advance_body(source, at, limits, fields, blocks);
        }
        let bytes = &source[*at..];
        let head = match parse_request_head(bytes, limits, fields) {
            Ok(Parsed::Complete(head)) => head,
            Ok(Parsed::Partial) => return Advance::NeedMore,
            Err(error) => return Advance::Refused(error.into()),
        };
        Advance::Body(head)
    }

    /// Gathers a body that is not whole, or in chunks. `fields` still describes the head.
    pub(crate) fn begin_body<'s>(
        &mut self,
        head: &RequestHead,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        blocks: &BlockPool,
        gatherings: &Pool<Gathering>,
    ) -> Advance<'s> {
        let (head_bytes, rest) = source[*at..].split_at(head.head_bytes);
        *at += head_bytes.len();
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else {
            return Advance::NeedMore;
        };
        let mut gathering = Gathering {
            decoder,
            head: Buffer::new(),
            body: Buffer::new(),
            received_bytes: 0,
            wants_continue: head.expects_continue && rest.is_empty(),
        };
        match gathering.gather(rest, at, blocks) {
            Err(refusal) => Advance::Refused(refusal),
            Ok(true) => Advance::Ready(Ready {
                head: *head,
                head_bytes: HeadBytes::Borrowed(head_bytes),
                body: RequestBody::Pooled(gathering.body),
            }),
            Ok(false) => {
                if let Err(error) = gathering.head.extend_from_slice(blocks, head_bytes) {
                    return Advance::Refused(error.into());
                }
                match gatherings.insert(gathering) {
                    Ok(gathering) => self.gathering = Some(gathering),
                    Err(error) => return Advance::Refused(error.into()),
                }
                Advance::NeedMore
            }
        }
    }

    #[cold]
    fn advance_body<'s>(
        &mut self,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        fields: &mut HeadFields,
        blocks: &BlockPool,
    ) -> Advance<'s> {
        let Some(gathering) = self.gathering.as_mut() else {
            return Advance::NeedMore;
        };
        match gathering.gather(&source[*at..], at, blocks) {
            Err(refusal) => return Advance::Refused(refusal),
            Ok(false) => return Advance::NeedMore,
            Ok(true) => {}
        }
        let Some(Gathering {
            head: head_bytes,
            body,
            ..
        }) = self.gathering.take().map(Pooled::into_inner)
        else {
            return Advance::NeedMore;
        };
        // The head was accepted before; parsing it again is cheaper than keeping a table of its
        // fields for every connection.
        match parse_request_head(&head_bytes, limits, fields) {
            Ok(Parsed::Complete(head)) => Advance::Ready(Ready {
                head,
                head_bytes: HeadBytes::Pooled(head_bytes),
                body: RequestBody::Pooled(body),
            }),
            Ok(Parsed::Partial) => Advance::NeedMore,
            Err(error) => Advance::Refused(error.into()),
        }
    }

    /// Whether more bytes can change what a cut head in `input` (with `arrived` not yet appended)
    /// is: only a line end or a limit can. Keeps a peer that sends byte by byte from making us
    /// parse from the start for each.
    pub(crate) fn is_worth_parsing(&self, arrived: &[u8], limits: &Limits) -> bool {
        if self.stream.is_some() {
            return true;
        }
        let before = self.input.as_ref().map_or(0, |input| input.len());
        let after = before + arrived.len();
        // Two bytes for the empty line that may precede a request line.
        let crosses = |limit: usize| before < limit && after >= limit;
        crosses(limits.request_line_bytes_max + 2)
            || crosses(limits.head_bytes_max)
            || memchr::memchr(b'\n', arrived).is_some()
    }

    /// How much of the body at hand has come, if it is a body that comes.
    pub(crate) fn body_received_bytes(&self) -> Option<u64> {
        let stream = self.stream.as_ref().map(|stream| stream.received_bytes);
        let gathering = self.gathering.as_ref();
        stream.or_else(|| gathering.map(|gathering| gathering.received_bytes))
    }

    /// The body that comes belongs to a request that was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.stream.is_some() && self.pending.is_none()
    }

    /// The method, as far as what was kept shows, asks for no body in the answer.
    pub(crate) fn is_head_request(&self) -> bool {
        if let Some(pending) = &self.pending {
            return pending.manner.is_head();
        }
        let head = match (&self.gathering, &self.input) {
            (Some(gathering), _) => &*gathering.head,
            (None, Some(input)) => input.first(),
            (None, None) => &[],
        };
        is_head_request(head)
    }
}

/// Whether these bytes begin a HEAD request.
pub(crate) fn is_head_request(bytes: &[u8]) -> bool {
    bytes
        .strip_prefix(b"\r\n")
        .unwrap_or(bytes)
        .starts_with(b"HEAD ")
}

impl Gathering {
    /// Decodes all of `bytes` that belongs to the body; true when the body is complete.
    fn gather(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        blocks: &BlockPool,
    ) -> Result<bool, Refusal> {
        let mut rest = bytes;
        loop {
            let step = self.decoder.decode(rest)?;
            self.keep(step.data, blocks)?;
            self.received_bytes += step.consumed_bytes as u64;
            *at += step.consumed_bytes;
            rest = &rest[step.consumed_bytes..];
            if step.is_complete {
                return Ok(true);
            }
            if rest.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Doubles as it grows, but never past what a known length still needs.
    fn keep(&mut self, data: &[u8], blocks: &BlockPool) -> Result<(), PoolError> {
        if self.body.spare_bytes() < data.len() {
            let doubled = self.body.len().max(BODY_FIRST_BYTES);
            let most = self
                .decoder
                .remaining_bytes()
                .map_or(usize::MAX, |remaining| {
                    usize::try_from(remaining)
                        .unwrap_or(usize::MAX)
                        .saturating_add(data.len())
                });
            self.body
                .reserve(blocks, doubled.min(most).max(data.len()))?;
        }
        self.body.append_within_capacity(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever was read before, a request is what parsing it alone says: head, fields and body;
    /// repeated, cut, or in parts.
    #[test]
    fn a_repeated_head_means_what_it_says() {
        let get = "GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n";
        let other = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        let longer = "GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\nY: 2\r\n\r\n";
        let put = "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        let chunked = "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        let requests = [
            get.to_owned(),
            other.to_owned(),
            longer.to_owned(),
            format!("{put}one"),
            format!("{put}two"),
            format!("{put}tw"),
            chunked.to_owned(),
            get[..get.len() - 1].to_owned(),
            get.replace("Host", "Hos t"),
        ];
        let limits = Limits::default();
        for first in &requests {
            for second in &requests {
                for third in &requests {
                    let mut fields = HeadFields::new();
                    let mut whole = Whole::new();
                    for request in [first, second, third] {
                        let bytes = request.as_bytes();
                        let whole_body = whole.read(bytes, &limits, &mut fields);
                        let is_whole = whole_body.is_some();
                        if !is_whole {
                            whole = Whole::new();
                        }
                        let mut expected_fields = HeadFields::new();
                        let expected = parse_request_head(bytes, &limits, &mut expected_fields);
                        let ends_as_told = ["\r\n\r\n", "one", "two"]
                            .iter()
                            .any(|end| request.ends_with(end));
                        let is_expected = ends_as_told && !request.contains("chunked");
                        let is_expected = is_expected && !request.contains("Hos t");
                        assert_eq!(is_whole, is_expected, "{request:?}");
                        if is_whole {
                            assert_eq!(expected, Ok(Parsed::Complete(*whole.head())));
                            assert_eq!(fields.spans(), expected_fields.spans());
                            let (head, body) = request.split_once("\r\n\r\n").unwrap();
                            assert_eq!(whole.head_bytes.len(), head.len() + 4);
                            assert_eq!(whole_body, Some(body.as_bytes()));
                        }
                    }
                }
            }
        }
    }
}
