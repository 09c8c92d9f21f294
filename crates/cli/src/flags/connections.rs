//! How `millpond load` opens and closes its connections.

use super::{parse_count, parse_duration_ns};
use clap::Args;
use millpond_load::{ConnectionPlan, SourceRange};

/// The flags of how connections come and go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(super) struct ConnectionFlags {
    /// Close a connection after so many requests and open another; 1 is a connection for each
    #[arg(long, value_name = "N", value_parser = parse_count)]
    requests_per_connection: Option<u64>,
    /// Open connections one after the other over TIME while those that are there send already
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    connection_ramp: Option<u64>,
    /// Where connections come from, in turn: an address, 127.0.0.2..127.0.0.200 or 127.1.0.0/16.
    /// Each has some 28,000 ports
    #[arg(long, value_name = "ADDRESSES")]
    source: Option<SourceRange>,
}

impl ConnectionFlags {
    pub(super) fn plan(&self) -> ConnectionPlan {
        ConnectionPlan {
            requests_max: self.requests_per_connection,
            ramp_ns: self.connection_ramp.unwrap_or_default(),
            sources: self.source,
        }
    }
}
