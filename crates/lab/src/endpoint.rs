//! Where a target listens: addresses, in the lab's network or in one of the target's own.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millpond_io::{Address, NetworkNamespace};

use crate::error::RunError;

/// Bound on one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses and the network that they are in.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// All at which the target may listen; once it serves, those that take connections. Never empty.
    pub(crate) addresses: Arc<[Address]>,
    /// The value of `{port}` for the target: its port, or, with a unix socket, a number of its own.
    pub(crate) port: u16,
    namespace: Option<Arc<NetworkNamespace>>,
}

impl Endpoint {
    /// In the network of the lab.
    pub(crate) fn here(addresses: Arc<[Address]>, port: u16) -> Self {
        Self {
            addresses,
            port,
            namespace: None,
        }
    }

    /// In a network of its own, which is made.
    pub(crate) fn elsewhere(addresses: Arc<[Address]>, port: u16) -> Result<Self, RunError> {
        let namespace = NetworkNamespace::create().map_err(RunError::Network)?;
        Ok(Self {
            namespace: Some(Arc::new(namespace)),
            ..Self::here(addresses, port)
        })
    }

    /// Does `act` in that network: connections that it opens and processes that it starts are there.
    pub(crate) fn within<T>(&self, act: impl FnOnce() -> T) -> Result<T, RunError> {
        match &self.namespace {
            None => Ok(act()),
            Some(namespace) => namespace.within(act).map_err(RunError::Network),
        }
    }

    /// The first of its addresses, for sentences and our own server.
    pub(crate) fn first(&self) -> String {
        self.addresses
            .first()
            .map(Address::to_string)
            .unwrap_or_default()
    }

    /// Those that are IP addresses.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().filter_map(Address::inet)
    }

    /// The unix socket, if it is one.
    pub(crate) fn unix(&self) -> Option<&Path> {
        self.addresses.iter().find_map(|address| match address {
            Address::Unix(path) => Some(path.as_path()),
            Address::Inet(_) => None,
        })
    }

    /// An address at which something accepts connections already. A socket file that an ended server has left is
    /// removed: servers that find one do not start.
    pub(crate) fn taken(&self) -> Result<Option<Address>, RunError> {
        self.within(|| {
            let taken = self
                .addresses
                .iter()
                .find(|address| connects(address).is_ok());
            if taken.is_none()
                && let Some(path) = self.unix()
            {
                remove_stale_socket(path);
            }
            taken.cloned()
        })
    }

    /// Keeps those addresses that take connections, if there are some. A name may have several, and a server listens
    /// on one family alone.
    pub(crate) fn keep_those_that_accept(&mut self) -> Result<(), RunError> {
        if self.addresses.len() < 2 {
            return Ok(());
        }
        let accept: Arc<[Address]> = self.within(|| {
            let addresses = self.addresses.iter();
            addresses
                .filter(|address| connects(address).is_ok())
                .cloned()
                .collect()
        })?;
        if !accept.is_empty() {
            self.addresses = accept;
        }
        Ok(())
    }
}

fn remove_stale_socket(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        // If it stays, the server reports it itself.
        let _ = fs::remove_file(path);
    }
}

/// Whether something accepts a connection at `address`.
pub(crate) fn connects(address: &Address) -> io::Result<()> {
    match address {
        Address::Inet(address) => TcpStream::connect_timeout(address, CONNECT_TIMEOUT).map(drop),
        Address::Unix(path) => UnixStream::connect(path).map(drop),
    }
}

#[cfg(test)]
#[path = "tests/endpoint.rs"]
mod tests;
