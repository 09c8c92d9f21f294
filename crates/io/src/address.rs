//! Where to listen or connect: an IP address with port, or the path of a unix socket.
//!
//! Absent on purpose: names resolved behind the caller's back. Parsing takes literal addresses
//! only; [`Address::resolve`] asks the resolver and says so.

use crate::error::IoError;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where to listen or connect.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A unix stream socket at this path.
    Unix(PathBuf),
}

/// Who connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Peer {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A process of this machine; its socket has no name.
    Unix,
}

impl Address {
    /// Like parsing, but a host name is looked up (blocks; the first address found wins).
    pub fn resolve(text: &str) -> Result<Self, IoError> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
        });
        if !has_port {
            return Err(IoError::AddressUnreadable {
                text: text.to_owned(),
            });
        }
        let host_unknown = |reason: String| IoError::HostUnknown {
            text: text.to_owned(),
            reason,
        };
        let mut found = text
            .to_socket_addrs()
            .map_err(|error| host_unknown(error.to_string()))?;
        found
            .next()
            .map(Self::Inet)
            .ok_or_else(|| host_unknown("it has no address".to_owned()))
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
mod tests {
    use super::*;

    /// Goal: what is printed parses back to the same address.
    #[test]
    fn addresses_print_as_they_parse() {
        for text in [
            "127.0.0.1:8080",
            "[::1]:80",
            "unix:/run/pond.sock",
            "0.0.0.0:0",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    /// Goal: nothing that lacks a part is guessed at, and the sentence repeats what was given.
    #[test]
    fn incomplete_addresses_are_refused_with_the_text() {
        for text in [
            "",
            "8080",
            ":8080",
            "127.0.0.1",
            "127.0.0.1:65536",
            "unix:",
            "::1:80x",
            "/a",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(
                error,
                IoError::AddressUnreadable {
                    text: text.to_owned()
                }
            );
            assert!(
                error.to_string().contains(&format!("\"{text}\"")),
                "{error}"
            );
        }
    }

    /// Goal: names need `resolve`; literals pass through it unchanged; nonsense is not looked up.
    #[test]
    fn only_resolve_looks_names_up() {
        assert!("localhost:80".parse::<Address>().is_err());
        let local = Address::resolve("localhost:80").unwrap().inet().unwrap();
        assert!(local.ip().is_loopback() && local.port() == 80, "{local}");
        assert_eq!(
            Address::resolve("unix:/a").unwrap(),
            Address::Unix("/a".into())
        );
        assert!(matches!(
            Address::resolve("localhost"),
            Err(IoError::AddressUnreadable { .. })
        ));
    }
}
