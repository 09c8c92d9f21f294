//! What is compared: our entity server, or the user's command behind a URL.
//!
//! On the path: `config` holds one; `run` asks it for the words to start, the address to probe and
//! the requests to send. Absent on purpose: names that need more than the system's resolver, https.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use millpond_io::Address;
use millpond_measure::record::{Operation, PoolSetting};

use crate::error::LabError;
use crate::probe::Probe;

/// What stands in a command for the port that the lab chooses for each start.
pub const PORT_PLACE: &str = "{port}";

/// The server that is run under each allocator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// `millpond serve entity`, on an address of the lab's choice and a fresh directory per run.
    Entity {
        /// More words for `serve entity`, such as `--sync off`.
        extra: Vec<OsString>,
    },
    /// Somebody else's server.
    Command {
        /// The program and its arguments; it must stay in the foreground.
        words: Vec<OsString>,
        /// Where it then answers.
        url: Url,
    },
}

/// A plain `http://host[:port]/path`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Url {
    /// As it was given.
    pub text: String,
    /// The resolved address.
    pub address: SocketAddr,
    /// `host[:port]`, for the Host field.
    pub host: String,
    /// Path and query, at least `/`.
    pub path: String,
}

impl Url {
    /// Splits and resolves; the error is a sentence.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let wrong = |what: &str| LabError::Setting(format!("the URL {text:?} {what}"));
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| wrong("does not begin with http:// (https is not measured)"))?;
        let (host, path) = match rest.find(['/', '?']) {
            Some(at) if rest.as_bytes().get(at) == Some(&b'/') => rest.split_at(at),
            Some(_) => return Err(wrong("needs a / before the ?")),
            None => (rest, "/"),
        };
        if host.is_empty() || path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong("has no host, or blanks in its path"));
        }
        let path = path.split('#').next().unwrap_or("/").to_owned();
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let found = Address::resolve_all(&authority)
            .map_err(|error| wrong(&format!("names a host that cannot be resolved: {error}")))?;
        let address = before_start(&found)
            .ok_or_else(|| wrong("names a unix socket, which is not measured"))?;
        Ok(Self {
            text: text.to_owned(),
            address,
            host: host.to_owned(),
            path,
        })
    }
}

/// Of all addresses of the name, as the load generator has them, the one at which the server is awaited. The generator
/// tries them all, which needs a server that runs; here none does yet, and one that is told to listen on "localhost" or
/// 127.0.0.1 is found on IPv4.
fn before_start(found: &[Address]) -> Option<SocketAddr> {
    let found = found.iter().filter_map(Address::inet);
    found.min_by_key(|address| !address.is_ipv4())
}

impl Target {
    /// One line for people.
    #[must_use]
    pub fn title(&self) -> String {
        match self {
            Self::Entity { .. } => "millpond serve entity".to_owned(),
            Self::Command { words, .. } => {
                let words: Vec<String> = words
                    .iter()
                    .map(|word| word.display().to_string())
                    .collect();
                words.join(" ")
            }
        }
    }

    /// The program's name alone, for sentences.
    #[must_use]
    pub fn short_name(&self) -> String {
        match self {
            Self::Entity { .. } => self.title(),
            Self::Command { words, .. } => {
                let program = words.first().map(Path::new).and_then(Path::file_name);
                program
                    .map(|name| name.display().to_string())
                    .unwrap_or_default()
            }
        }
    }

    /// What its requests do, in the order in which a run measures them.
    #[must_use]
    pub fn operations(&self) -> &'static [Operation] {
        match self {
            Self::Entity { .. } => &[Operation::Put, Operation::Get],
            Self::Command { .. } => &[Operation::Request],
        }
    }

    /// Whether it listens where the lab tells it to: our own does, others by `{port}` in a word of the command or in
    /// the value of a variable.
    #[must_use]
    pub fn takes_its_port(&self, environment: &[(OsString, OsString)]) -> bool {
        let values = environment.iter().map(|(_, value)| value);
        match self {
            Self::Entity { .. } => true,
            Self::Command { words, .. } => {
                words.iter().chain(values).any(|word| has_port_place(word))
            }
        }
    }

    /// The same without syncs of what is written, unless the user has said how to sync. Ours only.
    pub(crate) fn without_syncs(mut self) -> Self {
        if let Self::Entity { extra } = &mut self
            && !extra
                .iter()
                .any(|word| word.as_bytes().starts_with(b"--sync"))
        {
            extra.extend(["--sync".into(), "off".into()]);
        }
        self
    }

    /// The words that start it. `program`, `data` and `pools` are for our own server only.
    #[must_use]
    pub fn command(
        &self,
        program: &Path,
        address: SocketAddr,
        data: &Path,
        pools: Option<PoolSetting>,
        shards: usize,
    ) -> Vec<OsString> {
        match self {
            Self::Command { words, .. } => {
                let port = address.port().to_string();
                words.iter().map(|word| with_port(word, &port)).collect()
            }
            Self::Entity { extra } => {
                let pools = if pools == Some(PoolSetting::Off) {
                    "off"
                } else {
                    "on"
                };
                let mut words: Vec<OsString> = vec![
                    program.into(),
                    "serve".into(),
                    "entity".into(),
                    "--listen".into(),
                    address.to_string().into(),
                    "--data".into(),
                    data.into(),
                    "--pools".into(),
                    pools.into(),
                    "--shards".into(),
                    shards.to_string().into(),
                ];
                words.extend(extra.iter().cloned());
                words
            }
        }
    }

    /// How to ask whether it serves at `address`.
    #[must_use]
    pub fn probe(&self, address: SocketAddr) -> Probe {
        match self {
            Self::Entity { .. } => Probe {
                address,
                host: address.to_string(),
                path: "/v0/status".to_owned(),
            },
            Self::Command { url, .. } => Probe {
                address,
                host: self.host(address),
                path: url.path.clone(),
            },
        }
    }

    /// Where its requests go, for sentences: as the user wrote it.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        match self {
            Self::Entity { .. } => format!("http://{address}/v0/entity"),
            Self::Command { url, .. } => url.text.clone(),
        }
    }

    /// The Host field of requests to it at `address`.
    #[must_use]
    pub fn host(&self, address: SocketAddr) -> String {
        match self {
            Self::Command { url, .. } if address == url.address => url.host.clone(),
            _ => address.to_string(),
        }
    }
}

/// Whether the word has [`PORT_PLACE`] in it.
#[must_use]
pub fn has_port_place(word: &OsStr) -> bool {
    let mut windows = word.as_bytes().windows(PORT_PLACE.len());
    windows.any(|window| window == PORT_PLACE.as_bytes())
}

/// The word with the port in the place of each `{port}`.
pub(crate) fn with_port(word: &OsStr, port: &str) -> OsString {
    let (place, mut rest) = (PORT_PLACE.as_bytes(), word.as_bytes());
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(place.len()).position(|window| window == place) {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(port.as_bytes());
        rest = &rest[at + place.len()..];
    }
    bytes.extend_from_slice(rest);
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split() {
        let url = Url::parse("http://127.0.0.1:8081/a/b?c=d#e").unwrap();
        assert_eq!(url.address, "127.0.0.1:8081".parse().unwrap());
        assert_eq!(
            (url.host.as_str(), url.path.as_str()),
            ("127.0.0.1:8081", "/a/b?c=d")
        );
        let url = Url::parse("http://[::1]").unwrap();
        assert_eq!(
            (url.address, url.path.as_str()),
            ("[::1]:80".parse().unwrap(), "/")
        );
    }

    /// Goal: each wrong URL is answered with what is wrong about it.
    #[test]
    fn wrong_urls_are_named() {
        let sentence = |text: &str| Url::parse(text).unwrap_err().to_string();
        assert!(sentence("https://127.0.0.1/").contains("https is not measured"));
        assert!(sentence("127.0.0.1:80").contains("does not begin with http://"));
        assert!(sentence("http://").contains("no host"));
        assert!(sentence("http://127.0.0.1:80/a b").contains("blanks"));
        assert!(sentence("http://127.0.0.1:80?x").contains("/ before the ?"));
        assert!(sentence("http://127.0.0.1:99999/").contains("cannot be resolved"));
    }

    /// Goal: our server gets everything a run decides; the user's words are passed untouched.
    #[test]
    fn commands() {
        let address: SocketAddr = "127.0.0.1:1234".parse().unwrap();
        let own = Target::Entity {
            extra: vec!["--sync".into(), "off".into()],
        };
        let words = own.command(
            Path::new("/m"),
            address,
            Path::new("/d"),
            Some(PoolSetting::Off),
            1,
        );
        let expected = "/m serve entity --listen 127.0.0.1:1234 --data /d --pools off --shards 1 \
                        --sync off";
        assert_eq!(
            words,
            expected.split(' ').map(OsString::from).collect::<Vec<_>>()
        );
        let url = Url::parse("http://127.0.0.1:1234/").unwrap();
        let other = Target::Command {
            words: vec!["nginx".into(), "-g x".into()],
            url,
        };
        let words = other.command(Path::new("/m"), address, Path::new("/d"), None, 1);
        assert_eq!(words, ["nginx", "-g x"]);
        assert!(own.takes_its_port(&[]) && !other.takes_its_port(&[]));
        assert!(other.takes_its_port(&[("LISTEN".into(), ":{port}".into())]));
    }

    /// Goal: a server that is told its port gets one of its own each time, and is asked there.
    #[test]
    fn ports_are_filled_in() {
        let url = Url::parse("http://127.0.0.1:8080/a").unwrap();
        let words = vec![
            "x".into(),
            "--listen=0.0.0.0:{port}".into(),
            "{port}{port}".into(),
        ];
        let target = Target::Command { words, url };
        assert!(target.takes_its_port(&[]));
        let address: SocketAddr = "127.0.0.1:1234".parse().unwrap();
        let words = target.command(Path::new("/m"), address, Path::new("/d"), None, 1);
        assert_eq!(words, ["x", "--listen=0.0.0.0:1234", "12341234"]);
        assert_eq!(target.host(address), "127.0.0.1:1234");
        assert_eq!(
            target.host("127.0.0.1:8080".parse().unwrap()),
            "127.0.0.1:8080"
        );
    }
}
