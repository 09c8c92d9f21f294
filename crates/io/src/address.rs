//! Where to listen or connect: an IP address with port, or the path of a unix socket.
//!
//! Absent on purpose: names resolved behind the caller's back. Parsing takes literal addresses
//! only; [`Address::resolve`] asks the resolver and says so.

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

/// Who connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Peer {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A process of this machine; its socket has no name.
    Unix,
}

impl Address {
    /// Like parsing, but a host name is looked up (blocks): all of its addresses, at least one, in the order in
    /// which a [`crate::resolver::Resolver`] has them.
    pub fn resolve_all(text: &str) -> Result<Arc<[Self]>, IoError> {
        Self::resolve_all_with(text, system_lookup)
    }

    /// As [`Self::resolve_all`], with another way to look names up.
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

    /// Goal: a name brings all of its addresses, families in turn, and a literal asks nobody.
    #[test]
    fn a_name_brings_all_of_its_addresses() {
        let lookup = |host: &str, port: u16| {
            assert_eq!((host, port), ("two.test", 81));
            Ok(["[::1]:81", "[::2]:81", "127.0.0.1:81", "[::1]:81"]
                .map(|text| text.parse().unwrap())
                .to_vec())
        };
        let found = Address::resolve_all_with("two.test:81", lookup).unwrap();
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["[::1]:81", "127.0.0.1:81", "[::2]:81"]);
        for literal in ["[::1]:80", "127.0.0.1:1", "unix:/a"] {
            let nobody = |_: &str, _: u16| panic!("{literal} was looked up");
            let found = Address::resolve_all_with(literal, nobody).unwrap();
            assert_eq!(found[..], [literal.parse().unwrap()]);
        }
        let error = Address::resolve_all_with("none.test:1", |_, _| Ok(Vec::new())).unwrap_err();
        assert!(error.to_string().contains("has no address"), "{error}");
    }
}
