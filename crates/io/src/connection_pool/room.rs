//! Both caps: when another connection may be opened, and who gives way for it.

use super::link::LinkHandle;
use super::{ConnectionPool, PoolKey};
use crate::driver::Driver;
use crate::shard::ShardContext;

impl ConnectionPool {
    /// Opens as many connections as there are waiters without one in the making, as far as both caps
    /// let it.
    pub(super) fn advance<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, key: PoolKey) {
        while let Some(state) = self.keys.get(key.0) {
            if state.is_removed || state.waiters.count() <= state.opening_count {
                return;
            }
            let is_full = state.connection_count() >= state.target.connections_max;
            if is_full || self.connection_count >= self.config.connections_max {
                if !self.make_room(shard, key, is_full) {
                    return;
                }
                continue;
            }
            if !self.open(shard, key) {
                return;
            }
        }
    }

    /// Closes a parked connection for the sake of one to be opened for `key`; false if none is to be
    /// had. One of its own only makes room for who wants a connection to himself, or when no other
    /// key has any.
    fn make_room<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
        is_key_full: bool,
    ) -> bool {
        let own = self.keys.get(key.0).and_then(|state| state.parked.oldest);
        let victim = match is_key_full {
            true => own,
            false => self.oldest_parked_of_others(key).or(own),
        };
        let Some(victim) = victim else {
            if !is_key_full {
                self.starve(key);
            }
            return false;
        };
        if let Some(of) = self.links.get(victim).map(|link| link.key)
            && let Some(state) = self.keys.get_mut(of.0)
        {
            state.counters.evictions += 1;
        }
        self.close_link(shard, victim);
        true
    }

    fn oldest_parked_of_others(&self, key: PoolKey) -> Option<LinkHandle> {
        let others = self.keys.iter().filter(|(handle, _)| *handle != key.0);
        let oldest = others.filter_map(|(_, state)| state.parked.oldest);
        oldest.min_by_key(|handle| self.links.get(*handle).map(|link| link.parked_ns))
    }

    fn starve(&mut self, key: PoolKey) {
        if let Some(state) = self.keys.get_mut(key.0)
            && !std::mem::replace(&mut state.is_starved, true)
        {
            self.starved.push_back(key);
        }
    }

    /// One connection fewer: who waits for the key opens another, or for the cap of all.
    pub(super) fn room_was_made<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) {
        self.advance(shard, key);
        self.feed_starved(shard);
        self.drop_if_done(key);
    }

    /// Lets those go on whom the cap of all had stopped, the one stopped first first.
    pub(super) fn feed_starved<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        for _ in 0..self.starved.len() {
            let has_room = self.connection_count < self.config.connections_max;
            if !has_room && self.parked_count == 0 {
                return;
            }
            let Some(key) = self.starved.pop_front() else {
                return;
            };
            if let Some(state) = self.keys.get_mut(key.0) {
                state.is_starved = false;
                self.advance(shard, key);
            }
        }
    }
}
