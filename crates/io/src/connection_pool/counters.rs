//! What a pool did, and what it holds.

/// Counted since the beginning, for one key or for all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PoolCounters {
    /// Leases of connections that were there: parked, or given back while somebody waited.
    pub hits: u64,
    /// Leases asked for when none was parked.
    pub misses: u64,
    /// Connections opened.
    pub opened: u64,
    /// Attempts to open one that failed, in all their addresses.
    pub failed: u64,
    /// Leases asked for that no connection might be opened for at once.
    pub waits: u64,
    /// Who waited until the deadline passed.
    pub timed_out: u64,
    /// Leases refused since too many waited.
    pub refused: u64,
    /// Parked connections closed to make room for others.
    pub evictions: u64,
    /// Parked connections that their peer ended.
    pub ended_by_peer: u64,
    /// Parked connections closed because their peer sent something nobody had asked for.
    pub dirty: u64,
    /// Connections closed for their time parked, their age or their uses.
    pub expired: u64,
}

impl PoolCounters {
    /// Both together.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            opened: self.opened + other.opened,
            failed: self.failed + other.failed,
            waits: self.waits + other.waits,
            timed_out: self.timed_out + other.timed_out,
            refused: self.refused + other.refused,
            evictions: self.evictions + other.evictions,
            ended_by_peer: self.ended_by_peer + other.ended_by_peer,
            dirty: self.dirty + other.dirty,
            expired: self.expired + other.expired,
        }
    }
}

/// What a key holds now, and what was counted for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PoolKeyStats {
    /// Connections that are leased.
    pub leased: usize,
    /// Connections that wait for a use.
    pub parked: usize,
    /// Connections being opened.
    pub opening: usize,
    /// Who waits for a connection.
    pub waiting: usize,
    /// Its name was looked up last without finding an address, and none is known from before.
    pub is_unresolved: bool,
    /// Since the key was made.
    pub counters: PoolCounters,
}
