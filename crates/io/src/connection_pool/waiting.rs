//! The queue for connections: in order, each request with a deadline.

use std::collections::VecDeque;

use millpond_mempool::{Handle, PoolError, Slab};

use crate::driver::Driver;
use crate::shard::ShardContext;
use crate::timer_wheel::TimerId;

use super::error::{AcquireError, AcquirePhase};
use super::leasing::{Link, LinkHandle, Outcome, ParkedList, WaiterId};
use super::{ConnectionPool, PoolConfig, PoolKey, SWEEP_TIMER, WAITER_TIMER};

/// One of them.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) key: PoolKey,
    pub(super) token: u64,
    /// Needs a connection of its own.
    pub(super) needs_own_connection: bool,
    timer: Option<TimerId>,
}

/// The waiters of one key. The queue may hold handles of some that have left.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queue: VecDeque<Handle<Waiter>>,
    count: usize,
}

impl Waiters {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many are in the queue: the value `count` must have.
    pub(super) fn live_count(&self, waiters: &Slab<Waiter>) -> usize {
        let live = self
            .queue
            .iter()
            .filter(|handle| waiters.get(**handle).is_some());
        live.count()
    }

    /// One has left the slab: those at the ends of the queue that did are dropped from it.
    fn one_left(&mut self, waiters: &Slab<Waiter>) {
        self.count -= 1;
        let is_gone = |handle: &Handle<Waiter>| waiters.get(*handle).is_none();
        while self.queue.front().is_some_and(is_gone) {
            self.queue.pop_front();
        }
        while self.queue.back().is_some_and(is_gone) {
            self.queue.pop_back();
        }
        // Deadlines in any order could leave the queue long and hollow.
        if self.queue.len() > 2 * self.count + 16 {
            self.queue.retain(|handle| waiters.get(*handle).is_some());
        }
    }
}

impl ConnectionPool {
    pub(super) fn enqueue<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
        token: u64,
        deadline_ns: u64,
        needs_own_connection: bool,
    ) -> Result<WaiterId, PoolError> {
        let handle = self.waiters.insert(Waiter {
            key,
            token,
            needs_own_connection,
            timer: None,
        })?;
        let user = self.timer_user(WAITER_TIMER, handle.to_bits());
        let timer = shard.timers.create(user);
        shard.timers.set(timer, deadline_ns);
        if let Some(waiter) = self.waiters.get_mut(handle) {
            waiter.timer = Some(timer);
        }
        if let Some(state) = self.keys.get_mut(key.0) {
            state.waiters.queue.push_back(handle);
            state.waiters.count += 1;
        }
        Ok(WaiterId(handle))
    }

    /// The request does not want a connection any more. One that is being opened for it goes on, for
    /// the next request. If the outcome is out already, nothing happens: it is to be taken.
    pub fn cancel<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, waiter: WaiterId) {
        self.leave_queue(shard, waiter.0);
    }

    fn leave_queue<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Waiter>,
    ) -> Option<Waiter> {
        let waiter = self.waiters.remove(handle)?;
        if let Some(timer) = waiter.timer {
            shard.timers.remove(timer);
        }
        if let Some(state) = self.keys.get_mut(waiter.key.0) {
            state.waiters.one_left(&self.waiters);
        }
        Some(waiter)
    }

    /// The first in the queue; only of those that take a used connection unless this one is new.
    pub(super) fn next_waiter<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
        is_new: bool,
    ) -> Option<Waiter> {
        let Waiters { queue, count } = &self.keys.get(key.0)?.waiters;
        if *count == 0 {
            return None;
        }
        let waiters = &self.waiters;
        let fits = |waiter: &Waiter| is_new || !waiter.needs_own_connection;
        let handle = queue
            .iter()
            .find(|handle| waiters.get(**handle).is_some_and(fits));
        let handle = *handle?;
        self.leave_queue(shard, handle)
    }

    /// An attempt has failed: the request that waited longest gets the error.
    pub(super) fn fail_first<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
        error: AcquireError,
    ) {
        if let Some(waiter) = self.next_waiter(shard, key, true) {
            self.outcomes.push_back(Outcome {
                token: waiter.token,
                result: Err(error),
            });
        }
    }

    /// No request gets a connection.
    pub(super) fn fail_all<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
        error: &AcquireError,
    ) {
        while let Some(waiter) = self.next_waiter(shard, key, true) {
            self.outcomes.push_back(Outcome {
                token: waiter.token,
                result: Err(error.clone()),
            });
        }
    }

    pub(super) fn waited_too_long<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Waiter>,
    ) {
        let Some(key) = self.waiters.get(handle).map(|waiter| waiter.key) else {
            return;
        };
        let phase = self.phase_of(shard, key, handle);
        let Some(waiter) = self.leave_queue(shard, handle) else {
            return;
        };
        if let Some(state) = self.keys.get_mut(key.0) {
            state.counters.timed_out += 1;
        }
        self.outcomes.push_back(Outcome {
            token: waiter.token,
            result: Err(AcquireError::TimedOut { phase }),
        });
    }

    /// The state of this waiter: the first in the queue get the connections being opened.
    fn phase_of<D: Driver>(
        &self,
        shard: &ShardContext<'_, D>,
        key: PoolKey,
        handle: Handle<Waiter>,
    ) -> AcquirePhase {
        let Some(state) = self.keys.get(key.0) else {
            return AcquirePhase::Queue;
        };
        if state.naming.is_asking() {
            return AcquirePhase::Resolve;
        }
        let live = state.waiters.queue.iter();
        let ahead = live
            .filter(|other| self.waiters.get(**other).is_some())
            .take_while(|other| **other != handle);
        if ahead.count() >= state.opening_count {
            return AcquirePhase::Queue;
        }
        let openings = self.openings.iter().filter(|(_, open)| open.key == key);
        let is_handshaking = openings
            .into_iter()
            .any(|(_, open)| open.is_handshaking(shard));
        match is_handshaking {
            true => AcquirePhase::Tls,
            false => AcquirePhase::Connect,
        }
    }
}

// Both caps: when another connection may be opened, and which one is closed for it.

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
    /// had. One of its own only makes room for a request that wants a connection of its own, or when no other
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

    /// One connection fewer: a request that waits for the key opens another, or one for the cap of all.
    pub(super) fn room_was_made<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) {
        self.advance(shard, key);
        self.feed_starved(shard);
        self.drop_if_done(key);
    }

    /// Lets those go on that the cap of all had stopped, the one stopped first first.
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

// When a connection has served long enough: idle too long, too old, or used too often.

/// Sweeps check every parked connection, so there are at most four a second.
const SWEEP_INTERVAL_NS: u64 = 250_000_000;

/// When parked connections are checked next.
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

    /// Whether a returned connection must not be used again.
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

    /// A connection was parked: it is checked no later than when it expires.
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

    /// Closes expired connections, and plans the next check.
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
