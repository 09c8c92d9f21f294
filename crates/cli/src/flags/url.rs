//! The part of URLs that a plain HTTP client needs.
//!
//! Nothing is percent-encoded on the user's behalf: what cannot stand in a URL is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// `http://[USER[:PASSWORD]@]HOST[:PORT][/PATH][?QUERY]`, taken apart.
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
    /// Value of the Authorization field, for a URL with a user name (RFC 7617).
    pub(super) authorization: Option<String>,
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
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
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
            authorization: match user {
                Some(user) => Some(basic(user).ok_or_else(|| {
                    wrong("has a % in its user name or password that two digits do not follow")
                })?),
                None => None,
            },
        })
    }
}

/// The field value for `USER:PASSWORD` as a URL has it; `None`: a broken percent-encoding.
fn basic(user: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = user.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next())? * 16 + digit(rest.next())?) as u8,
            byte => byte,
        });
    }
    // Without a password it is empty, as curl and wrk's kin send it.
    if !user.contains(':') {
        bytes.push(b':');
    }
    Some(basic_of(&bytes))
}

/// The field value for `USER:PASSWORD`.
pub(super) fn basic_of(user: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode(user))
}

/// The URL without its user name and password, to be shown and recorded.
pub(super) fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
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

    /// Goal: a user name becomes the field of RFC 7617, and is shown nowhere.
    #[test]
    fn a_user_name_is_an_authorization() {
        for (user, value) in [
            // The example of RFC 7617, section 2.
            (
                "Aladdin:open%20sesame",
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            ),
            ("me", "Basic bWU6"),
            ("a%40b:c:d", "Basic YUBiOmM6ZA=="),
        ] {
            let text = format!("http://{user}@host:81/x?y=@");
            let url = Url::parse(&text).unwrap();
            assert_eq!(url.authorization.as_deref(), Some(value));
            assert_eq!(
                (&url.authority[..], &url.host_field[..]),
                ("host:81", "host:81")
            );
            assert_eq!(without_user(&text), "http://host:81/x?y=@");
        }
        assert_eq!(Url::parse("http://host/@").unwrap().authorization, None);
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
            ("http://me:%zz@a/", "two digits"),
            ("http://me:%4@a/", "two digits"),
            ("http://me@/", "names no host"),
            ("http://a/b c", "blank"),
            ("http://a/\r\nX: y", "blank"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
