//! The interface of a server: the trait its handlers implement, and late responses.
//!
//! `server` calls [`Service::call`] for each complete request, in the order the connection sent them. A service
//! responds at once, or returns [`Flow::Pending`] and responds through [`Completions`] when another thread is done;
//! meanwhile that connection waits and the others do not.

use crate::asynchronous::AsyncShard;
use crate::client::{Client, ExchangeEvent, ExchangeId};
use crate::completions::Completions;
use crate::metrics::MetricsText;
use crate::request::Request;
use crate::response::Response;
use millpond_io::{Peer, ShardPools, Waker};
use millpond_mempool::PoolStats;

/// Result of a request's call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    /// The response was sent. If it was not, the server responds with 503.
    Done,
    /// The response, or the rest of it, comes later, through the token. This connection's next
    /// request waits for it.
    Pending,
    /// The exchange goes on in [`Service::stream`] as soon as one of these is there.
    Stream(Interest),
}

/// The treatment of a request whose client has sent a FIN before the response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AfterFin {
    /// It still gets its response: the client may have closed only its sending side.
    Answer,
    /// It is cancelled, as if the connection had failed: [`Service::abandoned`] is called, and the
    /// connection is closed.
    Cancel,
}

/// Events an exchange in parts waits for. Neither: until [`Completions::resume`], as with [`Flow::Pending`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Interest {
    /// The next part of the request's body. As long as this is false nothing is received, so the
    /// client can send no more than the kernel's buffers hold.
    pub body: bool,
    /// Room in the connection's output: earlier bytes have left.
    pub room: bool,
}

impl Interest {
    /// The next part of the request's body.
    pub const BODY: Self = Self {
        body: true,
        room: false,
    };
    /// Room for more of the response's body.
    pub const ROOM: Self = Self {
        body: false,
        room: true,
    };
    /// Whichever comes first.
    pub const BOTH: Self = Self {
        body: true,
        room: true,
    };
}

/// An event of an exchange in parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamEvent<'a> {
    /// The next bytes of the body, chunks taken off: at least one, and no more than
    /// [`Response::room_bytes`], so that writing them back needs no more memory.
    Body(&'a [u8]),
    /// The body is complete.
    BodyEnd {
        /// The trailer section, for [`crate::parse_trailer_fields`]; nearly always empty.
        trailer: &'a [u8],
    },
    /// [`Response::room_bytes`] is how much may be written now.
    Room,
    /// [`Completions::resume`] was called.
    Resumed,
}

/// Names one pending request of one shard. `Copy` and meant to cross threads; one whose connection is gone, or that has
/// its response, matches nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct RequestToken(u64);

impl RequestToken {
    #[inline]
    pub(crate) fn new(slot: u32, sequence: u32) -> Self {
        Self(u64::from(sequence) << 32 | u64::from(slot))
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn sequence(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The token as one integer.
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

/// The shard's resources for a handler.
#[derive(Debug)]
pub struct ServiceContext<'a> {
    /// Memory of the shard. The arena is reset after each request.
    pub pools: &'a mut ShardPools,
    /// Time of the event being handled.
    pub now_ns: u64,
    /// Names this request, for a response after [`Flow::Pending`].
    pub token: RequestToken,
    /// Which shard this is.
    pub shard_index: usize,
    /// User data that the service keeps with the request, e.g. a handle: the value comes back in every later call for
    /// this request. Zero at first.
    pub state: u64,
    /// Under which of [`Service::routes`] the request's duration is counted, by index; the first, unless the service
    /// sets another one in [`Service::call`].
    pub route: u8,
}

/// A server's handlers. One value per shard, on the shard's thread: no locks, no blocking.
pub trait Service {
    /// Responds to one request, or promises to.
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow;

    /// Whether the body of this request, whose head alone is parsed yet, is to come in parts: then `call` has an empty
    /// body, and [`Flow::Stream`] requests the first part. Otherwise `call` waits for all of it, in memory. Called for
    /// every request with a body, before any of it is kept: if `call` gets a body that is not empty, this has returned
    /// false.
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        false
    }

    /// Goes on with an exchange that was [`Flow::Stream`], or [`Flow::Pending`] and resumed.
    fn stream(
        &mut self,
        _event: StreamEvent<'_>,
        _response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        Flow::Done
    }

    /// This exchange is abandoned: its client has gone, or needs no body. Called once at most, instead of any further
    /// call for it; `state` is [`ServiceContext::state`].
    fn abandoned(&mut self, _token: RequestToken, _state: u64) {}

    /// Whether [`Self::client_finished`] is to be called also where the FIN is queued behind bytes that are not
    /// received now, which costs a system call a few times a second for each such connection.
    fn watches_clients(&self) -> bool {
        false
    }

    /// The client of this request, which has no response yet, has sent a FIN: it closed its connection, or its sending
    /// side. Called again when the exchange goes on.
    fn client_finished(&mut self, _token: RequestToken, _state: u64, _now_ns: u64) -> AfterFin {
        AfterFin::Answer
    }

    /// Whether [`Self::accepted`] gets the peer's address, which costs a system call each time.
    fn wants_peers(&self) -> bool {
        false
    }

    /// Whether it also gets the local address: one more.
    fn wants_destinations(&self) -> bool {
        false
    }

    /// A client connected, to `destination` if that was wanted and is known. Its requests have tokens of
    /// this slot, until the next client has it.
    fn accepted(&mut self, _slot: usize, _peer: Peer, _destination: Option<Peer>) {}

    /// All events of a tick are handled: the place to hand batches to other threads.
    fn tick_ended(&mut self) {}

    /// The shard's waker was used: the place to collect what other threads have done.
    fn on_wake(&mut self, _completions: &mut Completions<'_>) {}

    /// The requests that this service makes to other servers, if it makes any: the server drives them and reports them
    /// in [`Self::exchange_event`]. Called once, when the server is made.
    fn client(&self) -> Option<&Client> {
        None
    }

    /// An event of an exchange of [`Self::client`]; `user` is its user data. Borrowed bytes are in the receive buffer.
    /// Other exchanges, and requests that wait for this one, may be continued from here: that makes no nested call.
    fn exchange_event(
        &mut self,
        _id: ExchangeId,
        _user: u64,
        _event: ExchangeEvent<'_>,
        _completions: &mut Completions<'_>,
    ) {
    }

    /// The time set with [`Client::set_next_timer`] has come.
    fn alarm(&mut self, _completions: &mut Completions<'_>) {}

    /// The timers and calls that futures of this service wait for, if it has any: the server drives them.
    fn async_shard(&mut self) -> Option<&mut AsyncShard> {
        None
    }

    /// Calls `visit` with the accounting of every pool of the service's own.
    fn visit_pool_stats(&self, _visit: &mut dyn FnMut(PoolStats)) {}

    /// Gives back half of the pooled memory that was idle since the last call; returns how many
    /// bytes that were. About once a second while anything happens.
    fn trim_pools(&mut self) -> usize {
        0
    }

    /// Whether this request for `/metrics` may get its response from the server, once the peer may read them
    /// ([`crate::MetricsAccess`]). A service with tokens, or with its own route here, returns false.
    fn shows_metrics(&self, _request: &Request<'_>) -> bool {
        true
    }

    /// Names of the routes by which `millpond_http_request_duration_seconds` distinguishes requests, at most
    /// [`crate::ROUTES_MAX`]; see [`ServiceContext::route`]. Without any, the metric has no such label.
    fn routes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Adds this service's lines to `/metrics`. Called on the shard that responds.
    fn write_metrics(&self, _out: &mut MetricsText<'_>) {}

    /// False keeps a stopping shard alive a little longer (until the drain deadline).
    fn can_stop(&self) -> bool {
        true
    }
}

/// Values a shard passes to the service made for it.
#[derive(Clone, Debug)]
pub struct ShardStart {
    /// From 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Makes the shard call [`Service::on_wake`].
    pub waker: Waker,
    /// How the shard's pools work.
    pub pool_mode: millpond_mempool::PoolMode,
}
