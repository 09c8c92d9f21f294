//! Ending one direction, or learning why both ended.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{Shutdown, connect_unspec, shutdown, sockopt};
use std::time::Duration;

/// Sends a FIN after what was sent; receiving goes on.
pub(crate) fn finish_sending(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    shutdown(socket, Shutdown::Write)
}

/// Closing it will drop what the peer has not taken, and send a reset in place of a FIN.
pub(crate) fn drop_unsent(socket: BorrowedFd<'_>) {
    // Of a socket that knows no resets, as one of a path: what was sent is with the peer.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Drops what the peer has not taken and sends a reset at once, whatever operations are in flight; the descriptor
/// is still to be closed. A close does the same only when the last operation on the socket has ended, and a
/// shutdown that ends them would send a FIN first.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    drop_unsent(socket);
    // Refused where there is no TCP connection: then nothing is to be reset.
    let _ = connect_unspec(socket);
}

/// Whether the peer has sent a FIN or a reset, whatever bytes are unread before it.
pub(crate) fn has_peer_finished(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    // Errors and hang-ups are reported without being asked for.
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// The error that ended a socket, which the kernel tells once.
pub(crate) fn pending_error(socket: BorrowedFd<'_>) -> Option<Errno> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error),
    }
}
