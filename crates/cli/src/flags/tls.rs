//! The flags of a server that speaks TLS.

use std::path::PathBuf;

use clap::Args;
use millpond_http::log::LogLevel;
use millpond_http::{Limits, load_tls, log};
use millpond_io::tls::{CertificateFiles, TlsServer};

use super::{Failure, parse_bytes};

#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsFlags {
    /// Speak TLS (1.2 and 1.3) with the certificate in FILE: PEM, the server's own first, then
    /// those that sign it. May be given several times, each with its key: the first is for clients
    /// that name no host or another one. SIGHUP reads all files again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,
    /// The private key of the certificate: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,
    /// Clients must show a certificate that an authority in this PEM file has signed; others are
    /// refused. SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// What a client may send before its handshake is over, which may take --head-timeout
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "32KiB")]
    tls_max_handshake: u64,
}

/// Less than the first message of any client.
const HANDSHAKE_BYTES_MIN: u64 = 1 << 10;

impl TlsFlags {
    /// Reads the certificates, if there are any to be read.
    pub(super) fn load(&self, limits: &Limits) -> Result<Option<TlsServer>, Failure> {
        let pairs = self.pairs().map_err(Failure::usage)?;
        if pairs.is_empty() {
            return Ok(None);
        }
        let handshake_bytes_max = usize::try_from(self.tls_max_handshake).unwrap_or(usize::MAX);
        let loaded = load_tls(
            pairs,
            self.tls_client_ca.clone(),
            limits,
            handshake_bytes_max,
        );
        let (server, warnings) = loaded.map_err(Failure::failed)?;
        for warning in &warnings {
            log::write(LogLevel::Warn, warning);
        }
        Ok(Some(server))
    }

    fn pairs(&self) -> Result<Vec<CertificateFiles>, String> {
        let (certificates, keys) = (&self.tls_cert, &self.tls_key);
        if certificates.len() != keys.len() {
            return Err(format!(
                "--tls-cert is given {} times and --tls-key {} times: each certificate needs its key",
                certificates.len(),
                keys.len()
            ));
        }
        if self.tls_max_handshake < HANDSHAKE_BYTES_MIN {
            return Err("--tls-max-handshake is too small for any handshake: 1KiB at least".into());
        }
        let pair = |(certificate, key): (&PathBuf, &PathBuf)| CertificateFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        Ok(certificates.iter().zip(keys).map(pair).collect())
    }
}

#[cfg(test)]
#[path = "tests/tls.rs"]
mod tests;
