//! The part of URLs that a plain HTTP client needs.
//!
//! Nothing is percent-encoded on the user's behalf: what cannot stand in a URL is refused.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_http::Method;
use millpond_lab::target::{PORT_PLACE, has_port_place};
use millpond_lab::{Launcher, Target};

use super::Failure;
use super::requests::TargetRequestFlags;

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

// `--urls FILE`: several URLs of one server, with weights and methods.

/// One URL and how it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UrlLine {
    pub(super) url: Url,
    /// As it is reported.
    pub(super) name: String,
    pub(super) weight: u64,
    /// `None`: that of the command line.
    pub(super) method: Option<Method>,
}

impl UrlLine {
    pub(super) fn of(url: Url, text: &str) -> Self {
        Self {
            url,
            name: without_user(text),
            weight: 1,
            method: None,
        }
    }

    /// `[WEIGHT] [METHOD] URL`, the URL whole or a path at `base`.
    fn parse(line: &str, base: Option<&Url>) -> Result<Self, String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let text = words.pop().unwrap_or_default();
        let url = match base {
            Some(base) if text.starts_with('/') => base.with_path(text)?,
            None if text.starts_with('/') => {
                return Err(format!(
                    "{text} is a path: name its server with a URL besides the list"
                ));
            }
            _ => Url::parse(text)?,
        };
        let mut parsed = Self::of(url, text);
        for word in words {
            if let Ok(weight) = word.parse() {
                parsed.weight = weight;
                continue;
            }
            let method = Method::from_token(word.as_bytes());
            if matches!(method, Method::Extension | Method::Connect) || parsed.method.is_some() {
                return Err(format!(
                    "`{word}` is neither a weight nor a method before a URL"
                ));
            }
            parsed.method = Some(method);
            parsed.name = format!("{word} {}", without_user(text));
        }
        Ok(parsed)
    }
}

/// The URLs of a file; empty lines and those that begin with # are passed over.
pub(super) fn read_urls(file: &Path, base: Option<&Url>) -> Result<Vec<UrlLine>, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::failed(format!("--urls {name}: the file cannot be read: {error}"))
    })?;
    let mut urls = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let number = index + 1;
            let wrong =
                |problem| Failure::usage(format!("--urls {name}, line {number}: {problem}"));
            urls.push(UrlLine::parse(line, base).map_err(wrong)?);
        }
    }
    if urls.is_empty() {
        return Err(Failure::usage(format!("--urls {name} holds no URL")));
    }
    Ok(urls)
}

// The program that `compare` and `profile` start: our entity server, or the user's behind a URL or a port; and this
// program itself, which starts it.

/// What was said of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubjectTarget<'a> {
    /// `compared` or `profiled`: what becomes of it.
    pub(super) verb: &'a str,
    /// Where it answers, and what it is asked.
    pub(super) requests: &'a TargetRequestFlags,
    /// Where it listens, if it does not speak HTTP.
    pub(super) port: Option<u16>,
    /// Whether a program of the user's loads it.
    pub(super) has_load_command: bool,
    /// The words after `--`.
    pub(super) command: &'a [OsString],
    /// Whether pools were asked for, which only our own has.
    pub(super) has_pools: bool,
}

impl SubjectTarget<'_> {
    /// The target, or what contradicts itself.
    pub(super) fn target(&self) -> Result<Target, Failure> {
        let is_of_the_user =
            self.requests.has_url() || self.port.is_some() || !self.command.is_empty();
        if let Some(flag) = self.requests.first_given() {
            if self.has_load_command {
                return Err(Failure::usage(format!(
                    "{flag} is about our own load, and --load-cmd takes its place: leave out one of both"
                )));
            }
            if !is_of_the_user {
                return Err(Failure::usage(format!(
                    "{flag} is about a server of yours: give --url, and its command after --"
                )));
            }
        }
        let urls = match self.port {
            Some(port) => vec![format!("http://127.0.0.1:{port}/")],
            None => self.urls_with_a_port()?,
        };
        let has_url = !urls.is_empty() || self.requests.has_url();
        match (has_url, self.command.is_empty()) {
            (false, true) if cfg!(not(feature = "entity")) => Err(Failure::usage(format!(
                "the server that is {} by default is not in this build (--features entity has it): \
                 name a server of yours, as in `--url http://127.0.0.1:8081/ -- nginx ...`",
                self.verb
            ))),
            (false, true) => Ok(Target::Entity { extra: Vec::new() }),
            (false, false) => Err(Failure::usage(
                "a server of yours needs --url, the address at which it answers; one that does not \
                 speak HTTP needs --port and --load-cmd",
            )),
            (true, true) => Err(Failure::usage(
                "--url needs the server's command (CMD) after --",
            )),
            (true, false) => self.of_the_user(&urls),
        }
    }

    /// The URLs with a free port for `{port}`, the same in all; where only the command has that, the root at such a
    /// port.
    fn urls_with_a_port(&self) -> Result<Vec<String>, Failure> {
        let is_placed = self.command.iter().any(|word| has_port_place(word));
        let mut urls = self.requests.url.clone();
        if urls.is_empty() && is_placed && !self.requests.has_url() {
            urls.push("http://127.0.0.1:{port}/".to_owned());
        }
        if !urls.iter().any(|url| url.contains(PORT_PLACE)) {
            return Ok(urls);
        }
        if !is_placed {
            return Err(Failure::usage(
                "--url has {port}, and the server's command has not: put it where the command takes its port",
            ));
        }
        let port = millpond_lab::port::choose().map_err(Failure::failed)?;
        let port = port.to_string();
        let placed = urls.iter().map(|url| url.replace(PORT_PLACE, &port));
        Ok(placed.collect())
    }

    fn of_the_user(&self, urls: &[String]) -> Result<Target, Failure> {
        if self.has_pools {
            return Err(Failure::usage(
                "--pools is about our own server: leave it out",
            ));
        }
        Ok(Target::Command {
            words: self.command.to_vec(),
            requests: Box::new(self.requests.requests(urls)?),
        })
    }
}

/// This program as what starts servers.
pub(super) fn launcher() -> Result<Launcher, Failure> {
    Launcher::current()
        .map_err(|error| Failure::failed(format!("this program cannot find its own file: {error}")))
}

/// This program's file.
pub(super) fn own_program() -> Result<PathBuf, Failure> {
    Ok(launcher()?.program)
}

#[cfg(test)]
#[path = "tests/url.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/url_list.rs"]
mod url_list_tests;
