//! One request to another server and its response: its texts, timeouts and events.
//!
//! A caller gives the texts of a request's head and declares how its body ends ([`OutgoingRequest`]); [`super::Client`]
//! finds a connection, writes, reads, and reports the response in [`ExchangeEvent`]s. A failure contains how far the
//! exchange had come, so one function decides whether it may be repeated ([`ExchangeFailure::may_repeat`]).

use super::ClientError;
use crate::encode::encode_request_lines;
use crate::head::{Framing, HeadFields, ResponseHead};
use crate::head_text::{Authority, Field, ReceivedFields, RequestTarget};
use crate::method::Method;
use crate::status::StatusCode;
use millpond_io::Errno;
use millpond_io::connection_pool::{AcquireError, AcquirePhase};
use millpond_io::proxy_protocol::ProxyHeadText;
use millpond_mempool::{BlockPool, Buffer, PoolError};

/// Names one exchange of one [`super::Client`]; stale once it ended or was aborted, and then ignored everywhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct ExchangeId(pub(super) u64);

impl ExchangeId {
    /// The id as one integer.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A request to be made.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// Decides whether the response has a body (HEAD), and whether the request may be repeated.
    pub(super) method: Method,
    /// The request line and the field lines, each with its CRLF; without the empty line behind them,
    /// and without `Content-Length` and `Transfer-Encoding`: those are written from `body`.
    pub(super) head: Buffer,
    /// Bytes sent before all others, TLS included. Unless it is empty the exchange is alone on its connection, with
    /// `Connection: close`.
    pub(super) preface: Buffer,
    /// How the body ends, which comes by [`super::Client::write`]: none, so many bytes, or
    /// `Chunked`. (`UntilClose` is no request's and counts as `Chunked`.)
    pub body: Framing,
    /// The request expects 100 Continue: the time to the first byte begins before the body.
    pub awaits_continue: bool,
    /// The request asks for another protocol: a response of 101 is accepted. From then on [`ExchangeEvent::Body`] and
    /// [`super::Client::write`] carry the bytes of that protocol as they are.
    pub may_upgrade: bool,
    /// Over a new connection that serves nothing else before or after.
    pub needs_own_connection: bool,
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// User data of the caller that comes back with every event.
    pub user: u64,
}

impl OutgoingRequest {
    /// A request without a body, with the default timeouts, over any connection. The text made from these is written
    /// now, into one pooled block; the fields of this value set the rest.
    ///
    /// # Errors
    /// When there is no memory for the head.
    pub fn new(
        blocks: &BlockPool,
        method: Method,
        target: RequestTarget<'_>,
        host: Authority<'_>,
        fields: &[Field<'_>],
    ) -> Result<Self, PoolError> {
        let mut head = Buffer::new();
        encode_request_lines(&mut head, blocks, method, target, host, fields)?;
        Ok(Self::of_lines(method, head))
    }

    /// The same with lines that were written already.
    pub(crate) fn of_lines(method: Method, lines: Buffer) -> Self {
        Self {
            method,
            head: lines,
            preface: Buffer::new(),
            body: Framing::None,
            awaits_continue: false,
            may_upgrade: false,
            needs_own_connection: false,
            timeouts: Timeouts::default(),
            user: 0,
        }
    }

    /// Has a PROXY header sent before all other bytes, TLS included, which names the client of the connection. The
    /// exchange is then alone on its connection, with `Connection: close`. A target with TLS needs
    /// [`millpond_io::tls::TlsClient::behind_head`].
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn set_proxy_head(
        &mut self,
        blocks: &BlockPool,
        head: &ProxyHeadText,
    ) -> Result<(), PoolError> {
        self.preface.release();
        self.preface.extend_from_slice(blocks, head.as_bytes())
    }
}

/// How long each phase of an exchange may take. `u64::MAX`: no limit. Resolving, connecting and the TLS handshake have
/// limits of their own, of the pool ([`millpond_io::connection_pool::PoolConfig`]); `connection_ns` covers all of them
/// and the wait for a free connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// From the beginning until there is a connection.
    pub connection_ns: u64,
    /// For how long the upstream may take nothing of what is to be written.
    pub write_ns: u64,
    /// From the last byte written to the first byte of the response.
    pub first_byte_ns: u64,
    /// Between two receives of the response, while it is not paused.
    pub between_bytes_ns: u64,
    /// The whole exchange, until it changes to another protocol.
    pub total_ns: u64,
    /// Of another protocol: for how long neither side may send anything.
    pub tunnel_idle_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connection_ns: 10 * SECOND_NS,
            write_ns: 30 * SECOND_NS,
            first_byte_ns: 60 * SECOND_NS,
            between_bytes_ns: 30 * SECOND_NS,
            total_ns: 300 * SECOND_NS,
            tunnel_idle_ns: 3_600 * SECOND_NS,
        }
    }
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Phase {
    /// Every connection is in use, and no more may be opened.
    Queue,
    /// The name is being resolved.
    Resolve,
    /// A connection is opened.
    Connect,
    /// The TLS handshake.
    Tls,
    /// The request is written.
    Write,
    /// It is written; no byte of the response has come.
    FirstByte,
    /// The response comes.
    BetweenBytes,
    /// Bytes of another protocol go either way.
    Tunnel,
    /// It took too long in all.
    Total,
}

impl Phase {
    /// For logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Write => "write",
            Self::FirstByte => "first_byte",
            Self::BetweenBytes => "between_bytes",
            Self::Tunnel => "tunnel",
            Self::Total => "total",
        }
    }
}

impl From<AcquirePhase> for Phase {
    fn from(phase: AcquirePhase) -> Self {
        match phase {
            AcquirePhase::Queue => Self::Queue,
            AcquirePhase::Resolve => Self::Resolve,
            AcquirePhase::Connect => Self::Connect,
            AcquirePhase::Tls => Self::Tls,
        }
    }
}

/// The head of a final response, or of 101.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedHead<'a> {
    /// As received, up to and with the empty line.
    pub(crate) bytes: &'a [u8],
    /// The parsed head; spans are of `bytes`.
    pub(crate) head: &'a ResponseHead,
    /// Its field lines; spans are of `bytes`.
    pub(crate) fields: &'a HeadFields,
    /// Where its body ends, given what was asked.
    pub framing: Framing,
}

impl<'a> ReceivedHead<'a> {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The head as received, up to and with the empty line.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The parsed head; its spans are of [`Self::bytes`].
    #[must_use]
    pub fn head(&self) -> &'a ResponseHead {
        self.head
    }

    /// Its fields, which can be written into another message as they are.
    #[must_use]
    pub fn fields(&self) -> ReceivedFields<'a> {
        ReceivedFields::new(self.bytes, self.fields)
    }

    /// Value of the first field with this name, compared without regard to case.
    #[must_use]
    pub fn value_of(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields.value_of(self.bytes, name)
    }
}

/// An event of an exchange. [`Self::Whole`], [`Self::End`] and [`Self::Failed`] are the last; exactly one of them
/// comes, unless it is aborted.
#[derive(Clone, Copy, Debug)]
pub enum ExchangeEvent<'a> {
    /// The written bytes have left: [`super::Client::room_bytes`] is what may be written now. Only after a write that
    /// left no room.
    Room,
    /// An informational response, 100 Continue for example; the final one is to come.
    Informational(ReceivedHead<'a>),
    /// The final response began, or the other protocol (101).
    Head(ReceivedHead<'a>),
    /// The next bytes of its body, chunks taken off: at least one.
    Body(&'a [u8]),
    /// All of the final response at once, and the last of the exchange: only where
    /// [`super::ClientConfig::buffers_small_responses`] asks for it.
    Whole {
        /// As in [`Self::Head`].
        head: ReceivedHead<'a>,
        /// May be empty; at most what one [`Self::Body`] has.
        body: &'a [u8],
        /// Times of the exchange.
        report: &'a ExchangeReport,
    },
    /// Of another protocol: the upstream has sent its FIN. Written bytes still go to it, until
    /// [`super::Client::finish`]; then the exchange ends.
    PeerFinished,
    /// The response is complete. If the request was not, the connection closed.
    End {
        /// The trailer section, for [`crate::parse_trailer_fields`]; nearly always empty.
        trailer: &'a [u8],
        /// Times of the exchange.
        report: &'a ExchangeReport,
    },
    /// There is no response, or no rest of it.
    Failed {
        /// Why.
        failure: &'a ExchangeFailure,
        /// Times of the exchange until then.
        report: &'a ExchangeReport,
    },
}

/// Times of an exchange.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ExchangeReport {
    /// The connection had served another exchange before.
    pub is_reused: bool,
    /// All of the request was given to the kernel.
    pub is_request_complete: bool,
    /// From the beginning until there was a connection.
    pub connection_ns: u64,
    /// Resolving the name; 0 for a reused connection.
    pub resolve_ns: u64,
    /// Opening the connection; 0 for a reused one.
    pub connect_ns: u64,
    /// The TLS handshake; 0 for a reused connection, and without TLS.
    pub tls_ns: u64,
    /// From having the connection to the first byte of the response.
    pub first_byte_ns: u64,
    /// In all.
    pub total_ns: u64,
    /// Given to the kernel, head and framing included.
    pub request_bytes: u64,
    /// Of the response's body, framing taken off.
    pub body_bytes: u64,
}

/// Why an exchange failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FailureCause {
    /// There was no connection.
    #[error(transparent)]
    Connection(#[from] AcquireError),
    /// The connection broke.
    #[error("the connection to the upstream broke: {0}")]
    Broken(Errno),
    /// The upstream closed the connection before the response was complete.
    #[error("the upstream closed the connection before its response was complete")]
    ClosedEarly,
    /// The upstream ended its TLS connection behind a response that ends with it, and did not announce that: more
    /// may have been to come (RFC 9112 9.8).
    #[error(
        "the upstream ended its TLS connection without close_notify: its response may not be whole"
    )]
    Truncated,
    /// A phase took too long: see [`ExchangeFailure::phase`].
    #[error("the upstream took too long")]
    TimedOut,
    /// The received bytes are not a valid response.
    #[error(transparent)]
    Answer(ClientError),
    /// No memory here.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

/// Why an exchange failed, when, and what may be done about it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{cause} (while: {})", phase.name())]
pub struct ExchangeFailure {
    /// Why.
    pub cause: FailureCause,
    /// How far it was.
    pub phase: Phase,
    /// The connection had served another exchange before.
    pub is_reused: bool,
    /// Bytes of the request were given to the kernel: the upstream may have seen them.
    pub may_have_arrived: bool,
    /// A byte of the response had come.
    pub has_response_begun: bool,
}

impl ExchangeFailure {
    /// The same request may be sent again: nothing of it can have arrived, or its method is idempotent and no response
    /// to it has begun. A caller that streams a body must also have kept the body.
    #[must_use]
    pub fn may_repeat(&self, method: Method) -> bool {
        let is_ours = matches!(self.cause, FailureCause::Memory(_));
        !is_ours && (!self.may_have_arrived || method.is_idempotent() && !self.has_response_begun)
    }

    /// A connection that was kept had ended unnoticed: not a sign of the upstream's health.
    #[must_use]
    pub fn is_stale_connection(&self) -> bool {
        let has_ended = matches!(
            self.cause,
            FailureCause::ClosedEarly | FailureCause::Broken(_)
        );
        self.is_reused && !self.has_response_begun && has_ended
    }

    /// It took too long, in whatever phase: 504 rather than 502.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match &self.cause {
            FailureCause::TimedOut => true,
            FailureCause::Connection(error) => error.is_timeout(),
            _ => false,
        }
    }

    /// The upstream is not to blame: no memory here, or no place in the pool.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match &self.cause {
            FailureCause::Memory(_) => true,
            FailureCause::Connection(error) => error.is_local(),
            _ => false,
        }
    }
}
