//! The settings of a proxy's upstreams, from flags or from a file.
//!
//! Both become [`Settings`], so that neither can say more than the other. A file is TOML; what is wrong
//! in it is named with its line and key, and with what is allowed. Keys of it that are flags of every
//! server are passed over here: `config` has made words of the command line of them.

use super::upstream_name::{MirrorName, UpstreamName, check_weight};
use crate::flags::config::SERVER_KEY;
use crate::flags::serve::is_server_flag;
use crate::flags::{parse_bytes, parse_duration_ns};
use millpond_http::client::Timeouts;
use millpond_http::proxy::{
    Balance, EjectionPolicy, FieldChange, FieldChanges, ForwardedFields, HalfClose, HostPolicy,
    MIRROR_IN_FLIGHT_MAX, MirrorConfig, MirrorMethods, MirrorPolicy, MirrorShare, ProbePolicy,
    ProxyConfig, TrustedPeers, UpgradeProtocols, UpstreamConfig,
};
use millpond_io::proxy_protocol::ProxyProtocol;
use millpond_io::tls::{CertificateFiles, TlsClient, TlsClientOptions, Trust};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;
use toml::de::DeTable;

/// A time as text: `5s`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Time {
    pub(super) ns: u64,
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration_ns(text).map(|ns| Self { ns })
    }
}

/// A number of bytes as text: `16KiB`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_bytes(text).map(Self)
    }
}

/// `keep` or `upstream`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Host {
    /// What the client asked for
    Keep,
    /// The upstream's own name
    Upstream,
}

/// `cancel` or `allow`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HalfClosePolicy {
    /// The client has gone: the request is cancelled, at the upstream too
    Cancel,
    /// It may have closed its sending side alone: the request is answered, for up to 256 such clients
    /// of each shard
    Allow,
}

/// `safe` or `all`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MirrorMethodsChoice {
    /// GET, HEAD, OPTIONS and TRACE, which change nothing
    Safe,
    /// Every method: for a mirror whose data is its own
    All,
}

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    #[serde(default)]
    pub(super) upstream: Vec<UpstreamSettings>,
    #[serde(default)]
    pub(super) mirror: Vec<MirrorSettings>,
    #[serde(default)]
    pub(super) mirroring: MirroringSettings,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) balance: Option<Balance>,
    pub(super) host: Option<Host>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) forwarded: Option<ForwardedFields>,
    #[serde(default, deserialize_with = "texts")]
    pub(super) trust: Vec<TrustedPeers>,
    #[serde(default, deserialize_with = "upgrade")]
    pub(super) upgrade: Option<UpgradeProtocols>,
    pub(super) connections: Option<u32>,
    pub(super) pending: Option<u32>,
    pub(super) tries: Option<u32>,
    pub(super) retry_percent: Option<u32>,
    pub(super) half_close: Option<HalfClosePolicy>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) upstream_max_head: Option<Size>,
    pub(super) upstream_max_fields: Option<u64>,
    #[serde(default)]
    pub(super) quiet_errors: bool,
    #[serde(default, deserialize_with = "texts")]
    pub(super) request_headers: Vec<FieldChange>,
    #[serde(default, deserialize_with = "texts")]
    pub(super) response_headers: Vec<FieldChange>,
    #[serde(default)]
    pub(super) timeouts: TimeoutSettings,
    pub(super) health: Option<HealthSettings>,
    #[serde(default)]
    pub(super) ejection: EjectionSettings,
    #[serde(default)]
    pub(super) tls: TlsSettings,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct UpstreamSettings {
    #[serde(deserialize_with = "text")]
    pub(super) address: UpstreamName,
    #[serde(default, deserialize_with = "weight")]
    pub(super) weight: Option<u32>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) proxy_protocol: Option<ProxyProtocol>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct MirrorSettings {
    #[serde(deserialize_with = "address")]
    pub(super) address: UpstreamName,
    #[serde(default, rename = "percent", deserialize_with = "percent")]
    pub(super) share: Option<MirrorShare>,
}

impl From<MirrorName> for MirrorSettings {
    fn from(name: MirrorName) -> Self {
        Self {
            address: name.address,
            share: Some(name.share),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MirroringSettings {
    pub(super) methods: Option<MirrorMethodsChoice>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) max_body: Option<Size>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) timeout: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TimeoutSettings {
    #[serde(default, deserialize_with = "some_text")]
    pub(super) connect: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) write: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) first_byte: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) between_bytes: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) total: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) tunnel_idle: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) half_close: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) idle: Option<Time>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct HealthSettings {
    #[serde(deserialize_with = "path")]
    pub(super) path: String,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) interval: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) timeout: Option<Time>,
    pub(super) successes: Option<u32>,
    pub(super) failures: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct EjectionSettings {
    pub(super) failures: Option<u32>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) base: Option<Time>,
    #[serde(default, deserialize_with = "some_text")]
    pub(super) longest: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSettings {
    pub(super) ca: Option<PathBuf>,
    #[serde(default)]
    pub(super) insecure: bool,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

fn text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr,
    T::Err: Display,
{
    String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}

fn some_text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr,
    T::Err: Display,
{
    text(deserializer).map(Some)
}

fn texts<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr,
    T::Err: Display,
{
    let texts = Vec::<String>::deserialize(deserializer)?;
    let parsed = texts.iter().map(|text| text.parse());
    parsed.collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// `true` for WebSocket alone, `false`, or a list of protocols.
fn upgrade<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UpgradeProtocols>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "write true, false, or a list like [\"websocket\"]"
    )]
    enum Upgrade {
        Switch(bool),
        Protocols(Vec<String>),
    }
    Ok(match Upgrade::deserialize(deserializer)? {
        Upgrade::Switch(is_on) => is_on.then(UpgradeProtocols::websocket),
        Upgrade::Protocols(names) if names.is_empty() => None,
        Upgrade::Protocols(names) => Some(names.join(",").parse().map_err(D::Error::custom)?),
    })
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let weight = u32::deserialize(deserializer)?;
    check_weight(weight).map(Some).map_err(D::Error::custom)
}

/// An address without options: those are keys of their own.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UpstreamName, D::Error> {
    let text = String::deserialize(deserializer)?;
    UpstreamName::without_options(&text).map_err(D::Error::custom)
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MirrorShare>, D::Error> {
    let percent = f64::deserialize(deserializer)?;
    let share = MirrorShare::of_percent(percent);
    share.map(Some).map_err(D::Error::custom)
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    parse_path(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// A path that can stand in a request line as it is.
pub(super) fn parse_path(text: &str) -> Result<String, String> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#');
    match text.starts_with('/') && is_plain {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no path: write one that begins with /")),
    }
}

impl Settings {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}:{error}", path.display()))
    }

    /// Reads the text of a file; an error begins with the line and the key.
    fn parse(text: &str) -> Result<Self, String> {
        Self::of_own_keys(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line_number = text[..at].matches('\n').count() + 1;
            let line = text.lines().nth(line_number - 1).unwrap_or("");
            let key = line.split('=').next().unwrap_or("").trim();
            let message = error.message().trim().replace('\n', "; ");
            match key {
                "" => format!("{line_number}: {message}"),
                key => format!("{line_number}: {key}: {message}"),
            }
        })
    }

    fn of_own_keys(text: &str) -> Result<Self, toml::de::Error> {
        let root = DeTable::parse(text)?;
        let span = root.span();
        let table: DeTable<'_> = root
            .into_inner()
            .into_iter()
            .filter(|(key, _)| {
                let key: &str = key.get_ref();
                key != SERVER_KEY && !is_server_flag(key)
            })
            .collect();
        Self::deserialize(toml::de::Deserializer::from(Spanned::new(span, table)))
    }

    /// Whether an upstream or a mirror speaks TLS.
    pub(super) fn has_tls(&self) -> bool {
        let upstreams = self.upstream.iter().map(|it| &it.address);
        let mirrors = self.mirror.iter().map(|it| &it.address);
        upstreams.chain(mirrors).any(|it| it.tls_host.is_some())
    }

    /// Connections to mirrors that so many shards open at most.
    pub(super) fn mirror_files(&self, shards: usize) -> u64 {
        (self.mirror.len() * MIRROR_IN_FLIGHT_MAX * shards) as u64
    }

    /// The settings of each of `shards`. Reads the files of certificates.
    pub(super) fn config(&self, shards: usize) -> Result<ProxyConfig, String> {
        let upstreams = self.upstream.iter().map(|it| self.upstream(it));
        let mut config = ProxyConfig::new(upstreams.collect::<Result<_, _>>()?);
        let mirrors = self.mirror.iter().map(|it| self.mirror(it));
        config.mirrors = mirrors.collect::<Result<_, _>>()?;
        config.mirroring = self.mirroring.policy();
        let share = |count: u32| (count as usize).div_ceil(shards);
        config.balance = self.balance.clone().unwrap_or_default();
        config.host = match self.host {
            Some(Host::Upstream) => HostPolicy::Upstream,
            _ => HostPolicy::Keep,
        };
        config.forwarded = self.forwarded.unwrap_or_default();
        config.trusted.clone_from(&self.trust);
        config.upgrades = self.upgrade.clone().unwrap_or_default();
        config.connections_max = share(self.connections.unwrap_or(CONNECTIONS).max(1));
        config.pending_max = share(self.pending.unwrap_or(PENDING));
        config.tries_max = self.tries.unwrap_or(config.tries_max).max(1);
        config.retry_percent = self.retry_percent.unwrap_or(config.retry_percent);
        config.half_close = match self.half_close {
            Some(HalfClosePolicy::Allow) => HalfClose::Allow {
                timeout_ns: self
                    .timeouts
                    .half_close
                    .map_or(HALF_CLOSE_NS, |time| time.ns),
            },
            _ => HalfClose::Cancel,
        };
        config.timeouts = self.timeouts.timeouts();
        if let Some(Size(bytes)) = self.upstream_max_head {
            config.response_head_bytes_max = in_memory(bytes);
        }
        if let Some(count) = self.upstream_max_fields {
            config.response_fields_max = in_memory(count);
        }
        config.quiet_errors = self.quiet_errors;
        let changes = |changes| FieldChanges::new(changes).map_err(|error| error.to_string());
        config.request_changes = changes(&self.request_headers)?;
        config.response_changes = changes(&self.response_headers)?;
        if let Some(Time { ns }) = self.timeouts.idle {
            config.idle_max_ns = ns;
        }
        config.probe = self.health.as_ref().map(HealthSettings::policy);
        config.ejection = self.ejection.policy();
        Ok(config)
    }

    fn tls_of(&self, address: &UpstreamName) -> Result<Option<TlsClient>, String> {
        // As long as a request that waits for the connection: one limit, not two.
        let of_mirrors = self.mirroring.policy().timeout_ns;
        let open_max_ns = self.timeouts.timeouts().connection_ns.max(of_mirrors);
        let host = address.tls_host.as_ref();
        host.map(|host| self.tls.client(host, open_max_ns))
            .transpose()
    }

    fn mirror(&self, settings: &MirrorSettings) -> Result<MirrorConfig, String> {
        let address = &settings.address;
        Ok(MirrorConfig {
            name: address.name.clone(),
            place: address.place.clone(),
            host: address.host.clone(),
            tls: self.tls_of(address)?,
            share: settings.share.unwrap_or(MirrorShare::ALL),
        })
    }

    fn upstream(&self, settings: &UpstreamSettings) -> Result<UpstreamConfig, String> {
        let address = &settings.address;
        Ok(UpstreamConfig {
            name: address.name.clone(),
            place: address.place.clone(),
            host: address.host.clone(),
            weight: settings.weight.unwrap_or(address.weight),
            tls: self.tls_of(address)?,
            proxy_protocol: settings.proxy_protocol,
        })
    }
}

/// How long a half-closed client is served, where that is allowed: within the time of a stop.
const HALF_CLOSE_NS: u64 = 10_000_000_000;
/// Connections to one upstream, of all shards.
pub(super) const CONNECTIONS: u32 = 1024;
/// Requests that wait for one of them.
pub(super) const PENDING: u32 = 4096;

/// The same where memory has room for it: a value beyond that is refused as any that is too large.
fn in_memory(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl MirroringSettings {
    fn policy(&self) -> MirrorPolicy {
        let default = MirrorPolicy::default();
        MirrorPolicy {
            methods: match self.methods {
                Some(MirrorMethodsChoice::All) => MirrorMethods::All,
                Some(MirrorMethodsChoice::Safe) | None => MirrorMethods::Safe,
            },
            body_bytes_max: self
                .max_body
                .map_or(default.body_bytes_max, |Size(bytes)| in_memory(bytes)),
            timeout_ns: self.timeout.map_or(default.timeout_ns, |time| time.ns),
        }
    }
}

impl TimeoutSettings {
    fn timeouts(&self) -> Timeouts {
        let default = Timeouts::default();
        let or = |time: Option<Time>, default_ns| time.map_or(default_ns, |time| time.ns);
        Timeouts {
            connection_ns: or(self.connect, default.connection_ns),
            write_ns: or(self.write, default.write_ns),
            first_byte_ns: or(self.first_byte, default.first_byte_ns),
            between_bytes_ns: or(self.between_bytes, default.between_bytes_ns),
            total_ns: or(self.total, default.total_ns),
            tunnel_idle_ns: or(self.tunnel_idle, default.tunnel_idle_ns),
        }
    }
}

impl HealthSettings {
    fn policy(&self) -> ProbePolicy {
        let default = ProbePolicy::new(self.path.clone());
        ProbePolicy {
            interval_ns: self.interval.map_or(default.interval_ns, |time| time.ns),
            timeout_ns: self.timeout.map_or(default.timeout_ns, |time| time.ns),
            successes_min: self.successes.unwrap_or(default.successes_min).max(1),
            failures_max: self.failures.unwrap_or(default.failures_max).max(1),
            path: default.path,
        }
    }
}

impl EjectionSettings {
    fn policy(&self) -> EjectionPolicy {
        let default = EjectionPolicy::default();
        EjectionPolicy {
            failures_max: self.failures.unwrap_or(default.failures_max),
            base_ns: self.base.map_or(default.base_ns, |time| time.ns),
            longest_ns: self.longest.map_or(default.longest_ns, |time| time.ns),
        }
    }
}

impl TlsSettings {
    fn client(&self, host: &str, handshake_timeout_ns: u64) -> Result<TlsClient, String> {
        let trust = match (&self.ca, self.insecure) {
            (Some(path), false) => Trust::File(path.clone()),
            (None, false) => Trust::System,
            (_, true) => Trust::Anybody,
        };
        let identity = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Some(CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            (None, None) => None,
            _ => {
                return Err(
                    "a certificate for upstreams needs its key, and a key its certificate".into(),
                );
            }
        };
        let options = TlsClientOptions {
            host: host.to_owned(),
            trust,
            protocols: vec![b"http/1.1".to_vec()],
            handshake_timeout_ns,
            handshake_bytes_max: HANDSHAKE_BYTES_MAX,
            identity,
        };
        TlsClient::load(options).map_err(|error| error.to_string())
    }
}

/// A chain of certificates far longer than any in use.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
#[path = "tests/settings.rs"]
mod tests;
