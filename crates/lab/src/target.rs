//! The compared program: our entity server, or the user's command behind URLs.
//!
//! `config` holds one; `started_candidate` asks it for the words to start, the addresses to probe and the requests to send.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_io::Address;
use millpond_load::{LoadConfig, RequestPlan, Script, ScriptConfig};
use millpond_measure::record::{Operation, PoolSetting};

use crate::endpoint::Endpoint;
use crate::error::LabError;
use crate::probe::Probe;

/// The placeholder in a command for the port that the lab chooses for each start.
pub const PORT_PLACE: &str = "{port}";

/// The server that is run under each allocator.
#[derive(Clone, Debug)]
pub enum Target {
    /// `millpond serve entity`, on an address of the lab's choice and a fresh directory per run.
    Entity {
        /// More words for `serve entity`, such as `--sync off`.
        extra: Vec<OsString>,
    },
    /// A third-party server.
    Command {
        /// The program and its arguments; it must stay in the foreground.
        words: Vec<OsString>,
        /// Its address then, and the requests for it.
        requests: Box<ServerRequests>,
    },
}

/// The requests for a third-party server, and its address.
#[derive(Clone, Debug)]
pub struct ServerRequests {
    /// The URLs as they were given, for sentences.
    pub text: String,
    /// The requests; its addresses are all of the server's name, or a unix socket, perhaps with [`PORT_PLACE`] in its
    /// path.
    pub plan: RequestPlan,
    /// Whether Host names the server of the URL, whose port the lab may change, and not what the user says.
    pub is_host_of_url: bool,
}

impl ServerRequests {
    /// GET of `path` at `address`.
    #[must_use]
    pub fn get(address: SocketAddr, path: &str) -> Self {
        Self {
            text: format!("http://{address}{path}"),
            plan: RequestPlan::get(millpond_load::Target {
                addresses: [Address::Inet(address)].into(),
                host: address.to_string(),
                path: path.to_owned(),
            }),
            is_host_of_url: true,
        }
    }

    /// Refuses requests that cannot be made, a script whose first request fails among them.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refused = |error: millpond_load::LoadError| LabError::Setting(error.to_string());
        let config = self.plan.config();
        config.check().map_err(refused)?;
        self.plan.first_path().map_err(refused)?;
        if let Some(script) = &self.plan.script {
            Script::load(script, &config).map_err(refused)?;
        }
        Ok(())
    }

    /// The addresses, with `port` instead of theirs; that of a unix socket has it where [`PORT_PLACE`] stands.
    pub(crate) fn addresses_at(&self, port: u16) -> Arc<[Address]> {
        let addresses = self.plan.target.addresses.iter();
        let placed = addresses.map(|address| match address {
            Address::Inet(address) => Address::Inet(SocketAddr::new(address.ip(), port)),
            Address::Unix(path) => Address::Unix(unix_path_at(path, port)),
        });
        placed.collect()
    }

    /// The port of the URL's server; `None`: it listens on a unix socket.
    pub(crate) fn port(&self) -> Option<u16> {
        let addresses = &self.plan.target.addresses;
        addresses
            .first()
            .and_then(Address::inet)
            .map(|address| address.port())
    }

    /// Whether `{port}` alone makes copies of the server listen in different places.
    fn has_port_place(&self) -> bool {
        self.plan
            .target
            .addresses
            .iter()
            .all(|address| match address {
                Address::Inet(_) => true,
                Address::Unix(path) => has_port_place(path.as_os_str()),
            })
    }

    /// The Host field of requests to the server at `port`.
    fn host_at(&self, port: u16) -> String {
        let host = &self.plan.target.host;
        match self.port() {
            Some(own) if self.is_host_of_url && own != port => host_with_port(host, port),
            _ => host.clone(),
        }
    }

    /// A run of these requests at `endpoint`.
    pub(crate) fn config(&self, endpoint: &Endpoint) -> LoadConfig {
        let mut config = self.plan.config();
        config.target.addresses = Arc::clone(&endpoint.addresses);
        config.target.host = self.host_at(endpoint.port);
        config
    }

    /// The script, if there is one, as it finds the server at `endpoint`.
    pub(crate) fn script(&self, endpoint: &Endpoint) -> Option<ScriptConfig> {
        let mut script = self.plan.script.clone()?;
        if self.port().is_some_and(|own| own != endpoint.port) {
            script.url = url_with_port(&script.url, endpoint.port);
        }
        Some(script)
    }
}

fn unix_path_at(path: &Path, port: u16) -> PathBuf {
    with_port(path.as_os_str(), &port.to_string()).into()
}

/// `host[:port]` with another port.
fn host_with_port(host: &str, port: u16) -> String {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.rfind(':').unwrap_or(host.len()),
    };
    format!("{}:{port}", &host[..end])
}

/// `scheme://[user@]host[:port]/path` with another port.
fn url_with_port(url: &str, port: u16) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host_start = authority.rfind('@').map_or(0, |at| at + 1);
    let (user, host) = authority.split_at(host_start);
    format!("{scheme}://{user}{}{path}", host_with_port(host, port))
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

    /// The operations of its requests, in the order in which a run measures them.
    #[must_use]
    pub fn operations(&self) -> &'static [Operation] {
        match self {
            Self::Entity { .. } => &[Operation::Put, Operation::Get],
            Self::Command { .. } => &[Operation::Request],
        }
    }

    /// Whether it listens where the lab wants: our own server does, others by `{port}` in a word of the command or in
    /// the value of a variable.
    #[must_use]
    pub fn takes_its_port(&self, environment: &[(OsString, OsString)]) -> bool {
        let values = environment.iter().map(|(_, value)| value);
        match self {
            Self::Entity { .. } => true,
            Self::Command { words, requests } => {
                let is_told = words.iter().chain(values).any(|word| has_port_place(word));
                is_told && requests.has_port_place()
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
    pub(crate) fn command(
        &self,
        program: &Path,
        endpoint: &Endpoint,
        data: &Path,
        pools: Option<PoolSetting>,
        shards: usize,
    ) -> Vec<OsString> {
        match self {
            Self::Command { words, .. } => {
                let port = endpoint.port.to_string();
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
                    endpoint.first().into(),
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

    /// How to ask whether it serves at `endpoint`.
    pub(crate) fn probe(&self, endpoint: &Endpoint) -> Probe {
        let addresses = Arc::clone(&endpoint.addresses);
        match self {
            Self::Entity { .. } => Probe {
                host: endpoint.first(),
                addresses,
                path: "/v0/status".to_owned(),
                tls: None,
            },
            Self::Command { requests, .. } => Probe {
                addresses,
                host: requests.host_at(endpoint.port),
                // Requests that cannot be made were refused before.
                path: requests.plan.first_path().unwrap_or_default(),
                tls: requests.plan.tls.clone(),
            },
        }
    }

    /// Where its requests go, for sentences: as the user wrote it.
    pub(crate) fn url(&self, endpoint: &Endpoint) -> String {
        match self {
            Self::Entity { .. } => format!("http://{}/v0/entity", endpoint.first()),
            Self::Command { requests, .. } => requests.text.clone(),
        }
    }

    /// The script that makes its requests at `endpoint`, if one does.
    pub(crate) fn script(&self, endpoint: &Endpoint) -> Option<ScriptConfig> {
        match self {
            Self::Entity { .. } => None,
            Self::Command { requests, .. } => requests.script(endpoint),
        }
    }
}

/// Whether the word has [`PORT_PLACE`] in it.
#[must_use]
pub fn has_port_place(word: &OsStr) -> bool {
    let mut windows = word.as_bytes().windows(PORT_PLACE.len());
    windows.any(|window| window == PORT_PLACE.as_bytes())
}

/// The word with the port instead of each `{port}`.
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
#[path = "tests/target.rs"]
mod tests;
