//! One upstream, or mirror, as a user writes it: `127.0.0.1:8081`, `unix:/run/app.sock`,
//! `https://app.internal`.

use millpond_http::proxy::MirrorShare;
use millpond_io::Address;
use millpond_io::connection_pool::Place;
use std::str::FromStr;

/// Weights beyond this say nothing more.
const WEIGHT_MAX: u32 = 1000;

/// See the module.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct UpstreamName {
    /// As written, without the weight.
    pub(super) name: String,
    pub(super) place: Place,
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
            Ok(address) => Place::Addresses(vec![address]),
            Err(_) if is_host_name(host) => Place::Name {
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
            place: Place::Addresses(vec![Address::Unix(path.into())]),
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
mod tests {
    use super::*;

    /// Goal: every form is read, with the name that goes into Host and the one in the certificate.
    #[test]
    fn every_form_is_read() {
        let inet = |text: &str| Place::Addresses(vec![text.parse().unwrap()]);
        let named = |host: &str, port| Place::Name {
            host: host.to_owned(),
            port,
        };
        for (text, place, host, tls_host, weight) in [
            (
                "127.0.0.1:81",
                inet("127.0.0.1:81"),
                "127.0.0.1:81",
                None,
                1,
            ),
            ("[::1]:81,weight=3", inet("[::1]:81"), "[::1]:81", None, 3),
            ("app:80", named("app", 80), "app:80", None, 1),
            ("http://app", named("app", 80), "app", None, 1),
            (
                "https://app.internal/",
                named("app.internal", 443),
                "app.internal",
                Some("app.internal"),
                1,
            ),
            (
                "https://[::1]:8443",
                inet("[::1]:8443"),
                "[::1]:8443",
                Some("::1"),
                1,
            ),
            (
                "unix:/run/a.sock,weight=2",
                inet("unix:/run/a.sock"),
                "localhost",
                None,
                2,
            ),
        ] {
            let found: UpstreamName = text.parse().unwrap();
            assert_eq!(found.name, text.split(',').next().unwrap());
            assert_eq!((found.place, &*found.host), (place, host), "{text}");
            assert_eq!(
                (found.tls_host.as_deref(), found.weight),
                (tls_host, weight),
                "{text}"
            );
        }
    }

    /// Goal: a mirror is an address and a percentage, all requests without one.
    #[test]
    fn mirrors_are_read() {
        for (text, share) in [
            ("m:81,percent=5", "5%"),
            ("http://m,percent=0.1%", "0.1%"),
            ("unix:/m.sock", "100%"),
        ] {
            let found: MirrorName = text.parse().unwrap();
            assert_eq!(found.share.to_string(), share, "{text}");
            assert_eq!(found.address.name, text.split(',').next().unwrap());
        }
        for (text, part) in [
            ("m:81,percent=0", "0.0001 to 100"),
            ("m:81,weight=2", "percent=N"),
            ("m", "HOST:PORT"),
        ] {
            let error = text.parse::<MirrorName>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Goal: what is none is refused with what to write.
    #[test]
    fn nonsense_is_refused() {
        for (text, part) in [
            ("", "HOST:PORT"),
            ("8080", "HOST:PORT"),
            ("app", "HOST:PORT"),
            ("a b:80", "HOST:PORT"),
            ("app:99999", "HOST:PORT"),
            ("ftp://app", "http or https"),
            ("https://unix:/a", "TLS"),
            ("unix:", "unix:PATH"),
            ("app:80,weight=0", "1 to 1000"),
            ("app:80,wait=1", "weight=N"),
        ] {
            let error = text.parse::<UpstreamName>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
