//! Whom a pool connects to, and how much of it is allowed.

use crate::address::Address;
#[cfg(feature = "tls")]
use crate::tls::TlsClient;

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// What holds for all keys of a pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolConfig {
    /// Connections of all keys together: in use, parked and being opened. Beyond it the connection
    /// parked for longest makes room, of another key if there is one.
    pub connections_max: usize,
    /// A parked connection is closed after so long: below the upstream's own limit, so that it is we
    /// who close.
    pub idle_max_ns: u64,
    /// A connection this old is not used again: so that a name's new addresses are noticed.
    pub age_max_ns: u64,
    /// A connection serves so often at most.
    pub uses_max: u32,
    /// From the first attempt until a connection stands, over all addresses of the upstream.
    pub connect_max_ns: u64,
    /// The same with the TLS handshake.
    pub tls_max_ns: u64,
    /// Until the resolver has answered.
    pub resolve_max_ns: u64,
    /// How long one address has before the next is tried beside it (RFC 8305, 5).
    pub stagger_ns: u64,
    /// Tells the pool's timers from others of its shard: one of bits 27 to 31 that no other user of
    /// the shard's timers sets in the lower half of theirs.
    pub timer_mark: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            // nginx keeps its side open for 75 s, haproxy and node for less when they are told so:
            // node's default is 5 s.
            idle_max_ns: 4 * SECOND_NS,
            age_max_ns: 10 * MINUTE_NS,
            uses_max: u32::MAX,
            connect_max_ns: 5 * SECOND_NS,
            tls_max_ns: 10 * SECOND_NS,
            resolve_max_ns: 5 * SECOND_NS,
            stagger_ns: SECOND_NS / 4,
            timer_mark: 1 << 29,
        }
    }
}

/// Where an upstream is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// At these addresses, the best first; they are one and the same server.
    Addresses(Vec<Address>),
    /// Wherever the name leads.
    Name {
        /// The host's name.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// An upstream: its place, what is spoken there, and how many connections it gets.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub place: Place,
    /// TLS, with the identities of both sides, or clear text. The shard's driver must be
    /// [`crate::tls::Tls`].
    #[cfg(feature = "tls")]
    pub tls: Option<TlsClient>,
    /// Connections at most: in use, parked and being opened.
    pub connections_max: usize,
    /// Who may wait for one of them at most.
    pub waiters_max: usize,
}

impl Target {
    /// At one address, in clear text, with room for 256 connections.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Self::new(Place::Addresses(vec![address]))
    }

    /// Wherever a name leads: otherwise as [`Self::at`].
    #[must_use]
    pub fn named(host: &str, port: u16) -> Self {
        Self::new(Place::Name {
            host: host.to_owned(),
            port,
        })
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            #[cfg(feature = "tls")]
            tls: None,
            connections_max: 256,
            waiters_max: 1024,
        }
    }

    /// The same, over TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: TlsClient) -> Self {
        self.tls = Some(tls);
        self
    }
}
