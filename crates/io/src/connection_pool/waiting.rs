//! Who waits for a connection: in order, each with a deadline.

use super::error::{AcquireError, AcquirePhase};
use super::lease::{Outcome, WaiterId};
use super::{ConnectionPool, PoolKey, WAITER_TIMER};
use crate::driver::Driver;
use crate::shard::ShardContext;
use crate::timer_wheel::TimerId;
use millpond_mempool::{Handle, PoolError, Slab};
use std::collections::VecDeque;

/// One of them.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) key: PoolKey,
    pub(super) token: u64,
    /// Wants a connection that serves nobody else.
    pub(super) is_alone: bool,
    timer: Option<TimerId>,
}

/// The waiters of one key. The queue may hold handles of some who have left.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queue: VecDeque<Handle<Waiter>>,
    count: usize,
}

impl Waiters {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many of the queue are there: what `count` must be.
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
        is_alone: bool,
    ) -> Result<WaiterId, PoolError> {
        let handle = self.waiters.insert(Waiter {
            key,
            token,
            is_alone,
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

    /// Who asked does not want a connection any more. One that is in the making for him goes on, for
    /// the next who asks. If the outcome is out already, nothing happens: it is to be taken.
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

    /// The first in the queue; only of those who take a used connection unless this one is new.
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
        let fits = |waiter: &Waiter| is_new || !waiter.is_alone;
        let handle = queue
            .iter()
            .find(|handle| waiters.get(**handle).is_some_and(fits));
        let handle = *handle?;
        self.leave_queue(shard, handle)
    }

    /// An attempt has failed: who waited for it longest is told.
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

    /// Nobody gets a connection.
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

    /// What is being done for this waiter: those first in the queue have the connections that are in
    /// the making.
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
