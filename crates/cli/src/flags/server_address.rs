//! How a server is reached: its addresses, another address instead, a unix socket, TLS.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use millpond_io::Address;
use millpond_io::tls::{TlsClient, TlsClientOptions, Trust};
use millpond_load::AddressUse;

use super::Failure;
use super::url::Url;

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(super) struct ServerAddressFlags {
    /// Of a server's name with several addresses: connections take all of them in turn, or the first that accepts
    /// alone. Where one refuses, as IPv6 where a server listens on IPv4 alone, the next is tried
    #[arg(
        long,
        value_name = "first|all",
        default_value = "all",
        conflicts_with = "unix"
    )]
    address: AddressUse,
    /// Connect to this unix socket, whatever server the URL names; Host says what the URL says
    #[arg(long, value_name = "PATH", conflicts_with = "connect_to")]
    unix: Option<PathBuf>,
    /// Connect to ADDRESS instead of the URL's server, as in curl. HOST and PORT are the URL's, or empty; the port is
    /// the URL's unless ADDRESS ends with one. Host and certificates are about the URL's server
    #[arg(long, value_name = "HOST:PORT:ADDRESS", value_parser = ConnectTo::parse)]
    connect_to: Option<ConnectTo>,
    /// Ask for this server's certificate in https, and verify it for that name
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Certificates of the authorities to trust in https, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Take any certificate in https
    #[arg(long)]
    insecure: bool,
}

/// `HOST:PORT:ADDRESS`, perhaps with another `:PORT` behind it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct ConnectTo {
    /// Empty: any.
    host: String,
    /// Empty: any.
    port: String,
    address: String,
    /// `None`: the URL's.
    address_port: Option<u16>,
}

impl ConnectTo {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || "write HOST:PORT:ADDRESS, as example.com:80:127.0.0.1 or ::[::1]:8080".to_owned();
        let (host, rest) = split_host(text).ok_or_else(wrong)?;
        let (port, rest) = rest.split_once(':').ok_or_else(wrong)?;
        if !port.is_empty() && port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        let (address, address_port) = match split_host(rest) {
            Some((address, digits)) => (address, Some(digits.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        if address.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.to_owned(),
            address: address.to_owned(),
            address_port,
        })
    }

    /// The address with its port, for a URL's `HOST:PORT`.
    fn instead_of(&self, authority: &str) -> Result<String, String> {
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        let is_host = self.host.is_empty() || self.host.eq_ignore_ascii_case(host);
        let is_port = self.port.is_empty() || self.port == port;
        if !(is_host && is_port) {
            return Err(format!(
                "--connect-to is for {}:{}, and the URL's server is {authority}: leave both empty for any",
                self.host, self.port
            ));
        }
        let port = self
            .address_port
            .map_or(port.to_owned(), |port| port.to_string());
        Ok(format!("{}:{port}", self.address))
    }
}

/// A host, in brackets or not, and what stands behind the colon behind it.
fn split_host(text: &str) -> Option<(&str, &str)> {
    let end = match text.strip_prefix('[') {
        Some(inner) => inner.find(']')? + 2,
        None => text.find(':')?,
    };
    let (host, rest) = text.split_at(end);
    Some((host, rest.strip_prefix(':')?))
}

/// What a server may send before a handshake is over.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;

impl ServerAddressFlags {
    /// The first of these flags that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.address != AddressUse::All, "--address"),
            (self.unix.is_some(), "--unix"),
            (self.connect_to.is_some(), "--connect-to"),
            (self.sni.is_some(), "--sni"),
            (self.ca.is_some(), "--ca"),
            (self.insecure, "--insecure"),
        ];
        let given = given.iter().find(|(is_given, _)| *is_given);
        given.map(|(_, flag)| *flag)
    }

    /// Which of the server's addresses are used.
    pub(super) const fn address_use(&self) -> AddressUse {
        self.address
    }

    /// Whether certificates are verified in https.
    pub(super) const fn is_verified(&self) -> bool {
        !self.insecure
    }

    /// TLS towards `url`, if it asks for that.
    pub(super) fn tls(&self, url: &Url, timeout_ns: u64) -> Result<Option<TlsClient>, Failure> {
        if !url.is_tls {
            let given = [
                (self.ca.is_some(), "--ca"),
                (self.insecure, "--insecure"),
                (self.sni.is_some(), "--sni"),
            ];
            let given = given.iter().find(|(is_given, _)| *is_given);
            return given.map_or(Ok(None), |(_, flag)| {
                Err(Failure::usage(format!("{flag} is for https:// URLs")))
            });
        }
        let options = TlsClientOptions {
            identity: None,
            host: self.sni.clone().unwrap_or_else(|| url.host().to_owned()),
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

    /// Where to connect for `url`; resolves its name.
    pub(super) fn addresses(&self, url: &Url) -> Result<Arc<[Address]>, Failure> {
        if let Some(path) = &self.unix {
            return Ok([Address::Unix(path.clone())].into());
        }
        let authority = match &self.connect_to {
            Some(other) => other.instead_of(&url.authority).map_err(Failure::usage)?,
            None => url.authority.clone(),
        };
        Address::resolve_all(&authority).map_err(Failure::failed)
    }
}

#[cfg(test)]
#[path = "tests/server_address.rs"]
mod tests;
