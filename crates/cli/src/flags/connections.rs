//! How `millpond load` opens and closes its connections.

use std::sync::Arc;

use clap::Args;
use millpond_io::Address;
use millpond_load::{AddressUse, ConnectionPlan, Reconnect, SourceRange};

use super::server_address::ServerAddressFlags;
use super::url::Url;
use super::{Failure, parse_count, parse_duration_ns};

/// The flags of how connections come and go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(super) struct ConnectionFlags {
    /// Close a connection after so many requests and open another; 1 is a connection for each
    #[arg(long, value_name = "N", value_parser = parse_count)]
    requests_per_connection: Option<u64>,
    /// Wait as long for all connections to be open before the first request leaves. If some are not, they are
    /// abandoned, the others are measured, and the verdict is INVALID
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "30s")]
    connect_within: u64,
    /// Go on while the target is away, as for a restart, until --duration is over, and say when it was and for how long.
    /// A request that no connection takes within --timeout has failed
    #[arg(long, conflicts_with_all = ["find_max", "script"])]
    pub(super) keep_going: bool,
    /// Open connections one after the other over TIME while those that are there send already
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    connection_ramp: Option<u64>,
    /// Close all connections and open them anew after TIME, or after N requests on all of them (2s, 5m; 10000, 50k).
    /// That is outside the clocks: no request is under way, the rate leaves the time out, and a schedule waits
    #[arg(long, value_name = "TIME|N", value_parser = parse_reconnect,
        conflicts_with_all = ["find_max", "script"])]
    reconnect_every: Option<Reconnect>,
    /// Where connections come from, in turn: an address, 127.0.0.2..127.0.0.200 or 127.1.0.0/16.
    /// Each has some 28,000 ports
    #[arg(long, value_name = "ADDRESSES", conflicts_with = "unix")]
    source: Option<SourceRange>,
}

/// A time has a unit that is one; anything else is a number of requests.
fn parse_reconnect(text: &str) -> Result<Reconnect, String> {
    let has_unit = ["s", "m", "min", "h"]
        .iter()
        .any(|unit| text.ends_with(unit));
    let found = match has_unit {
        true => parse_duration_ns(text).map(Reconnect::EveryNs),
        false => parse_count(text).map(Reconnect::EveryRequests),
    };
    found.map_err(|problem| {
        format!("{problem}; write a time, as 2s, or a number of requests, as 10000")
    })
}

impl ConnectionFlags {
    /// Of all addresses of `url`'s server, as `reach` has them, those of the sources' family.
    pub(super) fn addresses(
        &self,
        reach: &ServerAddressFlags,
        url: &Url,
    ) -> Result<Arc<[Address]>, Failure> {
        let all = reach.addresses(url)?;
        self.reached(&all).map_err(Failure::usage)
    }

    /// Those of the sources' family.
    fn reached(&self, all: &[Address]) -> Result<Arc<[Address]>, String> {
        let is_v6 = self.source.map(|sources| sources.at(0).is_ipv6());
        let is_reached = |address: &&Address| match (address.inet(), is_v6) {
            (Some(address), Some(is_v6)) => address.is_ipv6() == is_v6,
            _ => true,
        };
        let reached: Arc<[Address]> = all.iter().filter(is_reached).cloned().collect();
        match reached.is_empty() {
            true => Err(
                "--source has addresses of one family (IPv4, IPv6), and the target of the other"
                    .to_owned(),
            ),
            false => Ok(reached),
        }
    }

    pub(super) const fn within_ns(&self) -> u64 {
        self.connect_within
    }

    /// The plan of a run to addresses that are used as `addresses` says.
    pub(super) fn plan(&self, addresses: AddressUse) -> ConnectionPlan {
        ConnectionPlan {
            requests_max: self.requests_per_connection,
            ramp_ns: self.connection_ramp.unwrap_or_default(),
            sources: self.source,
            addresses,
            reconnect: self.reconnect_every,
        }
    }
}

#[cfg(test)]
#[path = "tests/connections.rs"]
mod tests;
