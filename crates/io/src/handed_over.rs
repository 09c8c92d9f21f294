//! Sockets that the parent process had opened for it, as systemd does for a unit with a
//! `.socket` beside it.
//!
//! Instead of binding. The parent process keeps the sockets open while this process is replaced, so that clients wait
//! and none is refused; and ports below 1024 need no rights here. `LISTEN_PID` is the process they are meant for,
//! `LISTEN_FDS` how many there are, from descriptor 3 on.
//!
//! Several shards take connections from the same socket, in turn, as those of a unix path do. With as many
//! sockets as shards (`ListenStream=` repeated, and `ReusePort=yes`) each has a queue of its own.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};
use rustix::net::{SocketAddrUnix, SocketType, getsockname, sockopt};

use crate::address::Address;
use crate::error::IoError;
use crate::listener::Listener;

/// Behind stdin, stdout and stderr.
const FIRST_FD: RawFd = 3;
/// More is a variable that means something else.
const COUNT_MAX: i32 = 1024;

/// Sockets that listen already. Cheap to clone; closed with the last clone, which leaves those of the
/// process that opened them.
#[derive(Clone, Debug)]
pub struct HandedOver {
    sockets: Arc<Vec<Socket>>,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    address: Address,
}

impl HandedOver {
    /// The sockets handed to this process, by its environment.
    pub fn take() -> Result<Self, IoError> {
        let variable = |name| std::env::var(name).ok();
        let own = std::process::id();
        let count = count_for(own, variable("LISTEN_PID"), variable("LISTEN_FDS"))?;
        Self::from_fd(FIRST_FD, count)
    }

    fn from_fd(first: RawFd, count: i32) -> Result<Self, IoError> {
        let numbers: Vec<RawFd> = (first..first + count).collect();
        Self::of(&numbers)
    }

    /// All of one address: decisions by address, such as what remote clients may request, are valid for each.
    fn of(numbers: &[RawFd]) -> Result<Self, IoError> {
        let sockets = numbers.iter().copied().map(Socket::of);
        let sockets: Vec<Socket> = sockets.collect::<Result<_, _>>()?;
        for (number, socket) in numbers.iter().zip(&sockets) {
            if socket.address != sockets[0].address {
                return Err(IoError::HandedOverUnusable {
                    number: *number,
                    problem: format!(
                        "it listens on {}, the first one on {}, and a server has one address: put a \
                         proxy on the other, or a second server",
                        socket.address, sockets[0].address
                    ),
                });
            }
        }
        Ok(Self {
            sockets: Arc::new(sockets),
        })
    }

    /// Where the first one listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.sockets[0].address
    }

    /// One listener for each of `count` shards.
    pub fn listeners(&self, count: usize) -> Result<Vec<Listener>, IoError> {
        let sockets = self.sockets.len();
        if sockets > count {
            return Err(IoError::TooManyHandedOver {
                sockets,
                shards: count,
            });
        }
        let listener = |socket: &Socket| {
            let fd = socket.fd.try_clone().map_err(|error| IoError::Listen {
                address: socket.address.clone(),
                error: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
            })?;
            Ok(Listener::handed_over(fd, socket.address.clone()))
        };
        self.sockets
            .iter()
            .cycle()
            .take(count)
            .map(listener)
            .collect()
    }
}

/// How many there are for the process `own`.
fn count_for(own: u32, pid: Option<String>, count: Option<String>) -> Result<i32, IoError> {
    let is_ours = pid.and_then(|text| text.parse().ok()) == Some(own);
    let count = count.and_then(|text| text.parse().ok());
    match count {
        Some(count @ 1..=COUNT_MAX) if is_ours => Ok(count),
        _ => Err(IoError::NothingHandedOver),
    }
}

impl Socket {
    /// A copy of the descriptor `number`, with what every socket of ours has. The original stays open: to
    /// close it twice would close a stranger's.
    fn of(number: RawFd) -> Result<Self, IoError> {
        let unusable = |problem: String| IoError::HandedOverUnusable { number, problem };
        let failed = |error: Errno| unusable(error.to_string());
        // SAFETY: the number is only used within this function, where nothing closes descriptors, and for system calls
        // alone, which return EBADF if nothing is open there.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if sockopt::socket_type(fd).map_err(failed)? != SocketType::STREAM {
            return Err(unusable("it is no stream socket".to_owned()));
        }
        if !sockopt::socket_acceptconn(fd).map_err(failed)? {
            return Err(unusable("it does not listen: set Accept=no".to_owned()));
        }
        // Programs that this process starts have no business with it.
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC).map_err(failed)?;
        rustix::io::ioctl_fionbio(fd, true).map_err(failed)?;
        let address = address_of(fd).map_err(failed)?;
        if address.inet().is_some() {
            set(fd).map_err(failed)?;
        }
        let fd = fd
            .try_clone_to_owned()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self { fd, address })
    }
}

fn address_of(fd: impl AsFd) -> Result<Address, Errno> {
    let name = getsockname(fd)?;
    if let Ok(inet) = SocketAddr::try_from(name.clone()) {
        return Ok(Address::Inet(inet));
    }
    let unix = SocketAddrUnix::try_from(name)?;
    let path = unix.path_bytes().map(OsStr::from_bytes);
    // A name without a file; it cannot be connected to by path.
    Ok(Address::Unix(
        path.map_or_else(|| "@".into(), PathBuf::from),
    ))
}

// Options that accepted connections inherit from their listener, set once for all of them.
//
// Place: `listener` binds one, `handed_over` is given one.

/// Bytes of a connection that the kernel buffers beyond those sent. Its own limit is 4 MiB: for a client that stopped
/// reading that is unaccounted memory, and freeing it when the client is dropped delayed all others of the shard by a
/// millisecond. The kernel asks for more when half is left, 50 us at 10 Gbit/s.
const UNSENT_BYTES_MAX: libc::c_int = 128 << 10;

/// A TCP connection on which nothing has come for so long is probed, so often in such intervals, and then
/// fails: a peer that has vanished silently is noticed after two minutes, where the kernel alone
/// would ask after two hours, or never.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Has the kernel probe an idle TCP connection; of a listener, all that it accepts.
pub(crate) fn keep_alive(socket: impl AsFd) -> Result<(), Errno> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    // An emulator without the times has its own.
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES);
    Ok(())
}

/// For TCP alone.
pub(crate) fn set(listener: impl AsFd) -> Result<(), Errno> {
    let listener = listener.as_fd();
    sockopt::set_tcp_nodelay(listener, true)?;
    keep_alive(listener)?;
    let unsent_bytes_max = UNSENT_BYTES_MAX;
    // SAFETY: the descriptor is open, and the option is an int that lives through the call.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const unsent_bytes_max).cast(),
            size_of_val(&unsent_bytes_max) as libc::socklen_t,
        )
    };
    // An emulator without the option still works.
    let _ = outcome;
    Ok(())
}

#[cfg(test)]
#[path = "tests/handed_over.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/inherited.rs"]
mod inherited_tests;
