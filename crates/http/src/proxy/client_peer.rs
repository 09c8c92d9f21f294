//! Who the client is, as upstreams are told, and whose word about that is taken.
//!
//! On the path: made once for each connection, so that a request copies its text and formats nothing.
//!
//! Absent on purpose: trust in a request's own word unless its peer was named by `--trust`.

use millpond_io::Peer;
use millpond_io::proxy_protocol::{Ends, ProxyHeadText, ProxyProtocol};
use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Addresses whose `Forwarded` and `X-Forwarded-*` are passed on: a network, or all unix sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TrustedPeers {
    /// Whoever connects to a unix socket.
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
    /// Tells many clients apart; the same for equal ones.
    pub(super) salt: u64,
    /// Its word about who it speaks for is taken.
    pub(super) is_trusted: bool,
    /// For upstreams that are told so; `None` of who connected before there was any.
    ends: Option<Ends>,
}

impl ClientPeer {
    /// Whether requests of both are told of in the same words. `ends` are told before all requests.
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

    /// Whether its word is taken now that these are trusted.
    #[cold]
    pub(super) fn judge(&mut self, trusted: &[TrustedPeers]) {
        let text = std::str::from_utf8(self.text()).unwrap_or_default();
        let peer = match text.parse::<IpAddr>() {
            Ok(address) => Peer::Inet(SocketAddr::new(address, 0)),
            Err(_) => Peer::Unix,
        };
        self.is_trusted = trusted.iter().any(|it| it.has(peer));
    }

    /// The head of the PROXY protocol for a connection in its name.
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

    /// What stands around it in `Forwarded` (RFC 7239 6).
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

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        match text {
            "unix" => Peer::Unix,
            text => Peer::Inet(text.parse().unwrap()),
        }
    }

    /// Goal: networks hold what is in them and nothing else, an IPv4 client of an IPv6 socket too.
    #[test]
    fn networks_are_matched_by_their_bits() {
        for (network, client, expected) in [
            ("10.0.0.0/8", "10.255.0.1:9", true),
            ("10.0.0.0/8", "11.0.0.1:9", false),
            ("10.0.0.0/8", "[::ffff:10.1.2.3]:9", true),
            ("0.0.0.0/0", "1.2.3.4:9", true),
            ("0.0.0.0/0", "[2001:db8::1]:9", false),
            ("127.0.0.1", "127.0.0.1:9", true),
            ("127.0.0.1", "127.0.0.2:9", false),
            ("2001:db8::/33", "[2001:db8:7fff::1]:9", true),
            ("2001:db8::/33", "[2001:db8:8000::1]:9", false),
            ("unix", "unix", true),
            ("unix", "127.0.0.1:9", false),
            ("::/0", "unix", false),
        ] {
            let trusted: TrustedPeers = network.parse().unwrap();
            let client = ClientPeer::new(peer(client), None, &[trusted]);
            assert_eq!(client.is_trusted, expected, "{network} {client}");
        }
    }

    /// Goal: what is no network is refused by name.
    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "localhost",
            "10.0.0.0/-1",
        ] {
            let error = text.parse::<TrustedPeers>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        assert_eq!(
            "10.0.0.1".parse::<TrustedPeers>().unwrap().to_string(),
            "10.0.0.1/32"
        );
    }

    /// Goal: the longest address fits, and IPv6 is quoted as RFC 7239 wants it.
    #[test]
    fn addresses_are_written_as_the_fields_want_them() {
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:1";
        let client = ClientPeer::new(peer(longest), None, &[]);
        assert_eq!(client.text().len(), 39);
        assert_eq!(client.quotes(), [b"\"[".as_slice(), b"]\""]);
        let client = ClientPeer::new(peer("192.0.2.1:5"), None, &[]);
        assert_eq!(
            (client.text(), client.quotes()[0]),
            (b"192.0.2.1".as_slice(), b"".as_slice())
        );
    }
}
