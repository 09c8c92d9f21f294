//! What a server is for: the trait its handlers implement, and how late answers find their way.
//!
//! On the path: `server` calls [`Service::call`] for each complete request, in the order the
//! connection sent them. A service answers at once, or returns [`Flow::Pending`] and answers
//! through [`Completions`] when another thread is done; meanwhile that connection waits and the
//! others do not.

use crate::completions::Completions;
use crate::metrics::MetricsText;
use crate::request::Request;
use crate::response::Response;
use millpond_io::{ShardPools, Waker};

/// What became of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    /// The response was sent. If it was not, the server answers 503.
    Done,
    /// The response comes later, through the token. This connection's next request waits for it.
    Pending,
}

/// Names one pending request of one shard. `Copy` and meant to cross threads; one whose connection
/// is gone, or that was answered, matches nothing.
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
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// What a handler may use of its shard.
pub struct ServiceContext<'a> {
    /// Memory of the shard. The arena is reset after each request.
    pub pools: &'a mut ShardPools,
    /// Time of the event being handled.
    pub now_ns: u64,
    /// Names this request, for an answer after [`Flow::Pending`].
    pub token: RequestToken,
    /// Which shard this is.
    pub shard_index: usize,
}

/// A server's handlers. One value per shard, on the shard's thread: no locks, no blocking.
pub trait Service {
    /// Answers one request, or promises to.
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow;

    /// All events of a tick are handled: the place to hand batches to other threads.
    fn tick_ended(&mut self) {}

    /// The shard's waker was used: the place to collect what other threads have done.
    fn woken(&mut self, _completions: &mut Completions<'_>) {}

    /// Adds this service's lines to `/metrics`. Called on the shard that answers.
    fn write_metrics(&self, _out: &mut MetricsText<'_>) {}

    /// False keeps a stopping shard alive a little longer (until the drain deadline).
    fn can_stop(&self) -> bool {
        true
    }
}

/// What a shard tells the service that is made for it.
#[derive(Clone, Debug)]
pub struct ShardStart {
    /// From 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Makes the shard call [`Service::woken`].
    pub waker: Waker,
    /// How the shard's pools work.
    pub pool_mode: millpond_mempool::PoolMode,
}
