//! Taking one connection from a listener's queue.

use crate::address::Peer;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, accept_with, getpeername, getsockname};
use std::net::SocketAddr;

/// What one accept found.
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

/// Who is at the other end; `None` once that was reset.
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
