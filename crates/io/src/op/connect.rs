//! Starting a connection and learning how it ended.

use crate::address::Address;
use crate::error::IoError;
use crate::listener::{inet_family, stream_socket, unix_name};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, connect, sockopt};

/// Starts connecting to `address`. The inner error is the peer's or network's answer; an outer
/// error means that there is no socket.
pub(crate) fn connect_start(address: &Address) -> Result<(OwnedFd, Result<(), Errno>), IoError> {
    let failed = |error| no_socket(address, error);
    let (fd, outcome) = match address {
        Address::Inet(inet) => {
            let fd = stream_socket(inet_family(*inet)).map_err(failed)?;
            sockopt::set_tcp_nodelay(&fd, true).map_err(failed)?;
            let outcome = connect(&fd, inet);
            (fd, outcome)
        }
        Address::Unix(path) => {
            let name = unix_name(address, path)?;
            let fd = stream_socket(AddressFamily::UNIX).map_err(failed)?;
            let outcome = connect(&fd, &name);
            (fd, outcome)
        }
    };
    match outcome {
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((fd, Ok(()))),
        outcome => Ok((fd, outcome)),
    }
}

/// How the connection attempt of a socket ended that became writable.
pub(crate) fn connect_outcome(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::socket_error(socket).and_then(|outcome| outcome)
}

fn no_socket(address: &Address, error: Errno) -> IoError {
    match error {
        Errno::MFILE | Errno::NFILE => IoError::DescriptorsExhausted {
            address: address.clone(),
        },
        error => IoError::System {
            call: "socket",
            error,
        },
    }
}
