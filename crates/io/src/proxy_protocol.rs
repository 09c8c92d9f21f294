//! The PROXY protocol: a connection's origin, sent by the proxy that passes it on.
//!
//! A balancer that passes TCP connections on hides their clients. With this protocol (haproxy's `proxy-protocol.txt`,
//! versions 1 and 2) it sends a header, before any other byte, with the two addresses of the connection that it passes
//! on.
//!
//! This module writes a header for an outgoing connection, parses one strictly, and counts both. [`crate::tls::Tls`]
//! awaits a header on accepted sockets, below TLS, and reports the socket once it is there;
//! [`crate::connection_pool::Target`] sets whether a connection begins with one.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::address::Peer;

/// The beginning of every version 2 header.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// A head of version 2 without addresses.
const V2_FIXED_BYTES: usize = 16;

/// The longest head of version 1, its CRLF included (section 2.1).
const V1_BYTES_MAX: usize = 107;

/// Version and command of version 2: the connection is the sender's own.
const V2_LOCAL: u8 = 0x20;
/// It is passed on for a client.
const V2_PROXY: u8 = 0x21;

/// Family and transport of version 2.
const V2_UNSPECIFIED: u8 = 0x00;
const V2_TCP4: u8 = 0x11;
const V2_TCP6: u8 = 0x21;
const V2_UNIX: u8 = 0x31;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProxyProtocol {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

impl ProxyProtocol {
    /// As flags and files name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

impl fmt::Display for ProxyProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// No version.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no version of the PROXY protocol: write v1 or v2")]
pub struct ProxyProtocolError {
    text: String,
}

impl FromStr for ProxyProtocol {
    type Err = ProxyProtocolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            _ => Err(ProxyProtocolError {
                text: text.to_owned(),
            }),
        }
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ends {
    /// The client.
    pub source: Peer,
    /// To which address.
    pub destination: Peer,
}

// A head for a connection of our own.

/// A head, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ProxyHeadText {
    bytes: [u8; V1_BYTES_MAX],
    length: usize,
}

impl ProxyHeadText {
    /// For a connection that is passed on for a client. A client on a unix socket, whose address means nothing
    /// elsewhere, is sent as unknown.
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

    /// For a connection that belongs to the sender itself: a health check. Version 1 cannot express it, so the client
    /// is sent as unknown.
    #[must_use]
    pub fn own(version: ProxyProtocol) -> Self {
        match version {
            ProxyProtocol::V1 => Self::v1(None),
            ProxyProtocol::V2 => Self::v2(V2_LOCAL, None),
        }
    }

    /// Bytes sent before all others.
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

// A head out of bytes: nothing is taken that the specification does not allow, and nothing is awaited
// that cannot come right any more.

/// The longest accepted header. Version 2 could announce 64 KiB; real extensions (the client's certificate, a cloud
/// provider's identity) have some hundred bytes, and the header is all that an unknown peer can make this side keep.
pub const PROXY_HEAD_BYTES_MAX: usize = 4096;

/// Two unix paths of 108 bytes each.
const UNIX_ADDRESS_BYTES: usize = 216;

/// Content of a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProxyHead {
    /// In which version it is written.
    pub version: ProxyProtocol,
    /// The two ends of the connection. `None`: the connection's own ends are used, because it is the sender's own (a
    /// health check) or the sender does not know better.
    pub ends: Option<Ends>,
    /// Its length.
    pub head_bytes: usize,
}

/// Reads the head that `bytes` begin with; `None` as long as it is not whole. O(head).
pub fn parse_proxy_head(bytes: &[u8]) -> Result<Option<ProxyHead>, ProxyHeadFailure> {
    if begins_alike(bytes, &SIGNATURE) {
        return parse_v2(bytes);
    }
    if begins_alike(bytes, b"PROXY ") {
        return parse_v1(bytes);
    }
    Err(ProxyHeadFailure::Missing)
}

/// Whether `bytes` begin with `signature`, or may still.
fn begins_alike(bytes: &[u8], signature: &[u8]) -> bool {
    bytes
        .iter()
        .zip(signature)
        .all(|(byte, wanted)| byte == wanted)
}

fn parse_v1(bytes: &[u8]) -> Result<Option<ProxyHead>, ProxyHeadFailure> {
    let within = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(line_bytes) = within.iter().position(|&byte| byte == b'\n') else {
        return match bytes.len() >= V1_BYTES_MAX {
            true => Err(ProxyHeadFailure::TooLong),
            false => Ok(None),
        };
    };
    let line = within[..line_bytes].strip_suffix(b"\r");
    let line = line.and_then(|line| str::from_utf8(line).ok());
    let ends = line.and_then(ends_of_line);
    Ok(Some(ProxyHead {
        version: ProxyProtocol::V1,
        ends: ends.ok_or(ProxyHeadFailure::Malformed)?,
        head_bytes: line_bytes + 1,
    }))
}

/// Content of a line without its CRLF; `None` if it is malformed.
fn ends_of_line(line: &str) -> Option<Option<Ends>> {
    let told = line.strip_prefix("PROXY ")?;
    if told == "UNKNOWN" || told.starts_with("UNKNOWN ") {
        // "The receiver must ignore anything presented before the CRLF is found."
        return Some(None);
    }
    let mut words = told.split(' ');
    let family = words.next()?;
    let parse_ip = |text: &str| match family {
        "TCP4" => text.parse().ok().map(IpAddr::V4),
        "TCP6" => text.parse().ok().map(IpAddr::V6),
        _ => None,
    };
    let (source, destination) = (parse_ip(words.next()?)?, parse_ip(words.next()?)?);
    let (source_port, destination_port) = (port_of(words.next()?)?, port_of(words.next()?)?);
    words.next().is_none().then(|| {
        Some(Ends {
            source: Peer::Inet(SocketAddr::new(source, source_port)),
            destination: Peer::Inet(SocketAddr::new(destination, destination_port)),
        })
    })
}

/// Decimal digits without heading zeroes.
fn port_of(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_heading_zero = text.len() > 1 && text.starts_with('0');
    match is_plain && !has_heading_zero {
        true => text.parse().ok(),
        false => None,
    }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ProxyHead>, ProxyHeadFailure> {
    // As soon as it is detected: an invalid header is not awaited to its end.
    if let Some(&version_and_command) = bytes.get(12)
        && !matches!(version_and_command, V2_LOCAL | V2_PROXY)
    {
        return Err(ProxyHeadFailure::Unsupported);
    }
    let Some(fixed) = bytes.first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(None);
    };
    let head_bytes = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if head_bytes > PROXY_HEAD_BYTES_MAX {
        return Err(ProxyHeadFailure::TooLong);
    }
    let Some(told) = bytes.get(V2_FIXED_BYTES..head_bytes) else {
        return Ok(None);
    };
    let ends = match fixed[12] {
        // Whatever the rest is: the connection is the sender's own.
        V2_LOCAL => None,
        _ => ends_of_block(fixed[13], told)?,
    };
    Ok(Some(ProxyHead {
        version: ProxyProtocol::V2,
        ends,
        head_bytes,
    }))
}

/// The addresses of a version 2 header, with the extensions after them.
fn ends_of_block(family: u8, told: &[u8]) -> Result<Option<Ends>, ProxyHeadFailure> {
    let (ends, extensions) = match family {
        // "The receiver should ignore address information": whatever is there has no known form.
        V2_UNSPECIFIED => return Ok(None),
        V2_TCP4 => {
            let Some((block, rest)) = told.split_first_chunk::<12>() else {
                return Err(ProxyHeadFailure::Malformed);
            };
            let ip =
                |at: usize| Ipv4Addr::new(block[at], block[at + 1], block[at + 2], block[at + 3]);
            (inet_ends(ip(0).into(), ip(4).into(), &block[8..]), rest)
        }
        V2_TCP6 => {
            let Some((block, rest)) = told.split_first_chunk::<36>() else {
                return Err(ProxyHeadFailure::Malformed);
            };
            let ip = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&block[at..at + 16]);
                Ipv6Addr::from(octets)
            };
            (inet_ends(ip(0).into(), ip(16).into(), &block[32..]), rest)
        }
        V2_UNIX => {
            let rest = told.get(UNIX_ADDRESS_BYTES..);
            let ends = Ends {
                source: Peer::Unix,
                destination: Peer::Unix,
            };
            (ends, rest.ok_or(ProxyHeadFailure::Malformed)?)
        }
        _ => return Err(ProxyHeadFailure::Unsupported),
    };
    match are_whole(extensions) {
        true => Ok(Some(ends)),
        false => Err(ProxyHeadFailure::Malformed),
    }
}

/// `ports`: the source's and the destination's, in network order.
fn inet_ends(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Ends {
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Ends {
        source: Peer::Inet(SocketAddr::new(source, port(0))),
        destination: Peer::Inet(SocketAddr::new(destination, port(2))),
    }
}

/// Whether type, length and value follow each other up to the end (section 2.2).
fn are_whole(mut extensions: &[u8]) -> bool {
    while let Some(([_type, high, low], rest)) = extensions.split_first_chunk() {
        let Some(rest) = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) else {
            return false;
        };
        extensions = rest;
    }
    extensions.is_empty()
}

// Results of awaited headers, in numbers.

/// Why a connection ended before its head was whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
#[non_exhaustive]
pub enum ProxyHeadFailure {
    /// The first bytes begin no head.
    Missing,
    /// A head that breaks its own form.
    Malformed,
    /// A version, command or family that is not to be had over a stream.
    Unsupported,
    /// Longer than a line of version 1 may be, or than this side takes of version 2.
    TooLong,
    /// It took too long.
    Timeout,
    /// The peer went away.
    Closed,
    /// As many others were awaited as may be.
    Crowded,
    /// No memory.
    Memory,
}

impl ProxyHeadFailure {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Malformed,
        Self::Unsupported,
        Self::TooLong,
        Self::Timeout,
        Self::Closed,
        Self::Crowded,
        Self::Memory,
    ];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unsupported => "unsupported",
            Self::TooLong => "too_long",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Crowded => "overloaded",
            Self::Memory => "memory",
        }
    }
}

/// Counters since the driver was made, and current numbers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProxyHeadCounters {
    /// Connections whose header is not whole, now.
    pub awaited: u64,
    /// Heads of version 1.
    pub taken_v1: u64,
    /// Heads of version 2.
    pub taken_v2: u64,
    /// Those of both versions without an address: the connection's own is used.
    pub without_address: u64,
    /// Connections refused, in the order of [`ProxyHeadFailure::ALL`].
    pub refused: [u64; ProxyHeadFailure::ALL.len()],
}

impl ProxyHeadCounters {
    /// How many connections were refused for this reason.
    #[must_use]
    pub const fn refused_by(&self, failure: ProxyHeadFailure) -> u64 {
        self.refused[failure as usize]
    }

    #[cfg(feature = "tls")]
    pub(crate) fn took(&mut self, head: &ProxyHead) {
        match head.version {
            ProxyProtocol::V1 => self.taken_v1 += 1,
            ProxyProtocol::V2 => self.taken_v2 += 1,
        }
        self.without_address += u64::from(head.ends.is_none());
    }
}
