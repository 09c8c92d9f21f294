//! Requests to other servers.
//!
//! Two things: [`ClientConnection`], the client's half of one connection, bytes in, events out, no
//! sockets; and [`Client`], a shard's exchanges with other servers over connections it keeps.
//!
//! The load generator registers each request it writes and passes in the received bytes; it gets back heads, body parts
//! and completions in the order of the requests (pipelining). Nothing is copied while responses arrive whole; a head
//! that is cut is kept in one pooled block. It does not handle requests (see `encode`), sockets, deadlines and reuse.
//!
//! ```text
//! exchange.rs      what is asked for and what happens to it: the words of the interface
//! shard_client.rs  Client: begin, write, pause, abort
//! driving.rs       connections, sends and timers, with the shard's driver in hand; one exchange under way
//! reading.rs       responses out of what arrives; heads, parsed or known
//! ```

mod exchange;
mod shard_client;
mod driving;
mod reading;

use std::collections::VecDeque;

use driving::tell;
use driving::{Exchange, Incoming};
use millpond_io::{Driver, ShardContext};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError};
use reading::KnownResponseHeads;
use shard_client::ClientShared;

use crate::body::BodyDecoder;
use crate::error::{BodyError, ParseError};
use crate::head::{Framing, ResponseHead};
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::{Parsed, parse_response_head};
use crate::status::StatusCode;

use self::reading::Meaning;

pub use self::exchange::{
    ExchangeEvent, ExchangeFailure, ExchangeId, ExchangeReport, FailureCause, OutgoingRequest,
    Phase, ReceivedHead, Timeouts,
};
pub use self::reading::LastHead;
pub use self::shard_client::{Client, ClientConfig, ExchangeWriteError};

pub(crate) use self::driving::Listener;
pub(crate) use self::reading::PART_BYTES_MAX;

/// Result of the received bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientEvent<'a> {
    /// A final response began. Informational ones (100 Continue) are skipped.
    Head {
        /// Its status.
        status: StatusCode,
        /// The head as it was received.
        head: &'a [u8],
        /// Whether the connection may be used after this response.
        keep_alive: bool,
    },
    /// The next bytes of its body.
    BodyPart(&'a [u8]),
    /// The response is complete.
    Complete {
        /// Its status.
        status: StatusCode,
        /// Length of the body, without chunk framing.
        body_bytes: u64,
        /// Length of the head.
        head_bytes: usize,
        /// False: close the connection; requests still expected got no response.
        keep_alive: bool,
    },
    /// Instead of the three others for each of several responses: only from
    /// [`ClientConnection::receive_counted`].
    Alike(IdenticalResponses),
}

/// Consecutive whole responses whose heads equal, byte for byte, one that was reported before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IdenticalResponses {
    /// How many.
    pub count: usize,
    /// The status of each.
    pub status: StatusCode,
    /// Length of the body of each.
    pub body_bytes: u64,
}

/// Why a connection can no longer be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The head of a response is malformed.
    #[error("the server's response head is refused: {0}")]
    Head(#[from] ParseError),
    /// The body of a response is malformed.
    #[error("the server's response body is refused: {0}")]
    Body(#[from] BodyError),
    /// Bytes came without an outstanding request.
    #[error("the server sent {count_bytes} bytes without a request: close the connection")]
    Unasked {
        /// How many.
        count_bytes: usize,
    },
    /// 101 without having asked for it.
    #[error("the server switched protocols without being asked: close the connection")]
    SwitchedProtocols,
    /// The peer closed before all responses came.
    #[error("the server closed the connection with {unanswered} responses missing: connect again")]
    ClosedEarly {
        /// Requests without a complete response.
        unanswered: usize,
    },
    /// A head that is cut found no memory to wait in.
    #[error("no memory for a partial response: {0}")]
    Pool(#[from] PoolError),
}

/// A response whose body is arriving.
#[derive(Clone, Debug)]
struct Arriving {
    status: StatusCode,
    head_bytes: usize,
    keep_alive: bool,
    body_bytes: u64,
    decoder: BodyDecoder,
}

/// One connection's reading side.
#[derive(Debug)]
pub struct ClientConnection {
    limits: Limits,
    expected: Expected,
    /// Bytes of an incomplete head.
    partial_head: Buffer,
    arriving: Option<Arriving>,
    is_finished: bool,
}

impl ClientConnection {
    /// A fresh connection. `limits` caps heads, fields, trailers; bodies by `body_bytes_max`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            expected: Expected::default(),
            partial_head: Buffer::new(),
            arriving: None,
            is_finished: false,
        }
    }

    /// A fresh connection with the same limits.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self::new(self.limits)
    }

    /// A request with this method was written.
    pub fn expect(&mut self, method: Method) {
        self.expect_many(method, 1);
    }

    /// So many requests with this method were written.
    #[inline]
    pub fn expect_many(&mut self, method: Method, count: usize) {
        self.expected.push(method, count);
    }

    /// Requests without a complete response.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.expected.len()
    }

    /// Takes in what arrived and reports it. After an error the connection is of no use.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), ClientError> {
        self.receive_like(bytes, pool, &mut LastHead::default(), on)
    }

    /// The same, for an owner of many connections to one server: `last` is for all of them.
    pub fn receive_like(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        last: &mut LastHead,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), ClientError> {
        self.receive_with::<false>(bytes, pool, last, on)
    }

    /// The same, for an owner that needs neither heads nor bodies once a head is known: whole responses equal to the
    /// last one are compared and counted, [`ClientEvent::Alike`].
    pub fn receive_counted(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        last: &mut LastHead,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), ClientError> {
        self.receive_with::<true>(bytes, pool, last, on)
    }

    /// Takes in what arrived if it is all of it such responses; else takes nothing, and it is for
    /// [`Self::receive_counted`]. The shorter way for what is most often there.
    #[inline]
    pub fn receive_alike(&mut self, bytes: &[u8], last: &LastHead) -> Option<IdenticalResponses> {
        if self.is_finished || self.arriving.is_some() || !self.partial_head.is_empty() {
            return None;
        }
        let (alike, alike_bytes) = last.alike(bytes, &self.expected, &self.limits)?;
        if alike_bytes != bytes.len() {
            return None;
        }
        self.expected.take(alike.count);
        Some(alike)
    }

    fn receive_with<const IS_COUNTED: bool>(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        last: &mut LastHead,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), ClientError> {
        if !self.partial_head.is_empty() {
            return self.receive_joined::<IS_COUNTED>(bytes, pool, last, on);
        }
        let consumed_bytes = self.consume::<IS_COUNTED>(bytes, last, on)?;
        if consumed_bytes < bytes.len() {
            let rest = &bytes[consumed_bytes..];
            self.partial_head.extend_from_slice(pool, rest)?;
        }
        Ok(())
    }

    /// Behind the beginning of a head.
    #[inline(never)]
    fn receive_joined<const IS_COUNTED: bool>(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        last: &mut LastHead,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), ClientError> {
        let mut joined = std::mem::take(&mut self.partial_head);
        joined.extend_from_slice(pool, bytes)?;
        let consumed_bytes = self.consume::<IS_COUNTED>(&joined, last, on)?;
        joined.consume_front(consumed_bytes);
        if !joined.is_empty() {
            self.partial_head = joined;
        }
        Ok(())
    }

    /// The peer will send nothing more: completes a body that ends so, otherwise returns what is missing.
    pub fn peer_finished(
        &mut self,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<(), ClientError> {
        if let Some(arriving) = self.arriving.take_if(|body| body.decoder.ends_with_close()) {
            self.complete(&arriving, on);
        }
        if self.expected.count == 0 || self.is_finished {
            return Ok(());
        }
        Err(ClientError::ClosedEarly {
            unanswered: self.expected.len(),
        })
    }

    /// Works through `bytes`; unused bytes are the start of a head.
    #[inline]
    fn consume<const IS_COUNTED: bool>(
        &mut self,
        bytes: &[u8],
        last: &mut LastHead,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<usize, ClientError> {
        let mut at = 0;
        while at < bytes.len() {
            if self.arriving.is_some() {
                at += self.consume_body(&bytes[at..], on)?;
                continue;
            }
            if self.is_finished || self.expected.count == 0 {
                return Err(ClientError::Unasked {
                    count_bytes: bytes.len() - at,
                });
            }
            let rest = &bytes[at..];
            if IS_COUNTED
                && let Some((alike, alike_bytes)) = last.alike(rest, &self.expected, &self.limits)
            {
                at += alike_bytes;
                self.expected.take(alike.count);
                on(ClientEvent::Alike(alike));
                continue;
            }
            match self.one(rest, last, on)? {
                Some(consumed_bytes) => at += consumed_bytes,
                None => break,
            }
        }
        Ok(at)
    }

    /// The response at the beginning of `bytes`, or only its head; how many bytes that was, if its
    /// head is whole.
    fn one(
        &mut self,
        bytes: &[u8],
        last: &mut LastHead,
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<Option<usize>, ClientError> {
        let method = self.expected.method;
        let known = match last.again(bytes, method) {
            Some(known) => Some(known),
            None => self.parse_head(bytes, method, last)?,
        };
        let Some((head_bytes, meaning)) = known else {
            return Ok(None);
        };
        if meaning.status.is_informational() {
            return Ok(Some(head_bytes));
        }
        let (head, behind) = bytes.split_at(head_bytes);
        let body_bytes = self.begin(&meaning, head, behind, on);
        Ok(Some(head_bytes + body_bytes))
    }

    /// The head at the beginning of `bytes`, if it is whole.
    fn parse_head(
        &self,
        bytes: &[u8],
        method: Method,
        last: &mut LastHead,
    ) -> Result<Option<(usize, Meaning)>, ClientError> {
        let head = match parse_response_head(bytes, &self.limits, &mut last.fields)? {
            Parsed::Partial => return Ok(None),
            Parsed::Complete(head) => head,
        };
        if head.status.code() == 101 {
            return Err(ClientError::SwitchedProtocols);
        }
        let meaning = Meaning {
            method,
            status: head.status,
            keep_alive: head.keep_alive(method),
            framing: head.framing(method),
        };
        let head_bytes = head.head_bytes;
        last.remember(&bytes[..head_bytes], meaning);
        Ok(Some((head_bytes, meaning)))
    }

    /// A final response begins; `behind` are the bytes after its head, and it returns how many it has taken: the whole
    /// body if that is there, else none.
    fn begin(
        &mut self,
        meaning: &Meaning,
        head: &[u8],
        behind: &[u8],
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> usize {
        let Meaning {
            status,
            keep_alive,
            framing,
            ..
        } = *meaning;
        let head_bytes = head.len();
        on(ClientEvent::Head {
            status,
            head,
            keep_alive,
        });
        let whole_body = match framing {
            Framing::None => Some(&behind[..0]),
            Framing::Length(length) if length <= self.limits.body_bytes_max => {
                usize::try_from(length)
                    .ok()
                    .and_then(|length| behind.get(..length))
            }
            _ => None,
        };
        if let Some(body) = whole_body {
            if !body.is_empty() {
                on(ClientEvent::BodyPart(body));
            }
            self.answered(keep_alive);
            on(ClientEvent::Complete {
                status,
                body_bytes: body.len() as u64,
                head_bytes,
                keep_alive,
            });
            return body.len();
        }
        self.arriving = BodyDecoder::new(framing, &self.limits).map(|decoder| Arriving {
            status,
            head_bytes,
            keep_alive,
            body_bytes: 0,
            decoder,
        });
        0
    }

    fn consume_body(
        &mut self,
        bytes: &[u8],
        on: &mut impl FnMut(ClientEvent<'_>),
    ) -> Result<usize, ClientError> {
        let Some(arriving) = self.arriving.as_mut() else {
            return Ok(0);
        };
        let step = arriving.decoder.decode(bytes)?;
        arriving.body_bytes += step.data.len() as u64;
        if arriving.body_bytes > self.limits.body_bytes_max {
            return Err(BodyError::TooLong {
                limit_bytes: self.limits.body_bytes_max,
            }
            .into());
        }
        if !step.data.is_empty() {
            on(ClientEvent::BodyPart(step.data));
        }
        if step.is_complete
            && let Some(arriving) = self.arriving.take()
        {
            self.complete(&arriving, on);
        }
        Ok(step.consumed_bytes)
    }

    fn complete(&mut self, done: &Arriving, on: &mut impl FnMut(ClientEvent<'_>)) {
        let Arriving {
            status,
            head_bytes,
            keep_alive,
            body_bytes,
            ..
        } = *done;
        self.answered(keep_alive);
        on(ClientEvent::Complete {
            status,
            body_bytes,
            head_bytes,
            keep_alive,
        });
    }

    fn answered(&mut self, keep_alive: bool) {
        self.expected.take(1);
        self.is_finished |= !keep_alive;
    }
}

// The outstanding requests, which the coming responses belong to.

/// Methods of the outstanding requests, oldest first, as runs: most connections repeat one method.
#[derive(Debug)]
struct Expected {
    /// Of the oldest run.
    method: Method,
    /// Its length; 0: nothing is expected.
    count: usize,
    /// Empty where nothing is expected.
    behind: VecDeque<(Method, usize)>,
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            method: Method::Get,
            count: 0,
            behind: VecDeque::new(),
        }
    }
}

impl Expected {
    #[inline]
    fn push(&mut self, method: Method, count: usize) {
        if self.count == 0 {
            (self.method, self.count) = (method, count);
        } else if self.behind.is_empty() && self.method == method {
            self.count += count;
        } else {
            self.push_behind(method, count);
        }
    }

    fn push_behind(&mut self, method: Method, count: usize) {
        match self.behind.back_mut() {
            Some((last, last_count)) if *last == method => *last_count += count,
            _ => self.behind.push_back((method, count)),
        }
    }

    /// This many of the oldest run have their response.
    #[inline]
    fn take(&mut self, count: usize) {
        self.count = self.count.saturating_sub(count);
        if self.count == 0
            && let Some(next) = self.behind.pop_front()
        {
            (self.method, self.count) = next;
        }
    }

    fn len(&self) -> usize {
        let behind = self.behind.iter().map(|(_, count)| count);
        self.count + behind.sum::<usize>()
    }
}

// The path of nearly all responses: whole in one receive, and reported at once.

/// A response of which all is there.
struct CompleteResponse {
    head: ResponseHead,
    framing: Framing,
    user: u64,
    report: ExchangeReport,
}

impl Client {
    /// Ends the exchange if `received` is all of its response and nothing else. False: nothing was done.
    #[inline]
    fn received_whole<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        received: &[u8],
        on: &mut impl Listener,
    ) -> bool {
        let (heads, whole) = {
            let shared = &mut *self.shared.borrow_mut();
            let Some(mut heads) = shared.heads.take() else {
                return false;
            };
            let Some(whole) = shared.end_if_whole(shard, handle, received, &mut heads) else {
                shared.heads = Some(heads);
                return false;
            };
            (heads, whole)
        };
        let (head, body) = received.split_at(whole.head.head_bytes);
        let event = ExchangeEvent::Whole {
            head: ReceivedHead {
                bytes: head,
                head: &whole.head,
                fields: heads.fields(),
                framing: whole.framing,
            },
            body,
            report: &whole.report,
        };
        tell(shard, handle, whole.user, event, on);
        self.shared.borrow_mut().heads = Some(heads);
        true
    }
}

impl ClientShared {
    fn end_if_whole<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        received: &[u8],
        heads: &mut KnownResponseHeads,
    ) -> Option<CompleteResponse> {
        let exchange = self.exchanges.get_mut(handle)?;
        let awaits_head = matches!(exchange.incoming, Incoming::Head)
            && exchange.partial.is_empty()
            && exchange.kept.is_none()
            && !exchange.is_paused
            && !exchange.is_receive_paused
            && exchange.is_request_complete();
        if !awaits_head {
            return None;
        }
        let Ok(Parsed::Complete(head)) = heads.read(exchange.key, received, &self.limits) else {
            return None;
        };
        let framing = head.framing(exchange.method);
        let body_bytes = match framing {
            Framing::None => 0,
            Framing::Length(length) if length <= self.limits.body_bytes_max => length,
            _ => return None,
        };
        let is_whole = body_bytes <= PART_BYTES_MAX as u64
            && received.len() == head.head_bytes + body_bytes as usize
            && !head.status.is_informational();
        if !is_whole {
            return None;
        }
        let report = &mut exchange.report;
        if !exchange.has_response_begun {
            report.first_byte_ns = shard.now_ns.saturating_sub(exchange.connected_ns);
        }
        report.body_bytes = body_bytes;
        let report = exchange.report_at(shard.now_ns);
        let user = exchange.user;
        let is_clean = head.keep_alive(exchange.method) && !exchange.is_peer_finished;
        let holdings = exchange.holdings();
        self.exchanges.discard(handle);
        self.leave(shard, holdings, is_clean);
        Some(CompleteResponse {
            head,
            framing,
            user,
            report,
        })
    }
}
