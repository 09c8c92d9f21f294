//! How `millpond load` opens and closes its connections.

use super::url::Url;
use super::{Failure, parse_count, parse_duration_ns};
use clap::Args;
use millpond_io::tls::{TlsClient, TlsClientOptions, Trust};
use millpond_load::{ConnectionPlan, SourceRange};
use std::path::PathBuf;

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
    /// Certificates of the authorities to trust in https, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Take any certificate in https
    #[arg(long)]
    insecure: bool,
}

/// What a server may send before a handshake is over.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;

impl ConnectionFlags {
    /// TLS towards `url`, if it asks for that.
    pub(super) fn tls(&self, url: &Url, timeout_ns: u64) -> Result<Option<TlsClient>, Failure> {
        if !url.is_tls {
            let given = [(self.ca.is_some(), "--ca"), (self.insecure, "--insecure")];
            let given = given.iter().find(|(is_given, _)| *is_given);
            return given.map_or(Ok(None), |(_, flag)| {
                Err(Failure::usage(format!("{flag} is for https:// URLs")))
            });
        }
        let options = TlsClientOptions {
            identity: None,
            host: url.host().to_owned(),
            trust: match &self.ca {
                _ if self.insecure => Trust::Anybody,
                Some(file) => Trust::File(file.clone()),
                None => Trust::System,
            },
            protocols: vec![b"http/1.1".to_vec()],
            handshake_timeout_ns: timeout_ns,
            handshake_bytes_max: HANDSHAKE_BYTES_MAX,
        };
        TlsClient::load(options).map(Some).map_err(Failure::failed)
    }

    pub(super) fn plan(&self) -> ConnectionPlan {
        ConnectionPlan {
            requests_max: self.requests_per_connection,
            ramp_ns: self.connection_ramp.unwrap_or_default(),
            sources: self.source,
        }
    }
}
