//! Starting a connection and learning how it ended.
#![allow(unsafe_code)]

use crate::address::Address;
use crate::error::IoError;
use crate::handed_over::keep_alive;
use crate::listener::{inet_family, stream_socket, unix_name};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, bind, connect, sockopt};
use std::net::{IpAddr, SocketAddr};

/// Starts connecting to `address`, from the address `source` of this machine if there is one; a unix socket has none.
/// The inner error comes from the peer or the network; an outer error means that there is no socket.
pub(crate) fn connect_start(
    address: &Address,
    source: Option<IpAddr>,
) -> Result<(OwnedFd, Result<(), Errno>), IoError> {
    let failed = |error| no_socket(address, error);
    let (fd, outcome) = match address {
        Address::Inet(inet) => {
            let fd = stream_socket(inet_family(*inet)).map_err(failed)?;
            sockopt::set_tcp_nodelay(&fd, true).map_err(failed)?;
            keep_alive(&fd).map_err(failed)?;
            if let Some(source) = source {
                bind_without_port(&fd, source)?;
            }
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

/// Binds to an address and leaves the port to the moment of connecting, when ports that lead to
/// other peers can be used again: a port bound beforehand would be taken for all peers.
fn bind_without_port(fd: &OwnedFd, source: IpAddr) -> Result<(), IoError> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option is an int that lives through the call.
    let _ = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    // A kernel without the option has fewer ports; binding still works.
    bind(fd, &SocketAddr::new(source, 0)).map_err(|error| IoError::SourceUnusable {
        source_address: source,
        error,
    })
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
