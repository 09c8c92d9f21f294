//! Under which names a server is asked. A page of a stranger's site can have its name lead to this machine (DNS
//! rebinding), and then asks with its reader's reach; but in `Host` it has its own name.
//!
//! Addresses and `localhost` are always allowed: a page has no such name unless it came from there.

use std::net::Ipv6Addr;
use std::sync::Arc;

/// Names of the server; the default: any.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowedHosts(Option<Arc<[String]>>);

/// A name that is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{name:?} is no host's name: write it without port and scheme, or .NAME for all names below it"
)]
pub struct HostNameError {
    /// What was given.
    pub name: String,
}

impl AllowedHosts {
    /// These names, without case; those that begin with a dot stand for all names below them.
    ///
    /// # Errors
    /// [`HostNameError`].
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, HostNameError> {
        let checked = names.into_iter().map(|name| {
            let rest = name.strip_prefix('.').unwrap_or(name);
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            match !rest.is_empty() && !rest.starts_with('.') && rest.bytes().all(is_letter) {
                true => Ok(name.to_ascii_lowercase()),
                false => Err(HostNameError {
                    name: name.to_owned(),
                }),
            }
        });
        Ok(Self(Some(checked.collect::<Result<_, _>>()?)))
    }

    /// Whether a request with this `Host` field (`NAME[:PORT]`) is meant for us. One without a name is no browser's.
    #[must_use]
    pub fn allow(&self, authority: &[u8]) -> bool {
        let Some(names) = &self.0 else {
            return true;
        };
        let host = without_port(authority);
        let host = host.strip_suffix(b".").unwrap_or(host);
        let is = |name: &String| match name.strip_prefix('.') {
            None => host.eq_ignore_ascii_case(name.as_bytes()),
            Some(_) => host
                .len()
                .checked_sub(name.len())
                .is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(name.as_bytes())),
        };
        authority.is_empty()
            || host.eq_ignore_ascii_case(b"localhost")
            || is_address(host)
            || names.iter().any(is)
    }
}

fn without_port(authority: &[u8]) -> &[u8] {
    let end = match authority {
        [b'[', ..] => authority
            .iter()
            .position(|&byte| byte == b']')
            .map(|at| at + 1),
        _ => authority.iter().position(|&byte| byte == b':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}

/// Four numbers, or what stands in brackets. Shorter forms of numbers are names to us: browsers write them out.
fn is_address(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(six) => six.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names that were given, addresses and localhost are allowed, with any port and case; nothing that is like
    /// one is.
    #[test]
    fn hosts_are_allowed_by_name() {
        let hosts = AllowedHosts::new(["store.example", ".Internal"]).unwrap();
        for allowed in [
            "",
            "store.example",
            "STORE.example:8080",
            "store.example.",
            "a.internal",
            "a.b.internal:1",
            "localhost",
            "localhost:8080",
            "127.0.0.1",
            "10.0.0.1:80",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(hosts.allow(allowed.as_bytes()), "{allowed}");
            assert!(AllowedHosts::default().allow(allowed.as_bytes()));
        }
        for other in [
            "evil.example",
            "store.example.evil.example",
            "xstore.example",
            "internal",
            ".internal",
            "ainternal",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
            "[::1",
            "::1",
            "[evil]",
        ] {
            assert!(!hosts.allow(other.as_bytes()), "{other}");
            assert!(AllowedHosts::default().allow(other.as_bytes()));
        }
        for name in ["", ".", "..a", "a:80", "http://a", "a/b", "a b", "*"] {
            assert!(AllowedHosts::new([name]).is_err(), "{name}");
        }
    }
}
