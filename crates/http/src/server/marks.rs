//! Connections that need attention when the tick ends: each is listed once, however often it does
//! something.

use crate::connection::Connection;
use millpond_io::SocketId;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) dirty: Vec<SocketId>,
    pub(crate) backlogged: Vec<SocketId>,
}

impl Marks {
    #[inline]
    pub(crate) fn mark_dirty(&mut self, connection: &mut Connection) {
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(connection.socket);
        }
    }

    pub(super) fn mark_backlogged(&mut self, connection: &mut Connection) {
        if !connection.is_backlogged {
            connection.is_backlogged = true;
            self.backlogged.push(connection.socket);
        }
    }
}
