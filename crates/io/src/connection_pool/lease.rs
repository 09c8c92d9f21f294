//! What whoever asks for a connection gets.

use super::{AcquireError, PoolKey};
use crate::driver::SocketId;
use millpond_mempool::Handle;

/// A connection that is its holder's, until it is given back or discarded. The holder handles its
/// events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// It stands, and nothing of it is unread.
    pub socket: SocketId,
    /// Whose it is.
    pub key: PoolKey,
    /// It was there before it was asked for: its peer may be about to close it.
    pub is_reused: bool,
    /// How often it was leased before.
    pub uses: u32,
    /// What opening it took; nothing for one that was there.
    pub times: OpenTimes,
}

/// What opening a connection took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenTimes {
    /// Looking its name up, for who had to wait for that.
    pub resolve_ns: u64,
    /// Until it stood.
    pub connect_ns: u64,
    /// The TLS handshake.
    pub tls_ns: u64,
}

/// The answer to [`super::ConnectionPool::acquire`].
#[derive(Debug)]
#[must_use = "a lease that is dropped is a connection that is lost"]
pub enum Acquired {
    /// Here it is.
    Lease(Lease),
    /// [`super::ConnectionPool::next_outcome`] will tell.
    Waiting(WaiterId),
    /// There is none.
    Failed(AcquireError),
}

/// Names one who waits, to cancel it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaiterId(pub(super) Handle<super::waiting::Waiter>);

/// What came of a wait.
#[derive(Debug)]
pub struct Outcome {
    /// As given to [`super::ConnectionPool::acquire`].
    pub token: u64,
    /// The lease is to be given back even if nobody wants it any more.
    pub result: Result<Lease, AcquireError>,
}

/// Whose an event was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heard {
    /// The socket is none of this pool's.
    NotOurs,
    /// It was handled: a parked connection, or one that is being opened.
    Ours,
    /// The connection is leased: it is its holder's. After a failure the pool has forgotten it.
    Leased,
}
