//! Taking what arrived, at most a turn and one buffer full.

use millpond_mempool::Lease;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// What one receive found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    /// This many bytes, at least one; they are in the buffer.
    Bytes(usize),
    /// The peer sends no more.
    Finished,
    /// Nothing arrived.
    NotReady,
    /// The connection is gone.
    Failed(Errno),
}

#[inline]
pub(crate) fn receive_now(
    socket: BorrowedFd<'_>,
    buffer: &mut Lease,
    turn_bytes: usize,
) -> Received {
    let filled = buffer.fill_from(|room| {
        let len = room.len().min(turn_bytes);
        let room = &mut room[..len];
        let ((filled, _), _) = recv(socket, room, RecvFlags::empty())?;
        Ok(filled)
    });
    match filled {
        Ok([]) => Received::Finished,
        Ok(bytes) => Received::Bytes(bytes.len()),
        Err(Errno::AGAIN | Errno::INTR) => Received::NotReady,
        Err(error) => Received::Failed(error),
    }
}
