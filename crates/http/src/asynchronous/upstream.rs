//! Calls to other servers, over connections of the shard's own that are kept between calls.
//!
//! A handler asks, [`Client`] does it, and what arrives is put into the call's cell, where the
//! handler's future finds it. A call that is made again was provably not served: see
//! [`ExchangeFailure::may_repeat`].

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use millpond_io::Address;
use millpond_io::connection_pool::{PoolKey, Target};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError, PoolMode, PoolStats, Slab};

use crate::client::{
    Client, ExchangeEvent, ExchangeFailure, ExchangeId, ExchangeReport, ExchangeWriteError,
    OutgoingRequest, Timeouts,
};
use crate::encode::encode_request_lines;
use crate::head::{Framing, HeadFields};
use crate::head_text::{Authority, Field, FieldValue, RequestTarget};
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::{Parsed, parse_response_head};
use crate::status::StatusCode;

use super::{AsyncShard, Local};

/// Connections to one upstream, unless its target sets another number.
const CONNECTIONS_MAX: usize = 64;
/// The largest response that is gathered.
pub(super) const BODY_BYTES_MAX: u64 = 16 << 20;
/// So much of a response that is read in parts waits for its reader.
const UNREAD_BYTES_MAX: usize = 32 * 1024;

/// Names an upstream of one [`AsyncShard`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UpstreamId(usize);

/// Why a call has no response.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The upstream failed, or took too long: see the failure's phase.
    #[error(transparent)]
    Exchange(#[from] ExchangeFailure),
    /// The bytes written do not match the announced length.
    #[error("the request's body is not as long as was announced")]
    BodyLength,
    /// The call is already complete or has failed.
    #[error("the call is over")]
    Over,
    /// No memory for the request or the response.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

/// An upstream's response.
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
    /// Value of the first field with this name. Searches the whole head: call it once.
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

/// Value of the first field with this name in the head of a response.
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

/// Response data of a call, until its future takes it.
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

    /// The rest cannot be used.
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
            // Whole responses are not asked for, nor other protocols.
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

    /// The call's future was dropped.
    pub(super) fn forget_call(&self, handle: Handle<Call>) -> Option<Call> {
        let call = self.upstreams.borrow_mut().calls.remove(handle)?;
        if let Some(exchange) = call.exchange {
            self.client.abort(exchange);
        }
        Some(call)
    }

    /// Checks a call, and waits if nothing has happened.
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

// A call whose response is gathered: one future, with the configured tries and redirects.

/// Tries after the first, where the request may be made again.
const TRIES_AGAIN: u32 = 2;

/// A response to wait for. Nothing happens until it is awaited; dropping it closes the connection it
/// would have come over.
pub struct UpstreamCall {
    local: LocalEnd,
    blocks: BlockPool,
    draft: Result<Draft, PoolError>,
    body: Buffer,
    state: CallState,
    tries_left: u32,
    redirects_left: u32,
}

impl fmt::Debug for UpstreamCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UpstreamCall")
            .field("tries_left", &self.tries_left)
            .field("redirects_left", &self.redirects_left)
            .finish_non_exhaustive()
    }
}

enum CallState {
    Start,
    Asked(Handle<Call>),
    Done,
}

impl UpstreamCall {
    pub(super) fn new(
        local: LocalEnd,
        blocks: BlockPool,
        draft: Result<Draft, PoolError>,
        body: &[u8],
    ) -> Self {
        let mut kept = Buffer::new();
        let draft = draft.and_then(|mut draft| {
            kept.extend_from_slice(&blocks, body)?;
            if !body.is_empty() || draft.method.announces_empty_body() {
                draft.framing = Framing::Length(body.len() as u64);
            }
            Ok(draft)
        });
        Self {
            local,
            blocks,
            draft,
            body: kept,
            state: CallState::Start,
            tries_left: TRIES_AGAIN,
            redirects_left: 0,
        }
    }

    /// How long each phase may take.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        if let Ok(draft) = &mut self.draft {
            draft.timeouts = timeouts;
        }
        self
    }

    /// How often the request may be made again; each time only if the upstream cannot have served it, or
    /// if serving it twice means the same. Twice unless set.
    #[must_use]
    pub fn with_retries(mut self, count: u32) -> Self {
        self.tries_left = count;
        self
    }

    /// Follows so many redirects to other paths of the same server. None unless set.
    #[must_use]
    pub fn with_redirects(mut self, count: u32) -> Self {
        self.redirects_left = count;
        self
    }

    /// Makes the request.
    fn ask(&mut self) -> Result<Handle<Call>, UpstreamError> {
        let draft = match &self.draft {
            Ok(draft) => draft,
            Err(error) => return Err((*error).into()),
        };
        let mut lines = Buffer::new();
        // With room for what frames the body.
        lines.reserve(&self.blocks, draft.lines.len() + 64)?;
        lines.append_within_capacity(&draft.lines);
        let (handle, exchange) = self.local.begin(draft, lines, true, &self.blocks)?;
        let client = &self.local.client;
        let written = client.write(exchange, &self.body, &self.blocks);
        if written
            .and_then(|()| client.finish(exchange, &[], &self.blocks))
            .is_err()
        {
            self.local.forget_call(handle);
            return Err(UpstreamError::BodyLength);
        }
        Ok(handle)
    }

    /// Whether a failure allows another try.
    fn may_try_again(&mut self, error: &UpstreamError) -> bool {
        let (UpstreamError::Exchange(failure), Ok(draft)) = (error, &self.draft) else {
            return false;
        };
        let may = self.tries_left > 0 && failure.may_repeat(draft.method);
        self.tries_left -= u32::from(may);
        may
    }

    /// Turns the request towards where a response points, if that is to be followed.
    fn follow(&mut self, reply: &UpstreamReply) -> Result<bool, PoolError> {
        let Ok(draft) = &mut self.draft else {
            return Ok(false);
        };
        let code = reply.status.code();
        if self.redirects_left == 0 || !matches!(code, 301 | 302 | 303 | 307 | 308) {
            return Ok(false);
        }
        let Some(target) = reply.field("location").and_then(path_of) else {
            return Ok(false);
        };
        self.redirects_left -= 1;
        let becomes_get = code == 303 && draft.method != Method::Head
            || matches!(code, 301 | 302) && draft.method == Method::Post;
        if becomes_get {
            draft.method = Method::Get;
            draft.framing = Framing::None;
            self.body.release();
        }
        let fields_at = draft.lines.iter().position(|&byte| byte == b'\n');
        let fields = &draft.lines[fields_at.map_or(0, |at| at + 1)..];
        let mut lines = Buffer::new();
        let method = draft.method.as_str().as_bytes();
        let parts = [method, b" ", target.as_bytes(), b" HTTP/1.1\r\n", fields];
        lines.extend_from_slices(&self.blocks, parts)?;
        draft.lines = lines;
        Ok(true)
    }
}

/// The target of a `Location` on the same server: a path, perhaps with a query; a fragment is the
/// client's own (RFC 9110 10.2.2).
fn path_of(location: FieldValue<'_>) -> Option<RequestTarget<'_>> {
    let location = location.as_bytes();
    let is_path = location.starts_with(b"/") && !location.starts_with(b"//");
    let path = location.split(|&byte| byte == b'#').next()?;
    let target = RequestTarget::new(path).ok()?;
    is_path.then_some(target)
}

impl Future for UpstreamCall {
    type Output = Result<UpstreamReply, UpstreamError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let handle = match this.state {
                CallState::Start => match this.ask() {
                    Ok(handle) => {
                        this.state = CallState::Asked(handle);
                        handle
                    }
                    Err(error) => {
                        this.state = CallState::Done;
                        return Poll::Ready(Err(error));
                    }
                },
                CallState::Asked(handle) => handle,
                CallState::Done => return Poll::Ready(Err(UpstreamError::Over)),
            };
            let looked = this.local.look(handle, context.waker(), |call, _| {
                let is_over = call.is_ended || call.failure.is_some();
                is_over.then_some(())
            });
            if looked.is_pending() {
                return Poll::Pending;
            }
            this.state = CallState::Done;
            let Some(call) = this.local.forget_call(handle) else {
                return Poll::Ready(Err(UpstreamError::Over));
            };
            if let Some(error) = call.failure {
                if this.may_try_again(&error) {
                    this.state = CallState::Start;
                    continue;
                }
                return Poll::Ready(Err(error));
            }
            let reply = UpstreamReply {
                status: call.status.unwrap_or(StatusCode::BAD_GATEWAY),
                head: call.head,
                body: call.body,
            };
            match this.follow(&reply) {
                Ok(true) => this.state = CallState::Start,
                Ok(false) => return Poll::Ready(Ok(reply)),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl Drop for UpstreamCall {
    fn drop(&mut self) {
        if let CallState::Asked(handle) = self.state {
            self.local.forget_call(handle);
        }
    }
}

// A call in parts: the request's body is written, and the response's read, as it comes.

/// An exchange with an upstream whose bodies are of any length, with back-pressure both ways. Dropping
/// it before the end closes its connection.
pub struct UpstreamConversation {
    local: LocalEnd,
    blocks: BlockPool,
    handle: Handle<Call>,
}

impl fmt::Debug for UpstreamConversation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UpstreamConversation")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl UpstreamConversation {
    pub(super) fn begin(
        local: LocalEnd,
        blocks: BlockPool,
        mut draft: Draft,
    ) -> Result<Self, UpstreamError> {
        let lines = std::mem::take(&mut draft.lines);
        let (handle, _) = local.begin(&draft, lines, false, &blocks)?;
        Ok(Self {
            local,
            blocks,
            handle,
        })
    }

    /// Writes the next part of the request's body, as soon as there is room for it.
    pub async fn write(&mut self, part: &[u8]) -> Result<(), UpstreamError> {
        let (local, handle) = (&self.local, self.handle);
        let looked = poll_fn(|context| {
            local.look(handle, context.waker(), |call, client| {
                if let Some(failure) = &call.failure {
                    return Some(Err(failure.clone()));
                }
                match call.exchange {
                    None => Some(Err(UpstreamError::Over)),
                    Some(exchange) => (client.room_bytes(exchange) > 0).then_some(Ok(exchange)),
                }
            })
        });
        let exchange = looked.await.unwrap_or(Err(UpstreamError::Over))?;
        let written = local.client.write(exchange, part, &self.blocks);
        written.map_err(write_error)
    }

    /// Ends the request's body.
    pub fn finish(&mut self) -> Result<(), UpstreamError> {
        let exchange = {
            let upstreams = self.local.upstreams.borrow();
            let call = upstreams.calls.get(self.handle);
            call.and_then(|call| call.exchange)
        };
        // An exchange that is complete needs no abort.
        let Some(exchange) = exchange else {
            return Ok(());
        };
        let finished = self.local.client.finish(exchange, &[], &self.blocks);
        finished.map_err(write_error)
    }

    /// Waits for the head of the response.
    pub async fn status(&mut self) -> Result<StatusCode, UpstreamError> {
        let (local, handle) = (&self.local, self.handle);
        let looked = poll_fn(|context| {
            local.look(handle, context.waker(), |call, _| {
                match (call.status, &call.failure) {
                    (Some(status), _) => Some(Ok(status)),
                    (None, Some(failure)) => Some(Err(failure.clone())),
                    (None, None) => None,
                }
            })
        });
        looked.await.unwrap_or(Err(UpstreamError::Over))
    }

    /// Value of the first field with this name of the response's head, if that has come.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<Vec<u8>> {
        let upstreams = self.local.upstreams.borrow();
        let call = upstreams.calls.get(self.handle)?;
        field_of(&call.head, name).map(|value| value.as_bytes().to_vec())
    }

    /// The next part of the response's body; `None` at its end. Little is received between calls, so a slow reader
    /// slows the upstream down.
    pub async fn next_part(&mut self) -> Result<Option<Buffer>, UpstreamError> {
        let (local, handle) = (&self.local, self.handle);
        let looked = poll_fn(|context| {
            local.look(handle, context.waker(), |call, client| {
                if !call.body.is_empty() {
                    if let Some(exchange) = call.exchange {
                        client.resume(exchange);
                    }
                    return Some(Ok(Some(std::mem::take(&mut call.body))));
                }
                match &call.failure {
                    Some(failure) => Some(Err(failure.clone())),
                    None => call.is_ended.then_some(Ok(None)),
                }
            })
        });
        looked.await.unwrap_or(Err(UpstreamError::Over))
    }
}

/// The error in the bytes written.
fn write_error(error: ExchangeWriteError) -> UpstreamError {
    match error {
        ExchangeWriteError::Gone => UpstreamError::Over,
        ExchangeWriteError::Memory(error) => error.into(),
        ExchangeWriteError::PastLength { .. } | ExchangeWriteError::Missing { .. } => {
            UpstreamError::BodyLength
        }
    }
}

impl Drop for UpstreamConversation {
    fn drop(&mut self) {
        self.local.forget_call(self.handle);
    }
}

#[cfg(test)]
#[path = "tests/call.rs"]
mod call_tests;
