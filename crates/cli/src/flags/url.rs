//! The part of URLs that a plain HTTP client needs.
//!
//! Absent on purpose: user names, and percent-encoding on the user's behalf.

/// `http://HOST[:PORT][/PATH][?QUERY]`, taken apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Url {
    /// https.
    pub(super) is_tls: bool,
    /// Host and port, to be looked up.
    pub(super) authority: String,
    /// Value of the Host field.
    pub(super) host_field: String,
    /// Path and query, at least `/`.
    pub(super) path: String,
}

impl Url {
    /// Takes a URL apart; the error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |problem: &str| format!("the URL {text:?} {problem}");
        let (is_tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => {
                return Err(wrong(
                    "has to begin with http:// or https://, as in http://127.0.0.1:8080/",
                ));
            }
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(wrong("holds a user name: use -H 'Authorization: ...'"));
        }
        let (host, port) = split_authority(authority).ok_or_else(|| wrong("names no host"))?;
        let port: u16 = match port {
            None if is_tls => 443,
            None => 80,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("has a port that is not a number from 1 to 65535"))?,
        };
        if text.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
            return Err(wrong(
                "holds a blank or a letter that has to be written as %XX",
            ));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            is_tls,
            authority: format!("{host}:{port}"),
            host_field: authority.to_owned(),
            path: format!("{slash}{path}"),
        })
    }
}

impl Url {
    /// The host alone, which a certificate has to be for.
    pub(super) fn host(&self) -> &str {
        split_authority(&self.host_field).map_or("", |(host, _)| host)
    }

    /// The same server with another path and query.
    pub(super) fn with_path(&self, path: &str) -> Result<Self, String> {
        // The rules for what a path may hold are those of whole URLs.
        let parsed = Self::parse(&format!("http://host{path}"))?;
        Ok(Self {
            path: parsed.path,
            ..self.clone()
        })
    }
}

/// Host and port; the brackets of an IPv6 address stay with the host.
fn split_authority(authority: &str) -> Option<(&str, Option<&str>)> {
    let host_end = match authority.strip_prefix('[') {
        Some(inner) => inner.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    let port = match port {
        "" => None,
        port => Some(port.strip_prefix(':')?),
    };
    (!host.is_empty() && host != "[]").then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every part lands where it belongs, with the defaults of RFC 9110.
    #[test]
    fn urls_are_taken_apart() {
        for (text, authority, host_field, path) in [
            (
                "http://127.0.0.1:8080/a/b?c=d#e",
                "127.0.0.1:8080",
                "127.0.0.1:8080",
                "/a/b?c=d",
            ),
            ("http://localhost", "localhost:80", "localhost", "/"),
            ("http://localhost?x=1", "localhost:80", "localhost", "/?x=1"),
            ("http://[::1]:81/", "[::1]:81", "[::1]:81", "/"),
            ("http://[::1]", "[::1]:80", "[::1]", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            let parts = (
                url.authority.as_str(),
                url.host_field.as_str(),
                url.path.as_str(),
            );
            assert_eq!(parts, (authority, host_field, path), "{text}");
        }
    }

    #[test]
    fn https_has_its_own_port() {
        let url = Url::parse("https://localhost/a").unwrap();
        assert!(url.is_tls && !Url::parse("http://localhost/a").unwrap().is_tls);
        assert_eq!(
            (&url.authority[..], url.host()),
            ("localhost:443", "localhost")
        );
        assert_eq!(Url::parse("https://[::1]:9/").unwrap().host(), "[::1]");
    }

    /// Goal: what cannot be asked for is refused with the reason, not guessed at.
    #[test]
    fn wrong_urls_are_refused_with_the_reason() {
        for (text, part) in [
            ("127.0.0.1:8080", "begin with http:// or https://"),
            ("ftp://a/", "begin with http://"),
            ("http://", "names no host"),
            ("http://:80/", "names no host"),
            ("http://[::1/", "names no host"),
            ("http://a:0/", "port"),
            ("http://a:99999/", "port"),
            ("http://a:/", "port"),
            ("http://me:secret@a/", "user name"),
            ("http://a/b c", "blank"),
            ("http://a/\r\nX: y", "blank"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
