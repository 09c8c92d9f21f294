//! A head out of bytes: nothing is taken that the specification does not allow, and nothing is awaited
//! that cannot come right any more.

use super::{
    Ends, ProxyHeadFailure, ProxyProtocol, SIGNATURE, V1_BYTES_MAX, V2_FIXED_BYTES, V2_LOCAL,
    V2_PROXY, V2_TCP4, V2_TCP6, V2_UNIX, V2_UNSPECIFIED,
};
use crate::address::Peer;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest head that is taken. Version 2 could announce 64 KiB; real extensions (the client's
/// certificate, an identity in somebody's cloud) have some hundred bytes, and a head is all that
/// anybody can make this side keep before it is known who speaks.
pub const PROXY_HEAD_BYTES_MAX: usize = 4096;

/// Two unix paths of 108 bytes each.
const UNIX_ADDRESS_BYTES: usize = 216;

/// What a head says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProxyHead {
    /// In which version it is written.
    pub version: ProxyProtocol,
    /// Between whom the connection was. `None`: the connection's own ends hold, because it is the
    /// sender's own (a health check) or the sender does not know better.
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

/// What a line without its CRLF tells; `None` if it is malformed.
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
    // As soon as it is there: what is wrong is not awaited.
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
        // Whatever the rest says: the sender speaks for itself.
        V2_LOCAL => None,
        _ => ends_of_block(fixed[13], told)?,
    };
    Ok(Some(ProxyHead {
        version: ProxyProtocol::V2,
        ends,
        head_bytes,
    }))
}

/// What the addresses of a head of version 2 tell, with the extensions behind them.
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
