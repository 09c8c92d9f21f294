//! `millpond serve`: the servers.

#[cfg(feature = "entity")]
mod entity;
#[cfg(not(feature = "entity"))]
mod without_entity {
    //! `millpond serve entity` where the command was built without it: says how to get it.

    use crate::output::{Exit, Failure};
    use clap::Args;

    /// Keep values under ids, durably (not in this build)
    #[derive(Args, Debug)]
    pub(super) struct EntityFlags {
        /// Whatever it would take.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        words: Vec<String>,
    }

    impl EntityFlags {
        pub(super) fn check(&self) -> Result<(), Failure> {
            let asked = self.words.join(" ");
            Err(Failure::usage(format!(
                "`serve entity {asked}` is not in this build: it was made with --no-default-features; \
                 build it with --features entity"
            )))
        }

        pub(super) fn run(self) -> Result<Exit, Failure> {
            self.check().map(|()| Exit::Success)
        }
    }
}

use super::config::ConfigFlag;
use super::descriptors::ConnectionRoom;
use super::limits::{LimitFlags, in_flags};
use super::logs::LogFlags;
use super::tls::TlsFlags;
use super::{POOLS_VALUE, parse_busy_poll_ns, parse_bytes, parse_count, parse_pools};
use crate::output::{self, Exit, Failure, JsonFile};
use clap::{Args, Subcommand};
#[cfg(feature = "entity")]
use entity::EntityFlags;
use millpond_http::{
    DriverChoice, Files, FilesConfig, Limits, MetricsAccess, Plaintext, ServeConfig, ServeReport,
    Site,
};
use millpond_io::{Address, HandedOver, IoError, ServiceManager};
use millpond_mempool::PoolMode;
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
#[cfg(not(feature = "entity"))]
use without_entity::EntityFlags;

/// Run a server
///
/// It listens until SIGTERM or SIGINT (Ctrl-C), then answers what was asked and exits; a second
/// signal ends it at once. SIGUSR1 prints the accounting of the pools, which GET /metrics also shows;
/// SIGHUP reads the certificates of --tls-cert again and opens the access log anew.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond serve plaintext --shards 1
  millpond serve entity --data ./data --listen 127.0.0.1:8080
  millpond serve files ./public
  millpond serve files ./public --tls-cert cert.pem --tls-key key.pem
  millpond serve --config millpond.toml
  curl -X PUT --data-binary hello 'http://127.0.0.1:8080/v0/entity?id=greeting'

A file of --config says for which server it is; `millpond config example entity`
begins one.")]
pub(crate) struct ServeFlags {
    #[command(subcommand)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum ServerFlags {
    Plaintext(PlaintextFlags),
    Entity(Box<EntityFlags>),
    Files(FilesFlags),
}

/// Answer "Hello, World!" to GET / and GET /plaintext
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond serve plaintext
  millpond serve plaintext --listen 127.0.0.1:0 --shards 1 --pools off")]
struct PlaintextFlags {
    #[command(flatten)]
    config: ConfigFlag,
    #[command(flatten)]
    common: CommonFlags,
}

/// Serve the files of a directory: GET and HEAD, ranges, ETag and Last-Modified with 304
///
/// A directory is answered with its index.html, never with a list. Names that begin with a dot are
/// hidden, except /.well-known/. Nothing outside the directory is served, whatever links lead to.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond serve files ./public
  millpond serve files ./public --cache-control max-age=60
  curl -r 0-99 http://127.0.0.1:8080/index.html")]
struct FilesFlags {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Memory for files of up to 31 KiB, shared out among the shards. They are looked at again once
    /// a second, so a change may take as long to show; 0 for no cache
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64MiB")]
    cache: u64,
    /// Cache-Control of every response with a file
    #[arg(long, value_name = "VALUE")]
    cache_control: Option<String>,
    /// Follow no symbolic link; otherwise those that stay inside the directory are followed
    #[arg(long)]
    no_links: bool,
    /// Whether the directory is looked up again by its name, every second: a release that is switched by a
    /// link is served from then on
    #[arg(long, value_enum, value_name = "HOW", default_value = "follow")]
    root: RootPolicy,
    #[command(flatten)]
    config: ConfigFlag,
    #[command(flatten)]
    common: CommonFlags,
}

/// What every server takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
// Behind what a server has for itself: clap puts what follows under the last of these headings.
pub(super) struct CommonFlags {
    /// Files that the command has open beside those of connections and of every server; no flag.
    #[arg(skip)]
    pub(super) own_files: u64,
    /// Where to listen; port 0 takes a free one, which is printed; systemd: the sockets that a systemd
    /// socket unit hands over
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: Listen,
    /// Share the address with other processes of this user that do so too: start the new server with
    /// the same --listen, then stop the old one with SIGTERM; no request fails
    #[arg(long)]
    reuse_port: bool,
    /// Every connection begins with a PROXY header, v1 or v2, as haproxy's send-proxy
    /// and other balancers write it; one without it is closed. Logs, Forwarded and caps go by the
    /// address it tells, so only the balancer may reach the port
    #[arg(long)]
    proxy_protocol: bool,
    /// Threads, each with sockets, timers and memory of its own [default: one per CPU it may use]
    #[arg(long, value_name = "N", value_parser = parse_shards)]
    shards: Option<usize>,
    /// Kernel interface that moves the bytes; auto takes io_uring where the kernel allows it
    #[arg(long, value_name = "auto|uring|epoll", default_value = "auto")]
    driver: DriverChoice,
    /// Before a shard sleeps it looks for events for up to US microseconds, as long as that finds
    /// some: responses come sooner where few clients wait for each other (50 is a good value). It costs
    /// CPU time that others then lack; the clients must not need the same CPUs. 0 is off
    #[arg(long, value_name = "US", value_parser = parse_busy_poll_ns, default_value = "0")]
    busy_poll: u64,
    /// Memory pools; off: one malloc and one free instead of every pool call; arena-only: so
    /// for all but the temporaries of requests; checked: for debugging, ends the server at what it
    /// does wrong with pooled memory (guard: where it does it; fail=N: the N-th allocation of
    /// every pool is refused)
    #[arg(long, value_name = POOLS_VALUE, value_parser = parse_pools, default_value = "on")]
    pools: PoolMode,
    /// Do not bind each shard to one CPU
    #[arg(long)]
    no_pin: bool,
    /// Which peers GET /metrics is answered for on the main listener: loopback (and unix sockets, if no proxy passes
    /// the request on), all or none. A proxy passes /metrics on, whatever this says
    #[arg(long, value_name = "loopback|all|none", default_value = "loopback")]
    metrics_access: MetricsAccess,
    /// Serve /metrics on a listener of its own, in plaintext and for every peer; unix:PATH for a socket
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<Address>,
    /// Write how it went to FILE when the server stops
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
    #[command(flatten)]
    logs: LogFlags,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    tls: TlsFlags,
}

/// Where connections come from.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Listen {
    At(Address),
    /// From sockets that the parent process has opened.
    HandedOver,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "systemd" => Ok(Self::HandedOver),
            address => {
                let address = address.parse().map_err(|error: IoError| error.to_string());
                address.map(Self::At)
            }
        }
    }
}

/// More threads than any machine has CPUs is a typo.
const SHARDS_MAX: u64 = 1024;

fn parse_shards(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        shards if shards <= SHARDS_MAX => Ok(shards as usize),
        _ => Err(format!("it can be at most {SHARDS_MAX}")),
    }
}

impl ServeFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.server {
            ServerFlags::Plaintext(flags) => flags.run(),
            ServerFlags::Entity(flags) => flags.run(),
            ServerFlags::Files(flags) => flags.run(),
        }
    }

    /// All that can be checked without listening or touching data.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &self.server {
            ServerFlags::Plaintext(flags) => flags.common.check("plaintext").map(drop),
            ServerFlags::Entity(flags) => flags.check(),
            ServerFlags::Files(flags) => {
                let config = flags.common.check("files")?;
                flags.site(&config).map(drop)
            }
        }
    }
}

/// Whether every server, the proxy too, has a flag of this name.
pub(super) fn is_server_flag(name: &str) -> bool {
    let common = CommonFlags::augment_args(clap::Command::new("server"));
    common
        .get_arguments()
        .any(|arg| arg.get_long() == Some(name))
}

impl PlaintextFlags {
    fn run(self) -> Result<Exit, Failure> {
        self.config.announce();
        let config = self.common.config("plaintext")?;
        let make = |_| Ok::<_, Infallible>(Plaintext);
        let announce = |address: &Address| self.common.announce(address, &config);
        let report = millpond_http::serve(&config, make, announce).map_err(Failure::failed)?;
        self.common.finish(&report)
    }
}

/// `follow` or `pin`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum RootPolicy {
    /// Serve the directory that the name leads to now
    Follow,
    /// Serve the one that it led to at the start, whatever is renamed
    Pin,
}

impl FilesFlags {
    fn site(&self, config: &ServeConfig) -> Result<Site, Failure> {
        let files = FilesConfig {
            follow_links: !self.no_links,
            follow_root: self.root == RootPolicy::Follow,
            cache_bytes: usize::try_from(self.cache).unwrap_or(usize::MAX) / config.shards,
            cache_control: self.cache_control.clone(),
            ..FilesConfig::new(self.directory.clone())
        };
        Site::open(&files, config.shards).map_err(Failure::failed)
    }

    fn run(self) -> Result<Exit, Failure> {
        self.config.announce();
        let config = self.common.config("files")?;
        let site = Arc::new(self.site(&config)?);
        let make = |start| Files::new(&site, &start);
        let report = millpond_http::serve(&config, make, |address| {
            self.common.announce(address, &config);
            let links = match site.follows_links() {
                true => "links inside it are followed",
                false => "links are not followed",
            };
            let directory = self.directory.display();
            output::note(format!("the files are those of {directory}; {links}"));
        })
        .map_err(Failure::failed)?;
        self.common.finish(&report)
    }
}

impl CommonFlags {
    /// The settings of a server that starts now.
    pub(super) fn config(&self, name: &'static str) -> Result<ServeConfig, Failure> {
        millpond_io::raise_descriptor_limit();
        let mut config = self.check(name)?;
        if self.listen == Listen::HandedOver {
            let sockets = HandedOver::take().map_err(Failure::failed)?;
            config.listen = sockets.address().clone();
            config.limits = self.limits_at(name, &config.listen, config.shards)?;
            config.handed_over = Some(sockets);
        }
        config.service_manager = ServiceManager::from_environment().map_err(Failure::failed)?;
        Ok(config)
    }

    /// The same for one that does not start: inherited sockets are not there yet.
    pub(super) fn check(&self, name: &'static str) -> Result<ServeConfig, Failure> {
        self.logs.configure();
        let listen = match &self.listen {
            Listen::At(address) => address.clone(),
            Listen::HandedOver if self.reuse_port => {
                return Err(Failure::usage(
                    "--reuse-port is for an address that this process takes by itself: with --listen \
                     systemd a new server gets the sockets of the old one anyway",
                ));
            }
            Listen::HandedOver => Address::Inet(([127, 0, 0, 1], 0).into()),
        };
        let shards = self.shards()?;
        let limits = self.limits_at(name, &listen, shards)?;
        // Before anything else starts: a driver that was asked for and is not available is an error.
        self.driver.choose().map_err(Failure::failed)?;
        let tls = self.tls.load(&limits)?;
        Ok(ServeConfig {
            tls,
            shards,
            pin: !self.no_pin,
            pool_mode: self.pools,
            limits,
            driver: self.driver,
            busy_poll_ns: self.busy_poll,
            reuse_port: self.reuse_port,
            proxy_protocol: self.proxy_protocol,
            metrics_access: self.metrics_access,
            metrics_listen: self.metrics_listen.clone(),
            access_log: self.logs.access_log(),
            ..ServeConfig::new(name, listen)
        })
    }

    /// As many as were asked for, or as there are CPUs.
    pub(super) fn shards(&self) -> Result<usize, Failure> {
        match self.shards {
            Some(shards) => Ok(shards),
            None => Ok(millpond_io::allowed_cpus().map_err(Failure::failed)?.len()),
        }
    }

    /// What its descriptors are enough for is said when it starts.
    fn limits_at(&self, name: &str, listen: &Address, shards: usize) -> Result<Limits, Failure> {
        let connections = self
            .room(name, shards)
            .connections(self.limits.connections());
        let connections = connections.map_err(Failure::failed)?;
        let limits = self
            .limits
            .limits((listen, self.proxy_protocol), shards, connections);
        let checked = limits.checked();
        checked.map_err(|error| Failure::usage(in_flags(&error)))
    }

    /// The only line on stdout, so that a script can read the port from it; the rest goes to stderr.
    pub(super) fn announce(&self, address: &Address, config: &ServeConfig) {
        // A script that has closed its end has lost interest in the line, not in the server.
        let _ = output::print(format!("listening on {address}\n"));
        // It was chosen before, so this is what was found then.
        if let Ok(chosen) = config.driver.choose() {
            // Commas alone give a terminal nowhere to break the line.
            let reason = chosen.reason.replace(", ", ",").replace(',', ", ");
            output::note(format!("{} driver, {reason}", chosen.kind.name()));
        }
        let room = self.room(config.name, config.shards);
        if let Some(note) = room.note(self.limits.connections()) {
            output::warn(note);
        }
    }

    fn room(&self, name: &str, shards: usize) -> ConnectionRoom {
        let has_metrics = self.metrics_listen.is_some();
        ConnectionRoom::of(name, shards, has_metrics).beside(self.own_files)
    }

    pub(super) fn finish(&self, report: &ServeReport) -> Result<Exit, Failure> {
        let Some(file) = &self.json else {
            return Ok(Exit::Success);
        };
        let driver = self.driver.choose().map_err(Failure::failed)?;
        let record = serde_json::json!({
            "requests": report.requests,
            "shards": report.shards.len(),
            "aborted": report.is_aborted,
            "driver": driver.kind.name(),
            "driver_features": driver.features.to_string(),
        });
        file.write(&format!("{record:#}\n"))?;
        Ok(Exit::Success)
    }
}

#[cfg(test)]
#[path = "tests/serve.rs"]
mod tests;
