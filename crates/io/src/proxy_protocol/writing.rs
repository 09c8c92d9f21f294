//! A head for a connection of our own.

use super::{
    Ends, ProxyProtocol, SIGNATURE, V1_BYTES_MAX, V2_FIXED_BYTES, V2_LOCAL, V2_PROXY, V2_TCP4,
    V2_TCP6, V2_UNSPECIFIED,
};
use crate::address::Peer;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// A head, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ProxyHeadText {
    bytes: [u8; V1_BYTES_MAX],
    length: usize,
}

impl ProxyHeadText {
    /// For a connection that is passed on for a client. Of a client on a unix socket, who has no
    /// address that means anything elsewhere, it says that it is unknown.
    #[must_use]
    pub fn passed_on(version: ProxyProtocol, ends: Ends) -> Self {
        let ends = match (ends.source, ends.destination) {
            (Peer::Inet(source), Peer::Inet(destination)) => Some(alike(source, destination)),
            _ => None,
        };
        match version {
            ProxyProtocol::V1 => Self::v1(ends),
            ProxyProtocol::V2 => Self::v2(V2_PROXY, ends),
        }
    }

    /// For a connection that is nobody's but the sender's: a health check. Version 1 has no word for
    /// it, so it says that the client is unknown.
    #[must_use]
    pub fn own(version: ProxyProtocol) -> Self {
        match version {
            ProxyProtocol::V1 => Self::v1(None),
            ProxyProtocol::V2 => Self::v2(V2_LOCAL, None),
        }
    }

    /// What is sent before anything else.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn v1(ends: Option<(SocketAddr, SocketAddr)>) -> Self {
        let mut bytes = [0; V1_BYTES_MAX];
        let mut rest = &mut bytes[..];
        let written = match ends {
            None => rest.write_all(b"PROXY UNKNOWN\r\n"),
            Some((from, to)) => {
                let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from_ip, to_ip) = (from.ip(), to.ip());
                let (from_port, to_port) = (from.port(), to.port());
                write!(
                    rest,
                    "PROXY {family} {from_ip} {to_ip} {from_port} {to_port}\r\n"
                )
            }
        };
        debug_assert!(written.is_ok(), "the longest line has 104 bytes");
        let length = V1_BYTES_MAX - rest.len();
        Self { bytes, length }
    }

    fn v2(command: u8, ends: Option<(SocketAddr, SocketAddr)>) -> Self {
        let mut text = Self {
            bytes: [0; V1_BYTES_MAX],
            length: 0,
        };
        let family = match ends {
            None => V2_UNSPECIFIED,
            Some((from, _)) if from.is_ipv4() => V2_TCP4,
            Some(_) => V2_TCP6,
        };
        text.push(&SIGNATURE);
        text.push(&[command, family, 0, 0]);
        if let Some((from, to)) = ends {
            for address in [from, to] {
                match address.ip() {
                    IpAddr::V4(ip) => text.push(&ip.octets()),
                    IpAddr::V6(ip) => text.push(&ip.octets()),
                }
            }
            text.push(&from.port().to_be_bytes());
            text.push(&to.port().to_be_bytes());
        }
        // At most 36.
        text.bytes[V2_FIXED_BYTES - 1] = (text.length - V2_FIXED_BYTES) as u8;
        text
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes[self.length..][..part.len()].copy_from_slice(part);
        self.length += part.len();
    }
}

/// Both in one family: a head names one for the two of them.
fn alike(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let (from, to) = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => (from, to),
        _ => (mapped(from), mapped(to)),
    };
    let at = |ip, port| SocketAddr::new(ip, port);
    (at(from, source.port()), at(to, destination.port()))
}

fn mapped(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
        IpAddr::V6(_) => ip,
    }
}
