//! The connections of one shard, found by their socket.
//!
//! Their state lies in a slab; a table from the socket's dense slot to the slab's handle is all
//! that is needed besides, since each connection knows its whole socket id.

use crate::connection::Connection;
use millpond_io::SocketId;
use millpond_mempool::{Handle, PoolError, PoolMode, PoolStats, Slab};

pub(crate) struct Connections {
    slab: Slab<Connection>,
    by_slot: Vec<Option<Handle<Connection>>>,
}

impl Connections {
    pub(crate) fn new(mode: PoolMode) -> Self {
        Self {
            slab: Slab::new("http_connections", mode),
            by_slot: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> Result<(), PoolError> {
        let slot = connection.socket.slot();
        let handle = self.slab.insert(connection)?;
        if slot >= self.by_slot.len() {
            self.make_places(slot + 1).inspect_err(|_| {
                self.slab.remove(handle);
            })?;
        }
        self.by_slot[slot] = Some(handle);
        Ok(())
    }

    #[cold]
    fn make_places(&mut self, count: usize) -> Result<(), PoolError> {
        let added_count = count - self.by_slot.len();
        let requested_bytes = added_count * size_of::<Option<Handle<Connection>>>();
        self.by_slot
            .try_reserve(added_count)
            .map_err(|_| PoolError::OutOfMemory { requested_bytes })?;
        self.by_slot.resize(count, None);
        Ok(())
    }

    /// Gives back half of the memory that was not needed since the last call; returns how many
    /// bytes that were. About once a second.
    pub(crate) fn trim(&mut self) -> usize {
        let used_count = self.by_slot.iter().rposition(Option::is_some);
        self.by_slot.truncate(used_count.map_or(0, |last| last + 1));
        if self.by_slot.len() < self.by_slot.capacity() / 4 {
            self.by_slot.shrink_to(self.by_slot.capacity() / 2);
        }
        self.slab.trim()
    }

    /// None when the socket is not one of ours (any more).
    #[inline]
    pub(crate) fn get_mut(&mut self, socket: SocketId) -> Option<&mut Connection> {
        self.get_mut_by_slot(socket.slot())
            .filter(|connection| connection.socket == socket)
    }

    /// Whoever has the slot now.
    #[inline]
    pub(crate) fn get_mut_by_slot(&mut self, slot: usize) -> Option<&mut Connection> {
        let handle = *self.by_slot.get(slot)?;
        self.slab.get_mut(handle?)
    }

    pub(crate) fn remove(&mut self, socket: SocketId) -> Option<Connection> {
        self.get_mut(socket)?;
        let handle = self.by_slot[socket.slot()].take()?;
        self.slab.remove(handle)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slab.iter().map(|(_, connection)| connection)
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.slab.stats()
    }
}
