//! The bounds of accepting, the same for every driver.

/// Connections taken after the last stop: as many as can have waited.
pub(super) const ACCEPTS_AT_STOP_MAX: usize = 4096;

/// How long accepting rests when descriptors ran out and none of ours is closed.
pub(super) const RETRY_NS: u64 = 50_000_000;
