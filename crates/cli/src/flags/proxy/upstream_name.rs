//! One upstream, or mirror, as a user writes it: `127.0.0.1:8081`, `unix:/run/app.sock`,
//! `https://app.internal`.

use millpond_http::proxy::MirrorShare;
use millpond_io::Address;
use millpond_io::connection_pool::Endpoint;
use std::str::FromStr;

/// Weights beyond this say nothing more.
const WEIGHT_MAX: u32 = 1000;

/// The address to connect to and the name for `Host` and TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct UpstreamName {
    /// As written, without the weight.
    pub(super) name: String,
    pub(super) place: Endpoint,
    /// For `Host`, with the port unless it is the scheme's own.
    pub(super) host: String,
    /// The name in the certificate, of an upstream with TLS.
    pub(super) tls_host: Option<String>,
    pub(super) weight: u32,
}

impl FromStr for UpstreamName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(',') {
            Some((name, option)) => Ok(Self {
                weight: parse_weight(option)?,
                ..Self::without_options(name)?
            }),
            None => Self::without_options(text),
        }
    }
}

/// A mirror: an address, and how many of the requests it gets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MirrorName {
    /// Its weight says nothing.
    pub(super) address: UpstreamName,
    pub(super) share: MirrorShare,
}

impl FromStr for MirrorName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, share) = match text.split_once(',') {
            Some((name, option)) => match option.strip_prefix("percent=") {
                Some(percent) => (name, percent.parse::<MirrorShare>()),
                None => {
                    return Err(format!(
                        "{option:?} is no option of a mirror: write percent=N"
                    ));
                }
            },
            None => (text, Ok(MirrorShare::ALL)),
        };
        Ok(Self {
            share: share.map_err(|error| error.to_string())?,
            address: UpstreamName::without_options(name)?,
        })
    }
}

impl UpstreamName {
    /// The address alone, with a weight of 1.
    pub(super) fn without_options(name: &str) -> Result<Self, String> {
        let (rest, default_port, is_tls) = match name.split_once("://") {
            Some(("http", rest)) => (rest, Some(80), false),
            Some(("https", rest)) => (rest, Some(443), true),
            Some((scheme, _)) => {
                return Err(format!(
                    "{scheme}:// is no scheme of an upstream: write http or https"
                ));
            }
            None => (name, None, false),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(path) = rest.strip_prefix("unix:") {
            return Self::at_unix(name, path, is_tls);
        }
        let (host, port) = split_port(rest, default_port)?;
        let bare_host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let place = match format!("{host}:{port}").parse::<Address>() {
            Ok(address) => Endpoint::Addresses(vec![address]),
            Err(_) if is_host_name(host) => Endpoint::Name {
                host: host.to_owned(),
                port,
            },
            Err(_) => return Err(unreadable(rest)),
        };
        Ok(Self {
            name: name.to_owned(),
            place,
            host: match default_port == Some(port) {
                true => host.to_owned(),
                false => format!("{host}:{port}"),
            },
            tls_host: is_tls.then_some(bare_host),
            weight: 1,
        })
    }

    fn at_unix(name: &str, path: &str, is_tls: bool) -> Result<Self, String> {
        if path.is_empty() || is_tls {
            return Err("write unix:PATH; TLS over a unix socket is not spoken".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            place: Endpoint::Addresses(vec![Address::Unix(path.into())]),
            host: "localhost".to_owned(),
            tls_host: None,
            weight: 1,
        })
    }
}

pub(super) fn check_weight(weight: u32) -> Result<u32, String> {
    match weight {
        1..=WEIGHT_MAX => Ok(weight),
        _ => Err(format!("a weight is from 1 to {WEIGHT_MAX}")),
    }
}

fn parse_weight(option: &str) -> Result<u32, String> {
    let weight = option
        .strip_prefix("weight=")
        .and_then(|text| text.parse().ok());
    check_weight(
        weight.ok_or_else(|| format!("{option:?} is no option of an upstream: write weight=N"))?,
    )
}

fn split_port(text: &str, default_port: Option<u16>) -> Result<(&str, u16), String> {
    // A colon inside brackets belongs to the address.
    let colon = text
        .rfind(':')
        .filter(|&at| text.rfind(']').is_none_or(|bracket| at > bracket));
    match (colon, default_port) {
        (Some(at), _) => {
            let port = text[at + 1..].parse().map_err(|_| unreadable(text))?;
            Ok((&text[..at], port))
        }
        (None, Some(port)) if !text.is_empty() => Ok((text, port)),
        _ => Err(unreadable(text)),
    }
}

fn is_host_name(host: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.bytes().all(is_allowed)
}

fn unreadable(text: &str) -> String {
    format!("{text:?} is no upstream: write HOST:PORT, unix:PATH, http://HOST or https://HOST")
}

#[cfg(test)]
#[path = "tests/upstream_name.rs"]
mod tests;
