//! The bounds of accepting, the same for every driver.

/// Connections taken before others get their turn. Every one is a few microseconds of work.
pub(super) const ACCEPTS_PER_TICK_MAX: usize = 64;

/// Connections taken after the last stop: as many as can have waited.
pub(super) const ACCEPTS_AT_STOP_MAX: usize = 4096;

/// How long accepting rests when descriptors ran out and none of ours is closed.
pub(super) const RETRY_NS: u64 = 50_000_000;

/// User data of the listener's timer; no socket has this id.
pub(super) const RETRY_TIMER_USER: u64 = u64::MAX;
