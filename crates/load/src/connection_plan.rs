//! How connections come and go: what a caller says about them.
//!
//! Absent on purpose: what is asked on them (`request_mix`, `config`).
use crate::error::LoadError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// When all connections are closed and opened anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reconnect {
    /// After so much time of the window.
    EveryNs(u64),
    /// After so many requests on all of them together.
    EveryRequests(u64),
}

/// Which of a target's addresses connections use. Where one refuses, the next is tried in either case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AddressUse {
    /// In turn over the connections.
    #[default]
    All,
    /// The first alone.
    First,
}

impl FromStr for AddressUse {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "first" => Ok(Self::First),
            _ => Err("write first or all"),
        }
    }
}

/// Everything about connections but their number and their target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionPlan {
    /// A connection is closed after so many requests, and another takes its place; `None`: never.
    pub requests_max: Option<u64>,
    /// Connections come one after the other over this time, from the moment sending begins; 0: all
    /// are there before.
    pub ramp_ns: u64,
    /// Where connections come from, in turn; `None`: the kernel's choice.
    pub sources: Option<SourceRange>,
    /// Which of the target's addresses they use.
    pub addresses: AddressUse,
    /// When all connections are closed and opened anew, outside the clocks; `None`: never.
    pub reconnect: Option<Reconnect>,
}

impl ConnectionPlan {
    /// Refuses what cannot be.
    pub(crate) fn check(&self, connections: usize) -> Result<(), LoadError> {
        self.check_reconnect(connections)?;
        if self.requests_max == Some(0) {
            return Err(LoadError::Setting {
                name: "requests-per-connection",
                problem: "a connection without a request measures nothing".to_owned(),
            });
        }
        Ok(())
    }

    fn check_reconnect(&self, connections: usize) -> Result<(), LoadError> {
        let refuse = |problem: String| {
            Err(LoadError::Setting {
                name: "reconnect-every",
                problem,
            })
        };
        match self.reconnect {
            None => Ok(()),
            Some(_) if self.ramp_ns > 0 => refuse(
                "with a connection ramp the connections would never all be there: leave out one of both".into(),
            ),
            Some(Reconnect::EveryNs(0) | Reconnect::EveryRequests(0)) => {
                refuse("connections that stand for no time and no request measure nothing".into())
            }
            Some(Reconnect::EveryRequests(requests)) if requests < connections as u64 => {
                refuse(format!(
                    "{requests} requests are fewer than the {connections} connections, some of which would \
                     send none: give at least {connections}, better a hundred for each"
                ))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Addresses from `first` on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SourceRange {
    first: IpAddr,
    count: u128,
}

impl SourceRange {
    /// How many addresses they are.
    pub(crate) const fn len(&self) -> u128 {
        self.count
    }

    /// The address at `index`, from the first again after the last.
    pub fn at(&self, index: usize) -> IpAddr {
        let step = index as u128 % self.count;
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(step as u32)).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).wrapping_add(step)).into(),
        }
    }

    fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        let span = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                u128::from(u32::from(last).checked_sub(u32::from(first))?)
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                u128::from(last).checked_sub(u128::from(first))?
            }
            _ => return None,
        };
        Some(Self {
            first,
            count: span.checked_add(1)?,
        })
    }

    /// All addresses of a network but, in IPv4, its own and its broadcast address.
    fn network(address: IpAddr, prefix_bits: u32) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = bits - u32::min(prefix_bits, bits);
        if prefix_bits > bits || host_bits > 64 {
            return None;
        }
        let hosts = (1u128 << host_bits) - 1;
        match address {
            IpAddr::V4(address) => {
                let network = u32::from(address) & !(hosts as u32);
                let (first, last) = (network, network | hosts as u32);
                let has_edges = host_bits >= 2;
                let (first, last) = if has_edges {
                    (first + 1, last - 1)
                } else {
                    (first, last)
                };
                Self::between(Ipv4Addr::from(first).into(), Ipv4Addr::from(last).into())
            }
            IpAddr::V6(address) => {
                let network = u128::from(address) & !hosts;
                let last = Ipv6Addr::from(network | hosts);
                Self::between(Ipv6Addr::from(network).into(), last.into())
            }
        }
    }
}

impl FromStr for SourceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let range = if let Some((first, last)) = text.split_once("..") {
            address(first)
                .zip(address(last))
                .and_then(|(first, last)| Self::between(first, last))
        } else if let Some((network, bits)) = text.split_once('/') {
            let bits = bits.parse().ok();
            address(network)
                .zip(bits)
                .and_then(|(network, bits)| Self::network(network, bits))
        } else {
            address(text).and_then(|only| Self::between(only, only))
        };
        range.ok_or_else(|| {
            "write one address, a range 127.0.0.2..127.0.0.200, or a network 127.1.0.0/16"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_addresses_in_turn() {
        let all = |text: &str, count: usize| -> Vec<String> {
            let range: SourceRange = text.parse().unwrap();
            (0..count)
                .map(|index| range.at(index).to_string())
                .collect()
        };
        assert_eq!(all("127.0.0.9", 2), ["127.0.0.9", "127.0.0.9"]);
        assert_eq!(
            all("127.0.0.255..127.0.1.1", 4),
            ["127.0.0.255", "127.0.1.0", "127.0.1.1", "127.0.0.255"]
        );
        assert_eq!(
            all("127.3.0.9/30", 3),
            ["127.3.0.9", "127.3.0.10", "127.3.0.9"]
        );
        assert_eq!(all("127.0.0.7/32", 2), ["127.0.0.7", "127.0.0.7"]);
        assert_eq!(all("::2..::3", 3), ["::2", "::3", "::2"]);
        let whole: SourceRange = "127.0.0.0/8".parse().unwrap();
        assert_eq!(
            (whole.at(0), whole.count),
            ("127.0.0.1".parse().unwrap(), (1 << 24) - 2)
        );
        for text in [
            "",
            "x",
            "127.0.0.2..127.0.0.1",
            "127.0.0.1..::1",
            "127.0.0.0/33",
            "::/8",
            "127.0.0.1/",
        ] {
            assert!(text.parse::<SourceRange>().is_err(), "{text}");
        }
    }
}
