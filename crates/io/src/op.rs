//! The operations on sockets, one file each: the system call and what its outcomes mean.
//!
//! Drivers keep the state; an operation keeps none. A ring's form of the same operation belongs
//! beside the call here, so that both drivers agree on what an errno means.

pub(crate) mod send_file;
pub(crate) mod connect;

use std::net::SocketAddr;
use std::time::Duration;

use millpond_mempool::Lease;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags, accept_with, connect_unspec,
    getpeername, getsockname, recv, send, shutdown, sockopt,
};

use crate::address::Peer;

// Handing bytes to the kernel, as many as it takes without waiting.

/// How many of `bytes` the kernel took; fewer than all means that its buffer is full now.
#[inline]
pub(crate) fn send_now(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // A peer that is gone must be an error here, not a signal that ends the process.
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        outcome => outcome,
    }
}

// Taking one connection from a listener's queue.

/// Result of one accept.
pub(crate) enum Accepted<C> {
    /// A connection, non-blocking, not inherited by children.
    Connection(C),
    /// The queue is empty.
    NoneWaiting,
    /// This connection died while it waited; the next may be well.
    PeerGone,
    /// No connection can be taken now; the one that waits keeps waiting.
    Exhausted(Errno),
}

pub(crate) fn accept_now(listener: BorrowedFd<'_>) -> Accepted<OwnedFd> {
    match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(fd) => Accepted::Connection(fd),
        Err(Errno::AGAIN) => Accepted::NoneWaiting,
        Err(error) if is_about_one_peer(error) => Accepted::PeerGone,
        Err(error) => Accepted::Exhausted(error),
    }
}

/// The peer; `None` once the connection was reset.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> Option<Peer> {
    getpeername(socket).ok().map(named)
}

/// At which of our addresses it arrived.
pub(crate) fn destination_of(socket: BorrowedFd<'_>) -> Option<Peer> {
    getsockname(socket).ok().map(|address| named(Some(address)))
}

fn named(address: Option<SocketAddrAny>) -> Peer {
    match address.map(SocketAddr::try_from) {
        Some(Ok(inet)) => Peer::Inet(inet),
        _ => Peer::Unix,
    }
}

/// Linux passes network errors of the new connection on through accept(2); its manual page asks
/// to treat them like EAGAIN. Everything else (EMFILE, ENFILE, ENOBUFS, ENOMEM) concerns us.
pub(crate) fn is_about_one_peer(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::PERM
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
            | Errno::OPNOTSUPP
    )
}

// Ending one direction, or learning why both ended.

/// Sends a FIN after what was sent; receiving goes on.
pub(crate) fn finish_sending(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    shutdown(socket, Shutdown::Write)
}

/// Closing it will drop what the peer has not taken, and send a reset instead of a FIN.
pub(crate) fn drop_unsent(socket: BorrowedFd<'_>) {
    // For a socket without resets, such as a unix socket: sent bytes are with the peer.
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

/// The error that ended a socket, which the kernel reports once.
pub(crate) fn pending_error(socket: BorrowedFd<'_>) -> Option<Errno> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error),
    }
}

// Taking what arrived, at most a turn and one buffer full.

/// Result of one receive.
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
