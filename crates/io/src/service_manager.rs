//! Telling the parent process about its state, by the protocol of systemd's `sd_notify`: a
//! datagram of lines to the socket that `NOTIFY_SOCKET` names.
//!
//! So a unit of `Type=notify` counts as started when connections are accepted, and not before. There is no watchdog:
//! the notifying thread only waits, so its messages would prove nothing about the shards.

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

/// The notifications.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServiceState<'a> {
    /// Connections are accepted; `status` is for people.
    Ready {
        /// One line.
        status: &'a str,
    },
    /// An event that operators have to know; it goes on serving.
    Failing {
        /// One line.
        status: &'a str,
    },
    /// Files are read again; [`Self::Ready`] follows.
    Reloading,
    /// Completes requests under way, then ends.
    Stopping,
}

/// There is an address, but no manager.
#[derive(Debug, thiserror::Error)]
#[error(
    "NOTIFY_SOCKET names {address:?}, which no process reads ({source}): unset it, or start this by systemd"
)]
pub struct ManagerUnreachable {
    address: OsString,
    source: io::Error,
}

impl ServiceManager {
    /// The manager that started this process, if it wants notifications.
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

    /// Sends a notification. A missing manager is no reason to stop serving.
    pub fn tell(&self, state: ServiceState<'_>) {
        let _ = self.socket.send(state.to_string().as_bytes());
    }
}

impl fmt::Display for ServiceState<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { status } => write!(formatter, "READY=1\nSTATUS={status}\n"),
            Self::Failing { status } => writeln!(formatter, "STATUS={status}"),
            // With the time, `Type=notify-reload` can distinguish this reload from the one before.
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
