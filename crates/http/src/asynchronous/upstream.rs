//! Calls to other servers over connections of the shard's own, kept alive between calls.
//!
//! Absent on purpose: sharing between shards, bodies in parts, and trying again: the caller knows
//! whether its request may be repeated.

use super::shard::{AsyncShard, CALL_TIMER_BIT, Local};
use crate::client::{ClientConnection, ClientError, ClientEvent};
use crate::encode::encode_request;
use crate::limits::Limits;
use crate::method::Method;
use crate::status::StatusCode;
use millpond_io::{Address, Driver, Errno, Event, ShardContext, SocketId, TimerId};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError, PoolMode, PoolStats, Slab};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Connections to one upstream, in use or kept.
const CONNECTIONS_MAX: usize = 64;
/// From the call to the end of its answer.
const CALL_TIMEOUT_NS: u64 = 30_000_000_000;
/// The largest answer that is gathered.
const BODY_BYTES_MAX: u64 = 16 << 20;

/// Names an upstream of one [`AsyncShard`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UpstreamId(usize);

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UpstreamError {
    /// The upstream refused, reset or could not be reached.
    #[error("the connection to the upstream failed: {0}")]
    Failed(Errno),
    /// What it sent is not a sound answer, or breaks off.
    #[error(transparent)]
    Answer(#[from] ClientError),
    /// It took too long.
    #[error("the upstream did not answer in time")]
    TimedOut,
    /// No memory for the request or the answer.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

/// An upstream's answer.
#[derive(Debug)]
pub struct UpstreamReply {
    /// Its status.
    pub status: StatusCode,
    /// Its whole body.
    pub body: Buffer,
}

struct Upstream {
    address: Address,
    host: Box<[u8]>,
    /// Kept alive, the one used last at the end.
    idle: Vec<SocketId>,
    connection_count: usize,
    /// Calls without a connection, the oldest first.
    waiting: VecDeque<Handle<Call>>,
}

struct Call {
    upstream: usize,
    method: Method,
    request: Buffer,
    reply: UpstreamReply,
    outcome: Option<Result<(), UpstreamError>>,
    waker: Option<Waker>,
    timer: Option<TimerId>,
    socket: Option<SocketId>,
}

/// One connection.
struct Link {
    socket: SocketId,
    upstream: usize,
    client: ClientConnection,
    call: Option<Handle<Call>>,
}

pub(super) struct Upstreams {
    upstreams: Vec<Upstream>,
    calls: Slab<Call>,
    /// By the socket's slot.
    links: Vec<Option<Link>>,
    /// Calls not begun.
    fresh: Vec<Handle<Call>>,
    /// What calls left behind that were dropped.
    dropped: Vec<(Option<TimerId>, Option<SocketId>)>,
    limits: Limits,
}

impl Upstreams {
    pub(super) fn new(mode: PoolMode) -> Self {
        Self {
            upstreams: Vec::new(),
            calls: Slab::new("http_upstream_calls", mode),
            links: Vec::new(),
            fresh: Vec::new(),
            dropped: Vec::new(),
            limits: Limits {
                body_bytes_max: BODY_BYTES_MAX,
                ..Limits::default()
            },
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.calls.stats()
    }

    pub(super) fn trim(&mut self) -> usize {
        self.calls.trim()
    }

    pub(super) fn pump<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        while let Some((timer, socket)) = self.dropped.pop() {
            if let Some(timer) = timer {
                shard.timers.remove(timer);
            }
            // An answer to nobody is on its way there: the connection is of no use.
            if let Some(socket) = socket {
                shard.driver.close(socket);
                self.unlink(socket);
            }
        }
        for index in 0..self.fresh.len() {
            let handle = self.fresh[index];
            if let Some(call) = self.calls.get_mut(handle) {
                let timer = shard.timers.create(handle.to_bits() | CALL_TIMER_BIT);
                shard.timers.set(timer, shard.now_ns + CALL_TIMEOUT_NS);
                call.timer = Some(timer);
                self.upstreams[call.upstream].waiting.push_back(handle);
            }
        }
        self.fresh.clear();
        for index in 0..self.upstreams.len() {
            self.begin_waiting(index, shard);
        }
    }

    /// Begins as many calls as there are connections for.
    fn begin_waiting<D: Driver>(&mut self, index: usize, shard: &mut ShardContext<'_, D>) {
        loop {
            let upstream = &mut self.upstreams[index];
            let has_place =
                !upstream.idle.is_empty() || upstream.connection_count < CONNECTIONS_MAX;
            if !has_place {
                return;
            }
            let Some(handle) = upstream.waiting.pop_front() else {
                return;
            };
            // One that was dropped, or timed out, while it waited is gone.
            let is_waiting = self
                .calls
                .get(handle)
                .is_some_and(|call| call.outcome.is_none());
            if is_waiting && let Err(error) = self.begin(index, handle, shard) {
                self.finish(handle, Err(error), shard);
            }
        }
    }

    fn begin<D: Driver>(
        &mut self,
        index: usize,
        handle: Handle<Call>,
        shard: &mut ShardContext<'_, D>,
    ) -> Result<(), UpstreamError> {
        let upstream = &mut self.upstreams[index];
        let socket = match upstream.idle.pop() {
            Some(socket) => socket,
            None => {
                let connected = shard.driver.connect(&upstream.address);
                // The driver's sentence names the address; what a handler needs is that it failed.
                let socket = connected.map_err(|_| UpstreamError::Failed(Errno::MFILE))?;
                upstream.connection_count += 1;
                if self.links.len() <= socket.slot() {
                    self.links.resize_with(socket.slot() + 1, || None);
                }
                self.links[socket.slot()] = Some(Link {
                    socket,
                    upstream: index,
                    client: ClientConnection::new(self.limits),
                    call: None,
                });
                socket
            }
        };
        let (Some(Some(link)), Some(call)) = (
            self.links.get_mut(socket.slot()),
            self.calls.get_mut(handle),
        ) else {
            return Err(UpstreamError::Failed(Errno::NOTCONN));
        };
        link.call = Some(handle);
        link.client.expect(call.method);
        call.socket = Some(socket);
        // Blocked or not: the driver keeps what does not go, and a failure comes as an event.
        let _ = shard.driver.send(socket, std::mem::take(&mut call.request));
        Ok(())
    }

    /// An event of a socket that is no client's; false when it is not one of ours.
    pub(super) fn event<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        event: &Event<'_>,
    ) -> bool {
        match *event {
            Event::Received { socket, bytes } => self.received(socket, Some(bytes), shard),
            Event::PeerFinished { socket } => self.received(socket, None, shard),
            Event::Failed { socket, error } => {
                let call = self.unlink(socket).and_then(|link| link.call);
                if let Some(call) = call {
                    self.finish(call, Err(UpstreamError::Failed(error)), shard);
                }
            }
            _ => {}
        }
        true
    }

    /// Bytes of an answer, or its end by the upstream's.
    fn received<D: Driver>(
        &mut self,
        socket: SocketId,
        bytes: Option<&[u8]>,
        shard: &mut ShardContext<'_, D>,
    ) {
        let Self { links, calls, .. } = self;
        let Some(Some(link)) = links.get_mut(socket.slot()) else {
            return;
        };
        if link.socket != socket {
            return;
        }
        let handle = link.call;
        let mut call = handle.and_then(|handle| calls.get_mut(handle));
        let blocks = &shard.pools.blocks;
        let mut kept = Ok(());
        let mut completed = None;
        let mut on = |event: ClientEvent<'_>| match (event, &mut call) {
            (ClientEvent::Head { status, .. }, Some(call)) => call.reply.status = status,
            (ClientEvent::BodyPart(part), Some(call)) if kept.is_ok() => {
                kept = call.reply.body.extend_from_slice(blocks, part);
            }
            (ClientEvent::Complete { keep_alive, .. }, _) => completed = Some(keep_alive),
            _ => {}
        };
        let outcome = match bytes {
            Some(bytes) => link.client.receive(bytes, blocks, &mut on),
            None => link.client.peer_finished(&mut on),
        };
        let outcome = outcome
            .map_err(UpstreamError::from)
            .and(kept.map_err(UpstreamError::from));
        let is_over = bytes.is_none() || outcome.is_err();
        if !is_over && completed.is_none() {
            return;
        }
        if !is_over && completed == Some(true) {
            link.call = None;
            let index = link.upstream;
            self.upstreams[index].idle.push(socket);
        } else {
            shard.driver.close(socket);
            self.unlink(socket);
        }
        if let Some(handle) = handle {
            self.finish(handle, outcome, shard);
        }
    }

    fn unlink(&mut self, socket: SocketId) -> Option<Link> {
        let place = self.links.get_mut(socket.slot())?;
        let link = place.take_if(|link| link.socket == socket)?;
        let upstream = &mut self.upstreams[link.upstream];
        upstream.connection_count -= 1;
        upstream.idle.retain(|&idle| idle != socket);
        Some(link)
    }

    fn finish<D: Driver>(
        &mut self,
        handle: Handle<Call>,
        outcome: Result<(), UpstreamError>,
        shard: &mut ShardContext<'_, D>,
    ) {
        let Some(call) = self.calls.get_mut(handle) else {
            return;
        };
        call.outcome = Some(outcome);
        call.socket = None;
        if let Some(timer) = call.timer.take() {
            shard.timers.remove(timer);
        }
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn timer_expired<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        user: u64,
    ) -> bool {
        if user & CALL_TIMER_BIT == 0 {
            return false;
        }
        let handle = Handle::from_bits(user & !CALL_TIMER_BIT);
        if let Some(socket) = self.calls.get(handle).and_then(|call| call.socket) {
            shard.driver.close(socket);
            self.unlink(socket);
        }
        self.finish(handle, Err(UpstreamError::TimedOut), shard);
        true
    }
}

impl AsyncShard {
    /// Another server that futures of this shard may call; `host` is what it is called in `Host`.
    pub fn add_upstream(&self, address: Address, host: &str) -> UpstreamId {
        let mut upstreams = self.local.upstreams.borrow_mut();
        upstreams.upstreams.push(Upstream {
            address,
            host: host.as_bytes().into(),
            idle: Vec::new(),
            connection_count: 0,
            waiting: VecDeque::new(),
        });
        UpstreamId(upstreams.upstreams.len() - 1)
    }

    /// Asks an upstream of this shard. Nothing happens until the call is awaited.
    pub(super) fn call(
        &self,
        upstream: UpstreamId,
        blocks: &BlockPool,
        method: Method,
        target: &[u8],
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> UpstreamCall {
        let mut upstreams = self.local.upstreams.borrow_mut();
        let host = &upstreams.upstreams[upstream.0].host;
        let mut request = Buffer::new();
        let state = encode_request(&mut request, blocks, method, target, host, fields, body)
            .and_then(|()| {
                upstreams.calls.insert(Call {
                    upstream: upstream.0,
                    method,
                    request,
                    reply: UpstreamReply {
                        status: StatusCode::BAD_GATEWAY,
                        body: Buffer::new(),
                    },
                    outcome: None,
                    waker: None,
                    timer: None,
                    socket: None,
                })
            });
        UpstreamCall {
            local: Rc::clone(&self.local),
            state,
        }
    }

    pub(crate) fn upstream_event<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        event: &Event<'_>,
    ) {
        self.local.upstreams.borrow_mut().event(shard, event);
    }
}

/// An answer to wait for. Dropping it closes the connection it would have come over.
pub struct UpstreamCall {
    local: Rc<Local>,
    state: Result<Handle<Call>, PoolError>,
}

impl Future for UpstreamCall {
    type Output = Result<UpstreamReply, UpstreamError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = match self.state {
            Ok(handle) => handle,
            Err(error) => return Poll::Ready(Err(error.into())),
        };
        let mut upstreams = self.local.upstreams.borrow_mut();
        let Upstreams { calls, fresh, .. } = &mut *upstreams;
        let Some(call) = calls.get_mut(handle) else {
            // Polled again after its answer was given.
            return Poll::Pending;
        };
        if let Some(outcome) = call.outcome {
            let call = calls.remove(handle);
            let reply = call.map(|call| call.reply);
            return match (outcome, reply) {
                (Ok(()), Some(reply)) => Poll::Ready(Ok(reply)),
                (Err(error), _) => Poll::Ready(Err(error)),
                (Ok(()), None) => Poll::Pending,
            };
        }
        if call.waker.is_none() && call.timer.is_none() {
            fresh.push(handle);
        }
        call.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for UpstreamCall {
    fn drop(&mut self) {
        let Ok(handle) = self.state else {
            return;
        };
        let mut upstreams = self.local.upstreams.borrow_mut();
        if let Some(call) = upstreams.calls.remove(handle) {
            upstreams.dropped.push((call.timer, call.socket));
        }
    }
}
