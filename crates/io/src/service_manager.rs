//! Telling the parent process about its state, by the protocol of systemd's `sd_notify`: a
//! datagram of lines to the socket that `NOTIFY_SOCKET` names.
//!
//! So a unit of `Type=notify` counts as started when connections are accepted, and not before. What
//! it would be fed by, a thread that only waits, says nothing about the shards.

use crate::clock::monotonic_ns;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// A manager that reads nothing for so long has lost interest.
const PATIENCE: Duration = Duration::from_secs(1);

/// The receiver of notifications.
#[derive(Clone, Debug)]
pub struct ServiceManager {
    socket: Arc<UnixDatagram>,
}

/// What it is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServiceState<'a> {
    /// Connections are accepted; `status` is for people.
    Ready {
        /// One line.
        status: &'a str,
    },
    /// Something happened that people have to know; it goes on serving.
    Failing {
        /// One line.
        status: &'a str,
    },
    /// Files are read again; [`Self::Ready`] follows.
    Reloading,
    /// What was asked is answered, then it ends.
    Stopping,
}

/// There is an address, and nobody there.
#[derive(Debug, thiserror::Error)]
#[error(
    "NOTIFY_SOCKET names {address:?}, which no process reads ({source}): unset it, or start this by systemd"
)]
pub struct ManagerUnreachable {
    address: OsString,
    source: io::Error,
}

impl ServiceManager {
    /// The one that started this process, if it wants to be told.
    pub fn from_environment() -> Result<Option<Self>, ManagerUnreachable> {
        let address = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let Some(address) = address else {
            return Ok(None);
        };
        Self::at(&address)
            .map(Some)
            .map_err(|source| ManagerUnreachable { address, source })
    }

    fn at(address: &OsStr) -> io::Result<Self> {
        let address = match address.as_bytes() {
            // Not in the file system.
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket: Arc::new(socket),
        })
    }

    /// Tells it. A manager that has gone is no reason to stop serving.
    pub fn tell(&self, state: ServiceState<'_>) {
        let _ = self.socket.send(state.to_string().as_bytes());
    }
}

impl fmt::Display for ServiceState<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { status } => write!(formatter, "READY=1\nSTATUS={status}\n"),
            Self::Failing { status } => writeln!(formatter, "STATUS={status}"),
            // With the time, `Type=notify-reload` can tell this reload from the one before.
            Self::Reloading => {
                let now_us = monotonic_ns() / 1_000;
                write!(formatter, "RELOADING=1\nMONOTONIC_USEC={now_us}\n")
            }
            Self::Stopping => formatter.write_str("STOPPING=1\n"),
        }
    }
}

#[cfg(test)]
#[path = "tests/service_manager.rs"]
mod tests;
