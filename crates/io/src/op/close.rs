//! Ending one direction, or learning why both ended.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};

/// Sends a FIN after what was sent; receiving goes on.
pub(crate) fn finish_sending(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    shutdown(socket, Shutdown::Write)
}

/// The error that ended a socket, which the kernel tells once.
pub(crate) fn pending_error(socket: BorrowedFd<'_>) -> Option<Errno> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error),
    }
}
