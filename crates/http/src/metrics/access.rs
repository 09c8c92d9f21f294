//! Who may read `/metrics` on the listener that serves everything else.

use crate::request::Request;
use millpond_io::Peer;
use std::str::FromStr;

/// Which peers `GET /metrics` on the main listener is answered for. For all others the path is one of the service's.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MetricsAccess {
    /// Peers on a loopback address or a unix socket, unless a proxy of this machine passes the request on for others.
    #[default]
    Loopback,
    /// Every peer.
    All,
    /// No peer.
    None,
}

impl FromStr for MetricsAccess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "loopback" => Ok(Self::Loopback),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => Err("use loopback, all or none".to_owned()),
        }
    }
}

impl MetricsAccess {
    /// Whether this request may be answered. `peer`: asked only where it matters.
    pub(crate) fn allows(self, request: &Request<'_>, peer: impl FnOnce() -> Option<Peer>) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Loopback => !is_forwarded(request) && peer().is_some_and(is_local),
        }
    }
}

/// A peer that is not known is not local.
fn is_local(peer: Peer) -> bool {
    match peer {
        Peer::Unix => true,
        Peer::Inet(address) => address.ip().to_canonical().is_loopback(),
    }
}

/// Whether the request carries what proxies add when they pass a request on.
fn is_forwarded(request: &Request<'_>) -> bool {
    const NAMES: [&[u8]; 3] = [b"forwarded", b"via", b"x-real-ip"];
    const PREFIX: &[u8] = b"x-forwarded-";
    request.headers().any(|(name, _)| {
        let start = &name[..name.len().min(PREFIX.len())];
        start.eq_ignore_ascii_case(PREFIX) || NAMES.iter().any(|one| name.eq_ignore_ascii_case(one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: loopback in each of its forms is local, and nothing else is.
    #[test]
    fn loopback_is_local() {
        let peer = |text: &str| Peer::Inet(text.parse().unwrap());
        for local in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_local(peer(local)), "{local}");
        }
        assert!(is_local(Peer::Unix));
        for remote in [
            "10.0.0.1:1",
            "[fe80::1]:1",
            "[::ffff:10.0.0.1]:1",
            "0.0.0.0:1",
        ] {
            assert!(!is_local(peer(remote)), "{remote}");
        }
    }
}
