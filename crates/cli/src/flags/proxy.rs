//! `millpond proxy`: requests to other servers, balanced, checked and tried again.

mod settings;
mod upstream_name;

use super::serve::CommonFlags;
use super::{parse_bytes, parse_count};
use crate::output::{self, Exit, Failure};
use clap::Args;
use millpond_http::log::{self, LogLevel};
use millpond_http::proxy::{
    Balance, FieldChange, ForwardedFields, MirrorShare, Proxy, ProxyControl, TrustedPeers,
    UpgradeProtocols,
};
use millpond_http::{Reread, ServeConfig};
use millpond_io::Address;
use millpond_io::proxy_protocol::ProxyProtocol;
use millpond_io::resolver::{Resolver, ResolverConfig};
use settings::{
    EjectionSettings, HalfClosePolicy, HealthSettings, Host, MirrorMethodsChoice, MirrorSettings,
    MirroringSettings, Settings, Size, Time, TimeoutSettings, TlsSettings, UpstreamSettings,
    parse_path,
};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use upstream_name::{MirrorName, UpstreamName};

/// Pass requests on to other servers: a reverse proxy over a pool of connections
///
/// Framing is written anew on both sides, fields about the connection are dropped, Via and Forwarded
/// are added, bodies are streamed. A request is tried again only where that can do no harm. What the
/// proxy knows of each upstream is at /metrics of --metrics-listen.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond proxy --upstream 127.0.0.1:8081
  millpond proxy --upstream 10.0.0.1:80,weight=3 --upstream 10.0.0.2:80
  millpond proxy --upstream unix:/run/app.sock --health /health --upgrade
  millpond proxy --upstream https://app.internal --upstream-ca ca.pem
  millpond proxy --upstream 10.0.0.1:80 --mirror 10.0.0.9:80,percent=5
  millpond proxy --config proxy.toml

The file has the same settings, and those of the server under the names of its
flags; SIGHUP reads it again, and no request fails:
  listen = \"0.0.0.0:8080\"
  balance = \"two-choices\"
  [health]
  path = \"/health\"
  [timeouts]
  total = \"30s\"
  [[upstream]]
  address = \"10.0.0.1:80\"
  weight = 3
Its keys: balance host forwarded trust upgrade connections pending tries
retry-percent half-close quiet-errors upstream-max-head upstream-max-fields
request-headers response-headers; [mirroring] methods max-body timeout;
[timeouts] connect write first-byte between-bytes total tunnel-idle
half-close idle; [health] path interval timeout successes
failures; [ejection] failures base longest; [tls] ca insecure cert key;
[[upstream]] address weight proxy-protocol; [[mirror]] address percent.
`millpond config example proxy` prints them with their defaults.")]
pub(crate) struct ProxyFlags {
    /// Read the upstreams and all that concerns them from this file (TOML), and settings of the server
    /// that are not given here
    #[arg(long, value_name = "FILE", help_heading = "Upstreams")]
    config: Option<PathBuf>,
    #[command(flatten)]
    upstreams: UpstreamFlags,
    #[command(flatten)]
    mirrors: MirrorFlags,
    #[command(flatten)]
    health: HealthFlags,
    #[command(flatten)]
    tls: UpstreamTlsFlags,
    #[command(flatten)]
    common: CommonFlags,
}

/// Where requests go, and what goes along.
#[derive(Args, Debug)]
#[command(next_help_heading = "Upstreams")]
struct UpstreamFlags {
    /// A server behind the proxy: HOST:PORT, unix:PATH, http://HOST or https://HOST, and its share of
    /// the requests, e.g. 10.0.0.1:80,weight=3. May be given several times
    #[arg(long, value_name = "ADDR[,weight=N]", conflicts_with = "config")]
    upstream: Vec<UpstreamName>,
    /// Which upstream a request goes to: round-robin, least-requests, two-choices, or always the same
    /// for the same hash:path, hash:header:NAME or hash:cookie:NAME [default: round-robin]
    #[arg(long, value_name = "HOW", conflicts_with = "config")]
    balance: Option<Balance>,
    /// What upstreams are told in Host [default: keep]
    #[arg(long, value_enum, conflicts_with = "config")]
    host: Option<Host>,
    /// Fields that tell upstreams about the client: Forwarded (standard), X-Forwarded-For, -Proto and
    /// -Host (x) [default: both]
    #[arg(long, value_name = "both|standard|x|none", conflicts_with = "config")]
    forwarded: Option<ForwardedFields>,
    /// Clients whose own Forwarded and X-Forwarded-* are passed on; those of others are dropped. May
    /// be given several times
    #[arg(long, value_name = "ADDRESS[/BITS]|unix", conflicts_with = "config")]
    trust: Vec<TrustedPeers>,
    /// Begin each connection to an upstream with a PROXY header that tells the client's
    /// address; it serves one request then
    #[arg(long, value_name = "v1|v2", conflicts_with = "config")]
    upstream_proxy_protocol: Option<ProxyProtocol>,
    /// Protocols that may take a connection over by Upgrade, with commas between them; without a value
    /// websocket. An upstream that changes to another protocol is answered for with 502
    #[arg(
        long,
        value_name = "PROTOCOL,...",
        num_args = 0..=1,
        default_missing_value = "websocket",
        conflicts_with = "config"
    )]
    upgrade: Option<UpgradeProtocols>,
    /// Connections to each upstream [default: 1024]
    #[arg(long, value_name = "N", value_parser = parse_u32, conflicts_with = "config")]
    upstream_connections: Option<u32>,
    /// Requests that wait for one of them; one more is answered with 503 [default: 4096]
    #[arg(long, value_name = "N", value_parser = parse_u32, conflicts_with = "config")]
    upstream_pending: Option<u32>,
    /// How long a connection to an upstream is kept without a use: less than the upstream itself keeps
    /// it, so that no request meets its end [default: 4s]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    upstream_idle: Option<Time>,
    /// Status line and all fields of a response, at most 64KiB less one byte; a longer one becomes 502
    /// [default: 32KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "config")]
    upstream_max_head: Option<u64>,
    /// Fields of a response, at most 128; one with more becomes 502 [default: 128]
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "config")]
    upstream_max_fields: Option<u64>,
    /// Change a field of requests: NAME: VALUE sets it, +NAME: VALUE adds one, -NAME removes all of this
    /// name. May be given several times
    #[arg(
        long,
        value_name = "CHANGE",
        allow_hyphen_values = true,
        conflicts_with = "config"
    )]
    request_header: Vec<FieldChange>,
    /// The same of upstreams' responses
    #[arg(
        long,
        value_name = "CHANGE",
        allow_hyphen_values = true,
        conflicts_with = "config"
    )]
    response_header: Vec<FieldChange>,
    /// Answer failures without saying why: no Proxy-Status and no sentence
    #[arg(long, conflicts_with = "config")]
    quiet_errors: bool,
    /// How often a request is tried, the first time included [default: 2]
    #[arg(long, value_name = "N", value_parser = parse_u32, conflicts_with = "config")]
    tries: Option<u32>,
    /// Tries beyond the first as a share of all requests, so that an outage does not double the load
    /// on what is left [default: 20]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "config")]
    retry_budget: Option<u32>,
    /// Until there is a connection to the upstream; 504 beyond it [default: 10s]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    connect_timeout: Option<Time>,
    /// From the end of the request to the first byte of the response; 504 beyond it [default: 1m]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    first_byte_timeout: Option<Time>,
    /// Between two parts of the response; it is cut beyond it [default: 30s]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    between_bytes_timeout: Option<Time>,
    /// For all tries of a request together [default: 5m]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    total_timeout: Option<Time>,
    /// With --upgrade: how long nothing may go through a connection that another protocol has taken
    /// over, either way; it is closed beyond it [default: 1h]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    tunnel_idle_timeout: Option<Time>,
    /// What a FIN from a client means for its request while it is not answered [default: cancel]
    #[arg(long, value_enum, conflicts_with = "config")]
    half_close: Option<HalfClosePolicy>,
    /// With --half-close allow: from the FIN to the end of the response; the request is cancelled beyond
    /// it [default: 10s]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    half_close_timeout: Option<Time>,
}

/// Which requests are copied, and where to.
#[derive(Args, Debug)]
#[command(next_help_heading = "Mirrors")]
struct MirrorFlags {
    /// A server that gets copies of requests, evenly spread: an address as of --upstream, and how many
    /// of a hundred, e.g. 10.0.0.9:80,percent=5; all without that. Its responses are dropped, and no
    /// request waits for it. May be given up to 4 times
    #[arg(long, value_name = "ADDR[,percent=N]", conflicts_with = "config")]
    mirror: Vec<MirrorName>,
    /// Requests that are copied [default: safe]
    #[arg(long, value_enum, conflicts_with = "config", requires = "mirror")]
    mirror_methods: Option<MirrorMethodsChoice>,
    /// A request with a longer body is not copied; at most 16MiB [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "config", requires = "mirror")]
    mirror_max_body: Option<u64>,
    /// For one copy, until its response is complete; the connection is closed beyond it [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "config",
        requires = "mirror"
    )]
    mirror_timeout: Option<Time>,
}

/// Which upstreams are well.
#[derive(Args, Debug)]
#[command(next_help_heading = "Health")]
struct HealthFlags {
    /// Ask each upstream for PATH again and again; it is used while the responses are 2xx or 3xx
    #[arg(long, value_name = "PATH", value_parser = parse_path, conflicts_with = "config")]
    health: Option<String>,
    /// How often [default: 2s]
    #[arg(long, value_name = "TIME", requires = "health")]
    health_interval: Option<Time>,
    /// For one check [default: 1s]
    #[arg(long, value_name = "TIME", requires = "health")]
    health_timeout: Option<Time>,
    /// Checks in a row that bring an upstream back [default: 2]
    #[arg(long, value_name = "N", value_parser = parse_u32, requires = "health")]
    health_successes: Option<u32>,
    /// Failed checks in a row that take it out [default: 3]
    #[arg(long, value_name = "N", value_parser = parse_u32, requires = "health")]
    health_failures: Option<u32>,
    /// Requests in a row without a response that eject an upstream, if there is another; 0: never
    /// [default: 5]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    eject_after: Option<u32>,
    /// For how long the first time; twice as long each time that follows [default: 1s]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    eject_for: Option<Time>,
    /// For how long at most [default: 1m]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    eject_for_max: Option<Time>,
}

/// How TLS is spoken with https:// upstreams.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS with upstreams")]
struct UpstreamTlsFlags {
    /// Trust the authorities in this PEM file, and no others [default: those of the system]
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    upstream_ca: Option<PathBuf>,
    /// Do not verify the upstream's certificate: the connection is encrypted, but with an unknown peer
    #[arg(long, conflicts_with_all = ["config", "upstream_ca"])]
    upstream_insecure: bool,
    /// The proxy's own certificate, for upstreams that ask for one: PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "upstream_key",
        conflicts_with = "config"
    )]
    upstream_cert: Option<PathBuf>,
    /// Its private key: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "upstream_cert")]
    upstream_key: Option<PathBuf>,
}

fn parse_u32(text: &str) -> Result<u32, String> {
    let count = parse_count(text)?;
    u32::try_from(count).map_err(|_| format!("it can be at most {}", u32::MAX))
}

fn parse_percent(text: &str) -> Result<u32, String> {
    let percent = text.trim_end_matches('%').parse::<u32>().ok();
    percent
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| "write a percentage from 0 to 100".to_owned())
}

impl ProxyFlags {
    pub(super) fn run(mut self) -> Result<Exit, Failure> {
        let settings = self.settings()?;
        self.common.own_files = settings.mirror_files(self.common.shards()?);
        let mut config = self.common.config("proxy")?;
        let shards = config.shards;
        let proxied = settings.config(shards).map_err(Failure::usage)?;
        config.speaks_tls_to_others = settings.has_tls();
        let resolver = Resolver::start(ResolverConfig::default()).map_err(Failure::failed)?;
        let control = ProxyControl::new(proxied, config.tls.is_some(), Some(resolver))
            .map_err(Failure::usage)?;
        config.status_pages = control.status_pages();
        config.reread = self
            .config
            .as_deref()
            .map(|path| reread(path, &control, &config));
        let limits = config.limits;
        let make = |start| Ok::<_, Infallible>(Proxy::new(&control, &start, limits));
        let report = millpond_http::serve(&config, make, |address: &Address| {
            self.common.announce(address, &config);
            let names: Vec<&str> = settings
                .upstream
                .iter()
                .map(|it| &*it.address.name)
                .collect();
            output::note(format!("requests go to {}", names.join(", ")));
            for MirrorSettings { address, share } in &settings.mirror {
                let share = share.unwrap_or(MirrorShare::ALL);
                output::note(format!("{share} of them are copied to {}", address.name));
            }
        })
        .map_err(Failure::failed)?;
        self.common.finish(&report)
    }

    /// All that can be checked without listening or connecting; what is no flag, in words.
    pub(super) fn check(&self) -> Result<Vec<String>, Failure> {
        let settings = self.settings()?;
        let shards = self.common.check("proxy")?.shards;
        let config = settings.config(shards).map_err(Failure::usage)?;
        let upstreams = config.upstreams.iter();
        let upstreams = upstreams.map(|it| format!("upstream {}, weight {}", it.name, it.weight));
        let mirrors = config.mirrors.iter();
        let mirrors = mirrors.map(|it| format!("mirror {}, {} of requests", it.name, it.share));
        Ok(std::iter::once(format!("balance {}", config.balance))
            .chain(upstreams)
            .chain(mirrors)
            .collect())
    }

    /// What the flags, or the file, say.
    fn settings(&self) -> Result<Settings, Failure> {
        let settings = match &self.config {
            Some(path) => Settings::read(path).map_err(Failure::usage)?,
            None => self.of_flags(),
        };
        match (settings.upstream.is_empty(), &self.config) {
            (false, _) => Ok(settings),
            (true, Some(path)) => Err(Failure::usage(format!(
                "{} names no upstream: write [[upstream]] and below it address = \"HOST:PORT\"",
                path.display()
            ))),
            (true, None) => Err(Failure::usage(
                "there is no upstream: write --upstream HOST:PORT, or --config FILE for one that names it",
            )),
        }
    }

    fn of_flags(&self) -> Settings {
        let (flags, health, tls) = (&self.upstreams, &self.health, &self.tls);
        let upstream = flags.upstream.iter().map(|address| UpstreamSettings {
            address: address.clone(),
            weight: None,
            proxy_protocol: flags.upstream_proxy_protocol,
        });
        Settings {
            upstream: upstream.collect(),
            mirror: self
                .mirrors
                .mirror
                .iter()
                .cloned()
                .map(Into::into)
                .collect(),
            mirroring: MirroringSettings {
                methods: self.mirrors.mirror_methods,
                max_body: self.mirrors.mirror_max_body.map(Size),
                timeout: self.mirrors.mirror_timeout,
            },
            balance: flags.balance.clone(),
            host: flags.host,
            forwarded: flags.forwarded,
            trust: flags.trust.clone(),
            upgrade: flags.upgrade.clone(),
            connections: flags.upstream_connections,
            pending: flags.upstream_pending,
            upstream_max_head: flags.upstream_max_head.map(Size),
            upstream_max_fields: flags.upstream_max_fields,
            quiet_errors: flags.quiet_errors,
            request_headers: flags.request_header.clone(),
            response_headers: flags.response_header.clone(),
            tries: flags.tries,
            retry_percent: flags.retry_budget,
            half_close: flags.half_close,
            timeouts: TimeoutSettings {
                connect: flags.connect_timeout,
                write: None,
                first_byte: flags.first_byte_timeout,
                between_bytes: flags.between_bytes_timeout,
                total: flags.total_timeout,
                tunnel_idle: flags.tunnel_idle_timeout,
                half_close: flags.half_close_timeout,
                idle: flags.upstream_idle,
            },
            health: health.health.as_ref().map(|path| HealthSettings {
                path: path.clone(),
                interval: health.health_interval,
                timeout: health.health_timeout,
                successes: health.health_successes,
                failures: health.health_failures,
            }),
            ejection: EjectionSettings {
                failures: health.eject_after,
                base: health.eject_for,
                longest: health.eject_for_max,
            },
            tls: TlsSettings {
                ca: tls.upstream_ca.clone(),
                insecure: tls.upstream_insecure,
                cert: tls.upstream_cert.clone(),
                key: tls.upstream_key.clone(),
            },
        }
    }
}

/// Reads the file again on request; if anything in it is wrong, nothing changes.
fn reread(path: &Path, control: &Arc<ProxyControl>, config: &ServeConfig) -> Reread {
    let (path, control) = (path.to_owned(), Arc::clone(control));
    let (shards, speaks_tls) = (config.shards, config.speaks_tls_to_others);
    Reread::new(move || {
        let replaced = read_again(&path, shards, speaks_tls)
            .and_then(|config| control.replace(config).map_err(|error| error.to_string()));
        match replaced {
            Ok(()) => log::write(
                LogLevel::Info,
                format_args!("{} was read again", path.display()),
            ),
            Err(error) => {
                let stays = "the upstreams stay as they are";
                log::write(LogLevel::Error, format_args!("{error}; {stays}"));
            }
        }
    })
}

fn read_again(
    path: &Path,
    shards: usize,
    speaks_tls: bool,
) -> Result<millpond_http::proxy::ProxyConfig, String> {
    let settings = Settings::read(path)?;
    if settings.has_tls() && !speaks_tls {
        return Err("the first https:// upstream needs a restart".to_owned());
    }
    settings.config(shards)
}

#[cfg(test)]
#[path = "tests/proxy.rs"]
mod tests;
