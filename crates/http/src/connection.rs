//! One connection's reading side without I/O: bytes in, complete requests out.
//!
//! `server` hands over received bytes; `advance` takes requests off their front, one call each. A
//! request that is whole borrows everything from those bytes. A body that is not is gathered in
//! pooled memory, and its head with it, until it is.
//!
//! ```text
//!           head incomplete: bytes wait in `input`
//!          +-------+
//!          v       |            body incomplete: head in `head`, data in `body`
//! Head ----+-------+--> Ready <------------------- Body <--+
//!   |                                                |     |
//!   +------> Refused: answer, close                  +-----+
//! ```

use millpond_io::{SocketId, TimerId, Waker};
use millpond_mempool::{BlockPool, Buffer, Pool, PoolError, Pooled};

use crate::body::BodyDecoder;
use crate::body_budget::{BodyBudget, BodyHold};
use crate::error::{BodyError, ParseError};
use crate::head::ResponseFraming;
use crate::head::{Framing, HeadFields, RequestHead};
use crate::head_text::{Field, FieldName, FieldValue};
use crate::kept_input::KeptInput;
use crate::limits::{Limit, Limits};
use crate::parse::{Parsed, RequestAttempt, parse_request_head, parse_whole_request_head};
use crate::request::GatheredBody;
use crate::server::SHORT_BYTES;
use crate::status::StatusCode;
use crate::streaming::{Outgoing, Streaming};

/// Result of the bytes on hand.
#[derive(Debug)]
pub(crate) enum Advance<'s> {
    /// Nothing more without further bytes.
    NeedMore,
    /// A complete request.
    Ready(Ready<'s>),
    /// The head is complete and the body is not, or comes in chunks: its reader decides.
    Body(RequestHead),
    /// A body has begun, and there is no memory for its next bytes.
    AwaitsMemory,
    /// The connection must close after the response to this.
    Refused(Refusal),
}

/// A complete request, before its meaning is checked.
#[derive(Debug)]
pub(crate) struct Ready<'s> {
    pub(crate) head: RequestHead,
    pub(crate) head_bytes: HeadBytes<'s>,
    pub(crate) body: GatheredBody,
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

/// With a 503 for what others may give back at any moment.
pub(crate) const RETRY_SOON: Field<'static> =
    (FieldName::RETRY_AFTER, FieldValue::from_static("1"));

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
    #[error("the body arrives too slowly while others wait for memory: send it faster")]
    BodyContended,
    #[error("the server is out of memory: try again later")]
    Memory(#[from] PoolError),
    #[error("other large bodies have all the memory there is for them: try again later")]
    Bodies,
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
            Self::HeadTimeout | Self::BodyTimeout | Self::BodyContended => {
                StatusCode::REQUEST_TIMEOUT
            }
            Self::Memory(_) | Self::Bodies | Self::Crowded | Self::CrowdedAddress => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The response adds: memory and connections are free again as soon as other requests are done.
    pub(crate) fn fields(self) -> &'static [Field<'static>] {
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE => &[RETRY_SOON],
            _ => &[],
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
            Self::Bodies => Some(Limit::Bodies),
            Self::HeadTimeout => Some(Limit::HeadTime),
            Self::BodyTimeout => Some(Limit::BodyRate),
            Self::BodyContended => Some(Limit::Contended),
            Self::Crowded => Some(Limit::Connections),
            Self::CrowdedAddress => Some(Limit::AddressConnections),
            Self::Head(_) | Self::Body(_) | Self::Memory(_) => None,
        }
    }
}

/// A request whose response a service has promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) sequence: u32,
    pub(crate) manner: ResponseFraming,
    /// The service knows of it: not one that the server responds to itself.
    pub(crate) is_of_service: bool,
    /// The service's own user data.
    pub(crate) state: u64,
    /// Of the service's routes, the one that it is counted under.
    pub(crate) route: u8,
    /// The tick in which the service was called.
    pub(crate) started_ns: u64,
}

/// How a connection treats received bytes.
///
/// ```text
/// BetweenRequests <--> MidRequest <--> ReadingBody        any of them --> Closing
/// ```
///
/// Kept separately: whether a response is promised (`pending`), whether output waits (`is_blocked`), and in which lists
/// of the server the connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// No request is held except a whole one, whose response is promised.
    BetweenRequests,
    /// Bytes of a head or a body have come, or an exchange in parts is under way: it has a deadline
    /// unless it waits for the service.
    MidRequest,
    /// The same, and the service wants the next part of the body, although the request is pending.
    ReadingBody,
    /// No request is read any more; it closes once the output has left.
    Closing {
        /// Nothing unread can be on its way: the client declared this request its last.
        is_clean: bool,
    },
}

impl Phase {
    /// The same, where the service wants the next part of the body now, or not.
    pub(crate) fn with_reading(self, is_reading: bool) -> Self {
        match (self, is_reading) {
            (Self::BetweenRequests | Self::MidRequest, true) => Self::ReadingBody,
            (Self::ReadingBody, false) => Self::MidRequest,
            (phase, _) => phase,
        }
    }
}

/// State of one connection. An idle one owns no buffer and no timer, and state that only some need for a while lies in
/// separate pools: there may be ten thousand connections.
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
    /// The part of the current exchange that comes or goes in parts, or comes and is not wanted.
    pub(crate) stream: Option<Pooled<Streaming>>,
    pub(crate) phase: Phase,
    /// Length of the last output, the best guess for the next one.
    pub(crate) output_bytes_last: u32,
    /// When it was last moved to the young end of `Connections`' order.
    pub(crate) age_epoch: u16,
    /// In the server's list of connections to flush.
    pub(crate) is_dirty: bool,
    /// In one of the server's lists of connections with requests left for a later tick.
    pub(crate) is_backlogged: bool,
    /// The kernel did not take all output; nothing more is served until it has.
    pub(crate) is_blocked: bool,
    /// Receiving is switched off at the driver.
    pub(crate) is_paused: bool,
    /// The peer will send nothing more.
    pub(crate) is_peer_finished: bool,
    /// In the server's list of connections that are checked for a FIN: see `server::fin_watch`.
    pub(crate) is_fin_watched: bool,
    /// A response was cut: a reset shows it, where a FIN would mean its end.
    pub(crate) ends_by_reset: bool,
    /// `is_plain` was found true, and nothing has had the connection since that could change that:
    /// `Connections` takes it back whenever it hands the connection out.
    pub(crate) is_known_plain: bool,
}

const _: () = assert!(
    size_of::<Connection>() <= 144,
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
            phase: Phase::BetweenRequests,
            is_known_plain: false,
            output_bytes_last: 0,
            age_epoch: 0,
            is_dirty: false,
            is_backlogged: false,
            is_blocked: false,
            is_paused: false,
            is_peer_finished: false,
            is_fin_watched: false,
            ends_by_reset: false,
        }
    }

    /// Bytes that come now must wait: an earlier request must get its response first.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        let waits_in_phase = match self.phase {
            Phase::BetweenRequests | Phase::MidRequest => self.pending.is_some(),
            Phase::ReadingBody => false,
            Phase::Closing { .. } => true,
        };
        waits_in_phase || self.is_blocked || self.is_backlogged
    }

    /// No request is read any more.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// It closes once the output has left. `is_clean`: nothing unread can be on its way.
    pub(crate) fn close(&mut self, is_clean: bool) {
        let was_clean = !matches!(self.phase, Phase::Closing { is_clean: false });
        self.phase = Phase::Closing {
            is_clean: is_clean && was_clean,
        };
    }

    /// Bytes have come that are not read: closing is then not clean.
    pub(crate) fn leave_unread(&mut self) {
        if self.is_closing() {
            self.close(false);
        }
    }

    /// Something of a request is here, or nothing is: true where that is new.
    pub(crate) fn set_mid_request(&mut self, is_mid_request: bool) -> bool {
        let phase = match (self.phase, is_mid_request) {
            (Phase::BetweenRequests, true) => Phase::MidRequest,
            (Phase::MidRequest | Phase::ReadingBody, false) => Phase::BetweenRequests,
            _ => return false,
        };
        self.phase = phase;
        true
    }

    /// Whether the phase agrees with the other fields, for a connection that waits for its client.
    pub(crate) fn is_phase_sound(&self) -> bool {
        let has_request = self.input.is_some() || self.gathering.is_some() || self.stream.is_some();
        match self.phase {
            Phase::BetweenRequests => !has_request,
            Phase::MidRequest => has_request,
            Phase::ReadingBody => self.stream.is_some() && self.pending.is_some(),
            Phase::Closing { .. } => true,
        }
    }

    /// All it has to do is wait for the response that a service promised; of a connection that was plain.
    #[inline]
    pub(crate) fn awaits_answer(&self) -> bool {
        self.pending.is_some() && self.stream.is_none() && !self.is_closing()
    }

    /// Nothing keeps it from the plain sequence of requests and responses. One condition for all that
    /// is rare, since every request asks.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let is_odd = self.is_blocked | self.is_backlogged | self.is_paused | self.is_peer_finished;
        !is_odd
            && self.phase == Phase::BetweenRequests
            && self.pending.is_none()
            && self.gathering.is_none()
            && self.stream.is_none()
            && self.input.is_none()
            && self.timer.is_none()
    }

    /// Nothing unread can be on its way, so a plain close cannot turn into a reset that destroys
    /// the response before the peer has read it.
    pub(crate) fn closes_cleanly(&self) -> bool {
        let is_clean = self.phase == Phase::Closing { is_clean: true };
        (is_clean || self.is_peer_finished) && self.input.is_none()
    }

    /// It carries another protocol, which may be silent for any time.
    pub(crate) fn is_tunnel(&self) -> bool {
        let stream = self.stream.as_deref();
        stream.is_some_and(|stream| {
            matches!(stream.outgoing, Outgoing::Tunnel | Outgoing::TunnelFinished)
        })
    }

    /// Between requests, with nothing to send: closing it loses nothing.
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
        room: &GatheringRoom<'_>,
    ) -> Advance<'s> {
        if self.gathering.is_some() {
            return self.advance_body(source, at, limits, fields, room);
        }
        let bytes = &source[*at..];
        let head = match parse_request_head(bytes, limits, fields) {
            Ok(Parsed::Complete(head)) => head,
            Ok(Parsed::Partial) => return Advance::NeedMore,
            Err(error) => return Advance::Refused(error.into()),
        };
        Advance::Body(head)
    }

    /// Whether `arrived`, not yet appended, can complete the cut head in `input`: only a line end or a limit can.
    /// Without this check a peer that sends byte by byte would cause a parse from the start for each byte.
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

    /// How much of the current body has come, if one is coming.
    pub(crate) fn body_received_bytes(&self) -> Option<u64> {
        let stream = self.stream.as_ref().map(|stream| stream.received_bytes);
        let gathering = self.gathering.as_ref();
        stream.or_else(|| gathering.map(|gathering| gathering.received_bytes))
    }

    /// The current body's hold on the memory for all bodies.
    pub(crate) fn body_held_bytes(&self) -> u64 {
        let gathering = self.gathering.as_deref();
        let hold = gathering.and_then(|gathering| gathering.hold.as_ref());
        hold.map_or(0, BodyHold::bytes)
    }

    /// The body belongs to a request that already has its response.
    pub(crate) fn is_answered(&self) -> bool {
        self.stream.is_some() && self.pending.is_none()
    }

    /// The method, as far as it was received, asks for a response without a body.
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

// A body that comes in pieces, or in chunks, and is wanted whole: gathered in pooled memory until it
// is, with the head of its request.
//
// `Connection::advance` reports that a body begins; the server gathers it here unless the service takes it in parts.
// Bytes beyond [`SHORT_BYTES`] are charged to the budget of all bodies; if none is left, a body of known length waits,
// and one in chunks is refused. Deadlines and rates are the server's.

/// Initial room for a body with an announced length, which is not trusted.
const BODY_FIRST_BYTES: usize = 4 * 1024;

/// Where bodies are gathered, of one shard.
pub(crate) struct GatheringRoom<'a> {
    pub(crate) blocks: &'a BlockPool,
    pub(crate) gatherings: &'a Pool<Gathering>,
    pub(crate) bodies: &'a BodyBudget,
    pub(crate) now_ns: u64,
    /// Wakes the shard when one of its bodies is to be cut.
    pub(crate) waker: &'a dyn Fn() -> Waker,
}

/// A body being gathered.
#[derive(Debug)]
pub(crate) struct Gathering {
    decoder: BodyDecoder,
    /// Of a body of which more has arrived than a short one has.
    pub(crate) hold: Option<BodyHold>,
    /// The server knows that there is a hold.
    pub(crate) is_noted: bool,
    /// The head, kept for the request that it will be.
    pub(crate) head: Buffer,
    body: Buffer,
    /// Input since the head, framing included, for the rate.
    pub(crate) received_bytes: u64,
    /// The client waits for 100 Continue before it sends any of the body.
    pub(crate) wants_continue: bool,
}

/// How far a body came.
enum Gathered {
    Complete,
    NeedMore,
    /// There is no memory for its next bytes.
    AwaitsMemory,
}

impl Connection {
    /// Gathers a body that is not whole, or in chunks. `fields` still describes the head.
    pub(crate) fn begin_body<'s>(
        &mut self,
        head: &RequestHead,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        room: &GatheringRoom<'_>,
    ) -> Advance<'s> {
        let blocks = room.blocks;
        let (head_bytes, rest) = source[*at..].split_at(head.head_bytes);
        *at += head_bytes.len();
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else {
            return Advance::NeedMore;
        };
        let mut gathering = Gathering {
            decoder,
            hold: None,
            is_noted: false,
            head: Buffer::new(),
            body: Buffer::new(),
            received_bytes: 0,
            wants_continue: head.expects_continue && rest.is_empty(),
        };
        let gathered = match gathering.gather(rest, at, room) {
            Ok(gathered) => gathered,
            Err(refusal) => return Advance::Refused(refusal),
        };
        if let Gathered::Complete = gathered {
            return Advance::Ready(Ready {
                head: *head,
                head_bytes: HeadBytes::Borrowed(head_bytes),
                body: complete(gathering.body, gathering.hold),
            });
        }
        if let Err(error) = gathering.head.extend_from_slice(blocks, head_bytes) {
            return Advance::Refused(error.into());
        }
        match room.gatherings.insert(gathering) {
            Ok(gathering) => self.gathering = Some(gathering),
            Err(error) => return Advance::Refused(error.into()),
        }
        match gathered {
            Gathered::AwaitsMemory => Advance::AwaitsMemory,
            Gathered::Complete | Gathered::NeedMore => Advance::NeedMore,
        }
    }

    #[cold]
    fn advance_body<'s>(
        &mut self,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        fields: &mut HeadFields,
        room: &GatheringRoom<'_>,
    ) -> Advance<'s> {
        let Some(gathering) = self.gathering.as_mut() else {
            return Advance::NeedMore;
        };
        match gathering.gather(&source[*at..], at, room) {
            Err(refusal) => return Advance::Refused(refusal),
            Ok(Gathered::NeedMore) => return Advance::NeedMore,
            Ok(Gathered::AwaitsMemory) => return Advance::AwaitsMemory,
            Ok(Gathered::Complete) => {}
        }
        let Some(Gathering {
            head: head_bytes,
            body,
            hold,
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
                body: complete(body, hold),
            }),
            Ok(Parsed::Partial) => Advance::NeedMore,
            Err(error) => Advance::Refused(error.into()),
        }
    }
}

/// With a hold on anything at all: a body in chunks may have stayed short.
fn complete(buffer: Buffer, hold: Option<BodyHold>) -> GatheredBody {
    let hold = hold.filter(|hold| hold.bytes() > 0);
    if let Some(hold) = &hold {
        hold.complete();
    }
    GatheredBody { buffer, hold }
}

impl Gathering {
    /// Total bytes of the budget that the body will take, if known.
    pub(crate) fn total_bytes(&self) -> u64 {
        let remaining_bytes = self.decoder.remaining_bytes().unwrap_or(0);
        (self.body.len() as u64).saturating_add(remaining_bytes)
    }

    /// Decodes all of `bytes` that belongs to the body and that there is memory for.
    fn gather(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        room: &GatheringRoom<'_>,
    ) -> Result<Gathered, Refusal> {
        let mut rest = bytes;
        loop {
            let granted = self.granted(rest.len(), room);
            if granted == 0 && !rest.is_empty() {
                return Ok(Gathered::AwaitsMemory);
            }
            let step = self.decoder.decode(&rest[..granted])?;
            self.keep(step.data, room)?;
            if let Some(hold) = &self.hold {
                hold.moved(step.consumed_bytes as u64, room.now_ns);
            }
            self.received_bytes += step.consumed_bytes as u64;
            *at += step.consumed_bytes;
            rest = &rest[step.consumed_bytes..];
            if step.is_complete {
                return Ok(Gathered::Complete);
            }
            if rest.is_empty() {
                return Ok(Gathered::NeedMore);
            }
        }
    }

    /// How many of the next bytes may be decoded.
    fn granted(&mut self, count: usize, room: &GatheringRoom<'_>) -> usize {
        let Some(remaining_bytes) = self.decoder.remaining_bytes() else {
            // Of its bytes only some are data: `keep` sees how many.
            return count;
        };
        let here_bytes = self.body.len() as u64;
        let wanted_bytes = here_bytes + remaining_bytes.min(count as u64);
        if wanted_bytes <= SHORT_BYTES {
            return count;
        }
        match self.grow_hold(wanted_bytes, room) {
            true => count,
            false => {
                let held_bytes = self.hold.as_ref().map_or(0, BodyHold::bytes);
                let granted_bytes = held_bytes.max(SHORT_BYTES).saturating_sub(here_bytes);
                usize::try_from(granted_bytes).map_or(count, |granted| granted.min(count))
            }
        }
    }

    fn grow_hold(&mut self, bytes: u64, room: &GatheringRoom<'_>) -> bool {
        let is_known = self.decoder.remaining_bytes().is_some();
        let total_bytes = is_known.then(|| self.total_bytes());
        let begin = || room.bodies.begin(total_bytes, Some((room.waker)()));
        let hold = self.hold.get_or_insert_with(begin);
        hold.grow_to(bytes, room.now_ns)
    }

    /// Doubles as it grows, but never past what a known length still needs. Of one that has a hold all is
    /// reserved at once: the pages of it come as they are filled, and nothing is there twice while it moves.
    fn keep(&mut self, data: &[u8], room: &GatheringRoom<'_>) -> Result<(), Refusal> {
        if self.body.spare_bytes() < data.len() {
            let doubled = self.body.len().max(BODY_FIRST_BYTES);
            let remaining_bytes = self.decoder.remaining_bytes();
            let most = remaining_bytes.map_or(usize::MAX, |remaining| {
                usize::try_from(remaining)
                    .unwrap_or(usize::MAX)
                    .saturating_add(data.len())
            });
            let is_held = self.hold.as_ref().is_some_and(|hold| hold.bytes() > 0);
            let is_granted = is_held && remaining_bytes.is_some() && room.bodies.is_limited();
            let more = match is_granted {
                true => most,
                false => doubled.min(most).max(data.len()),
            };
            let bytes = (self.body.len() + more) as u64;
            let is_charged = remaining_bytes.is_some() || bytes <= SHORT_BYTES;
            if !is_charged && !self.grow_hold(bytes, room) {
                return Err(Refusal::Bodies);
            }
            self.body.reserve(room.blocks, more)?;
        }
        self.body.append_within_capacity(data);
        Ok(())
    }
}

// A request that is whole in what one receive brought: borrowed from it, parsed in place.

/// A request that came in one piece, as nearly all do. It is parsed in place and not moved through
/// `Advance`, which costs as much as parsing a field.
///
/// A client that pipelines mostly repeats the same head. One that is byte for byte the one before it means the same,
/// so the one that is parsed already serves again, as does the table of its fields. To be dropped after
/// a `read` that failed.
pub(crate) struct Whole<'s> {
    attempt: RequestAttempt,
    /// Empty, or the bytes that `attempt` and the fields were parsed from.
    pub(crate) head_bytes: &'s [u8],
}

impl<'s> Whole<'s> {
    /// A place for requests, none in it yet.
    pub(crate) const EMPTY: Self = Self {
        attempt: RequestAttempt::EMPTY,
        head_bytes: &[],
    };

    /// The request's head. Valid only if `read` returned a request.
    #[inline(always)]
    pub(crate) fn head(&self) -> &RequestHead {
        self.attempt.head()
    }

    /// Takes the request at the front of `bytes`; returns its body, or `None` where `Connection::advance` must handle
    /// it. `fields` must be those of the last call.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        bytes: &'s [u8],
        limits: &Limits,
        fields: &mut HeadFields,
    ) -> Option<&'s [u8]> {
        if self.head_bytes.is_empty() || !bytes.starts_with(self.head_bytes) {
            if !self.head_bytes.is_empty() {
                *self = Self::EMPTY;
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

#[cfg(test)]
#[path = "tests/connection.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/whole.rs"]
mod whole_tests;
