//! One shard's requests to other servers: over connections of the shard's own, kept between uses.
//!
//! A service begins exchanges and writes their bodies through [`Client`], which only records the calls; the server's
//! shard carries them out when the tick ends (`driving`), handles received bytes (`reading`) and reports to the service
//! through [`crate::Service::exchange_event`].
//!
//! ```text
//! begin, write, finish -> output -> pump -> connection_pool -> Driver::send
//!                                                                  |
//!      Service::exchange_event <- reading <- io::Event <- upstream <-+
//! ```

use super::driving::{Exchange, Outgoing, Stage};
use super::exchange::{ExchangeId, ExchangeReport, OutgoingRequest};
use super::reading::KnownResponseHeads;
use crate::head::Framing;
use crate::head_text::Field;
use crate::kept_input::KeptInput;
use crate::limits::Limits;
use crate::service::ShardStart;
use millpond_io::connection_pool::{
    AcquireError, ConnectionPool, PoolConfig, PoolCounters, PoolKey, PoolKeyStats, Resolver,
    ResolverClient, Target, WaiterId,
};
use millpond_io::{SocketId, TimerId};
use millpond_mempool::{BlockPool, Handle, Pool, PoolError, PoolMode, PoolStats, Slab};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// This bit distinguishes timers of exchanges from those of sockets, whose slots are dense.
pub(super) const EXCHANGE_TIMER_BIT: u64 = 1 << 30;
/// Beside it: the service's own alarm.
pub(super) const ALARM_TIMER_BIT: u64 = 1 << 28;

/// As many exchanges as may be under way at a time in nearly all shards.
pub(super) const SPARE_TIMERS_MAX: usize = 1024;

/// How a client works.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Of its connections.
    pub pool: PoolConfig,
    /// Caps on what upstreams send: heads, fields, chunk extensions, trailers, and bodies
    /// (`body_bytes_max`).
    pub limits: Limits,
    /// Resolves names; without it targets are addresses.
    pub resolver: Option<Resolver>,
    /// A response that arrives whole is reported as one [`super::ExchangeEvent::Whole`].
    pub buffers_small_responses: bool,
}

/// Why a part of a request was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeWriteError {
    /// It ended, failed or was aborted.
    #[error("the exchange is over")]
    Gone,
    /// More than was announced, or after the end.
    #[error("{given_bytes} bytes given where {left_bytes} were left of the length announced")]
    PastLength {
        /// Bytes to be written.
        given_bytes: usize,
        /// Bytes of room.
        left_bytes: u64,
    },
    /// Less than was announced.
    #[error("the body ends {left_bytes} bytes before the length announced: abort the exchange")]
    Missing {
        /// Bytes of room.
        left_bytes: u64,
    },
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

/// The client of one shard. Clones are the same; none leaves its thread.
#[derive(Clone)]
pub struct Client {
    pub(super) shared: Rc<RefCell<ClientShared>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

/// State of an aborted exchange that must be cleaned up.
pub(super) struct Orphan {
    pub(super) stage: Stage,
    pub(super) timer: Option<TimerId>,
    /// Nothing was written: the connection is as good as before.
    pub(super) is_untouched: bool,
}

pub(super) struct ClientShared {
    pub(super) pool: ConnectionPool,
    pub(super) limits: Limits,
    pub(super) exchanges: Slab<Exchange>,
    /// Response bytes that wait for the reader.
    pub(super) kept_inputs: Pool<KeptInput>,
    /// The owner of a leased connection.
    pub(super) by_slot: Vec<Option<(SocketId, Handle<Exchange>)>>,
    /// Exchanges for which something is to be done, each once.
    pub(super) noted: Vec<Handle<Exchange>>,
    pub(super) orphans: Vec<Orphan>,
    pub(super) removed_keys: Vec<PoolKey>,
    /// The targets whose names are to be resolved.
    pub(super) names_due: Vec<PoolKey>,
    /// Kept for its memory.
    pub(super) in_hand: Vec<Handle<Exchange>>,
    /// Lent while a response is read.
    pub(super) heads: Option<Box<KnownResponseHeads>>,
    pub(super) buffers_small_responses: bool,
    /// Of exchanges that have ended, for those to come.
    pub(super) spare_timers: Vec<TimerId>,
    /// When the service wants to be called.
    pub(super) alarm_ns: u64,
    pub(super) alarm_timer: Option<TimerId>,
    pub(super) is_alarm_set: bool,
}

impl Client {
    /// The client of a shard that starts.
    #[must_use]
    pub fn new(start: &ShardStart, config: ClientConfig) -> Self {
        let ClientConfig {
            pool,
            limits,
            resolver,
            buffers_small_responses,
        } = config;
        let resolver = resolver.map(|resolver| resolver.client(start.waker.clone()));
        let client = Self::with_parts(start.pool_mode, pool, limits, resolver);
        client.shared.borrow_mut().buffers_small_responses = buffers_small_responses;
        client
    }

    pub(crate) fn with_parts(
        mode: PoolMode,
        pool: PoolConfig,
        limits: Limits,
        resolver: Option<ResolverClient>,
    ) -> Self {
        let shared = ClientShared {
            pool: ConnectionPool::new(pool, mode, resolver),
            limits,
            exchanges: Slab::new("http_exchanges", mode),
            kept_inputs: Pool::new("http_responses_kept", mode),
            by_slot: Vec::new(),
            noted: Vec::new(),
            orphans: Vec::new(),
            removed_keys: Vec::new(),
            names_due: Vec::new(),
            in_hand: Vec::new(),
            heads: Some(Box::default()),
            buffers_small_responses: false,
            spare_timers: Vec::with_capacity(SPARE_TIMERS_MAX),
            alarm_ns: u64::MAX,
            alarm_timer: None,
            is_alarm_set: true,
        };
        Self {
            shared: Rc::new(RefCell::new(shared)),
        }
    }

    /// Other caps on what upstreams send, from the next head on.
    pub fn set_limits(&self, limits: Limits) {
        let shared = &mut *self.shared.borrow_mut();
        if shared.limits != limits {
            shared.limits = limits;
            // Heads are known as these limits let them pass.
            shared.heads = Some(Box::default());
        }
    }

    /// For how long a connection is kept without a use, from its next use on.
    pub fn set_idle_max(&self, idle_max_ns: u64) {
        self.shared.borrow_mut().pool.set_idle_max(idle_max_ns);
    }

    /// How long resolving a name, connecting and the TLS handshake may take each, from the next connection
    /// on; [`super::Timeouts::connection_ns`] is for all of them, of one exchange.
    pub fn set_open_max(&self, open_max_ns: u64) {
        self.shared.borrow_mut().pool.set_open_max(open_max_ns);
    }

    /// Resolves the name of a target when the tick ends, if it has a name and the known addresses have expired.
    pub fn resolve_target(&self, key: PoolKey) {
        self.shared.borrow_mut().names_due.push(key);
    }

    /// Why the name of a server has no address, if it has none.
    #[must_use]
    pub fn why_unresolved(&self, key: PoolKey) -> Option<AcquireError> {
        self.shared.borrow().pool.why_unresolved(key)
    }

    /// Another server to ask.
    pub fn add_target(&self, target: Target) -> Result<PoolKey, PoolError> {
        self.shared.borrow_mut().pool.add_key(target)
    }

    /// From here on no exchange with this one can begin; those under way go on, and their connections end with them.
    pub fn remove_target(&self, key: PoolKey) {
        self.shared.borrow_mut().removed_keys.push(key);
    }

    /// The connections to one target, and what was counted.
    #[must_use]
    pub fn target_stats(&self, key: PoolKey) -> PoolKeyStats {
        self.shared.borrow().pool.key_stats(key)
    }

    /// Counters of all targets, past ones included.
    #[must_use]
    pub fn counters(&self) -> PoolCounters {
        self.shared.borrow().pool.counters()
    }

    /// Exchanges under way.
    #[must_use]
    pub fn exchange_count(&self) -> usize {
        self.shared.borrow().exchanges.len()
    }

    /// Timers without an owner.
    pub(crate) fn spare_timer_count(&self) -> usize {
        self.shared.borrow().spare_timers.len()
    }

    /// Begins an exchange; when the tick ends it gets a connection, or waits for one. Whatever becomes of
    /// it comes as an [`super::ExchangeEvent`].
    pub fn begin(
        &self,
        key: PoolKey,
        mut request: OutgoingRequest,
        blocks: &BlockPool,
    ) -> Result<ExchangeId, PoolError> {
        append_framing(&mut request, blocks)?;
        let shared = &mut *self.shared.borrow_mut();
        // It is noted from the beginning: see `Exchange::new`.
        let handle = shared.exchanges.insert(Exchange::new(key, request))?;
        shared.noted.push(handle);
        Ok(ExchangeId(handle.to_bits()))
    }

    /// Writes the next part of the request's body, or of the other protocol. More than
    /// [`Self::room_bytes`] is taken, but costs memory until it has left.
    pub fn write(
        &self,
        id: ExchangeId,
        part: &[u8],
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        self.go_on(id, |exchange| exchange.write(part, blocks))
    }

    /// How much [`Self::write`] should be given now; 0: [`super::ExchangeEvent::Room`] will come.
    #[must_use]
    pub fn room_bytes(&self, id: ExchangeId) -> usize {
        let shared = &mut *self.shared.borrow_mut();
        let exchange = shared.exchanges.get_mut(Handle::from_bits(id.0));
        exchange.map_or(0, Exchange::room_bytes)
    }

    /// Ends the request's body, with fields behind it if it is chunked.
    pub fn finish(
        &self,
        id: ExchangeId,
        trailers: &[Field<'_>],
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        self.finish_passing(id, trailers.iter().copied(), blocks)
    }

    /// The same with fields that were received.
    pub(crate) fn finish_passing<'t>(
        &self,
        id: ExchangeId,
        trailers: impl Iterator<Item = Field<'t>> + Clone,
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        self.go_on(id, |exchange| exchange.finish(trailers, blocks))
    }

    /// Applies a change to an exchange, which is checked when the tick ends.
    fn go_on(
        &self,
        id: ExchangeId,
        act: impl FnOnce(&mut Exchange) -> Result<(), ExchangeWriteError>,
    ) -> Result<(), ExchangeWriteError> {
        let shared = &mut *self.shared.borrow_mut();
        let handle = Handle::from_bits(id.0);
        let exchange = shared.exchanges.get_mut(handle);
        act(exchange.ok_or(ExchangeWriteError::Gone)?)?;
        shared.note(handle);
        Ok(())
    }

    /// No more of the response's body for now. Received bytes are kept, at most two receives; then the kernel's window
    /// stops the upstream.
    pub fn pause(&self, id: ExchangeId) {
        self.set_paused(id, true);
    }

    /// Ends [`Self::pause`].
    pub fn resume(&self, id: ExchangeId) {
        self.set_paused(id, false);
    }

    fn set_paused(&self, id: ExchangeId, is_paused: bool) {
        let shared = &mut *self.shared.borrow_mut();
        let handle = Handle::from_bits(id.0);
        if let Some(exchange) = shared.exchanges.get_mut(handle) {
            exchange.is_paused = is_paused;
            shared.note(handle);
        }
    }

    /// Time an exchange has taken so far.
    pub(crate) fn report(&self, id: ExchangeId, now_ns: u64) -> Option<ExchangeReport> {
        let shared = self.shared.borrow();
        let exchange = shared.exchanges.get(Handle::from_bits(id.0));
        exchange.map(|exchange| exchange.report_at(now_ns))
    }

    /// The response is not wanted any more: no further event comes, and the connection is closed, unless nothing was
    /// written to it.
    pub fn abort(&self, id: ExchangeId) {
        let shared = &mut *self.shared.borrow_mut();
        if let Some(exchange) = shared.exchanges.remove(Handle::from_bits(id.0)) {
            shared.orphans.push(Orphan {
                stage: exchange.stage,
                timer: exchange.timer,
                is_untouched: exchange.report.request_bytes == 0,
            });
        }
    }

    /// Has [`crate::Service::alarm`] called at this time of the shard's clock, or a moment (17 ms) later. Of several
    /// times the earliest counts; the call clears them all.
    pub fn set_next_timer(&self, at_ns: u64) {
        let shared = &mut *self.shared.borrow_mut();
        if at_ns < shared.alarm_ns {
            shared.alarm_ns = at_ns;
            shared.is_alarm_set = false;
        }
    }

    /// Calls `visit` with the accounting of each of the client's pools.
    pub fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        let shared = self.shared.borrow();
        shared.pool.visit_pool_stats(visit);
        visit(shared.exchanges.stats());
        visit(shared.kept_inputs.stats());
    }

    /// Gives back half of the memory that was idle since the last call.
    pub fn trim_pools(&self) -> usize {
        let shared = &mut *self.shared.borrow_mut();
        shared.pool.trim_pools() + shared.exchanges.trim() + shared.kept_inputs.trim()
    }
}

impl ClientShared {
    pub(super) fn note(&mut self, handle: Handle<Exchange>) {
        if let Some(exchange) = self.exchanges.get_mut(handle)
            && !std::mem::replace(&mut exchange.is_noted, true)
        {
            self.noted.push(handle);
        }
    }

    /// The exchange that a socket serves, if any.
    #[inline]
    pub(super) fn exchange_of(&self, socket: SocketId) -> Option<Handle<Exchange>> {
        let (of, handle) = (*self.by_slot.get(socket.slot())?)?;
        (of == socket && self.exchanges.get(handle).is_some()).then_some(handle)
    }

    pub(super) fn own(&mut self, socket: SocketId, handle: Handle<Exchange>) {
        let slot = socket.slot();
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some((socket, handle));
    }

    pub(super) fn disown(&mut self, socket: SocketId) {
        // A slot may have gone to another since: an exchange can outlive its connection.
        if let Some(place) = self.by_slot.get_mut(socket.slot()) {
            place.take_if(|(of, _)| *of == socket);
        }
    }
}

/// The remaining time to wait.
pub(super) const fn waiter_of(stage: Stage) -> Option<WaiterId> {
    match stage {
        Stage::Waiting(waiter) => Some(waiter),
        Stage::New | Stage::Open(_) => None,
    }
}

/// The end of the head: the fields that frame the body, written here.
fn append_framing(request: &mut OutgoingRequest, blocks: &BlockPool) -> Result<(), PoolError> {
    debug_assert!(
        is_unframed(&request.head),
        "framing is the client's to write"
    );
    let head = &mut request.head;
    if !request.preface.is_empty() && !request.may_upgrade {
        head.extend_from_slice(blocks, b"Connection: close\r\n")?;
    }
    match request.body {
        Framing::None => head.extend_from_slice(blocks, b"\r\n"),
        Framing::Length(length) => {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            head.extend_from_slices(blocks, [b"Content-Length: ", length, b"\r\n\r\n"])
        }
        Framing::Chunked | Framing::UntilClose => {
            head.extend_from_slice(blocks, b"Transfer-Encoding: chunked\r\n\r\n")
        }
    }
}

/// Whether each line ends in CRLF, and none of them frames the body.
fn is_unframed(head: &[u8]) -> bool {
    let mut lines = head.split_inclusive(|&byte| byte == b'\n');
    lines.all(|line| {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        let is_framing = name.eq_ignore_ascii_case(b"content-length")
            || name.eq_ignore_ascii_case(b"transfer-encoding");
        line.ends_with(b"\r\n") && line.len() > 2 && !is_framing
    })
}

/// How the body of a request goes out.
pub(super) const fn outgoing_of(body: Framing) -> Outgoing {
    match body {
        Framing::None => Outgoing::Finished,
        Framing::Length(0) => Outgoing::Finished,
        Framing::Length(remaining_bytes) => Outgoing::Length { remaining_bytes },
        Framing::Chunked | Framing::UntilClose => Outgoing::Chunked,
    }
}
