//! The PROXY protocol: who a connection is from, told by the one who passes it on.
//!
//! A balancer that passes TCP connections on hides their clients. With this protocol (haproxy's
//! `proxy-protocol.txt`, versions 1 and 2) it says in a head, before any other byte, between which two
//! addresses the connection was that it passes on.
//!
//! ```text
//! reading.rs   a head out of bytes, strictly
//! writing.rs   a head for a connection of our own
//! counters.rs  heads and refusals, by kind
//! ```
//!
//! On the path: [`crate::tls::Tls`] awaits a head on what it accepts, below TLS, and reports the socket
//! once it is there; [`crate::connection_pool::Target`] says whether a connection begins with one.
//!
//! Absent on purpose: guessing whether there is a head (whoever may leave it out may also forge it),
//! the meaning of extensions (TLVs), which are checked for their lengths and skipped, and datagrams.

mod counters;
mod reading;
mod writing;

pub use counters::{ProxyHeadCounters, ProxyHeadFailure};
pub use reading::{PROXY_HEAD_BYTES_MAX, ProxyHead, parse_proxy_head};
pub use writing::ProxyHeadText;

use crate::address::Peer;
use std::fmt;
use std::str::FromStr;

/// What every head of version 2 begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// A head of version 2 without addresses.
const V2_FIXED_BYTES: usize = 16;

/// The longest head of version 1, its CRLF included (section 2.1).
const V1_BYTES_MAX: usize = 107;

/// Version and command of version 2: the connection is the sender's own.
const V2_LOCAL: u8 = 0x20;
/// It is passed on for somebody.
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
    /// Who connected.
    pub source: Peer,
    /// To which address.
    pub destination: Peer,
}
