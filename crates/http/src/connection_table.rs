//! The connections of one shard, found by their socket, or by how long they have been idle.
//!
//! Their state lies in a pool; a table from the socket's dense slot to the object is enough to find them, since each
//! connection stores its whole socket id. `Ages` keeps them in the order of their last activity, `AddressCounts` counts
//! them by client.

use std::collections::HashMap;
use std::net::IpAddr;

use millpond_io::{Peer, SocketId};
use millpond_mempool::{Pool, PoolError, PoolMode, PoolStats, Pooled};

use crate::connection::Connection;
use crate::limits::Limits;

/// How many connections a search for the oldest idle one checks. The longest idle among them is found; those beyond are
/// younger, to an epoch.
const SEARCH_COUNT_MAX: usize = 64;

/// How many idle connections are closed at once, and how long the next ones wait then. Many expire together; ending one
/// is some 15 us, and the kernel frees the state of thousands in one go: with 64 at once all other connections waited
/// for a millisecond, and for three after them.
const CLOSED_IDLE_MAX: usize = 4;
const BETWEEN_CLOSED_IDLE_NS: u64 = 1_000_000;

/// Room for as many places as there may be connections is reserved at once, up to this many: untouched memory costs
/// nothing, while tables that grow by copying leave holes behind them.
const PLACES_FIRST_MAX: usize = 1 << 20;

/// The owner of a socket's slot.
type ConnectionSlot = Option<Pooled<Connection>>;

pub(crate) struct Connections {
    pool: Pool<Connection>,
    by_slot: Vec<ConnectionSlot>,
    count: usize,
    ages: Ages,
    addresses: AddressCounts,
    /// An epoch lasts 2^this nanoseconds.
    epoch_shift: u32,
    /// Places to make room for at the first connection.
    places_first: usize,
}

/// State of an idle connection for the search for one to close.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct IdleConnection {
    pub(crate) socket: SocketId,
    pub(crate) since_ns: u64,
}

impl Connections {
    pub(crate) fn new(mode: PoolMode, limits: &Limits) -> Self {
        let shortest_idle_ns = limits.idle_timeout_min_ns.min(limits.idle_timeout_ns);
        Self {
            pool: Pool::new("http_connections", mode),
            by_slot: Vec::new(),
            count: 0,
            ages: Ages::new(),
            addresses: AddressCounts::new(
                limits.connections_per_address_max,
                limits.counts_loopback_addresses,
            ),
            epoch_shift: (shortest_idle_ns / 4).max(1).ilog2(),
            places_first: limits.connections_max.min(PLACES_FIRST_MAX),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the number per client is limited, so that the peer's address is needed.
    pub(crate) fn counts_addresses(&self) -> bool {
        self.addresses.has_cap()
    }

    /// Whether this client has all the connections it may have.
    pub(crate) fn is_full_for(&self, peer: Peer) -> bool {
        self.addresses.is_full(peer)
    }

    pub(crate) fn insert(
        &mut self,
        mut connection: Connection,
        peer: Option<Peer>,
        now_ns: u64,
    ) -> Result<(), PoolError> {
        let slot = connection.socket.slot();
        connection.age_epoch = self.epoch(now_ns);
        if slot >= self.by_slot.len() {
            self.make_places(slot + 1)?;
        }
        debug_assert!(
            self.by_slot[slot].is_none(),
            "a socket leaves its slot first"
        );
        self.by_slot[slot] = Some(self.pool.insert(connection)?);
        self.count += 1;
        self.ages.push(slot);
        if let Some(peer) = peer {
            self.addresses.add(slot, peer);
        }
        Ok(())
    }

    #[cold]
    fn make_places(&mut self, count: usize) -> Result<(), PoolError> {
        let added_count = count - self.by_slot.len();
        let room_count = count.max(self.places_first) - self.by_slot.len();
        let requested_bytes = room_count * size_of::<ConnectionSlot>();
        let out_of_memory = PoolError::OutOfMemory { requested_bytes };
        self.by_slot
            .try_reserve(room_count)
            .map_err(|_| out_of_memory)?;
        if !self.ages.make_places(added_count, room_count) {
            return Err(out_of_memory);
        }
        self.by_slot.resize_with(count, || None);
        Ok(())
    }

    /// Gives back half of the memory that was not needed since the last call; returns how many
    /// bytes that were. About once a second.
    pub(crate) fn trim(&mut self) -> usize {
        let used_count = self.by_slot.iter().rposition(Option::is_some);
        let used_count = used_count.map_or(0, |last| last + 1);
        self.by_slot.truncate(used_count);
        if self.by_slot.len() < self.by_slot.capacity() / 4 {
            let kept_count = (self.by_slot.capacity() / 2).max(self.places_first);
            self.by_slot.shrink_to(kept_count);
        }
        self.ages.truncate(used_count, self.places_first);
        self.pool.trim()
    }

    /// None when the socket is not one of ours (any more).
    #[inline]
    pub(crate) fn get_mut(&mut self, socket: SocketId) -> Option<&mut Connection> {
        let connection = self.get_mut_as_it_is(socket)?;
        connection.is_known_plain = false;
        Some(connection)
    }

    /// Like `get_mut`, for a connection that does something.
    #[inline]
    pub(crate) fn get_mut_active(
        &mut self,
        socket: SocketId,
        now_ns: u64,
    ) -> Option<&mut Connection> {
        let connection = self.get_mut_receiving(socket, now_ns)?;
        connection.is_known_plain = false;
        Some(connection)
    }

    /// Like `get_mut_active`, for callers that maintain `is_known_plain`.
    #[inline]
    pub(crate) fn get_mut_receiving(
        &mut self,
        socket: SocketId,
        now_ns: u64,
    ) -> Option<&mut Connection> {
        let epoch = self.epoch(now_ns);
        let connection = self.by_slot.get_mut(socket.slot())?.as_deref_mut()?;
        if connection.socket != socket {
            return None;
        }
        if connection.age_epoch != epoch {
            connection.age_epoch = epoch;
            self.ages.renew(socket.slot());
        }
        Some(connection)
    }

    /// Like `get_mut`, for callers that maintain `is_known_plain`.
    #[inline]
    pub(crate) fn get_mut_as_it_is(&mut self, socket: SocketId) -> Option<&mut Connection> {
        self.at_slot(socket.slot())
            .filter(|connection| connection.socket == socket)
    }

    /// The owner of the slot now.
    #[inline]
    pub(crate) fn get_mut_by_slot(&mut self, slot: usize) -> Option<&mut Connection> {
        let connection = self.at_slot(slot)?;
        connection.is_known_plain = false;
        Some(connection)
    }

    #[inline]
    fn at_slot(&mut self, slot: usize) -> Option<&mut Connection> {
        self.by_slot.get_mut(slot)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, socket: SocketId) -> Option<Connection> {
        self.get_mut(socket)?;
        let slot = socket.slot();
        let connection = self.by_slot[slot].take()?;
        self.count -= 1;
        self.ages.remove(slot);
        self.addresses.remove(slot);
        Some(connection.into_inner())
    }

    /// The connection that has been idle for longest. Busy ones in front of it go to the young
    /// end: they do something right now.
    pub(crate) fn oldest_idle(&mut self) -> Option<IdleConnection> {
        let mut oldest: Option<IdleConnection> = None;
        let mut next = self.ages.oldest();
        for _ in 0..SEARCH_COUNT_MAX {
            let Some(slot) = next else {
                break;
            };
            next = self.ages.younger(slot);
            let Some(connection) = self.at_slot(slot) else {
                break;
            };
            let (socket, since_ns) = (connection.socket, connection.since_ns);
            if !connection.is_idle() {
                self.ages.renew(slot);
            } else if oldest.is_none_or(|found| since_ns < found.since_ns) {
                oldest = Some(IdleConnection { socket, since_ns });
            }
        }
        oldest
    }

    /// When the first in the order was active last: about the longest ago of all.
    pub(crate) fn oldest_activity_ns(&mut self) -> Option<u64> {
        let slot = self.ages.oldest()?;
        self.at_slot(slot).map(|connection| connection.since_ns)
    }

    /// Appends to `found` up to [`CLOSED_IDLE_MAX`] that have been idle for `allowed_ns` or longer, out of the first in
    /// the order. Returns when to check again.
    pub(crate) fn idle_for(
        &mut self,
        allowed_ns: u64,
        now_ns: u64,
        found: &mut Vec<IdleConnection>,
    ) -> Option<u64> {
        let mut due_ns: Option<u64> = None;
        let mut has_busy = false;
        let mut next = self.ages.oldest();
        for _ in 0..SEARCH_COUNT_MAX {
            if found.len() == CLOSED_IDLE_MAX {
                return Some(now_ns.saturating_add(BETWEEN_CLOSED_IDLE_NS));
            }
            let Some(slot) = next else {
                // All were checked. A busy one can exceed its idle time at this time at the earliest.
                return due_ns.or(has_busy.then_some(now_ns.saturating_add(allowed_ns)));
            };
            next = self.ages.younger(slot);
            let Some(connection) = self.at_slot(slot) else {
                break;
            };
            let (socket, since_ns) = (connection.socket, connection.since_ns);
            let overdue_ns = since_ns.saturating_add(allowed_ns);
            if !connection.is_idle() {
                has_busy = true;
                self.ages.renew(slot);
            } else if overdue_ns <= now_ns {
                found.push(IdleConnection { socket, since_ns });
            } else {
                due_ns = Some(due_ns.map_or(overdue_ns, |earlier| earlier.min(overdue_ns)));
            }
        }
        // Those not checked are younger; if none was young, they may be due as well.
        let pause_ns = if found.is_empty() { allowed_ns / 16 } else { 0 };
        Some(due_ns.unwrap_or(now_ns.saturating_add(pause_ns)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.by_slot.iter().flatten().map(|place| &**place)
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.pool.stats()
    }

    #[inline]
    fn epoch(&self, now_ns: u64) -> u16 {
        // One that was active whole rounds ago is taken for active now, once, which only keeps its place.
        (now_ns >> self.epoch_shift) as u16
    }
}

// Connections in the order of their last activity: the one idle for longest is first.
//
// A list through dense slots, 8 bytes for each. A connection moves to the young end when it is active, but at most once
// per epoch (a quarter of a second by default): a request usually costs one comparison here. Two connections active in
// the same epoch may be in either order.

/// No connection: the end of the list.
const NONE: u32 = u32::MAX;

/// A slot that is not in the list.
const UNLISTED: Link = Link {
    older: NONE,
    younger: NONE,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Link {
    older: u32,
    younger: u32,
}

/// Connections in the order of their last activity.
#[derive(Debug)]
struct Ages {
    links: Vec<Link>,
    oldest: u32,
    youngest: u32,
}

impl Ages {
    fn new() -> Self {
        Self {
            links: Vec::new(),
            oldest: NONE,
            youngest: NONE,
        }
    }

    /// Adds so many slots and reserves room for `room_count` at least; false without memory for it.
    fn make_places(&mut self, added_count: usize, room_count: usize) -> bool {
        if self.links.try_reserve(room_count).is_err() {
            return false;
        }
        self.links.resize(self.links.len() + added_count, UNLISTED);
        true
    }

    /// Forgets the places from `count` on, none of which may be listed. The room of `kept_count_min`
    /// stays.
    fn truncate(&mut self, count: usize, kept_count_min: usize) {
        self.links.truncate(count);
        if self.links.len() < self.links.capacity() / 4 {
            let kept_count = (self.links.capacity() / 2).max(kept_count_min);
            self.links.shrink_to(kept_count);
        }
    }

    /// The connection that was active least recently.
    fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest as usize)
    }

    /// The connection after `slot`.
    fn younger(&self, slot: usize) -> Option<usize> {
        let younger = self.links[slot].younger;
        (younger != NONE).then_some(younger as usize)
    }

    /// Puts an unlisted slot at the young end.
    fn push(&mut self, slot: usize) {
        let this = slot as u32;
        self.links[slot] = Link {
            older: self.youngest,
            younger: NONE,
        };
        match self.youngest {
            NONE => self.oldest = this,
            youngest => self.links[youngest as usize].younger = this,
        }
        self.youngest = this;
    }

    fn remove(&mut self, slot: usize) {
        let Link { older, younger } = std::mem::replace(&mut self.links[slot], UNLISTED);
        match older {
            NONE => self.oldest = younger,
            older => self.links[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => self.links[younger as usize].older = older,
        }
    }

    /// Moves a listed slot to the young end.
    fn renew(&mut self, slot: usize) {
        if self.youngest as usize != slot {
            self.remove(slot);
            self.push(slot);
        }
    }
}

// How many connections each address has, so that one client cannot take them all.
//
// An IPv6 client has a whole network of 64 bits to itself, so that network counts as one address.

/// An address or network as one number; no client has zero.
type Key = u128;

/// Counts of open connections by client address.
#[derive(Debug)]
struct AddressCounts {
    count_max: usize,
    counts_loopback: bool,
    counts: HashMap<Key, u32>,
    /// The address each slot is counted for; zero for none.
    keys: Vec<Key>,
}

impl AddressCounts {
    /// `count_max`: `usize::MAX` for no cap. `counts_loopback`: whether it is for loopback addresses too.
    fn new(count_max: usize, counts_loopback: bool) -> Self {
        Self {
            count_max,
            counts_loopback,
            counts: HashMap::new(),
            keys: Vec::new(),
        }
    }

    /// Whether there is anything to count.
    fn has_cap(&self) -> bool {
        self.count_max != usize::MAX
    }

    /// Whether this client has all it may have.
    fn is_full(&self, peer: Peer) -> bool {
        self.key(peer)
            .and_then(|key| self.counts.get(&key))
            .is_some_and(|&count| count as usize >= self.count_max)
    }

    /// Counts a connection. Without memory for it, it goes uncounted: that errs on its side.
    fn add(&mut self, slot: usize, peer: Peer) {
        let Some(key) = self.key(peer) else {
            return;
        };
        if self.keys.len() <= slot {
            let added_count = slot + 1 - self.keys.len();
            if self.keys.try_reserve(added_count).is_err() {
                return;
            }
            self.keys.resize(slot + 1, 0);
        }
        if self.counts.try_reserve(1).is_ok() {
            self.keys[slot] = key;
            *self.counts.entry(key).or_default() += 1;
        }
    }

    fn remove(&mut self, slot: usize) {
        let Some(key) = self.keys.get_mut(slot).map(std::mem::take) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }

    fn key(&self, peer: Peer) -> Option<Key> {
        if !self.has_cap() {
            return None;
        }
        let Peer::Inet(address) = peer else {
            return None;
        };
        Some(match address.ip().to_canonical() {
            ip if ip.is_loopback() && !self.counts_loopback => return None,
            IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => u128::from(v6) >> 64 << 64 | 1,
        })
    }
}

#[cfg(test)]
#[path = "tests/ages.rs"]
mod ages_tests;

#[cfg(test)]
#[path = "tests/addresses.rs"]
mod addresses_tests;
