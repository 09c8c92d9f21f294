//! Calls to other servers, over connections of the shard's own that are kept between calls.
//!
//! On the path: a handler asks, [`Client`] does it, and what arrives is put into the call's cell,
//! where the handler's future finds it. A call that is made again was provably not served: see
//! [`ExchangeFailure::may_repeat`].
//!
//! Absent on purpose: sharing between shards, and redirects to other servers: a name that an answer
//! brings is nobody the program has chosen.

use super::shard::{AsyncShard, Local};
use crate::client::{
    Client, ExchangeEvent, ExchangeFailure, ExchangeId, ExchangeReport, OutgoingRequest, Timeouts,
};
use crate::encode::encode_request_lines;
use crate::head::{Framing, HeadFields};
use crate::head_text::{Authority, Field, FieldValue, RequestTarget};
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::{Parsed, parse_response_head};
use crate::status::StatusCode;
use millpond_io::Address;
use millpond_io::connection_pool::{PoolKey, Target};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError, PoolMode, PoolStats, Slab};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Connections to one upstream, unless its target says otherwise.
const CONNECTIONS_MAX: usize = 64;
/// The largest answer that is gathered.
pub(super) const BODY_BYTES_MAX: u64 = 16 << 20;
/// So much of an answer that is read in parts waits for its reader.
const UNREAD_BYTES_MAX: usize = 32 * 1024;

/// Names an upstream of one [`AsyncShard`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UpstreamId(usize);

/// Why a call has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The upstream failed, or took too long: see the failure's phase.
    #[error(transparent)]
    Exchange(#[from] ExchangeFailure),
    /// What was written does not fit what was announced.
    #[error("the request's body is not as long as was announced")]
    BodyLength,
    /// The call was answered, or has failed, before.
    #[error("the call is over")]
    Over,
    /// No memory for the request or the answer.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

/// An upstream's answer.
#[derive(Debug)]
pub struct UpstreamReply {
    /// Its status.
    pub status: StatusCode,
    /// Its head, as received.
    pub head: Buffer,
    /// Its whole body.
    pub body: Buffer,
}

impl UpstreamReply {
    /// Value of the first field with this name. Looks through the head: ask once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.field(name).map(FieldValue::as_bytes)
    }

    /// The same as a value that another message can have.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<FieldValue<'_>> {
        field_of(&self.head, name)
    }
}

/// Value of the first field with this name in the head of an answer.
pub(super) fn field_of<'h>(head: &'h [u8], name: &str) -> Option<FieldValue<'h>> {
    let mut fields = HeadFields::new();
    // It was accepted before, under limits that are no wider.
    match parse_response_head(head, &Limits::OF_ACCEPTED_HEADS, &mut fields) {
        Ok(Parsed::Complete(_)) => fields
            .value_of(head, name.as_bytes())
            .map(FieldValue::known),
        _ => None,
    }
}

struct Upstream {
    key: PoolKey,
    host: Box<[u8]>,
}

/// What a call has of its answer, until its future takes it.
#[derive(Debug)]
pub(super) struct Call {
    /// `None`: it is over.
    pub(super) exchange: Option<ExchangeId>,
    pub(super) status: Option<StatusCode>,
    pub(super) head: Buffer,
    pub(super) body: Buffer,
    /// The whole body is wanted at once; else it is read in parts.
    gathers: bool,
    pub(super) is_ended: bool,
    pub(super) failure: Option<UpstreamError>,
    pub(super) report: ExchangeReport,
    pub(super) waker: Option<Waker>,
}

impl Call {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Nobody can do anything with the rest.
    fn break_off(&mut self, client: &Client, error: UpstreamError) {
        if let Some(exchange) = self.exchange.take() {
            client.abort(exchange);
        }
        self.failure = Some(error);
        self.wake();
    }

    fn body_came(&mut self, client: &Client, part: &[u8], blocks: &BlockPool) {
        if let Err(error) = self.body.extend_from_slice(blocks, part) {
            return self.break_off(client, error.into());
        }
        if self.gathers {
            return;
        }
        if self.body.len() >= UNREAD_BYTES_MAX
            && let Some(exchange) = self.exchange
        {
            client.pause(exchange);
        }
        self.wake();
    }

    fn hear(&mut self, client: &Client, event: ExchangeEvent<'_>, blocks: &BlockPool) {
        match event {
            // Whole answers are not asked for, nor other protocols.
            ExchangeEvent::Informational(_)
            | ExchangeEvent::Whole { .. }
            | ExchangeEvent::PeerFinished => {}
            ExchangeEvent::Room => self.wake(),
            ExchangeEvent::Head(head) => {
                self.status = Some(head.status());
                match self.head.extend_from_slice(blocks, head.bytes) {
                    Ok(()) if self.gathers => {}
                    Ok(()) => self.wake(),
                    Err(error) => self.break_off(client, error.into()),
                }
            }
            ExchangeEvent::Body(part) => self.body_came(client, part, blocks),
            ExchangeEvent::End { report, .. } => {
                self.exchange = None;
                self.is_ended = true;
                self.report = *report;
                self.wake();
            }
            ExchangeEvent::Failed { failure, report } => {
                self.exchange = None;
                self.failure = Some(failure.clone().into());
                self.report = *report;
                self.wake();
            }
        }
    }
}

/// The upstreams of a shard, and the calls under way.
pub(super) struct Upstreams {
    list: Vec<Upstream>,
    pub(super) calls: Slab<Call>,
}

impl Upstreams {
    pub(super) fn new(mode: PoolMode) -> Self {
        Self {
            list: Vec::new(),
            calls: Slab::new("http_upstream_calls", mode),
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.calls.stats()
    }

    pub(super) fn trim(&mut self) -> usize {
        self.calls.trim()
    }
}

/// A request of a handler's, before it is made.
pub(super) struct Draft {
    pub(super) key: PoolKey,
    pub(super) method: Method,
    /// The request line and the fields.
    pub(super) lines: Buffer,
    pub(super) framing: Framing,
    pub(super) timeouts: Timeouts,
}

impl AsyncShard {
    /// Another server that futures of this shard may call; `host` is what it is called in `Host`.
    ///
    /// # Panics
    /// Without memory for it.
    #[must_use]
    pub fn add_upstream(&self, address: Address, host: Authority<'_>) -> UpstreamId {
        let target = Target {
            connections_max: CONNECTIONS_MAX,
            ..Target::at(address)
        };
        let added = self.add_target(target, host);
        added.expect("there is memory when a service is made")
    }

    /// As [`Self::add_upstream`], for a server with a name, with TLS, or with caps of its own.
    pub fn add_target(&self, target: Target, host: Authority<'_>) -> Result<UpstreamId, PoolError> {
        let key = self.local.client.add_target(target)?;
        let list = &mut self.local.upstreams.borrow_mut().list;
        list.push(Upstream {
            key,
            host: host.as_bytes().into(),
        });
        Ok(UpstreamId(list.len() - 1))
    }

    pub(super) fn draft(
        &self,
        upstream: UpstreamId,
        blocks: &BlockPool,
        method: Method,
        target: RequestTarget<'_>,
        fields: &[Field<'_>],
    ) -> Result<Draft, PoolError> {
        let upstreams = self.local.upstreams.borrow();
        let Upstream { key, host } = &upstreams.list[upstream.0];
        let mut lines = Buffer::new();
        let host = Authority::known(host);
        encode_request_lines(&mut lines, blocks, method, target, host, fields)?;
        Ok(Draft {
            key: *key,
            method,
            lines,
            framing: Framing::None,
            timeouts: Timeouts::default(),
        })
    }

    /// Through which the calls go.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.local.client
    }

    /// An exchange of [`Local::client`] went on.
    pub(super) fn hear(&self, user: u64, event: ExchangeEvent<'_>, blocks: &BlockPool) {
        let mut upstreams = self.local.upstreams.borrow_mut();
        if let Some(call) = upstreams.calls.get_mut(Handle::from_bits(user)) {
            call.hear(&self.local.client, event, blocks);
        }
    }
}

impl Local {
    /// Begins the exchange of a draft; `lines` is its own copy of the draft's.
    pub(super) fn begin(
        &self,
        draft: &Draft,
        lines: Buffer,
        gathers: bool,
        blocks: &BlockPool,
    ) -> Result<(Handle<Call>, ExchangeId), PoolError> {
        let mut upstreams = self.upstreams.borrow_mut();
        let handle = upstreams.calls.insert(Call {
            exchange: None,
            status: None,
            head: Buffer::new(),
            body: Buffer::new(),
            gathers,
            is_ended: false,
            failure: None,
            report: ExchangeReport::default(),
            waker: None,
        })?;
        let mut request = OutgoingRequest::of_lines(draft.method, lines);
        request.body = draft.framing;
        request.timeouts = draft.timeouts;
        request.user = handle.to_bits();
        match self.client.begin(draft.key, request, blocks) {
            Ok(exchange) => {
                if let Some(call) = upstreams.calls.get_mut(handle) {
                    call.exchange = Some(exchange);
                }
                Ok((handle, exchange))
            }
            Err(error) => {
                upstreams.calls.remove(handle);
                Err(error)
            }
        }
    }

    /// Nobody waits for the call any more.
    pub(super) fn forget_call(&self, handle: Handle<Call>) -> Option<Call> {
        let call = self.upstreams.borrow_mut().calls.remove(handle)?;
        if let Some(exchange) = call.exchange {
            self.client.abort(exchange);
        }
        Some(call)
    }

    /// Looks at a call, and waits if there is nothing to be seen.
    pub(super) fn look<R>(
        &self,
        handle: Handle<Call>,
        waker: &Waker,
        see: impl FnOnce(&mut Call, &Client) -> Option<R>,
    ) -> Poll<Option<R>> {
        let mut upstreams = self.upstreams.borrow_mut();
        let Some(call) = upstreams.calls.get_mut(handle) else {
            return Poll::Ready(None);
        };
        match see(call, &self.client) {
            Some(seen) => Poll::Ready(Some(seen)),
            None => {
                match &mut call.waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                Poll::Pending
            }
        }
    }
}

/// The local end of a future's call.
pub(super) type LocalEnd = Rc<Local>;
