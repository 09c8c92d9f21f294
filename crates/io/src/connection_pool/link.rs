//! One connection of a pool, and the list of those that are parked.
//!
//! Absent on purpose: buffers. A parked connection is this record, its place in the table by slot
//! and what the driver has of a socket.

use super::PoolKey;
use crate::driver::SocketId;
use millpond_mempool::{Handle, Slab};

pub(super) type LinkHandle = Handle<Link>;

/// A connection that stands.
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
    pub(super) is_alone: bool,
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
            is_alone: false,
            newer: None,
            older: None,
        }
    }
}

/// The parked connections of one key, through the links themselves. Invariant: `newest` and `oldest`
/// are both there or neither, and as many links lie between them as `count` says.
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
