//! Where to listen or connect: an IP address with port, or the path of a unix socket.
//!
//! Parsing takes literal addresses only; [`Address::resolve`] asks the resolver, as documented there.

use crate::error::IoError;
use crate::resolver::{look_up_with, system_lookup};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Where to listen or connect.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A unix stream socket at this path.
    Unix(PathBuf),
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Peer {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A process of this machine; its socket has no name.
    Unix,
}

impl Address {
    /// Like parsing, but resolves a host name (blocks): all of its addresses, at least one, in the order in which a
    /// [`crate::resolver::Resolver`] has them.
    pub fn resolve_all(text: &str) -> Result<Arc<[Self]>, IoError> {
        Self::resolve_all_with(text, system_lookup)
    }

    /// As [`Self::resolve_all`], with another function to resolve names.
    pub fn resolve_all_with(
        text: &str,
        lookup: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
    ) -> Result<Arc<[Self]>, IoError> {
        if let Ok(address) = text.parse::<Self>() {
            return Ok(Arc::new([address]));
        }
        let named = text.rsplit_once(':').and_then(|(host, port)| {
            let is_name = !host.is_empty() && !host.contains('/');
            Some((host, port.parse().ok().filter(|_| is_name)?))
        });
        let Some((host, port)) = named else {
            return Err(IoError::AddressUnreadable {
                text: text.to_owned(),
            });
        };
        look_up_with(host, port, lookup).map_err(|error| IoError::HostUnknown {
            text: text.to_owned(),
            reason: error.to_string(),
        })
    }

    /// The first of [`Self::resolve_all`].
    pub fn resolve(text: &str) -> Result<Self, IoError> {
        Self::resolve_all(text).map(|all| all[0].clone())
    }

    /// The IP address and port, if it is one.
    #[must_use]
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl FromStr for Address {
    type Err = IoError;

    fn from_str(text: &str) -> Result<Self, IoError> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            _ => text
                .parse()
                .map(Self::Inet)
                .map_err(|_| IoError::AddressUnreadable {
                    text: text.to_owned(),
                }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(formatter),
            Self::Unix => formatter.write_str("unix:"),
        }
    }
}

#[cfg(test)]
#[path = "tests/address.rs"]
mod tests;
