//! A pool's counts and memory, and their check.

use millpond_mempool::PoolStats;

use super::leasing::ParkedList;
use super::{ConnectionPool, Outcome, Owner, PoolKey};

impl ConnectionPool {
    /// Current numbers and counters of a key; zeros for a stale one.
    #[must_use]
    pub fn key_stats(&self, key: PoolKey) -> PoolKeyStats {
        let Some(state) = self.keys.get(key.0) else {
            return PoolKeyStats::default();
        };
        PoolKeyStats {
            leased: state.leased_count,
            parked: state.parked.count,
            opening: state.opening_count,
            waiting: state.waiters.count(),
            is_unresolved: state.naming.is_unresolved(),
            counters: state.counters,
        }
    }

    /// Counters of all keys, removed ones included.
    #[must_use]
    pub fn counters(&self) -> PoolCounters {
        let all = self.keys.iter().map(|(_, state)| &state.counters);
        all.fold(self.counters_before, |sum, counters| sum.plus(counters))
    }

    /// Connections: leased, parked and in the making.
    #[must_use]
    pub const fn connection_count(&self) -> usize {
        self.connection_count
    }

    /// Connections that are parked.
    #[must_use]
    pub const fn parked_count(&self) -> usize {
        self.parked_count
    }

    /// Memory of the pool's that is not in its slabs: the table by slot, and the queues.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.by_slot.capacity() * size_of::<Option<Owner>>()
            + self.outcomes.capacity() * size_of::<Outcome>()
            + self.starved.capacity() * size_of::<PoolKey>()
    }

    /// Calls `visit` with the accounting of each of the pool's slabs.
    pub fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.keys.stats());
        visit(self.links.stats());
        visit(self.openings.stats());
        visit(self.waiters.stats());
    }

    /// Gives back half of the memory that was idle since the last call.
    pub fn trim_pools(&mut self) -> usize {
        self.links.trim() + self.openings.trim() + self.waiters.trim()
    }

    /// Checks every count against what is counted, in O(connections and keys): for tests.
    ///
    /// # Panics
    /// If one is wrong.
    pub fn verify(&self) {
        let mut parked_count = 0;
        for (handle, state) in self.keys.iter() {
            let key = PoolKey(handle);
            let links = self.links.iter().filter(|(_, link)| link.key == key);
            let (parked, leased): (Vec<_>, Vec<_>) = links.partition(|(_, link)| link.is_parked);
            let openings = self.openings.iter().filter(|(_, open)| open.key == key);
            let mut listed = Vec::new();
            let mut next = state.parked.oldest;
            while let Some(handle) = next {
                listed.push(handle);
                next = ParkedList::newer_than(&self.links, handle);
            }
            assert_eq!(
                listed.last().copied(),
                state.parked.newest,
                "the ends of the list"
            );
            assert_eq!(listed.len(), state.parked.count, "the list's own count");
            assert_eq!(parked.len(), state.parked.count, "parked");
            assert_eq!(leased.len(), state.leased_count, "leased");
            assert_eq!(openings.count(), state.opening_count, "in the making");
            assert!(
                state.connection_count() <= state.target.connections_max,
                "the key's cap"
            );
            assert_eq!(
                state.waiters.live_count(&self.waiters),
                state.waiters.count(),
                "waiters"
            );
            parked_count += state.parked.count;
        }
        assert_eq!(self.parked_count, parked_count, "parked in all");
        let connection_count = self.links.len() + self.openings.len();
        assert_eq!(
            self.connection_count, connection_count,
            "connections in all"
        );
        assert!(
            connection_count <= self.config.connections_max,
            "the cap of all"
        );
    }
}

// Counters and current numbers of a pool.

/// Counted since the beginning, for one key or for all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PoolCounters {
    /// Leases of existing connections: parked, or given back while a request waited.
    pub hits: u64,
    /// Leases asked for when none was parked.
    pub misses: u64,
    /// Connections opened.
    pub opened: u64,
    /// Attempts to open one that failed, in all their addresses.
    pub failed: u64,
    /// Leases asked for that no connection might be opened for at once.
    pub waits: u64,
    /// Requests that waited until the deadline passed.
    pub timed_out: u64,
    /// Leases refused since too many waited.
    pub refused: u64,
    /// Parked connections closed to make room for others.
    pub evictions: u64,
    /// Parked connections that their peer ended.
    pub ended_by_peer: u64,
    /// Parked connections closed because their peer sent unsolicited bytes.
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

/// Current numbers and counters of a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PoolKeyStats {
    /// Connections that are leased.
    pub leased: usize,
    /// Connections that wait for a use.
    pub parked: usize,
    /// Connections being opened.
    pub opening: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// The last lookup of its name found no address, and no earlier address is known.
    pub is_unresolved: bool,
    /// Since the key was made.
    pub counters: PoolCounters,
}
