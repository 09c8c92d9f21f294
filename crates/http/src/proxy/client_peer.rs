//! The client's address as sent to upstreams, and which peers are trusted about it.
//!
//! Made once for each connection, so that a request copies its text and formats nothing.

use std::fmt;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use millpond_io::Peer;
use millpond_io::connection_pool::{AcquireError, Endpoint, PoolKey};
use millpond_io::proxy_protocol::{Ends, ProxyHeadText, ProxyProtocol};

use crate::client::Client;
use crate::log;
use crate::log::LogLevel;

use super::service::Proxy;

/// Addresses whose `Forwarded` and `X-Forwarded-*` are passed on: a network, or all unix sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TrustedPeers {
    /// Peers that connect to a unix socket.
    Unix,
    /// Addresses that begin with the same bits.
    Network {
        /// Any address of it.
        address: IpAddr,
        /// How many bits.
        prefix_bits: u8,
    },
}

/// Not an address or a network.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no network: write ADDRESS, ADDRESS/BITS or unix")]
pub struct TrustedPeersError {
    text: String,
}

impl FromStr for TrustedPeers {
    type Err = TrustedPeersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        let wrong = || TrustedPeersError {
            text: text.to_owned(),
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            Some(bits) => bits.parse().map_err(|_| wrong())?,
            None => bits_max,
        };
        match prefix_bits <= bits_max {
            true => Ok(Self::Network {
                address,
                prefix_bits,
            }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for TrustedPeers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix => formatter.write_str("unix"),
            Self::Network {
                address,
                prefix_bits,
            } => write!(formatter, "{address}/{prefix_bits}"),
        }
    }
}

impl TrustedPeers {
    fn has(&self, peer: Peer) -> bool {
        match (self, peer) {
            (Self::Unix, Peer::Unix) => true,
            (
                Self::Network {
                    address,
                    prefix_bits,
                },
                Peer::Inet(peer),
            ) => is_in(*address, *prefix_bits, peer.ip().to_canonical()),
            _ => false,
        }
    }
}

fn is_in(network: IpAddr, prefix_bits: u8, address: IpAddr) -> bool {
    // Both as 128 bits, the meaningful ones first.
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let differing = bits(network) ^ bits(address);
    network.is_ipv4() == address.is_ipv4() && differing.leading_zeros() >= u32::from(prefix_bits)
}

/// Longest text of an IPv6 address, with room for brackets and quotes.
const TEXT_BYTES_MAX: usize = 48;

/// One client, ready to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ClientPeer {
    text: [u8; TEXT_BYTES_MAX],
    length: u8,
    is_v6: bool,
    /// Distinguishes clients; the same for equal ones.
    pub(super) salt: u64,
    /// Its fields about its client are trusted.
    pub(super) is_trusted: bool,
    /// For upstreams that get a PROXY header; `None` for connections from before one was configured.
    ends: Option<Ends>,
}

impl ClientPeer {
    /// Whether requests of both get the same fields. `ends` are sent before all requests, not in them.
    #[inline]
    pub(super) fn is_told_like(&self, other: &Self) -> bool {
        self.text() == other.text()
            && self.is_v6 == other.is_v6
            && self.is_trusted == other.is_trusted
    }

    pub(super) fn new(peer: Peer, destination: Option<Peer>, trusted: &[TrustedPeers]) -> Self {
        let mut text = [0; TEXT_BYTES_MAX];
        let mut rest = &mut text[..];
        let mut is_v6 = false;
        // Cannot fail: no address is longer.
        let written = match peer {
            Peer::Inet(address) => {
                let ip = address.ip().to_canonical();
                is_v6 = ip.is_ipv6();
                std::io::Write::write_fmt(&mut rest, format_args!("{ip}"))
            }
            Peer::Unix => std::io::Write::write_all(&mut rest, b"unknown"),
        };
        debug_assert!(written.is_ok());
        let length = TEXT_BYTES_MAX - rest.len();
        Self {
            text,
            length: length as u8,
            is_v6,
            salt: salt_of(&text),
            is_trusted: trusted.iter().any(|it| it.has(peer)),
            ends: destination.map(|destination| Ends {
                source: peer,
                destination,
            }),
        }
    }

    /// Whether its fields are accepted with these trusted networks.
    #[cold]
    pub(super) fn judge(&mut self, trusted: &[TrustedPeers]) {
        let text = std::str::from_utf8(self.text()).unwrap_or_default();
        let peer = match text.parse::<IpAddr>() {
            Ok(address) => Peer::Inet(SocketAddr::new(address, 0)),
            Err(_) => Peer::Unix,
        };
        self.is_trusted = trusted.iter().any(|it| it.has(peer));
    }

    /// The PROXY header for a connection in its name.
    pub(super) fn proxy_head(&self, version: ProxyProtocol) -> ProxyHeadText {
        let unknown = Ends {
            source: Peer::Unix,
            destination: Peer::Unix,
        };
        ProxyHeadText::passed_on(version, self.ends.unwrap_or(unknown))
    }

    /// The address alone, as `X-Forwarded-For` has it.
    pub(super) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }

    /// Delimiters around it in `Forwarded` (RFC 7239 6).
    pub(super) fn quotes(&self) -> [&'static [u8]; 2] {
        match self.is_v6 {
            true => [b"\"[", b"]\""],
            false => [b"", b""],
        }
    }
}

fn salt_of(text: &[u8; TEXT_BYTES_MAX]) -> u64 {
    let words = text.as_chunks::<8>().0;
    words.iter().fold(0, |salt, &word| {
        salt.rotate_left(7) ^ u64::from_le_bytes(word)
    })
}

impl fmt::Display for ClientPeer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text()
            .iter()
            .try_for_each(|&byte| formatter.write_char(char::from(byte)))
    }
}

// Names of upstreams and mirrors: resolved from the start on, and logged when they have no address.
//
// Each shard resolves names for itself, before any request needs them and repeatedly; it reports results to the control
// that all shards share, which logs changes.

/// Time between two resolutions: addresses are valid for 30 s, and their absence for 1 s.
const RESOLVED_CHECK_NS: u64 = 30_000_000_000;
const UNRESOLVED_CHECK_NS: u64 = 2_000_000_000;

/// A shard's results for one name.
#[derive(Debug)]
pub(super) struct NameWatch {
    key: PoolKey,
    is_name: bool,
    is_unresolved: bool,
}

impl NameWatch {
    pub(super) fn new(key: PoolKey, place: &Endpoint) -> Self {
        Self {
            key,
            is_name: matches!(place, Endpoint::Name { .. }),
            is_unresolved: false,
        }
    }

    /// Whether it changed, and why it has no address now.
    fn look(&mut self, client: &Client) -> Option<Option<AcquireError>> {
        if !self.is_name {
            return None;
        }
        let why = client.why_unresolved(self.key);
        let was_unresolved = std::mem::replace(&mut self.is_unresolved, why.is_some());
        (was_unresolved != why.is_some()).then_some(why)
    }
}

/// Names without an address, as some shard has found them.
#[derive(Debug, Default)]
pub(super) struct NameStates {
    unresolved: Mutex<Vec<String>>,
}

impl NameStates {
    /// True: no shard has reported it before.
    fn is_news(&self, name: &str, is_unresolved: bool) -> bool {
        let mut unresolved = self
            .unresolved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = unresolved.iter().position(|known| known == name);
        match (known, is_unresolved) {
            (None, true) => unresolved.push(name.to_owned()),
            (Some(index), false) => drop(unresolved.swap_remove(index)),
            _ => return false,
        }
        true
    }
}

impl Proxy {
    /// Resolves names that are due, and plans the next time.
    pub(super) fn check_names(&mut self, now_ns: u64) {
        let all = self.upstreams.names().chain(self.mirrors.names());
        let mut names = all.map(|(_, name)| name).filter(|it| it.is_name).peekable();
        if names.peek().is_none() {
            return;
        }
        if now_ns >= self.names_due_ns {
            let mut next_ns = RESOLVED_CHECK_NS;
            for name in names {
                self.client.resolve_target(name.key);
                if name.is_unresolved {
                    next_ns = UNRESOLVED_CHECK_NS;
                }
            }
            self.names_due_ns = now_ns.saturating_add(next_ns);
        }
        self.client.set_next_timer(self.names_due_ns);
    }

    /// Reports the results since the last time.
    pub(super) fn tell_names(&mut self) {
        let Self {
            upstreams,
            mirrors,
            client,
            control,
            names_due_ns,
            ..
        } = self;
        let upstreams = upstreams.names().map(|it| ("upstream", it));
        let mirrors = mirrors.names().map(|it| ("mirror", it));
        for (kind, (name, watch)) in upstreams.chain(mirrors) {
            let Some(why) = watch.look(client) else {
                continue;
            };
            if why.is_some() {
                // Sooner than it was planned.
                *names_due_ns = 0;
            }
            if control.names.is_news(name, why.is_some()) {
                tell(kind, name, why.as_ref());
            }
        }
        if self.names_due_ns == 0 {
            let soon_ns = millpond_io::monotonic_ns().saturating_add(UNRESOLVED_CHECK_NS);
            self.names_due_ns = soon_ns;
            self.client.set_next_timer(soon_ns);
        }
    }
}

#[cold]
fn tell(kind: &str, name: &str, why: Option<&AcquireError>) {
    match why {
        Some(why) => log::write_event(
            LogLevel::Warn,
            "name_unresolved",
            1,
            format_args!("{kind} {name}: {why}; it is looked up again every 2 s"),
        ),
        None => log::write_event(
            LogLevel::Info,
            "name_resolved",
            1,
            format_args!("{kind} {name}: its name has an address"),
        ),
    }
}

#[cfg(test)]
#[path = "tests/client_peer.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/names.rs"]
mod names_tests;
