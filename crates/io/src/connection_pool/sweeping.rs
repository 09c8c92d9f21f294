//! When a connection has served long enough: idle too long, too old, or used too often.

use super::link::{Link, LinkHandle, ParkedList};
use super::{ConnectionPool, PoolConfig, PoolKey, SWEEP_TIMER};
use crate::driver::Driver;
use crate::shard::ShardContext;
use crate::timer_wheel::TimerId;

/// Sweeps look at every parked connection, so there are not more than four a second.
const SWEEP_INTERVAL_NS: u64 = 250_000_000;

/// When parked connections are looked at next.
#[derive(Debug)]
pub(super) struct Sweep {
    timer: Option<TimerId>,
    due_ns: u64,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            timer: None,
            due_ns: u64::MAX,
        }
    }
}

impl PoolConfig {
    /// When a parked connection ends.
    pub(super) fn expires_ns(&self, link: &Link) -> u64 {
        let idle_ns = link.parked_ns.saturating_add(self.idle_max_ns);
        idle_ns.min(self.ages_ns(link))
    }

    /// Whether a connection that comes back is not to be used again.
    pub(super) fn is_worn(&self, link: &Link, now_ns: u64) -> bool {
        link.uses >= self.uses_max || now_ns >= self.ages_ns(link)
    }

    /// When a connection is too old.
    fn ages_ns(&self, link: &Link) -> u64 {
        link.opened_ns.saturating_add(self.age_max_ns)
    }
}

impl ConnectionPool {
    pub(super) fn close_expired<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: LinkHandle,
    ) {
        if let Some(link) = self.links.get(handle)
            && let Some(state) = self.keys.get_mut(link.key.0)
        {
            state.counters.expired += 1;
        }
        self.close_link(shard, handle);
    }

    /// A connection was parked: it is looked at no later than when it ends.
    pub(super) fn plan_sweep<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        expires_ns: u64,
    ) {
        if expires_ns < self.sweep.due_ns {
            self.sweep_at(shard, expires_ns);
        }
    }

    fn sweep_at<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, due_ns: u64) {
        let user = self.timer_user(SWEEP_TIMER, 0);
        let timer = self
            .sweep
            .timer
            .get_or_insert_with(|| shard.timers.create(user));
        self.sweep.due_ns = due_ns;
        shard.timers.set(*timer, due_ns);
    }

    /// Closes what has ended, and plans when to look again.
    pub(super) fn sweep<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        self.sweep.due_ns = u64::MAX;
        let mut next_ns = u64::MAX;
        let mut keys_left = self.keys.len();
        let mut index = 0;
        // By place and not by an iterator, which would lend the keys while links are closed.
        while keys_left > 0 {
            let handle = self.keys.handles().nth(index);
            if let Some(handle) = handle {
                next_ns = next_ns.min(self.sweep_key(shard, PoolKey(handle)));
            }
            index += 1;
            keys_left -= 1;
        }
        self.feed_starved(shard);
        if next_ns == u64::MAX {
            return self.end_sweeps(shard);
        }
        self.sweep_at(shard, next_ns.max(shard.now_ns + SWEEP_INTERVAL_NS));
    }

    /// Where nothing is parked there is no timer.
    pub(super) fn end_sweeps<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if self.parked_count == 0
            && let Some(timer) = self.sweep.timer.take()
        {
            self.sweep.due_ns = u64::MAX;
            shard.timers.remove(timer);
        }
    }

    /// When the next of this key's ends.
    fn sweep_key<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, key: PoolKey) -> u64 {
        let mut next_ns = u64::MAX;
        let mut walk = self.keys.get(key.0).and_then(|state| state.parked.oldest);
        while let Some(handle) = walk {
            walk = ParkedList::newer_than(&self.links, handle);
            let link = self.links.get(handle);
            let expires_ns = link.map_or(u64::MAX, |link| self.config.expires_ns(link));
            if expires_ns <= shard.now_ns {
                self.close_expired(shard, handle);
            } else {
                next_ns = next_ns.min(expires_ns);
            }
        }
        next_ns
    }
}
