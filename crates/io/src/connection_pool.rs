//! Outgoing connections of one shard, kept between uses: whatever protocol they carry.
//!
//! A client asks for a connection to a key ([`ConnectionPool::acquire`]), uses it, and gives it back; it is then parked
//! until the next request. The pool is a state machine over the shard's driver and timers: its owner hands it the
//! events of sockets that are not its own, the timers with the pool's mark, and the shard's wakes; results for waiting
//! requests come out of [`ConnectionPool::next_outcome`].
//!
//! ```text
//! acquire -> parked? newest first -> Lease
//!         -> waiter, in order -> room below both caps? -> addresses (resolver) -> opening (race)
//! give_back -> first waiter -> parked: watched, idle limit -> closed        opening -> first waiter
//!
//! naming.rs      peers and limits; from a name to addresses, and how long they hold
//! waiting.rs     the queue for connections, with deadlines; the caps; what has been parked too long, or is worn
//! opening.rs     one connection in the making, over all addresses
//! leasing.rs     to callers and back: what is handed out, one connection, the list of parked ones
//! accounting.rs  hits, misses, waits; memory
//! error.rs       why there is none
//! ```
//!
//! Invariants: connections (leased, parked and in the making) never exceed either cap; a connection
//! is handed out only if nothing arrived on it since it was given back; the oldest request is served
//! first, unless it wants a connection of its own; a lease ends exactly once.

mod leasing;
mod waiting;
mod opening;
mod naming;
mod accounting;
mod error;

pub use crate::resolver::{ResolveError, Resolver, ResolverClient, ResolverConfig};
pub use accounting::{PoolCounters, PoolKeyStats};
pub use error::{AcquireError, AcquirePhase, HandshakeError};
pub use leasing::{Acquired, EventOwner, Lease, OpenTimes, Outcome, WaiterId};
pub use naming::{Endpoint, PoolConfig, Target};

use self::leasing::{Link, LinkHandle, ParkedList};
use self::naming::Naming;
use self::opening::Opening;
use self::waiting::Sweep;
use self::waiting::{Waiter, Waiters};
use crate::driver::{Driver, Event, SocketId};
use crate::shard::ShardContext;
use millpond_mempool::{Handle, PoolError, PoolMode, Slab};
use std::collections::VecDeque;
use std::fmt;

/// Names an upstream of one pool; stale once removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct PoolKey(Handle<KeyState>);

impl PoolKey {
    /// The key as one integer.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The inverse of [`Self::to_bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Handle::from_bits(bits))
    }
}

/// State of one upstream in a pool.
#[derive(Debug)]
struct KeyState {
    target: Target,
    naming: Naming,
    parked: ParkedList,
    leased_count: usize,
    opening_count: usize,
    waiters: Waiters,
    counters: PoolCounters,
    /// No more leases; it goes when nothing of it is left.
    is_removed: bool,
    /// In the list of keys that wait for the cap of all.
    is_starved: bool,
}

impl KeyState {
    fn connection_count(&self) -> usize {
        self.leased_count + self.parked.count + self.opening_count
    }
}

/// The owner of a socket.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Link(LinkHandle),
    Opening(Handle<Opening>),
}

/// The purpose of a pool's timer; with the mark in the lower half of its user data.
const WAITER_TIMER: u32 = 0;
const OPENING_TIMER: u32 = 1;
const NAME_TIMER: u32 = 2;
const SWEEP_TIMER: u32 = 3;
const KIND_SHIFT: u32 = 25;
const INDEX_MASK: u32 = (1 << KIND_SHIFT) - 1;
const MARK_MASK: u32 = !(INDEX_MASK | 3 << KIND_SHIFT);

/// Connections of one shard to its upstreams.
pub struct ConnectionPool {
    config: PoolConfig,
    resolver: Option<ResolverClient>,
    keys: Slab<KeyState>,
    links: Slab<Link>,
    openings: Slab<Opening>,
    waiters: Slab<Waiter>,
    by_slot: Vec<Option<Owner>>,
    outcomes: VecDeque<Outcome>,
    /// Keys with waiters that only the cap of all keeps from opening.
    starved: VecDeque<PoolKey>,
    /// Links and openings.
    connection_count: usize,
    parked_count: usize,
    sweep: Sweep,
    /// Of keys that were removed.
    counters_before: PoolCounters,
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectionPool")
            .field("config", &self.config)
            .field("connection_count", &self.connection_count)
            .finish_non_exhaustive()
    }
}

impl ConnectionPool {
    /// An empty pool. Names need a resolver.
    ///
    /// # Panics
    /// If the timer mark is not one of bits 27 to 31.
    #[must_use]
    pub fn new(config: PoolConfig, mode: PoolMode, resolver: Option<ResolverClient>) -> Self {
        let mark = config.timer_mark;
        assert!(
            mark.is_power_of_two() && mark & MARK_MASK == mark,
            "the timer mark is one of bits 27 to 31, so that it meets no index"
        );
        Self {
            config,
            resolver,
            keys: Slab::new("io_pool_keys", mode),
            links: Slab::new("io_pool_links", mode),
            openings: Slab::new("io_pool_openings", mode),
            waiters: Slab::new("io_pool_waiters", mode),
            by_slot: Vec::new(),
            outcomes: VecDeque::new(),
            starved: VecDeque::new(),
            connection_count: 0,
            parked_count: 0,
            sweep: Sweep::default(),
            counters_before: PoolCounters::default(),
        }
    }

    /// For how long a connection is kept without a use, of those that are parked from now on.
    pub const fn set_idle_max(&mut self, idle_max_ns: u64) {
        self.config.idle_max_ns = idle_max_ns;
    }

    /// How long resolving a name, connecting and the TLS handshake may take each, of those that begin from
    /// now on.
    pub const fn set_open_max(&mut self, open_max_ns: u64) {
        self.config.resolve_max_ns = open_max_ns;
        self.config.connect_max_ns = open_max_ns;
        self.config.tls_max_ns = open_max_ns;
    }

    /// Another upstream. Two keys share nothing, even if their targets are equal.
    pub fn add_key(&mut self, target: Target) -> Result<PoolKey, PoolError> {
        let state = KeyState {
            naming: Naming::new(&target.place),
            target,
            parked: ParkedList::default(),
            leased_count: 0,
            opening_count: 0,
            waiters: Waiters::default(),
            counters: PoolCounters::default(),
            is_removed: false,
            is_starved: false,
        };
        self.keys.insert(state).map(PoolKey)
    }

    /// Closes parked connections and attempts, and fails waiting requests; leased connections are closed when they are
    /// given back.
    pub fn remove_key<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, key: PoolKey) {
        let Some(state) = self.keys.get_mut(key.0) else {
            return;
        };
        state.is_removed = true;
        while let Some(oldest) = self.keys.get(key.0).and_then(|state| state.parked.oldest) {
            self.close_link(shard, oldest);
        }
        self.close_openings(shard, key);
        self.fail_all(shard, key, &AcquireError::Removed);
        self.naming_ends(shard, key);
        self.drop_if_done(key);
        self.feed_starved(shard);
        self.end_sweeps(shard);
    }

    /// The outcomes of waiting requests, oldest first. To be asked after every other call.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// An event of the shard's driver. Events of a leased connection belong to its holder, but its failure must be
    /// reported here too.
    pub fn event<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        event: &Event<'_>,
    ) -> EventOwner {
        let socket = match *event {
            Event::Connected { socket }
            | Event::Received { socket, .. }
            | Event::PeerFinished { socket }
            | Event::Failed { socket, .. }
            | Event::SendBlocked { socket }
            | Event::SendDrained { socket } => socket,
            _ => return EventOwner::NotOurs,
        };
        match self.owner(socket) {
            None => EventOwner::NotOurs,
            Some(Owner::Opening(handle)) => {
                match *event {
                    Event::Connected { .. } => self.connected(shard, handle, socket),
                    Event::Failed { error, .. } => {
                        self.attempt_failed(shard, handle, socket, error);
                    }
                    // A driver reports no other event of a socket before it is connected.
                    _ => {}
                }
                EventOwner::Ours
            }
            Some(Owner::Link(handle)) => self.link_event(shard, handle, event),
        }
    }

    fn link_event<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: LinkHandle,
        event: &Event<'_>,
    ) -> EventOwner {
        let Some(link) = self.links.get(handle) else {
            return EventOwner::NotOurs;
        };
        let (key, is_parked) = (link.key, link.is_parked);
        if is_parked && let Some(state) = self.keys.get_mut(key.0) {
            match event {
                // Bytes of an exchange that counts as over were still to be sent: as bad.
                Event::Received { .. } | Event::SendBlocked { .. } => state.counters.dirty += 1,
                Event::PeerFinished { .. } | Event::Failed { .. } => {
                    state.counters.ended_by_peer += 1;
                }
                _ => return EventOwner::Ours,
            }
        }
        match event {
            // The driver has closed it.
            Event::Failed { .. } => {
                self.forget_link(handle);
                self.room_was_made(shard, key);
            }
            _ if is_parked => {
                self.close_link(shard, handle);
                self.room_was_made(shard, key);
            }
            _ => {}
        }
        match is_parked {
            true => EventOwner::Ours,
            false => EventOwner::Leased,
        }
    }

    /// A timer fired; false when it is none of the pool's.
    pub fn timer_expired<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, user: u64) -> bool {
        let low = user as u32;
        if low & MARK_MASK != self.config.timer_mark {
            return false;
        }
        let bits = user >> 32 << 32 | u64::from(low & INDEX_MASK);
        match low >> KIND_SHIFT & 3 {
            WAITER_TIMER => self.waited_too_long(shard, Handle::from_bits(bits)),
            OPENING_TIMER => self.opening_timer_expired(shard, Handle::from_bits(bits)),
            NAME_TIMER => self.resolved_too_slowly(shard, PoolKey(Handle::from_bits(bits))),
            _ => self.sweep(shard),
        }
        true
    }

    /// User data of a pool's timer.
    fn timer_user(&self, kind: u32, bits: u64) -> u64 {
        debug_assert!(bits as u32 <= INDEX_MASK, "fewer than 2^25 of a kind");
        bits | u64::from(self.config.timer_mark | kind << KIND_SHIFT)
    }

    fn owner(&self, socket: SocketId) -> Option<Owner> {
        let owner = (*self.by_slot.get(socket.slot())?)?;
        let is_his = match owner {
            Owner::Link(handle) => self.links.get(handle)?.socket == socket,
            Owner::Opening(handle) => self.openings.get(handle)?.has_attempt(socket),
        };
        is_his.then_some(owner)
    }

    #[inline]
    fn leased(&self, socket: SocketId) -> Option<(LinkHandle, &Link)> {
        let Owner::Link(handle) = (*self.by_slot.get(socket.slot())?)? else {
            return None;
        };
        let link = self.links.get(handle)?;
        (link.socket == socket && !link.is_parked).then_some((handle, link))
    }

    fn own(&mut self, socket: SocketId, owner: Owner) {
        let slot = socket.slot();
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(owner);
    }

    fn disown(&mut self, socket: SocketId) {
        if let Some(place) = self.by_slot.get_mut(socket.slot()) {
            *place = None;
        }
    }

    fn close_link<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, handle: LinkHandle) {
        if let Some(link) = self.forget_link(handle) {
            shard.driver.close(link.socket);
        }
    }

    fn forget_link(&mut self, handle: LinkHandle) -> Option<Link> {
        let link = self.links.get(handle)?;
        let (key, is_parked) = (link.key, link.is_parked);
        if let Some(state) = self.keys.get_mut(key.0) {
            if is_parked {
                state.parked.remove(&mut self.links, handle);
                self.parked_count -= 1;
            } else {
                state.leased_count -= 1;
            }
        }
        let link = self.links.remove(handle)?;
        self.disown(link.socket);
        self.connection_count -= 1;
        Some(link)
    }

    fn drop_if_done(&mut self, key: PoolKey) {
        let is_done = self.keys.get(key.0).is_some_and(|state| {
            state.is_removed && state.connection_count() == 0 && state.waiters.count() == 0
        });
        if is_done && let Some(state) = self.keys.remove(key.0) {
            self.counters_before = self.counters_before.plus(&state.counters);
        }
    }
}
