//! Every mode a pool can be built in, for tests that promise the same of all of them.
#![allow(dead_code, reason = "each test program needs some of it")]
use millpond_mempool::{Checks, PoolMode, PoolStats};

/// Checked, without guard pages.
pub(crate) const CHECKED: PoolMode = PoolMode::Checked(Checks {
    guard_pages: false,
    fail_at: None,
});
/// Checked, with guard pages.
pub(crate) const GUARDED: PoolMode = PoolMode::Checked(Checks {
    guard_pages: true,
    fail_at: None,
});
/// All of them; no allocation fails on purpose.
pub(crate) const MODES: [PoolMode; 5] = [
    PoolMode::On,
    PoolMode::ArenaOnly,
    PoolMode::Off,
    CHECKED,
    GUARDED,
];

/// Whether each byte is `mark`. One comparison: a loop over them takes Miri minutes.
pub(crate) fn is_filled(bytes: &[u8], mark: u8) -> bool {
    *bytes == vec![mark; bytes.len()]
}

/// Whether the pool takes a block of checked memory for whatever is lent.
pub(crate) fn is_checked(mode: PoolMode) -> bool {
    matches!(mode, PoolMode::Checked(_))
}

/// The part of the figures that counts against a budget: the checks' own memory comes on top.
pub(crate) fn budgeted_bytes(stats: &PoolStats) -> u64 {
    if is_checked(stats.mode) {
        stats.live_bytes
    } else {
        stats.reserved_bytes
    }
}
