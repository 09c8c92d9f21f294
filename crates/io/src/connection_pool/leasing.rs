//! A connection's uses: handed out, given back, and parked between them.
//!
//! A request gets a parked connection, or waits; a returned connection goes to a waiting request, or is parked.

use millpond_mempool::{Handle, Slab};

use crate::driver::{Driver, SocketId};
use crate::shard::ShardContext;

use super::{AcquireError, ConnectionPool, PoolKey};

impl ConnectionPool {
    /// A connection for the caller: a parked one, the one used last first, or a new one, or the promise of one until
    /// `deadline_ns` ([`Self::next_outcome`] reports it, with this `token`). With `needs_own_connection` it is a new
    /// one that is closed after this use.
    pub fn acquire<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
        token: u64,
        deadline_ns: u64,
        needs_own_connection: bool,
    ) -> Acquired {
        // One that is removed has nothing parked.
        if !needs_own_connection && let Some(lease) = self.lease_parked(shard, key) {
            return Acquired::Lease(lease);
        }
        let state = self.keys.get_mut(key.0);
        let Some(state) = state.filter(|state| !state.is_removed) else {
            return Acquired::Failed(AcquireError::Removed);
        };
        state.counters.misses += 1;
        let limit = state.target.waiters_max;
        // A request that waits for a connection of its own is in no queue.
        let openable = state
            .target
            .connections_max
            .saturating_sub(state.leased_count);
        if state.waiters.count() >= limit.saturating_add(openable) {
            state.counters.refused += 1;
            return Acquired::Failed(AcquireError::QueueFull { limit });
        }
        match self.enqueue(shard, key, token, deadline_ns, needs_own_connection) {
            Ok(waiter) => {
                self.advance(shard, key);
                if let Some(state) = self.keys.get_mut(key.0)
                    && state.opening_count < state.waiters.count()
                {
                    state.counters.waits += 1;
                }
                Acquired::Waiting(waiter)
            }
            Err(_) => Acquired::Failed(AcquireError::Local(crate::Errno::NOMEM)),
        }
    }

    /// The newest parked connection that may still be used.
    fn lease_parked<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) -> Option<Lease> {
        loop {
            let state = self.keys.get_mut(key.0)?;
            let handle = state.parked.newest?;
            if self.config.expires_ns(self.links.get(handle)?) <= shard.now_ns {
                self.close_expired(shard, handle);
                continue;
            }
            state.parked.remove(&mut self.links, handle);
            state.leased_count += 1;
            state.counters.hits += 1;
            self.parked_count -= 1;
            return self.lease(handle, true, OpenTimes::default(), false);
        }
    }

    /// Counts a use of a connection that is not parked.
    fn lease(
        &mut self,
        handle: LinkHandle,
        is_reused: bool,
        times: OpenTimes,
        needs_own_connection: bool,
    ) -> Option<Lease> {
        let link = self.links.get_mut(handle)?;
        let uses = link.uses;
        link.uses = uses.saturating_add(1);
        link.needs_own_connection = needs_own_connection;
        Some(Lease {
            socket: link.socket,
            key: link.key,
            is_reused,
            uses,
            times,
        })
    }

    /// Nothing is unread or unsent on this leased connection, and nothing is expected: it may serve
    /// another. Receiving has to be on.
    pub fn give_back<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        let Some((handle, link)) = self.leased(socket) else {
            return;
        };
        let (key, needs_own_connection) = (link.key, link.needs_own_connection);
        let is_worn = self.config.is_worn(link, shard.now_ns);
        let state = self.keys.get(key.0).filter(|state| !state.is_removed);
        let Some(state) = state.filter(|_| !needs_own_connection) else {
            self.close_link(shard, handle);
            return self.room_was_made(shard, key);
        };
        if is_worn {
            self.close_expired(shard, handle);
            self.room_was_made(shard, key);
        } else if state.waiters.count() == 0 {
            // As nearly always; `settle` would find out the same.
            self.park(shard, handle, key);
        } else {
            self.settle(shard, handle, key, true, OpenTimes::default());
        }
    }

    /// Closes a leased connection that is of no more use.
    pub fn discard<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        if let Some((handle, link)) = self.leased(socket) {
            let key = link.key;
            self.close_link(shard, handle);
            self.room_was_made(shard, key);
        }
    }

    /// A connection without a holder: goes to a waiting request, else it is parked.
    pub(super) fn settle<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: LinkHandle,
        key: PoolKey,
        was_used: bool,
        times: OpenTimes,
    ) {
        let Some(waiter) = self.next_waiter(shard, key, !was_used) else {
            return self.park(shard, handle, key);
        };
        if was_used && let Some(state) = self.keys.get_mut(key.0) {
            state.counters.hits += 1;
        }
        if let Some(lease) = self.lease(handle, was_used, times, waiter.needs_own_connection) {
            self.outcomes.push_back(Outcome {
                token: waiter.token,
                result: Ok(lease),
            });
        }
    }

    fn park<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: LinkHandle,
        key: PoolKey,
    ) {
        let Some(state) = self.keys.get_mut(key.0) else {
            return;
        };
        state.leased_count -= 1;
        let has_waiters = state.waiters.count() > 0;
        let parked = state.parked.push(&mut self.links, handle, shard.now_ns);
        let expires_ns = parked.map(|link| self.config.expires_ns(link));
        self.parked_count += 1;
        if let Some(expires_ns) = expires_ns {
            self.plan_sweep(shard, expires_ns);
        }
        // Room may be made of it, for a request that wants a connection of its own, or for another key.
        if has_waiters {
            self.advance(shard, key);
        }
        if !self.starved.is_empty() {
            self.feed_starved(shard);
        }
    }
}

// Result of a request for a connection.

/// A connection that is its holder's, until it is given back or discarded. The holder handles its
/// events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// It is connected, and has no unread bytes.
    pub socket: SocketId,
    /// The key it belongs to.
    pub key: PoolKey,
    /// It was there before it was asked for: its peer may be about to close it.
    pub is_reused: bool,
    /// How often it was leased before.
    pub uses: u32,
    /// Times of opening it; zero for an existing one.
    pub times: OpenTimes,
}

/// Times of opening a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenTimes {
    /// Resolving its name, for requests that had to wait for that.
    pub resolve_ns: u64,
    /// Until it stood.
    pub connect_ns: u64,
    /// The TLS handshake.
    pub tls_ns: u64,
}

/// The result of [`super::ConnectionPool::acquire`].
#[derive(Debug)]
#[must_use = "a lease that is dropped is a connection that is lost"]
pub enum Acquired {
    /// Here it is.
    Lease(Lease),
    /// [`super::ConnectionPool::next_outcome`] will report it.
    Waiting(WaiterId),
    /// There is none.
    Failed(AcquireError),
}

/// Names a waiting request, to cancel it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WaiterId(pub(super) Handle<super::waiting::Waiter>);

/// Result of a wait.
#[derive(Debug)]
pub struct Outcome {
    /// As given to [`super::ConnectionPool::acquire`].
    pub token: u64,
    /// The lease must be given back even if it is not needed any more.
    pub result: Result<Lease, AcquireError>,
}

/// The owner of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventOwner {
    /// The socket is none of this pool's.
    NotOurs,
    /// It was handled: a parked connection, or one that is being opened.
    Ours,
    /// The connection is leased: it is its holder's. After a failure the pool has forgotten it.
    Leased,
}

// One connection of a pool, and the list of those that are parked.

pub(super) type LinkHandle = Handle<Link>;

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: SocketId,
    pub(super) key: PoolKey,
    pub(super) opened_ns: u64,
    /// Meaningful while it is parked.
    pub(super) parked_ns: u64,
    /// How often it was leased.
    pub(super) uses: u32,
    pub(super) is_parked: bool,
    /// Serves one exchange and is closed.
    pub(super) needs_own_connection: bool,
    newer: Option<LinkHandle>,
    older: Option<LinkHandle>,
}

impl Link {
    pub(super) fn new(socket: SocketId, key: PoolKey, now_ns: u64) -> Self {
        Self {
            socket,
            key,
            opened_ns: now_ns,
            parked_ns: 0,
            uses: 0,
            is_parked: false,
            needs_own_connection: false,
            newer: None,
            older: None,
        }
    }
}

/// The parked connections of one key, through the links themselves. Invariant: `newest` and `oldest` are both set or
/// neither, and `count` links are between them, ends included.
#[derive(Debug, Default)]
pub(super) struct ParkedList {
    pub(super) newest: Option<LinkHandle>,
    pub(super) oldest: Option<LinkHandle>,
    pub(super) count: usize,
}

impl ParkedList {
    /// Parks a connection, and lends it.
    pub(super) fn push<'l>(
        &mut self,
        links: &'l mut Slab<Link>,
        handle: LinkHandle,
        now_ns: u64,
    ) -> Option<&'l Link> {
        let older = self.newest;
        match older.and_then(|newest| links.get_mut(newest)) {
            Some(newest) => newest.newer = Some(handle),
            None => self.oldest = Some(handle),
        }
        self.newest = Some(handle);
        self.count += 1;
        let link = links.get_mut(handle)?;
        debug_assert!(!link.is_parked, "parked once");
        link.is_parked = true;
        link.parked_ns = now_ns;
        link.newer = None;
        link.older = older;
        Some(link)
    }

    pub(super) fn remove(&mut self, links: &mut Slab<Link>, handle: LinkHandle) {
        let Some(link) = links.get_mut(handle).filter(|link| link.is_parked) else {
            return;
        };
        link.is_parked = false;
        let (newer, older) = (link.newer.take(), link.older.take());
        match newer.and_then(|newer| links.get_mut(newer)) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match older.and_then(|older| links.get_mut(older)) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        self.count -= 1;
    }

    /// The next newer one, for a walk from the oldest.
    pub(super) fn newer_than(links: &Slab<Link>, handle: LinkHandle) -> Option<LinkHandle> {
        links.get(handle)?.newer
    }
}
