//! The bounds of a lingering close, the same for every driver: without them an idler would keep
//! the socket of a connection that nobody serves any more.

/// A peer that takes no byte of the queue for this long is given up.
pub(super) const STALL_NS: u64 = 30_000_000_000;

/// How long the peer has to finish after our FIN.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

/// How much of what the peer still sends is read and thrown away.
pub(super) const DISCARD_BYTES_MAX: u32 = 4 << 20;

/// Sockets whose time to close is over that are closed in one tick: a crowd's is over at once, and
/// closing one is some 10 us. While regulars are about it is one, see `standing`.
pub(super) const CLOSED_LATE_PER_TICK_MAX: usize = 2;
