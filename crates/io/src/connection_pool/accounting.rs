//! What a pool holds: counts, memory, and whether they are right.

use super::link::ParkedList;
use super::{ConnectionPool, Outcome, Owner, PoolCounters, PoolKey, PoolKeyStats};
use millpond_mempool::PoolStats;

impl ConnectionPool {
    /// What a key holds, and what was counted for it; nothing of a dead one.
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

    /// What was counted for all keys there are and were.
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
