//! Sockets that whoever started this process had opened for it, as systemd does for a unit with a
//! `.socket` beside it.
//!
//! On the path: in the place of binding. The one who started us keeps the sockets open while this process
//! is replaced, so that clients wait and none is refused; and ports below 1024 need no rights here.
//! `LISTEN_PID` says that they are meant for this process, `LISTEN_FDS` how many there are, from
//! descriptor 3 on.
//!
//! Several shards take connections from the same socket, in turn, as those of a unix path do. With as many
//! sockets as shards (`ListenStream=` repeated, and `ReusePort=yes`) each has a queue of its own.
//!
//! Absent on purpose: names of sockets (`LISTEN_FDNAMES`), since a server has one address, and sockets
//! that do not listen yet, or take connections of another kind.
#![allow(unsafe_code)]

use crate::address::Address;
use crate::error::IoError;
use crate::inherited;
use crate::listener::Listener;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};
use rustix::net::{SocketAddrUnix, SocketType, getsockname, sockopt};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Behind stdin, stdout and stderr.
const FIRST_FD: RawFd = 3;
/// More is a variable that means something else.
const COUNT_MAX: i32 = 1024;

/// Sockets that listen already. Cheap to clone; closed with the last clone, which leaves those of the
/// one who opened them.
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
    /// What the environment says was handed to this process.
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

    /// All of one address: what is decided by it, as what a stranger may ask for, holds for each.
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
        // SAFETY: the number is only used within this function, where nothing closes descriptors, and for
        // system calls alone, which answer EBADF if nothing is open there.
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
            inherited::set(fd).map_err(failed)?;
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
    // A name without a file; nobody connects to it by a path.
    Ok(Address::Unix(
        path.map_or_else(|| "@".into(), PathBuf::from),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    /// Goal: sockets are taken only if the environment means this process, and there are any.
    #[test]
    fn only_what_is_meant_for_us_is_taken() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(count_for(7, text("7"), text("2")), Ok(2));
        for (pid, count) in [
            (None, None),
            (text("8"), text("1")),
            (text("7"), None),
            (text("7"), text("0")),
            (text("7"), text("-1")),
            (text("7"), text("2000000000")),
            (text("x"), text("1")),
        ] {
            let shown = format!("{pid:?} {count:?}");
            let error = count_for(7, pid, count).unwrap_err();
            assert_eq!(error, IoError::NothingHandedOver, "{shown}");
            assert!(error.to_string().contains("--listen"), "{error}");
        }
    }

    /// Goal: a TCP and a unix socket are taken with their addresses, as listeners for several shards, and
    /// the ones of the one who opened them stay open.
    #[test]
    fn sockets_become_listeners() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(&path).unwrap();
        let taken = HandedOver::from_fd(tcp.as_raw_fd(), 1).unwrap();
        let local = tcp.local_addr().unwrap();
        assert_eq!(taken.address(), &Address::Inet(local));
        let listeners = taken.listeners(3).unwrap();
        assert!(
            listeners
                .iter()
                .all(|one| one.local_address() == taken.address())
        );
        drop((listeners, taken));
        TcpStream::connect(local).unwrap();
        let taken = HandedOver::from_fd(unix.as_raw_fd(), 1).unwrap();
        assert_eq!(taken.address(), &Address::Unix(path.clone()));
        drop(taken.listeners(1).unwrap());
        assert!(path.exists(), "the path belongs to the one who made it");
    }

    /// Goal: what is no listening stream socket is refused with its number; so are more sockets than
    /// shards, of which some would never be served.
    #[test]
    fn what_cannot_be_served_is_refused() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let file = tempfile::tempfile().unwrap();
        for (number, part) in [
            (udp.as_raw_fd(), "stream"),
            (stream.as_raw_fd(), "does not listen"),
            (file.as_raw_fd(), "ocket"),
        ] {
            let error = HandedOver::from_fd(number, 1).unwrap_err().to_string();
            assert!(
                error.contains(&format!("descriptor {number} ")) && error.contains(part),
                "{error}"
            );
        }
        let both = HandedOver::of(&[listener.as_raw_fd(); 2]).unwrap();
        let error = both.listeners(1).unwrap_err();
        assert_eq!(
            error,
            IoError::TooManyHandedOver {
                sockets: 2,
                shards: 1
            }
        );
        assert_eq!(both.listeners(2).unwrap().len(), 2);
    }

    /// Goal: sockets of two addresses are refused. Only the first was asked whether strangers reach it, and
    /// one behind a loopback address let anybody make checkpoints.
    #[test]
    fn two_addresses_are_refused() {
        let [one, other] = ["127.0.0.1:0", "127.0.0.2:0"].map(|at| TcpListener::bind(at).unwrap());
        let numbers = [one.as_raw_fd(), one.as_raw_fd(), other.as_raw_fd()];
        let error = HandedOver::of(&numbers).unwrap_err().to_string();
        let [one, other] = [one, other].map(|at| at.local_addr().unwrap().to_string());
        assert!(error.contains(&one) && error.contains(&other), "{error}");
    }
}
