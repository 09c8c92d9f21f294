//! Handing bytes to the kernel, as many as it takes without waiting.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// How many of `bytes` the kernel took; fewer than all means that its buffer is full now.
#[inline]
pub(crate) fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // A peer that is gone must be an error here, not a signal that ends the process.
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        outcome => outcome,
    }
}
